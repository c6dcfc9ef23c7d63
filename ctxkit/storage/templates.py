"""Templates: immutable, numbered versions and labels that move between them, each move on record.

Nothing here is ever deleted: what is not wanted any more is archived, and whoever refers to it still finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import func

from ctxkit.documents import content_hash
from ctxkit.errors import ConfigError
from ctxkit.storage import epochs, tables
from ctxkit.storage import template_labels as labelling
from ctxkit.storage.checks import checked_plain_name, checked_text, decoded, encoded
from ctxkit.storage.clock import moment, now
from ctxkit.storage.database import Database
from ctxkit.storage.records import ANY, LabelMove, TemplateEvent, TemplateInfo, TemplateMatch, TemplateVersion
from ctxkit.storage.template_search import SEARCH_PLACES, search, texts_of
from ctxkit.storage.tenancy import Scope

__all__ = ["SEARCH_PLACES", "Templates"]

T = TypeVar("T")


class Templates:
    """The template registry of one tenant: `store.templates`. `by` and `message` say who changed what, and why."""

    def __init__(self, database: Database, tenant: str) -> None:
        self._database = database
        self._tenant = tenant
        self.changes = 0
        """How many writes went through this object: a cache beside it sees its own process's at once."""

    def push(
        self,
        name: str,
        content: Mapping[str, Any],
        *,
        message: str = "",
        by: str = "",
        slots: Sequence[str] = (),
        includes: Sequence[tuple[str, str]] = (),
        newest: int | None = None,
        label: str = "",
    ) -> TemplateVersion:
        """Store a content as the next version; where some version has this very content, give that one.

        Versions count from 1 without gaps, however many processes push at once.

        Args:
            slots: the names of its variables, for searching.
            includes: the name and the hash of each template that it includes: these count as referred to.
            newest: the version that must be the newest one now, archived ones aside, 0 for none; None does not ask.
            label: moved to the version in the same transaction: both are done, or neither.

        Raises:
            ConflictError: another version is the newest one. Nothing is stored then.
            StorageError: the content is not JSON, or a text in it holds NUL or a lone surrogate.
            ProtectedError: the template is archived, or the label is protected.
        """
        checked_plain_name(name, "the template's name")
        if label:
            checked_plain_name(label, "the label")
        _check_why(by, message)
        text = encoded(content, f"the template {name[:60]!r}")
        plain = decoded(text)
        digest = content_hash(plain)
        folded = "\n".join([message, *texts_of(plain)]).casefold()

        def work(scope: Scope) -> TemplateVersion:
            head, table = tables.templates, tables.template_versions
            moved = now()
            scope.insert_missing(head, {"name": name, "last_version": 0, "updated_at": moved})
            last = int(labelling.changeable(scope, name, what="template").last_version)
            if newest is not None:
                live = scope.select(func.max(table.c.version)).where(table.c.name == name)
                labelling.check_newest(name, scope.first(live.where(table.c.archived_at.is_(None)))[0], newest)
            found = scope.first(scope.select(table).where(table.c.name == name, table.c.hash == digest))
            if found is not None:
                if label and labelling.place(scope, name, label) != found.version:
                    labelling.move(scope, name, label, found.version, ANY, by=by, message=message, force=False)
                    epochs.bump(scope)
                return _to_version(found)
            row = {
                "name": name,
                "version": last + 1,
                "hash": digest,
                "message": message,
                "created_at": moved,
                "author": by,
                "content": text,
                "slots": "\n".join(slots).casefold(),
                "folded": folded,
            }
            scope.insert(table, [row])
            included = [
                {"name": name, "version": last + 1, "ordinal": ordinal, "included": child, "hash": hashed}
                for ordinal, (child, hashed) in enumerate(includes, 1)
            ]
            scope.insert(tables.template_includes, included)
            changes = {"last_version": last + 1, "updated_at": moved}
            scope.execute(scope.update(head).where(head.c.name == name).values(**changes))
            if label:
                labelling.move(scope, name, label, last + 1, ANY, by=by, message=message, force=False)
            epochs.bump(scope)
            return TemplateVersion(name, last + 1, digest, plain, moment(moved), message, by, is_new=True)

        return self._write(work)

    def get(
        self,
        name: str,
        version: int | None = None,
        *,
        hash: str | None = None,  # noqa: A002
        label: str | None = None,
    ) -> TemplateVersion:
        """The version of a number, of a hash, or under a label, archived or not; else the newest that is not archived.

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
            what = "version that is not archived"
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
            else:
                statement = statement.where(table.c.archived_at.is_(None))
            row = scope.first(statement.order_by(table.c.version.desc()).limit(1))
            if row is None:
                raise labelling.missing(scope, name, what)
            return _to_version(row)

        return self._database.read(self._tenant, work)

    def versions(self, name: str) -> list[TemplateVersion]:
        """All versions, oldest first, archived ones too. Raises `NotFoundError` for a template that does not exist."""
        checked_text(name, "the template's name")
        table = tables.template_versions

        def work(scope: Scope) -> Any:
            found = scope.all(scope.select(table).where(table.c.name == name).order_by(table.c.version))
            if not found:
                raise labelling.missing(scope, name, "template")
            return [_to_version(row) for row in found]

        return self._database.read(self._tenant, work)

    def label(
        self,
        name: str,
        label: str,
        version: int,
        *,
        expected: Any = ANY,
        by: str = "",
        message: str = "",
        force: bool = False,
    ) -> LabelMove:
        """Move a label to a version; one version holds it at any time, and each move is on record.

        Args:
            expected: the version that must hold it now, None for a label that must not exist; `ANY` does not ask.
            force: move it although it is protected.

        Raises:
            NotFoundError: there is no such template or version.
            ConflictError: the label is not where it was expected. Nothing moves then.
            ProtectedError: the label is protected, or the template or the version is archived.
        """
        checked_plain_name(label, "the label")
        checked_text(name, "the template's name")
        _check_why(by, message)
        return self._write(
            lambda scope: labelling.move(scope, name, label, version, expected, by=by, message=message, force=force),
            bump=True,
        )

    def rollback(
        self, name: str, label: str, *, expected: Any = ANY, by: str = "", message: str = "", force: bool = False
    ) -> LabelMove:
        """Move a label to where it was before. Rolled back again it goes one further back, never to where it came from.

        Raises:
            NotFoundError: there is no such template or label.
            ConflictError: the label is not where it was expected, or was nowhere before.
            ProtectedError: the label is protected, or the version it would go back to is archived.
        """
        for text in (name, label):
            checked_text(text, "the template's name or label")
        _check_why(by, message)
        return self._write(
            lambda scope: labelling.rollback(scope, name, label, expected, by=by, message=message, force=force),
            bump=True,
        )

    def protect(self, name: str, label: str, *, by: str = "", message: str = "") -> bool:
        """From now on the label moves with `force` alone; whether that is new. The label need not exist yet."""
        checked_plain_name(label, "the label")
        checked_text(name, "the template's name")
        _check_why(by, message)
        return self._database.write(
            self._tenant, lambda scope: labelling.protect(scope, name, label, by=by, message=message)
        )

    def unprotect(self, name: str, label: str, *, by: str = "", message: str = "") -> bool:
        """Take the protection of a label away; whether there was one."""
        for text in (name, label):
            checked_text(text, "the template's name or label")
        _check_why(by, message)
        return self._database.write(
            self._tenant, lambda scope: labelling.unprotect(scope, name, label, by=by, message=message)
        )

    def archive(self, name: str, version: int | None = None, *, by: str = "", message: str = "") -> bool:
        """Archive a version, or the whole template; whether that changed anything.

        An archived version is never the newest one, takes no label and is not searched; an archived template is not
        listed either, and takes no versions. Both are still found by number, hash and label.

        Raises:
            NotFoundError: there is no such template or version.
            ProtectedError: a label is on the version, or a version that is not archived includes it.
        """
        return self._archive(name, version, by, message, on=True)

    def unarchive(self, name: str, version: int | None = None, *, by: str = "", message: str = "") -> bool:
        """Undo `archive`; whether that changed anything."""
        return self._archive(name, version, by, message, on=False)

    def _archive(self, name: str, version: int | None, by: str, message: str, *, on: bool) -> bool:
        checked_text(name, "the template's name")
        _check_why(by, message)
        return self._write(
            lambda scope: labelling.archive(scope, name, version, on=on, by=by, message=message), bump=True
        )

    def epoch(self) -> int:
        """A number that grows whenever a name or a label may mean another version; what caches are checked by."""
        return self._database.read(self._tenant, epochs.read)

    def notifications(self, *, timeout: float = 1.0) -> Iterator[bool]:
        """True after each change that `epoch` counts, False after `timeout` seconds without; PostgreSQL only."""
        return epochs.notifications(self._database, self._tenant, timeout)

    def _write(self, work: Callable[[Scope], T], *, bump: bool = False) -> T:
        def bumped(scope: Scope) -> T:
            result = work(scope)
            if bump:
                epochs.bump(scope)
            return result

        result = self._database.write(self._tenant, bumped)
        self.changes += 1
        return result

    def label_history(self, name: str, label: str) -> list[LabelMove]:
        """The moves of a label, oldest first."""
        checked_text(name, "the template's name")
        checked_text(label, "the label")
        return self._database.read(self._tenant, lambda scope: labelling.moves(scope, name, label))

    def events(self, name: str) -> list[TemplateEvent]:
        """What else happened to a template, oldest first: protection and archive."""
        checked_text(name, "the template's name")
        return self._database.read(self._tenant, lambda scope: labelling.events(scope, name))

    def search(
        self, query: str, *, places: Sequence[str] = SEARCH_PLACES, archived: bool = False
    ) -> list[TemplateMatch]:
        """The templates that have a text in their name, a label, a slot's name, or their own text or message.

        Cases are folded by Unicode's rules, alike on both databases. Linear in the texts of the tenant's templates.

        Args:
            archived: search archived templates and versions too.
        """
        checked_text(query, "what is searched for")
        wanted = query.casefold()
        if not query.strip() or "\n" in query:
            raise ConfigError("there is nothing to search for", subject=query, remedy="Give a text of one line.")
        if unknown := set(places) - set(SEARCH_PLACES):
            raise ConfigError(f"a search has no place {min(unknown)!r}", remedy=f"Places: {', '.join(SEARCH_PLACES)}.")
        return self._database.read(self._tenant, lambda scope: search(scope, wanted, set(places), archived))

    def list(self, *, archived: bool = False) -> list[TemplateInfo]:
        """The templates by name, with their labels; archived ones only when asked for."""
        head = tables.templates

        def work(scope: Scope) -> list[TemplateInfo]:
            placed, protected = labelling.labels_of(scope)
            return [
                TemplateInfo(
                    row.name,
                    row.last_version,
                    placed.get(row.name, {}),
                    moment(row.updated_at),
                    moment(row.archived_at) if row.archived_at else None,
                    tuple(protected.get(row.name, ())),
                )
                for row in scope.all(scope.select(head).order_by(head.c.name))
                if archived or row.archived_at is None
            ]

        return self._database.read(self._tenant, work)

    # Async twins: the work is the database's, so each runs in a thread.

    async def apush(self, name: str, content: Mapping[str, Any], **options: Any) -> TemplateVersion:
        return await asyncio.to_thread(self.push, name, content, **options)

    async def aget(self, name: str, version: int | None = None, **options: Any) -> TemplateVersion:
        return await asyncio.to_thread(self.get, name, version, **options)

    async def alabel(self, name: str, label: str, version: int, **options: Any) -> LabelMove:
        return await asyncio.to_thread(self.label, name, label, version, **options)


def _check_why(by: str, message: str) -> None:
    checked_text(by, "who it is by")
    checked_text(message, "the message")


def _to_version(row: Any) -> TemplateVersion:
    return TemplateVersion(
        row.name,
        row.version,
        row.hash,
        decoded(row.content),
        moment(row.created_at),
        row.message,
        row.author,
        moment(row.archived_at) if row.archived_at else None,
    )
