"""Labels: rows that point at one version, moved by compare-and-swap, each move on record; protection and archive.

Every change takes the lock on the template's row first. Two moves of one label would else lock two different version
rows, and both would win.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import func

from ctxkit.errors import ConflictError, NotFoundError, ProtectedError
from ctxkit.storage import tables
from ctxkit.storage.clock import moment, now
from ctxkit.storage.records import ANY, LabelMove, TemplateEvent
from ctxkit.storage.tenancy import Scope

__all__ = [
    "archive",
    "changeable",
    "check_newest",
    "events",
    "labels_of",
    "lock",
    "missing",
    "move",
    "moves",
    "place",
    "protect",
    "record",
    "rollback",
    "unprotect",
]


def lock(scope: Scope, name: str) -> Any:
    """The template's row, nobody else's until the transaction ends; None where there is none."""
    head = tables.templates
    return scope.first(scope.locked(scope.select(head.c.last_version, head.c.archived_at).where(head.c.name == name)))


def changeable(scope: Scope, name: str, *, what: str) -> Any:
    """The locked row of a template that may be changed. Raises `ProtectedError` for an archived one."""
    head = lock(scope, name)
    if head is None:
        raise missing(scope, name, what)
    if head.archived_at is not None:
        raise ProtectedError("the template is archived", subject=name, remedy="Unarchive it first.")
    return head


def move(
    scope: Scope, name: str, label: str, version: int, expected: Any, *, by: str, message: str, force: bool
) -> LabelMove:
    """Move a label, if it is where it was expected and may be moved."""
    changeable(scope, name, what=f"version {version}")
    current, past = place(scope, name, label), _newest(scope, name, label)
    _check_expected(name, label, current, expected)
    _check_target(scope, name, version)
    forced = _check_protection(scope, name, label, force)
    same = past is not None and past.version == version
    origin = past.origin if same and past else past.ordinal if past else None
    return _moved(scope, name, label, current, version, past, "move", origin, forced, by=by, message=message)


def rollback(scope: Scope, name: str, label: str, expected: Any, *, by: str, message: str, force: bool) -> LabelMove:
    """Move a label to where it was before; the one after that goes further back, not to where it came from."""
    changeable(scope, name, what=f"label {label!r}")
    current, past = place(scope, name, label), _newest(scope, name, label)
    if past is None:
        raise missing(scope, name, f"label {label!r}")
    _check_expected(name, label, current, expected)
    table = tables.label_history
    mine = (table.c.name == name) & (table.c.label == label)
    target = past
    while target is not None and target.version == past.version:
        target = (
            scope.first(scope.select(table).where(mine, table.c.ordinal == target.origin)) if target.origin else None
        )
    if target is None:
        raise ConflictError(
            f"the label was nowhere before version {past.version}",
            subject=f"{name}@{label}",
            remedy="Move it to a version by its number.",
        )
    _check_target(scope, name, target.version)
    forced = _check_protection(scope, name, label, force)
    return _moved(
        scope, name, label, current, target.version, past, "rollback", target.origin, forced, by=by, message=message
    )


def protect(scope: Scope, name: str, label: str, *, by: str, message: str) -> bool:
    """Protect a label, which need not exist yet; whether it was not protected before."""
    changeable(scope, name, what=f"label {label!r}")
    row = {"name": name, "label": label, "protected_at": now(), "author": by, "message": message}
    new = scope.insert_missing(tables.label_protections, row)
    if new:
        record(scope, name, "protect", label=label, by=by, message=message)
    return new


def unprotect(scope: Scope, name: str, label: str, *, by: str, message: str) -> bool:
    """Take the protection away; whether there was one."""
    changeable(scope, name, what=f"label {label!r}")
    table = tables.label_protections
    if not _is_protected(scope, name, label):
        return False
    scope.execute(scope.delete(table).where(table.c.name == name, table.c.label == label))
    record(scope, name, "unprotect", label=label, by=by, message=message)
    return True


def archive(scope: Scope, name: str, version: int | None, *, on: bool, by: str, message: str) -> bool:
    """Archive or unarchive a template or one of its versions; whether that changed anything."""
    head = lock(scope, name)
    if head is None:
        raise missing(scope, name, "template")
    moved = now() if on else None
    if version is None:
        if (head.archived_at is not None) == on:
            return False
        table = tables.templates
        scope.execute(scope.update(table).where(table.c.name == name).values(archived_at=moved))
    else:
        table = tables.template_versions
        mine = (table.c.name == name) & (table.c.version == version)
        row = scope.first(scope.select(table.c.archived_at, table.c.hash).where(mine))
        if row is None:
            raise missing(scope, name, f"version {version}")
        if (row.archived_at is not None) == on:
            return False
        if on:
            _check_unused(scope, name, version, row.hash)
        scope.execute(scope.update(table).where(mine).values(archived_at=moved))
    record(scope, name, "archive" if on else "unarchive", version=version, by=by, message=message)
    return True


def record(
    scope: Scope,
    name: str,
    action: str,
    *,
    label: str | None = None,
    version: int | None = None,
    by: str = "",
    message: str = "",
) -> None:
    """Put an event on record; the caller holds the lock."""
    table = tables.template_events
    last = scope.first(scope.select(func.coalesce(func.max(table.c.ordinal), 0)).where(table.c.name == name))
    row = {"name": name, "ordinal": int(last[0]) + 1, "action": action, "label": label, "version": version}
    scope.insert(table, [{**row, "author": by, "message": message, "happened_at": now()}])


def moves(scope: Scope, name: str, label: str) -> list[LabelMove]:
    """The moves of a label, oldest first."""
    table = tables.label_history
    statement = scope.select(table).where(table.c.name == name, table.c.label == label)
    return [
        LabelMove(
            row.label,
            row.previous,
            row.version,
            moment(row.moved_at),
            action=row.action,
            by=row.author,
            message=row.message,
            forced=bool(row.forced),
        )
        for row in scope.all(statement.order_by(table.c.ordinal))
    ]


def events(scope: Scope, name: str) -> list[TemplateEvent]:
    """What happened to a template but moves of labels, oldest first."""
    table = tables.template_events
    return [
        TemplateEvent(row.action, row.label, row.version, moment(row.happened_at), row.author, row.message)
        for row in scope.all(scope.select(table).where(table.c.name == name).order_by(table.c.ordinal))
    ]


def labels_of(scope: Scope) -> tuple[dict[str, dict[str, int]], dict[str, list[str]]]:
    """Where the labels of every template stand, and which are protected."""
    labels, protections = tables.template_labels, tables.label_protections
    placed: dict[str, dict[str, int]] = {}
    for row in scope.all(scope.select(labels).order_by(labels.c.name, labels.c.label)):
        placed.setdefault(row.name, {})[row.label] = row.version
    protected: dict[str, list[str]] = {}
    found = scope.select(protections.c.name, protections.c.label)
    for row in scope.all(found.order_by(protections.c.name, protections.c.label)):
        protected.setdefault(row.name, []).append(row.label)
    return placed, protected


def missing(scope: Scope, name: str, what: str) -> NotFoundError:
    """The error for something that is not there, with what is."""
    head, labels = tables.templates, tables.template_labels
    row = scope.first(scope.select(head.c.last_version).where(head.c.name == name))
    if row is None:
        names = [found[0] for found in scope.all(scope.select(head.c.name).order_by(head.c.name).limit(10))]
        known = f"Known: {', '.join(names)}." if names else "There are none yet: push one."
        return NotFoundError("there is no such template", subject=name, remedy=known)
    placed = [
        f"{found.label} ({found.version})"
        for found in scope.all(scope.select(labels).where(labels.c.name == name).order_by(labels.c.label))
    ]
    return NotFoundError(
        f"the template has no {what}",
        subject=name,
        remedy=f"It has versions 1 to {row[0]} and the labels: {', '.join(placed) or 'none'}.",
    )


def place(scope: Scope, name: str, label: str) -> int | None:
    """The version that a label is on, or None."""
    labels = tables.template_labels
    row = scope.first(scope.select(labels.c.version).where(labels.c.name == name, labels.c.label == label))
    return int(row[0]) if row else None


def _newest(scope: Scope, name: str, label: str) -> Any:
    table = tables.label_history
    statement = scope.select(table).where(table.c.name == name, table.c.label == label)
    return scope.first(statement.order_by(table.c.ordinal.desc()).limit(1))


def _check_expected(name: str, label: str, current: int | None, expected: Any) -> None:
    if expected is not ANY and current != expected:
        raise ConflictError(
            f"the label is at {_shown(current)}, not at {_shown(expected)}",
            subject=f"{name}@{label}",
            remedy="Look at the label's history, then move it from where it is.",
        )


def check_newest(name: str, newest: int | None, expected: int) -> None:
    """Raise `ConflictError` unless the newest version is the one that somebody has seen."""
    if (newest or 0) != expected:
        raise ConflictError(
            f"the newest version is {_shown(newest)}, not {_shown(expected or None)}",
            subject=name,
            remedy="Look at what was pushed meanwhile (`templates diff`), then push again.",
        )


def _check_target(scope: Scope, name: str, version: int) -> None:
    versions = tables.template_versions
    mine = (versions.c.name == name) & (versions.c.version == version)
    row = scope.first(scope.select(versions.c.archived_at).where(mine))
    if row is None:
        raise missing(scope, name, f"version {version}")
    if row.archived_at is not None:
        raise ProtectedError(
            "the version is archived", subject=f"{name}@{version}", remedy="Unarchive it first, or name another one."
        )


def _is_protected(scope: Scope, name: str, label: str) -> bool:
    table = tables.label_protections
    return bool(scope.first(scope.select(table.c.label).where(table.c.name == name, table.c.label == label)))


def _check_protection(scope: Scope, name: str, label: str, force: bool) -> bool:
    """Whether the label is protected, and moves all the same."""
    protected = _is_protected(scope, name, label)
    if protected and not force:
        raise ProtectedError(
            "the label is protected",
            subject=f"{name}@{label}",
            remedy="Move it with force (--force), which is put on record, or take its protection away.",
        )
    return protected


def _check_unused(scope: Scope, name: str, version: int, digest: str) -> None:
    labels, includes, versions = tables.template_labels, tables.template_includes, tables.template_versions
    on = (labels.c.name == name) & (labels.c.version == version)
    placed = [row[0] for row in scope.all(scope.select(labels.c.label).where(on).order_by(labels.c.label))]
    joined = includes.join(
        versions,
        (versions.c.tenant == includes.c.tenant)
        & (versions.c.name == includes.c.name)
        & (versions.c.version == includes.c.version),
    )
    found = scope.select(includes.c.name, includes.c.version, source=joined).where(
        includes.c.included == name, includes.c.hash == digest, versions.c.archived_at.is_(None)
    )
    users = [f"{row.name}@{row.version}" for row in scope.all(found.order_by(includes.c.name, includes.c.version))]
    used = [f"the label {label}" for label in placed] + users[:5]
    if used:
        raise ProtectedError(
            f"the version is in use: {', '.join(used)}",
            subject=f"{name}@{version}",
            remedy="Move the labels, or archive the templates that include it, first.",
        )


def _moved(
    scope: Scope,
    name: str,
    label: str,
    current: int | None,
    version: int,
    past: Any,
    action: str,
    origin: int | None,
    forced: bool,
    *,
    by: str,
    message: str,
) -> LabelMove:
    moved_at = now()
    scope.upsert(tables.template_labels, {"name": name, "label": label, "version": version}, version=version)
    row = {
        "name": name,
        "label": label,
        "ordinal": past.ordinal + 1 if past is not None else 1,
        "previous": current,
        "version": version,
        "moved_at": moved_at,
        "action": action,
        "author": by,
        "message": message,
        "forced": int(forced),
        "origin": origin,
    }
    scope.insert(tables.label_history, [row])
    return LabelMove(label, current, version, moment(moved_at), action, by, message, forced)


def _shown(version: int | None) -> str:
    return "no version" if version is None else f"version {version}"
