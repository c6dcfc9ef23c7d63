"""Templates under names: immutable versions, and labels that move between them."""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit.errors import ConfigError, NotFoundError
from ctxkit.storage.records import ANY
from ctxkit.templates.differences import differences
from ctxkit.templates.template import Template

if TYPE_CHECKING:
    from ctxkit.storage import Store
    from ctxkit.storage.records import LabelMove, TemplateEvent, TemplateInfo, TemplateMatch, TemplateVersion

__all__ = ["Reference", "TemplateRegistry", "parse_reference"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}\Z")
_LABEL = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}\Z")
_HASH = re.compile(r"sha256:([0-9a-f]{8,64})\Z")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}\Z")


@dataclass(frozen=True, slots=True)
class Reference:
    """Which version of which template: by number, by (the beginning of) its hash, by label, or the newest."""

    name: str
    version: int | None = None
    hash: str | None = None
    label: str | None = None

    def __str__(self) -> str:
        for part in (self.version, f"sha256:{self.hash}" if self.hash else None, self.label):
            if part is not None:
                return f"{self.name}@{part}"
        return self.name


def parse_reference(reference: str) -> Reference:
    """`name`, `name@3`, `name@production`, `name@sha256:…` (8 hex digits or more). Raises `ConfigError`.

    Example:
        >>> parse_reference("answer@production")
        Reference(name='answer', version=None, hash=None, label='production')
    """
    name, at, which = reference.partition("@")
    if _NAME.match(name):
        if not at or which == "latest":
            return Reference(name)
        if _NUMBER.match(which):
            return Reference(name, version=int(which))
        if found := _HASH.match(which):
            return Reference(name, hash=found[1])
        if _LABEL.match(which):
            return Reference(name, label=which)
    raise ConfigError(
        "not a reference to a template",
        subject=reference[:200],
        remedy="Write name, name@3, name@production or name@sha256:….",
    )


