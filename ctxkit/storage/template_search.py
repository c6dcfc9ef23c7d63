"""Where a search of the registry looks, and which texts of a version it knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import func

from ctxkit.storage import tables
from ctxkit.storage import template_labels as labelling
from ctxkit.storage.records import TemplateMatch
from ctxkit.storage.tenancy import Scope

__all__ = ["SEARCH_PLACES", "search", "texts_of"]

SEARCH_PLACES = ("name", "label", "slot", "text")
"""Where a search looks."""


def search(scope: Scope, wanted: str, places: set[str], archived: bool) -> list[TemplateMatch]:
    """The templates that have a folded text in one of the places, each by its newest version that has it."""
    head, table = tables.templates, tables.template_versions
    joined = table.join(head, (head.c.tenant == table.c.tenant) & (head.c.name == table.c.name))
    find = func.strpos if scope.kind == "postgresql" else func.instr
    in_slot, in_text = find(table.c.slots, wanted) > 0, find(table.c.folded, wanted) > 0
    statement = scope.select(
        table.c.name, table.c.version, in_slot.label("slot"), in_text.label("text"), source=joined
    ).order_by(table.c.name, table.c.version.desc())
    if not archived:
        statement = statement.where(table.c.archived_at.is_(None), head.c.archived_at.is_(None))
    # Names and labels are ASCII, and are looked through here.
    placed, _ = labelling.labels_of(scope)
    labelled = {
        (name, version)
        for name, labels in placed.items()
        for label, version in labels.items()
        if wanted in label.casefold()
    }
    found: dict[str, TemplateMatch] = {}
    for row in scope.all(statement):
        there = {
            "name": wanted in row.name.casefold(),
            "label": (row.name, row.version) in labelled,
            "slot": row.slot,
            "text": row.text,
        }
        hits = tuple(place for place in SEARCH_PLACES if place in places and there[place])
        if hits and row.name not in found:
            found[row.name] = TemplateMatch(row.name, row.version, hits, placed.get(row.name, {}))
    return list(found.values())


def texts_of(value: Any) -> Iterator[str]:
    """Every text of a content that somebody wrote for it: no roles, types, trusts, hashes, or names of fields.

    Of a schema that is its descriptions: what else is in it is the same in most schemas.
    """
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            if name in ("slots", "schema"):
                yield from _descriptions(item)
            elif name not in ("role", "hash"):
                yield from texts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)


def _descriptions(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            if name in ("title", "description") and isinstance(item, str):
                yield item
            else:
                yield from _descriptions(item)
    elif isinstance(value, list):
        for item in value:
            yield from _descriptions(item)
