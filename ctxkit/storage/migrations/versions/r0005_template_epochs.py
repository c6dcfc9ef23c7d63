"""A number for each tenant that grows with every change of what a template's name means."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

text = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "template_epochs",
        sa.Column("tenant", text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant"),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE template_epochs ENABLE ROW LEVEL SECURITY")
        op.execute("ALTER TABLE template_epochs FORCE ROW LEVEL SECURITY")
        op.execute(
            "CREATE POLICY tenant_isolation ON template_epochs "
            "USING (tenant = current_setting('ctxkit.tenant', true)) "
            "WITH CHECK (tenant = current_setting('ctxkit.tenant', true))"
        )
