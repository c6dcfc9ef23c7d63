"""The entity graph of each document, and the context line of each chunk."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

text = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    # Neither database rewrites the table for a constant default.
    op.add_column("chunks", sa.Column("context", text, nullable=False, server_default=""))
    op.create_table(
        "document_graphs",
        sa.Column("tenant", text, nullable=False),
        sa.Column("document_id", text, nullable=False),
        sa.Column("nodes", text, nullable=False),
        sa.Column("keys", sa.LargeBinary, nullable=False),
        sa.Column("mentions", sa.LargeBinary, nullable=False),
        sa.Column("links", sa.LargeBinary, nullable=False),
        sa.Column("aliases", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "document_id"),
        sa.ForeignKeyConstraint(["tenant", "document_id"], ["documents.tenant", "documents.id"], ondelete="CASCADE"),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE document_graphs ENABLE ROW LEVEL SECURITY")
        op.execute("ALTER TABLE document_graphs FORCE ROW LEVEL SECURITY")
        op.execute(
            "CREATE POLICY tenant_isolation ON document_graphs "
            "USING (tenant = current_setting('ctxkit.tenant', true)) "
            "WITH CHECK (tenant = current_setting('ctxkit.tenant', true))"
        )
