"""Filters on documents as SQL conditions in which names and values are bound parameters.

A name that reaches the text of a query is an injection (CVE-2025-67644 and its kin), so even the path into the JSON is
data: on PostgreSQL inside the bound JSON of a containment `@>`, which the GIN index answers, on SQLite compared with
`json_each.key`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from sqlalchemy import ColumnElement, bindparam, cast, literal_column, or_, text
from sqlalchemy.dialects import postgresql

from ctxkit.errors import ConfigError
from ctxkit.storage.checks import checked_text
from ctxkit.storage.tables import documents

__all__ = ["matching"]

DEPTH_LIMIT = 16
Scalar = str | int | float | bool | None


def matching(kind: str, filters: Mapping[str, Any]) -> Iterator[ColumnElement[bool]]:
    """One condition for each filter; a document must satisfy all of them."""
    numbers = count()
    for name, wanted in filters.items():
        checked_text(name, "a filter's name")
        values = [_scalar(name, value) for value in (wanted if isinstance(wanted, list | tuple | set) else [wanted])]
        if name == "source":
            yield or_(literal_column("1 = 0"), *(_source(kind, _text(name, value)) for value in values))
        elif name in ("title", "document_id"):
            column = documents.c.title if name == "title" else documents.c.id
            yield or_(literal_column("1 = 0"), *(column == _text(name, value) for value in values))
        else:
            # The dotted name may be one key as it stands, or a path.
            paths = [[name]] if "." not in name else [[name], name.split(".")]
            if len(paths[-1]) > DEPTH_LIMIT:
                raise ConfigError("a filter's path is too deep", subject=name, remedy=f"At most {DEPTH_LIMIT} steps.")
            build = _contains if kind == "postgresql" else _found
            yield or_(
                literal_column("1 = 0"),
                *(build(path, value, numbers) for value in values if value is not None for path in paths),
                *([_absent(kind, paths, numbers)] if None in values else []),
            )


def _scalar(name: str, value: Any) -> Scalar:
    if isinstance(value, str):
        return checked_text(value, f"the filter {name!r}")
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ConfigError(
        f"the filter's value is {value!r}",
        subject=name,
        remedy="Give a text, a finite number, a bool, None, or a list of these; reach inside an object with a.b.",
    )


def _text(name: str, value: Scalar) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"the filter's value is {value!r}, not text", subject=name, remedy="Give a str.")
    return value


def _source(kind: str, value: str) -> ColumnElement[bool]:
    exact = documents.c.source == value
    if not set(value) & set("*?"):
        return exact
    # Only * and ? are special: brackets are common in paths (pages/[id].tsx).
    if kind == "postgresql":
        pattern = "".join({"*": "%", "?": "_"}.get(c, f"\\{c}" if c in "%_\\" else c) for c in value)
        return or_(exact, documents.c.source.like(pattern, escape="\\"))
    pattern = value.replace("[", "[[]")
    return or_(exact, documents.c.source.op("GLOB")(pattern))


def _contains(path: Sequence[str], value: Scalar, _: Iterator[int]) -> ColumnElement[bool]:
    def wrapped(leaf: Any) -> ColumnElement[Any]:
        for step in reversed(path):
            leaf = {step: leaf}
        return cast(bindparam(None, json.dumps(leaf, ensure_ascii=False), unique=True), postgresql.JSONB)

    column: ColumnElement[Any] = literal_column("documents.metadata_index")
    return or_(column.op("@>")(wrapped(value)), column.op("@>")(wrapped([value])))


_ROOT = "json_each(documents.metadata)"
_INNER = "json_each(CASE {0}.type WHEN 'object' THEN {0}.value ELSE '{{}}' END)"
_ITEMS = "json_each(CASE {0}.type WHEN 'array' THEN {0}.value ELSE '[]' END)"


def _walk(path: Sequence[str], numbers: Iterator[int]) -> tuple[str, str, str, dict[str, Any]]:
    """FROM, WHERE and the leaf's alias for one path into `documents.metadata`; steps are bound."""
    sources, conditions, parameters = [], [], {}
    alias = ""
    for step in path:
        number = next(numbers)
        source = _INNER.format(alias) if alias else _ROOT
        alias = f"level_{number}"
        sources.append(f"{source} AS {alias}")
        conditions.append(f"{alias}.key = :step_{number}")
        parameters[f"step_{number}"] = step
    return ", ".join(sources), " AND ".join(conditions), alias, parameters


def _found(path: Sequence[str], value: Scalar, numbers: Iterator[int]) -> ColumnElement[bool]:
    sources, conditions, leaf, parameters = _walk(path, numbers)
    number = next(numbers)
    item, name = f"item_{number}", f"value_{number}"

    def equal(alias: str) -> str:
        if isinstance(value, bool):
            return f"{alias}.type = '{'true' if value else 'false'}'"
        types = "'text'" if isinstance(value, str) else "'integer', 'real'"
        return f"({alias}.type IN ({types}) AND {alias}.value = :{name})"

    if not isinstance(value, bool):
        # Beyond 64 bits SQLite reads an integer of the JSON as a real.
        wide = isinstance(value, int) and not -(2**63) <= value < 2**63
        parameters[name] = float(value) if wide else value  # type: ignore[arg-type]
    members = f"EXISTS (SELECT 1 FROM {_ITEMS.format(leaf)} AS {item} WHERE {equal(item)})"  # noqa: S608
    sql = f"EXISTS (SELECT 1 FROM {sources} WHERE {conditions} AND ({equal(leaf)} OR {members}))"  # noqa: S608
    return text(sql).bindparams(**parameters)  # type: ignore[return-value]


def _absent(kind: str, paths: Sequence[Sequence[str]], numbers: Iterator[int]) -> ColumnElement[bool]:
    """Null or not there, under every reading of the name."""
    conditions: list[Any] = []
    parameters: dict[str, Any] = {}
    for path in paths:
        if kind == "postgresql":
            number = next(numbers)
            parameters[f"path_{number}"] = list(path)
            at = f"documents.metadata_index #> CAST(:path_{number} AS text[])"
            conditions.append(f"coalesce(jsonb_typeof({at}), 'null') = 'null'")
        else:
            sources, keys, leaf, bound = _walk(path, numbers)
            parameters |= bound
            conditions.append(f"NOT EXISTS (SELECT 1 FROM {sources} WHERE {keys} AND {leaf}.type <> 'null')")  # noqa: S608
    return text(f"({' AND '.join(conditions)})").bindparams(**parameters)  # type: ignore[return-value]
