"""`python -m ctxkit` is the command `ctxkit`."""

from ctxkit.cli.main import main

if __name__ == "__main__":
    main()
