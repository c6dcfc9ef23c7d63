"""Templates: immutable, numbered versions and labels that move between them, each move on record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ctxkit.documents import content_hash
from ctxkit.errors import ConfigError, ConflictError, NotFoundError
from ctxkit.storage import tables
from ctxkit.storage.checks import checked_name, checked_text, decoded, encoded
from ctxkit.storage.clock import moment, now
from ctxkit.storage.database import Database
from ctxkit.storage.records import ANY, LabelMove, TemplateInfo, TemplateVersion
from ctxkit.storage.tenancy import Scope

__all__ = ["Templates"]


class Templates:
    """The template registry of one tenant: `store.templates`."""

    def __init__(self, database: Database, tenant: str) -> None:
        self._database = database
        self._tenant = tenant

    def push(self, name: str, content: Mapping[str, Any], *, message: str = "") -> TemplateVersion:
        """Store a content as the next version; where some version has this very content, give that one.

        Versions count from 1 without gaps, however many processes push at once.

        Raises:
            StorageError: the content is not JSON, or a text in it holds NUL or a lone surrogate.
        """
        checked_name(name, "the template's name")
        checked_text(message, "the message")
        text = encoded(content, f"the template {name[:60]!r}")
        digest = content_hash(decoded(text))

        def work(scope: Scope) -> TemplateVersion:
            head, table = tables.templates, tables.template_versions
            moved = now()
            scope.insert_missing(head, {"name": name, "last_version": 0, "updated_at": moved})
            last = int(_lock(scope, name)[0])
            found = scope.first(scope.select(table).where(table.c.name == name, table.c.hash == digest))
            if found is not None:
                return _to_version(found)
            row = {
                "name": name,
                "version": last + 1,
                "hash": digest,
                "message": message,
                "created_at": moved,
                "content": text,
            }
            scope.insert(table, [row])
            changes = {"last_version": last + 1, "updated_at": moved}
            scope.execute(scope.update(head).where(head.c.name == name).values(**changes))
            return TemplateVersion(name, last + 1, digest, decoded(text), moment(moved), message)

        return self._database.write(self._tenant, work)

    def get(
        self,
        name: str,
        version: int | None = None,
        *,
        hash: str | None = None,  # noqa: A002
        label: str | None = None,
    ) -> TemplateVersion:
        """The version of a number, of a hash, or under a label; else the newest.

        Raises:
            NotFoundError: there is no such template, version or label.
        """
        if sum(item is not None for item in (version, hash, label)) > 1:
            raise ConfigError("a version is named twice", subject=name, remedy="Give version, hash or label.")
        for text in (name, hash, label):
            checked_text(text or "", "the template's name, hash or label")
        table, labels = tables.template_versions, tables.template_labels

        def work(scope: Scope) -> TemplateVersion:
            statement = scope.select(table).where(table.c.name == name)
            what = "template"
            if version is not None:
                what, statement = f"version {version}", statement.where(table.c.version == version)
            elif label is not None:
                joined = table.join(
                    labels,
                    (labels.c.tenant == table.c.tenant)
                    & (labels.c.name == table.c.name)
                    & (labels.c.version == table.c.version),
                )
                statement = scope.select(table, source=joined).where(table.c.name == name, labels.c.label == label)
                what = f"label {label!r}"
            elif hash is not None:
                what, statement = f"hash {hash}", statement.where(table.c.hash == hash)
            row = scope.first(statement.order_by(table.c.version.desc()).limit(1))
            if row is None:
                raise _missing(scope, name, what)
            return _to_version(row)

        return self._database.read(self._tenant, work)

    def versions(self, name: str) -> list[TemplateVersion]:
        """All versions, oldest first. Raises `NotFoundError` for a template that does not exist."""
        checked_text(name, "the template's name")
        table = tables.template_versions

        def work(scope: Scope) -> Any:
            found = scope.all(scope.select(table).where(table.c.name == name).order_by(table.c.version))
            if not found:
                raise _missing(scope, name, "template")
            return [_to_version(row) for row in found]

        return self._database.read(self._tenant, work)

    def label(self, name: str, label: str, version: int, *, expected: Any = ANY) -> None:
        """Move a label to a version; one version holds it at any time, and each move is on record.

        Args:
            expected: the version that must hold it now, None for a label that must not exist; `ANY` does not ask.

        Raises:
            NotFoundError: there is no such template or version.
            ConflictError: the label is not where it was expected. Nothing moves then.
        """
        checked_name(label, "the label")
        checked_text(name, "the template's name")

        def work(scope: Scope) -> None:
            versions, labels, history = tables.template_versions, tables.template_labels, tables.label_history
            # The template's row is the lock: two moves of one label would lock two different version rows.
            if _lock(scope, name) is None or not scope.first(
                scope.select(versions.c.version).where(versions.c.name == name, versions.c.version == version)
            ):
                raise _missing(scope, name, f"version {version}")
            row = scope.first(scope.select(labels.c.version).where(labels.c.name == name, labels.c.label == label))
            current = int(row[0]) if row else None
            if expected is not ANY and current != expected:
                raise ConflictError(
                    f"the label is at {_place(current)}, not at {_place(expected)}",
                    subject=f"{name}@{label}",
                    remedy="Look at the label's history, then move it from where it is.",
                )
            past = scope.first(
                scope.select(history.c.ordinal)
                .where(history.c.name == name, history.c.label == label)
                .order_by(history.c.ordinal.desc())
                .limit(1)
            )
            scope.upsert(labels, {"name": name, "label": label, "version": version}, version=version)
            scope.insert(
                history,
                [
                    {
                        "name": name,
                        "label": label,
                        "ordinal": int(past[0]) + 1 if past else 1,
                        "previous": current,
                        "version": version,
                        "moved_at": now(),
                    }
                ],
            )

        self._database.write(self._tenant, work)

    def label_history(self, name: str, label: str) -> list[LabelMove]:
        """The moves of a label, oldest first."""
        checked_text(name, "the template's name")
        checked_text(label, "the label")
        table = tables.label_history

        def work(scope: Scope) -> Any:
            statement = scope.select(table).where(table.c.name == name, table.c.label == label)
            return [
                LabelMove(row.label, row.previous, row.version, moment(row.moved_at))
                for row in scope.all(statement.order_by(table.c.ordinal))
            ]

        return self._database.read(self._tenant, work)

    def list(self) -> list[TemplateInfo]:
        """The templates by name, with their labels."""
        head, labels = tables.templates, tables.template_labels

        def work(scope: Scope) -> list[TemplateInfo]:
            placed: dict[str, dict[str, int]] = {}
            for row in scope.all(scope.select(labels).order_by(labels.c.name, labels.c.label)):
                placed.setdefault(row.name, {})[row.label] = row.version
            return [
                TemplateInfo(row.name, row.last_version, placed.get(row.name, {}), moment(row.updated_at))
                for row in scope.all(scope.select(head).order_by(head.c.name))
            ]

        return self._database.read(self._tenant, work)


def _lock(scope: Scope, name: str) -> Any:
    head = tables.templates
    return scope.first(scope.locked(scope.select(head.c.last_version).where(head.c.name == name)))


def _place(version: int | None) -> str:
    return "no version" if version is None else f"version {version}"


def _missing(scope: Scope, name: str, what: str) -> NotFoundError:
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


def _to_version(row: Any) -> TemplateVersion:
    return TemplateVersion(row.name, row.version, row.hash, decoded(row.content), moment(row.created_at), row.message)
