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

__all__ = ["matching"]

DEPTH_LIMIT = 16
INDEXED_LIMIT = 16
"""Values of one filter that PostgreSQL looks up in its index."""

Scalar = str | int | float | bool | None


def matching(kind: str, filters: Mapping[str, Any]) -> Iterator[ColumnElement[bool]]:
    """One condition for each filter; a document must satisfy all of them.

    All values of a filter are one bound parameter, so that thousands of them make no longer statement than one does.
    """
    numbers = count()
    for name, wanted in filters.items():
        checked_text(name, "a filter's name")
        values = [_scalar(name, value) for value in (wanted if isinstance(wanted, list | tuple | set) else [wanted])]
        if name == "source":
            yield _source(kind, [_text(name, value) for value in values], numbers)
        elif name in ("title", "document_id"):
            column = "documents.title" if name == "title" else "documents.id"
            yield _any_of(kind, column, [_text(name, value) for value in values], numbers)
        else:
            # The dotted name may be one key as it stands, or a path.
            paths = [[name]] if "." not in name else [[name], name.split(".")]
            if len(paths[-1]) > DEPTH_LIMIT:
                raise ConfigError("a filter's path is too deep", subject=name, remedy=f"At most {DEPTH_LIMIT} steps.")
            there = [value for value in values if value is not None]
            few = len(there) <= INDEXED_LIMIT
            build = _found if kind != "postgresql" else _contains if few else _leads_to
            yield or_(
                literal_column("1 = 0"),
                *(build(path, there, numbers) for path in paths if there),
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


def _any_of(kind: str, column: str, values: Sequence[str], numbers: Iterator[int]) -> ColumnElement[bool]:
    """The column, which is ours and no input, is one of the values."""
    name = f"values_{next(numbers)}"
    listed = "= ANY(CAST(:{} AS text[]))" if kind == "postgresql" else "IN (SELECT value FROM json_each(:{}))"
    return text(f"{column} {listed.format(name)}").bindparams(**{name: _list(kind, values)})  # type: ignore[return-value]


def _list(kind: str, values: Sequence[Any]) -> Any:
    return list(values) if kind == "postgresql" else json.dumps(values, ensure_ascii=False)


def _source(kind: str, values: Sequence[str], numbers: Iterator[int]) -> ColumnElement[bool]:
    exact = _any_of(kind, "documents.source", values, numbers)
    globs = [value for value in values if set(value) & set("*?")]
    if not globs:
        return exact
    # Only * and ? are special: brackets are common in paths (pages/[id].tsx).
    name = f"globs_{next(numbers)}"
    if kind == "postgresql":
        signs = {"*": "%", "?": "_", "%": "\\%", "_": "\\_", "\\": "\\\\"}
        patterns = ["".join(signs.get(sign, sign) for sign in value) for value in globs]
        like = f"documents.source LIKE ANY(CAST(:{name} AS text[]))"
    else:
        patterns = [value.replace("[", "[[]") for value in globs]
        like = f"EXISTS (SELECT 1 FROM json_each(:{name}) AS pattern WHERE documents.source GLOB pattern.value)"  # noqa: S608
    return or_(exact, text(like).bindparams(**{name: _list(kind, patterns)}))


def _contains(path: Sequence[str], values: Sequence[Scalar], _: Iterator[int]) -> ColumnElement[bool]:
    """By the GIN index, which answers containment, one value at a time."""

    def wrapped(leaf: Any) -> ColumnElement[Any]:
        for step in reversed(path):
            leaf = {step: leaf}
        return cast(bindparam(None, json.dumps(leaf, ensure_ascii=False), unique=True), postgresql.JSONB)

    column: ColumnElement[Any] = literal_column("documents.metadata_index")
    return or_(*(column.op("@>")(wrapped(leaf)) for value in values for leaf in (value, [value])))


def _leads_to(path: Sequence[str], values: Sequence[Scalar], numbers: Iterator[int]) -> ColumnElement[bool]:
    """By a look at each document and a hash table of the values: for more of them than are worth an index scan each."""
    leaf, parameters = _leaf(path, numbers)
    name = f"values_{next(numbers)}"
    parameters[name] = [json.dumps(value, ensure_ascii=False) for value in values]
    items = f"CASE jsonb_typeof({leaf}) WHEN 'array' THEN {leaf} ELSE jsonb_build_array({leaf}) END"
    sql = (
        f"EXISTS (SELECT 1 FROM jsonb_array_elements({items}) AS item "  # noqa: S608
        f"WHERE item.value = ANY(CAST(CAST(:{name} AS text[]) AS jsonb[])))"
    )
    return text(sql).bindparams(**parameters)  # type: ignore[return-value]


def _leaf(path: Sequence[str], numbers: Iterator[int]) -> tuple[str, dict[str, Any]]:
    """What a path leads to on PostgreSQL. Not by `#>`, for which the step 0 is the first item of a list as well."""
    parameters = {f"step_{next(numbers)}": step for step in path}
    steps = "".join(f" -> CAST(:{name} AS text)" for name in parameters)
    return f"(documents.metadata_index{steps})", parameters


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


def _found(path: Sequence[str], values: Sequence[Scalar], numbers: Iterator[int]) -> ColumnElement[bool]:
    sources, conditions, leaf, parameters = _walk(path, numbers)
    number = next(numbers)
    item, texts, figures = f"item_{number}", f"texts_{number}", f"figures_{number}"
    parameters[texts] = json.dumps([value for value in values if isinstance(value, str)], ensure_ascii=False)
    # Beyond 64 bits SQLite reads an integer of the JSON as a real: here as in the documents.
    parameters[figures] = json.dumps([v for v in values if isinstance(v, int | float) and not isinstance(v, bool)])
    switches = "".join(f" OR {{0}}.type = '{json.dumps(value)}'" for value in (True, False) if _has(values, value))
    equal = (
        f"({{0}}.type = 'text' AND {{0}}.value IN (SELECT value FROM json_each(:{texts}))"  # noqa: S608
        f" OR {{0}}.type IN ('integer', 'real') AND {{0}}.value IN (SELECT value FROM json_each(:{figures})){switches})"
    )
    members = f"EXISTS (SELECT 1 FROM {_ITEMS.format(leaf)} AS {item} WHERE {equal.format(item)})"  # noqa: S608
    sql = f"EXISTS (SELECT 1 FROM {sources} WHERE {conditions} AND ({equal.format(leaf)} OR {members}))"  # noqa: S608
    return text(sql).bindparams(**parameters)  # type: ignore[return-value]


def _has(values: Sequence[Scalar], switch: bool) -> bool:
    return any(value is switch for value in values)


def _absent(kind: str, paths: Sequence[Sequence[str]], numbers: Iterator[int]) -> ColumnElement[bool]:
    """Null or not there, under every reading of the name."""
    conditions: list[Any] = []
    parameters: dict[str, Any] = {}
    for path in paths:
        if kind == "postgresql":
            leaf, bound = _leaf(path, numbers)
            conditions.append(f"coalesce(jsonb_typeof({leaf}), 'null') = 'null'")
        else:
            sources, keys, leaf, bound = _walk(path, numbers)
            conditions.append(f"NOT EXISTS (SELECT 1 FROM {sources} WHERE {keys} AND {leaf}.type <> 'null')")  # noqa: S608
        parameters |= bound
    return text(f"({' AND '.join(conditions)})").bindparams(**parameters)  # type: ignore[return-value]
