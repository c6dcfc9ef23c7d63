"""What every table is made of: one metadata, binary text, and keys that begin with the tenant."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, ForeignKeyConstraint, LargeBinary, MetaData, Text
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import UserDefinedType

__all__ = ["NAMING", "Vector", "key", "metadata", "tenant", "text", "vector", "within"]

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
metadata = MetaData(naming_convention=NAMING)


class Vector(UserDefinedType[Any]):
    """pgvector's `vector`, any dimension; bound as its text form and read through `vector_send`."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "vector"


# Binary order on both databases: PostgreSQL's default collation depends on the server's locale.
text = Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
vector = LargeBinary().with_variant(Vector(), "postgresql")


def key(name: str) -> Column[str]:
    return Column(name, text, primary_key=True)


def tenant() -> Column[str]:
    return key("tenant")


def within(
    name: str, columns: list[str], target: list[str], *, on_delete: str | None = "CASCADE"
) -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["tenant", *columns], [f"{name}.tenant", *(f"{name}.{column}" for column in target)], ondelete=on_delete
    )
