"""What changed between two templates, as JSON: messages in order, and slots, schema and model settings by path."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["differences"]

_ABSENT: Any = object()


def differences(older: Mapping[str, Any], newer: Mapping[str, Any]) -> dict[str, Any]:
    """What changed between two contents, as `Template.content` gives them; empty where nothing did.

    `messages` is a list in order: `{"change": "added" | "removed" | "changed", "index": …, "before": …, "after": …}`,
    where the index is in the newer list, or in the older one for what was removed. Every other part of the content
    (`description`, `slots`, `schema`, `model`, `includes`) is a list of `{"path": ["tone", "type"], "before": …,
    "after": …}`; a side that did not exist is left out. Quadratic in the messages, linear in the rest.

    Example:
        >>> before = {"messages": [], "model": {"temperature": 0}}
        >>> differences(before, {"messages": [], "model": {"temperature": 1}})
        {'model': [{'path': ['temperature'], 'before': 0, 'after': 1}]}
    """
    found: dict[str, Any] = {}
    changed = list(_messages(older.get("messages", ()), newer.get("messages", ())))
    if changed:
        found["messages"] = changed
    for part in sorted({*older, *newer} - {"messages"}):
        if paths := list(_paths([], older.get(part, _ABSENT), newer.get(part, _ABSENT))):
            found[part] = paths
    return found


def _messages(older: Sequence[Any], newer: Sequence[Any]) -> Iterator[dict[str, Any]]:
    before, after = ([(item["role"], item["content"]) for item in items] for items in (older, newer))
    for kind, first, last, start, stop in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        pairs = min(last - first, stop - start)
        for offset in range(pairs):
            yield {
                "change": "changed",
                "index": start + offset,
                "before": older[first + offset],
                "after": newer[start + offset],
            }
        for index in range(first + pairs, last):
            yield {"change": "removed", "index": index, "before": older[index]}
        for index in range(start + pairs, stop):
            yield {"change": "added", "index": index, "after": newer[index]}


def _paths(path: list[str | int], older: Any, newer: Any) -> Iterator[dict[str, Any]]:
    if isinstance(older, Mapping) and isinstance(newer, Mapping):
        for name in sorted({*older, *newer}):
            yield from _paths([*path, name], older.get(name, _ABSENT), newer.get(name, _ABSENT))
    elif isinstance(older, list) and isinstance(newer, list):
        for index in range(max(len(older), len(newer))):
            before, after = (items[index] if index < len(items) else _ABSENT for items in (older, newer))
            yield from _paths([*path, index], before, after)
    elif not _same(older, newer):
        sides = {"before": older, "after": newer}
        yield {"path": path, **{side: value for side, value in sides.items() if value is not _ABSENT}}


def _same(older: Any, newer: Any) -> bool:
    # In Python True equals 1 and 1.0, in JSON text they are three values.
    return older is not _ABSENT and newer is not _ABSENT and json.dumps(older) == json.dumps(newer)