class TemplateRegistry:
    """The templates of one store and tenant, compiled. `by` and `message` say who changed what, and why.

    Args:
        store: where they are kept.

    Example:
        >>> from ctxkit.storage import Store
        >>> with Store.open("sqlite://") as store:
        ...     registry = TemplateRegistry(store)
        ...     first = registry.push("greet", "Hello {{name}}")
        ...     move = registry.label("greet", "production", first.version)
        ...     registry.get("greet@production").reference
        'greet@1'
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def store(self) -> Store:
        """Where the templates are kept."""
        return self._store

    def push(
        self,
        name: str,
        source: str | Sequence[Mapping[str, Any]] | Template,
        *,
        message: str = "",
        by: str = "",
        newest: int | None = None,
        label: str = "",
    ) -> TemplateVersion:
        """Store a version. Nothing is stored when the template is malformed; identical content is the version it was.

        What the source includes is looked up now, and frozen by hash.

        Args:
            newest: the version that must be the newest one now, archived ones aside, 0 for none; None does not ask.
            label: moved to the version in the same transaction: both are done, or neither.

        Raises:
            ConflictError: another version is the newest one. Nothing is stored then.
            TemplateSyntaxError: the source is malformed.
            ConfigError: the name is not one, or a slot is declared wrongly.
            NotFoundError: an included template is not there.
            ProtectedError: the template is archived.
        """
        _check_name(name)
        if label:
            _check_label(name, label)
        template = source if isinstance(source, Template) else Template.parse(source, name=name, includes=self.get)
        return self._store.templates.push(
            name,
            template.content,
            message=message,
            by=by,
            slots=list(template.variables),
            includes=[(include.reference.partition("@")[0], include.hash) for include in template.includes],
            newest=newest,
            label=label,
        )

    def get(self, reference: str | Reference) -> Template:
        """The template that a reference names. Raises `NotFoundError`, or `ConfigError` for a malformed reference."""
        found = self.version(reference)
        return Template.from_content(found.content, name=found.name, version=found.version)

    def version(self, reference: str | Reference) -> TemplateVersion:
        """The version that a reference names, as it is stored, with its message, author and time."""
        wanted = parse_reference(reference) if isinstance(reference, str) else reference
        if wanted.hash is not None:
            return self._by_hash(wanted.name, wanted.hash)
        if wanted.label is not None:
            return self._store.templates.get(wanted.name, label=wanted.label)
        return self._store.templates.get(wanted.name, wanted.version)

    def _by_hash(self, name: str, prefix: str) -> TemplateVersion:
        versions = [version for version in self._store.templates.versions(name) if version.hash.startswith(prefix)]
        if len(versions) == 1:
            return versions[0]
        raise NotFoundError(
            "no version has this hash" if not versions else f"{len(versions)} versions have a hash that begins so",
            subject=f"{name}@sha256:{prefix}",
            remedy="Name the version by its number." if not versions else "Give more digits of the hash.",
        )

    def versions(self, name: str) -> Sequence[TemplateVersion]:
        """Every version of a template, oldest first, archived ones too."""
        return self._store.templates.versions(name)

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
        """Move a label to a version, wherever it is now, or only from `expected` (None: only if it is new).

        Args:
            force: move it although it is protected, which is put on record.

        Raises:
            ConflictError: the label is not where it was expected.
            ProtectedError: the label is protected, or the version is archived.
            ConfigError: `latest` always means the newest version, and a number is a version.
        """
        _check_label(name, label)
        return self._store.templates.label(name, label, version, expected=expected, by=by, message=message, force=force)

    def rollback(
        self, name: str, label: str, *, expected: Any = ANY, by: str = "", message: str = "", force: bool = False
    ) -> LabelMove:
        """Move a label to where it was before. The next rollback goes one further back, never to where it came from.

        Raises:
            ConflictError: the label is not where it was expected, or was nowhere before.
            ProtectedError: the label is protected, or the version it would go back to is archived.
        """
        _check_label(name, label)
        return self._store.templates.rollback(name, label, expected=expected, by=by, message=message, force=force)

    def protect(self, name: str, label: str, *, by: str = "", message: str = "") -> bool:
        """From now on the label moves with `force` alone; whether that is new."""
        _check_label(name, label)
        return self._store.templates.protect(name, label, by=by, message=message)

    def unprotect(self, name: str, label: str, *, by: str = "", message: str = "") -> bool:
        """Take the protection away; whether there was one."""
        _check_label(name, label)
        return self._store.templates.unprotect(name, label, by=by, message=message)

    def archive(self, reference: str, *, by: str = "", message: str = "") -> bool:
        """Archive a template (`name`) or a version (`name@3`); whether that changed anything. Nothing is deleted.

        Raises `ProtectedError` for a version that a label is on or that another template includes.
        """
        name, version = self._archivable(reference)
        return self._store.templates.archive(name, version, by=by, message=message)

    def unarchive(self, reference: str, *, by: str = "", message: str = "") -> bool:
        """Undo `archive`; whether that changed anything."""
        name, version = self._archivable(reference)
        return self._store.templates.unarchive(name, version, by=by, message=message)

    def _archivable(self, reference: str) -> tuple[str, int | None]:
        wanted = parse_reference(reference)
        if str(wanted) == reference and wanted.label is None and wanted.hash is None:
            return wanted.name, wanted.version
        raise ConfigError(
            "only a template or a numbered version is archived", subject=reference, remedy="Write name or name@3."
        )

    def history(self, name: str, label: str) -> Sequence[LabelMove]:
        """The moves of a label, oldest first."""
        return self._store.templates.label_history(name, label)

    def events(self, name: str) -> Sequence[TemplateEvent]:
        """What else happened to a template, oldest first: protection and archive."""
        return self._store.templates.events(name)

    def search(self, query: str, **options: Any) -> Sequence[TemplateMatch]:
        """The templates with a text in their name, a label, a slot's name, their text or message; case does not matter.

        Takes the options of `Templates.search`: `places` and `archived`.
        """
        return self._store.templates.search(query, **options)

    def list(self, *, archived: bool = False) -> list[TemplateInfo]:
        """The names, with their versions and labels; archived templates only when asked for."""
        return self._store.templates.list(archived=archived)

    def diff(self, older: str, newer: str) -> str:
        """What changed between two references, as a unified diff of their text forms; empty when nothing did.

        After the text stands what each include is frozen to, which may change while the text does not.
        """
        before, after = self.get(older), self.get(newer)
        lines = difflib.unified_diff(_shown(before), _shown(after), before.reference, after.reference)
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    def differences(self, older: str, newer: str) -> dict[str, Any]:
        """What changed between two references by part: see `ctxkit.templates.differences`."""
        return differences(self.version(older).content, self.version(newer).content)

    # Async twins: the work is the database's, so each runs in a thread.

    async def apush(self, name: str, source: str | Sequence[Mapping[str, Any]] | Template, **why: Any) -> Any:
        return await asyncio.to_thread(self.push, name, source, **why)

    async def aget(self, reference: str | Reference) -> Template:
        return await asyncio.to_thread(self.get, reference)

    async def alabel(self, name: str, label: str, version: int, **options: Any) -> LabelMove:
        return await asyncio.to_thread(self.label, name, label, version, **options)

    async def arollback(self, name: str, label: str, **options: Any) -> LabelMove:
        return await asyncio.to_thread(self.rollback, name, label, **options)

    async def aarchive(self, reference: str, **why: Any) -> bool:
        return await asyncio.to_thread(self.archive, reference, **why)

    async def aunarchive(self, reference: str, **why: Any) -> bool:
        return await asyncio.to_thread(self.unarchive, reference, **why)

    async def aprotect(self, name: str, label: str, **why: Any) -> bool:
        return await asyncio.to_thread(self.protect, name, label, **why)

    async def aunprotect(self, name: str, label: str, **why: Any) -> bool:
        return await asyncio.to_thread(self.unprotect, name, label, **why)

    async def alist(self, *, archived: bool = False) -> Any:
        return await asyncio.to_thread(self.list, archived=archived)

    async def aversions(self, name: str) -> Sequence[TemplateVersion]:
        return await asyncio.to_thread(self.versions, name)

    async def aversion(self, reference: str | Reference) -> TemplateVersion:
        return await asyncio.to_thread(self.version, reference)

    async def ahistory(self, name: str, label: str) -> Sequence[LabelMove]:
        return await asyncio.to_thread(self.history, name, label)

    async def aevents(self, name: str) -> Sequence[TemplateEvent]:
        return await asyncio.to_thread(self.events, name)

    async def asearch(self, query: str, **options: Any) -> Sequence[TemplateMatch]:
        return await asyncio.to_thread(self.search, query, **options)

    async def adiff(self, older: str, newer: str) -> str:
        return await asyncio.to_thread(self.diff, older, newer)

    async def adifferences(self, older: str, newer: str) -> dict[str, Any]:
        return await asyncio.to_thread(self.differences, older, newer)


def _shown(template: Template) -> list[str]:
    frozen = [f"{{{{> {item.written}}}}} is {item.reference} sha256:{item.hash}\n" for item in template.includes]
    return [*template.source.splitlines(keepends=True), *frozen]


def _check_name(name: str) -> None:
    if not _NAME.match(name):
        raise ConfigError(
            "not a name for a template",
            subject=name[:100],
            remedy="Use ASCII letters, digits, and . _ / - after the first; at most 128.",
        )


def _check_label(name: str, label: str) -> None:
    _check_name(name)
    if not _LABEL.match(label) or label == "latest":
        raise ConfigError(
            "not a label",
            subject=label[:100],
            remedy="A label begins with a letter, such as production; latest is always the newest version.",
        )
