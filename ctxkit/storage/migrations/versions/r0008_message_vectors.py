"""Embeddings of messages, for retrieval over a dialogue's past."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import UserDefinedType

revision = "0008"
down_revision = "0006"
branch_labels = None
depends_on = None

text = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


class _Vector(UserDefinedType):  # type: ignore[type-arg]
    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        return "vector"


def upgrade() -> None:
    op.create_table(
        "message_vectors",
        sa.Column("tenant", text, nullable=False),
        sa.Column("session_id", text, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("fingerprint", text, nullable=False),
        sa.Column("digest", text, nullable=False),
        sa.Column("vector", sa.LargeBinary().with_variant(_Vector(), "postgresql"), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "session_id", "sequence", "fingerprint"),
        sa.ForeignKeyConstraint(
            ["tenant", "session_id", "sequence"],
            ["messages.tenant", "messages.session_id", "messages.sequence"],
            name="fk_message_vectors_messages",
            ondelete="CASCADE",
        ),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE message_vectors ENABLE ROW LEVEL SECURITY")
        op.execute("ALTER TABLE message_vectors FORCE ROW LEVEL SECURITY")
        op.execute(
            "CREATE POLICY tenant_isolation ON message_vectors "
            "USING (tenant = current_setting('ctxkit.tenant', true)) "
            "WITH CHECK (tenant = current_setting('ctxkit.tenant', true))"
        )
