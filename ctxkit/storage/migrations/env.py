"""Runs the revisions on the connection that `ctxkit.storage.migrate` holds, inside its transaction and its lock."""

from __future__ import annotations

from alembic import context

from ctxkit.storage.migrate import VERSION_TABLE
from ctxkit.storage.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
