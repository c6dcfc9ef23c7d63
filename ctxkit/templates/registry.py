"""Templates under names: immutable versions, and labels that move between them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit.errors import ConfigError, NotFoundError
from ctxkit.storage.records import ANY
from ctxkit.templates.template import Template

if TYPE_CHECKING:
    from ctxkit.storage import Store
    from ctxkit.storage.records import TemplateInfo, TemplateVersion

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
    """The templates of one store and tenant, compiled.

    Args:
        store: where they are kept.

    Example:
        >>> from ctxkit.storage import Store
        >>> with Store.open("sqlite://") as store:
        ...     registry = TemplateRegistry(store)
        ...     first = registry.push("greet", "Hello {{name}}")
        ...     registry.label("greet", "production", first.version)
        ...     registry.get("greet@production").reference
        'greet@1'
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def push(
        self, name: str, source: str | Sequence[Mapping[str, Any]] | Template, *, message: str = ""
    ) -> TemplateVersion:
        """Store a version. Nothing is stored when the template is malformed; identical content is the version it was.

        Raises:
            TemplateSyntaxError: the source is malformed.
            ConfigError: the name is not one, or a slot is declared wrongly.
        """
        _check_name(name)
        template = source if isinstance(source, Template) else Template.parse(source, name=name)
        return self._store.templates.push(name, template.content, message=message)

    def get(self, reference: str | Reference) -> Template:
        """The template that a reference names. Raises `NotFoundError`, or `ConfigError` for a malformed reference."""
        wanted = parse_reference(reference) if isinstance(reference, str) else reference
        if wanted.hash is not None:
            found = self._by_hash(wanted.name, wanted.hash)
        elif wanted.label is not None:
            found = self._store.templates.get(wanted.name, label=wanted.label)
        else:
            found = self._store.templates.get(wanted.name, wanted.version)
        return Template.from_content(found.content, name=found.name, version=found.version)

    def _by_hash(self, name: str, prefix: str) -> TemplateVersion:
        versions = [version for version in self._store.templates.versions(name) if version.hash.startswith(prefix)]
        if len(versions) == 1:
            return versions[0]
        raise NotFoundError(
            "no version has this hash" if not versions else f"{len(versions)} versions have a hash that begins so",
            subject=f"{name}@sha256:{prefix}",
            remedy="Name the version by its number." if not versions else "Give more digits of the hash.",
        )

    def list(self) -> list[TemplateInfo]:
        """The names, with their versions and labels."""
        return self._store.templates.list()

    def versions(self, name: str) -> Sequence[TemplateVersion]:
        """Every version of a template, oldest first."""
        return self._store.templates.versions(name)

    def label(self, name: str, label: str, version: int, *, expected: Any = ANY) -> None:
        """Move a label to a version, wherever it is now, or only from `expected` (None: only if it is new).

        Raises:
            ConflictError: the label is not where it was expected.
            ConfigError: `latest` always means the newest version, and a number is a version.
        """
        _check_name(name)
        if not _LABEL.match(label) or label == "latest":
            raise ConfigError(
                "not a label",
                subject=label[:100],
                remedy="A label begins with a letter, such as production; latest is always the newest version.",
            )
        self._store.templates.label(name, label, version, expected=expected)

    def diff(self, older: str, newer: str) -> str:
        """What changed between two references, as a unified diff of their text forms; empty when nothing did."""
        before, after = self.get(older), self.get(newer)
        lines = difflib.unified_diff(
            before.source.splitlines(keepends=True),
            after.source.splitlines(keepends=True),
            before.reference,
            after.reference,
        )
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _check_name(name: str) -> None:
    if not _NAME.match(name):
        raise ConfigError(
            "not a name for a template",
            subject=name[:100],
            remedy="Use ASCII letters, digits, and . _ / - after the first; at most 128.",
        )
