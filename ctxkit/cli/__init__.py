"""The command `ctxkit`: one module a command group."""
