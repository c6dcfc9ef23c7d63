"""Alembic's scripts of the store; `ctxkit.storage.migrate` runs them when a store is opened."""
