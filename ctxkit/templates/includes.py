"""Templates inside templates, frozen: an include is resolved once, when a template is parsed, and kept whole.

    {{> rules@3}}     {{> rules@production}}     {{> rules@sha256:1f0c…}}

A resolver turns the reference as it is written into a template; what it found is pinned by version and by hash, and its
content becomes part of the including template's content. So the hash of a template covers all that it includes, a
label that moves later changes nothing, and rendering looks nothing up.

An included template is a fragment: one message, whose text stands where the tag stood. It reads variables of the
payload, never the item of a section around the tag.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ctxkit.errors import TemplateError
from ctxkit.templates.language import Fail, Literal, Node, SectionNode

if TYPE_CHECKING:
    from ctxkit.templates.template import Template

__all__ = ["MAX_INCLUDE_DEPTH", "Include", "Includes", "Resolver", "stored_resolver"]

MAX_INCLUDE_DEPTH = 8
"""How deep templates may include each other."""
MAX_INCLUDED = 1_000_000
"""The characters that the includes of one template may come to, each counted as often as it stands there."""
MAX_INCLUDES = 256
"""How many templates may be inside of one, at all depths together."""

Resolver = Callable[[str], "Template"]
"""From a reference as it is written (`name`, `name@3`, `name@production`, `name@sha256:…`) to the template it names."""

REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}(?:@[A-Za-z0-9][A-Za-z0-9._:-]{0,79})?\Z")

_resolving: ContextVar[tuple[str, ...]] = ContextVar("ctxkit_templates_resolving", default=())


@dataclass(frozen=True, slots=True)
class Include:
    """One template inside another.

    Args:
        reference: what it is pinned to: `name@version`, or `name@sha256:…` for a template that has no version.
        hash: SHA-256 of its canonical content, which covers what it includes itself.
        written: the reference as it stands in the text, such as `rules@production`.
        template: the included template.
    """

    reference: str
    hash: str
    written: str = field(default="", compare=False)
    template: Template | None = field(default=None, repr=False, compare=False)

    @property
    def content(self) -> dict[str, Any]:
        """The canonical form, as it is stored and hashed inside the including template's content."""
        inner = {} if self.template is None else self.template.content
        return {"reference": self.reference, "hash": self.hash, "content": inner}


class Includes:
    """What one template includes, collected while its messages are compiled."""

    def __init__(self, resolver: Resolver | None, name: str) -> None:
        self._resolver = resolver
        self._name = name
        self._found: dict[str, Include] = {}
        self._weight = 0
        self._inside = [0, 0]

    @property
    def found(self) -> dict[str, Include]:
        """By the reference as it is written, in order of those."""
        return {written: self._found[written] for written in sorted(self._found)}

    def nodes(self, written: str, fail: Fail) -> tuple[Node, ...]:
        """The nodes that stand for one include tag. Raises `TemplateSyntaxError`, and what the resolver raises."""
        if not REFERENCE.match(written):
            raise fail(f"{written[:60]!r} is not a reference to a template", "Write {{> name@3}} or {{> name@label}}.")
        if self._resolver is None:
            raise fail(
                f"{written!r} cannot be included here: nothing says where templates are",
                "Push the template to a registry, or pass includes= to Template.parse.",
            )
        include = self._found.get(written)
        if include is None:
            include = self._found[written] = self._resolve(written, self._resolver, fail)
        nodes = () if include.template is None else include.template.messages[0].nodes
        self._weight += _weight(nodes)
        if self._weight > MAX_INCLUDED:
            raise fail(f"the includes come to more than {MAX_INCLUDED:,} characters", "Include less, or fewer times.")
        return nodes

    def _resolve(self, written: str, resolver: Resolver, fail: Fail) -> Include:
        with _entered(written, fail):
            template = resolver(written)
        names = {template.name, *included_names(template)} - {""}
        if self._name and self._name in names:
            raise fail(
                f"{self._name!r} would include itself" + ("" if template.name == self._name else f", by {written!r}"),
                "Take the include out of one of them.",
            )
        if _depth(template) > MAX_INCLUDE_DEPTH:
            raise fail(f"includes nest deeper than {MAX_INCLUDE_DEPTH} levels", "Write some of the texts out.")
        if len(template.messages) != 1 or template.has_history:
            raise fail(
                f"{written!r} has {len(template.messages)} messages and cannot stand inside one",
                "An included template is one message of text.",
            )
        self._inside = [sum(pair) for pair in zip(self._inside, _extent(template), strict=True)]
        if self._inside[0] > MAX_INCLUDES or self._inside[1] > MAX_INCLUDED:
            raise fail(
                f"there are more than {MAX_INCLUDES} templates or {MAX_INCLUDED:,} characters inside", "Include less."
            )
        name = template.name or written.partition("@")[0]
        reference = f"{name}@{template.version}" if template.version else f"{name}@sha256:{template.hash[:16]}"
        return Include(reference, template.hash, written, template)


def included_names(template: Template) -> set[str]:
    """The names of all templates inside a template, at every depth."""
    found: set[str] = set()
    for include in template.includes:
        found.add(include.reference.partition("@")[0])
        if include.template is not None:
            found |= included_names(include.template)
    return found


def stored_resolver(stored: Mapping[str, Any], *, where: str) -> Resolver:
    """A resolver over the `includes` of a stored content. What it gives has the hash that was stored with it."""
    from ctxkit.templates.template import Template

    def resolve(written: str) -> Template:
        entry = stored.get(written)
        fields = {"reference", "hash", "content"}
        if not isinstance(entry, Mapping) or set(entry) != fields or not isinstance(entry["content"], Mapping):
            raise TemplateError(
                f"the include {written!r} is not in the content",
                subject=where,
                remedy="Store what Template.content gives.",
            )
        name, _, version = str(entry["reference"]).partition("@")
        number = int(version) if version.isascii() and version.isdigit() and len(version) < 10 else 0
        template = Template.from_content(entry["content"], name=name, version=number)
        if template.hash != entry["hash"]:
            raise TemplateError(
                f"the include {written!r} is not what its hash says",
                subject=where,
                remedy="The stored content was changed; push the template again.",
            )
        return template

    return resolve


def _extent(template: Template) -> tuple[int, int]:
    """How many templates a template is, itself included, and the characters of their sources: what is stored of it."""
    extents = [_extent(include.template) for include in template.includes if include.template is not None]
    characters = sum(len(message.content) for message in template.messages)
    return 1 + sum(count for count, _ in extents), characters + sum(size for _, size in extents)


def _weight(nodes: Sequence[Node]) -> int:
    total = len(nodes)
    for node in nodes:
        if isinstance(node, Literal):
            total += len(node.text)
        elif isinstance(node, SectionNode):
            total += _weight(node.body)
    return total


def _depth(template: Template) -> int:
    return 1 + max((_depth(include.template) for include in template.includes if include.template), default=0)


@contextmanager
def _entered(written: str, fail: Fail) -> Iterator[None]:
    """Refuse a resolver that comes back to where it is: two files that include each other."""
    chain = _resolving.get()
    if written in chain:
        raise fail(
            f"templates include each other: {' > '.join((*chain, written))}", "Take the include out of one of them."
        )
    if len(chain) >= MAX_INCLUDE_DEPTH:
        raise fail(f"includes nest deeper than {MAX_INCLUDE_DEPTH} levels", "Write some of the texts out.")
    token = _resolving.set((*chain, written))
    try:
        yield
    finally:
        _resolving.reset(token)
