"""Which mentions of one document name the same thing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ctxkit.documents import Entity
from ctxkit.errors import ConfigError
from ctxkit.graph.acronyms import definitions
from ctxkit.graph.names import normalise, query_names, singulars
from ctxkit.graph.nodes import Node

__all__ = ["ANY", "Resolution", "normalise", "query_names", "resolve"]

ANY = "NAME"
"""The label of a name of unknown kind: it joins the one other kind of that name, where there is just one."""

_PERSON = "PERSON"
_ORGANISATION = "ORG"
_MOST_WORDS = 8
# What makes another thing of the word behind it: South Africa is not Africa, the Bank of America not America.
_MODIFIERS = frozenset(
    """
    new old north south east west northern southern eastern western central upper lower great greater little inner outer
    mid pre post anti non pro trans san santa st saint los las el la of the and for at in & vice deputy
    """.split()  # noqa: SIM905
)
_COMPANY_ENDINGS = frozenset(
    "inc ltd llc llp plc corp corporation co company gmbh ag sa se nv bv limited incorporated group holdings".split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class Resolution:
    """What the mentions of one document are.

    Args:
        nodes: for each mention, in order, its canonical node.
        aliases: pairs of a node and the canonical node it was merged into, sorted; the first of a pair is a spelling
            of its own, that other documents may use alone.
        displays: for each canonical node, how the document writes its name most often.
    """

    nodes: tuple[Node, ...]
    aliases: tuple[tuple[Node, Node], ...]
    displays: Mapping[Node, str]


def resolve(mentions: Sequence[Entity], text: str = "") -> Resolution:
    """Find out which mentions of a document name the same thing. Linear in mentions and text.

    A node is a name, as `normalise` writes it, and a label; the same name under two labels is two things. Merged are,
    in one document and only where nothing else fits as well:

    - a `NAME`, of which no kind is known, with the one kind that its name has;
    - an abbreviation that the text defines in brackets, with its long form (`World Health Organization (WHO)`);
    - a Latin name in brackets after a Chinese one, with that one;
    - an English plural with its singular;
    - `Cook` with `Tim Cook`: the last word of a name, of a `PERSON` also the first, unless two names end so;
    - `Apple` with `Apple Inc.`

    Neither the order of the mentions nor other documents matter to which nodes there are.

    Args:
        mentions: the entities of the document, with offsets into `text`.
        text: the document's text, where abbreviations are defined; empty for none.

    Raises:
        ConfigError: a mention is blank.

    Example:
        >>> from ctxkit.documents import Span
        >>> text = "Tim Cook spoke. Then Cook left."
        >>> cook = [Entity("Tim Cook", "PERSON", Span(0, 8)), Entity("Cook", "PERSON", Span(21, 25))]
        >>> resolve(cook, text).nodes
        (Node(name='tim cook', label='PERSON'), Node(name='tim cook', label='PERSON'))
    """
    own = [Node(normalise(mention.text), mention.label) for mention in mentions]
    for node, mention in zip(own, mentions, strict=True):
        if not node.name:
            raise ConfigError(
                "a mention is blank",
                subject=f"{mention.label} at {mention.span.start}",
                remedy="An extractor's entities hold a visible character: see EntityExtractorConformance.",
            )
    written: dict[str, str] = {}
    longs = _long_forms(mentions, text, written)
    root = _roots({*own}, longs)
    canonical = tuple(root[node] for node in own)
    return Resolution(
        nodes=canonical,
        aliases=tuple(sorted((node, there) for node, there in root.items() if node != there)),
        displays=MappingProxyType(_displays(mentions, own, canonical, written)),
    )


def _long_forms(mentions: Sequence[Entity], text: str, written: dict[str, str]) -> dict[str, set[str]]:
    """The keys of the long forms of each short form that the text defines."""
    longs: dict[str, set[str]] = defaultdict(set)
    for short, long in [*definitions(text), *_translations(mentions, text)]:
        key = normalise(long)
        written.setdefault(key, " ".join(long.split()))
        for form in (short, f"{short}s"):
            longs[normalise(form)].add(key)
    return longs


def _translations(mentions: Sequence[Entity], text: str) -> Iterator[tuple[str, str]]:
    """Latin mentions that fill the brackets behind a Chinese mention: 世界卫生组织（WHO）."""
    if "（" not in text and "(" not in text:
        return
    ends = {mention.span.end: mention.text for mention in mentions if not mention.text.isascii()}
    for mention in mentions:
        start, end = mention.span
        if mention.text.isascii() and text[start - 1 : start] in ("（", "(") and text[end : end + 1] in ("）", ")"):
            before = ends.get(start - 1)
            if before is not None and _has_han(before):
                yield mention.text, before


def _has_han(name: str) -> bool:
    return any("\u3400" <= character <= "\u9fff" for character in name)


def _rank(node: Node) -> tuple[bool, int, int, bool, Node]:
    """Grows along every alias, so that none goes in a circle."""
    return _has_han(node.name), node.name.count(" "), -len(node.name), node.label != ANY, node


def _roots(nodes: set[Node], longs: Mapping[str, set[str]]) -> dict[Node, Node]:
    """The canonical node of each; each is decided after all that it may be merged into."""
    labels: dict[str, set[str]] = defaultdict(set)
    for node in nodes:
        labels[node.name].add(node.label)
    for short, names in longs.items():  # a long form that no extractor found is as good a name
        if len(names) == 1 and short in labels:
            (long,) = names
            if long not in labels:
                labels[long] = set(labels[short])
    known = {Node(name, label) for name, kinds in labels.items() for label in kinds}
    parts = _parts(known)
    root: dict[Node, Node] = {}
    for node in sorted(known, key=_rank, reverse=True):
        root[node] = node
        for candidates in _candidates(node, labels, longs, parts):
            found = {root[other] for other in candidates if other in root and other != node}
            if len(found) == 1:
                (root[node],) = found
                break
    return root


def _candidates(
    node: Node, labels: Mapping[str, set[str]], longs: Mapping[str, set[str]], parts: Mapping[Node, set[Node]]
) -> Iterator[Iterable[Node]]:
    """What a node may be merged into, the surest first. All rank above it."""
    name, label = node
    if label == ANY:
        yield [Node(name, kind) for kind in labels[name] if kind != ANY]
    if name in longs:
        found = [Node(long, kind) for long in longs[name] for kind in labels.get(long, ())]
        yield [other for other in found if other.label == label] or found
    for single in singulars(name):
        yield [Node(single, kind) for kind in labels.get(single, ()) if kind == label or ANY in (kind, label)]
    yield parts.get(node, ())


def _parts(nodes: set[Node]) -> dict[Node, set[Node]]:
    """For each node the longer names that it may be short for."""
    found: dict[Node, set[Node]] = defaultdict(set)
    for node in nodes:
        words = node.name.split(" ")
        if node.label not in (_PERSON, ANY, _ORGANISATION) or not 2 <= len(words) <= _MOST_WORDS:
            continue
        if node.label != _PERSON and words[-1] in _COMPANY_ENDINGS:
            shorts = {" ".join(words[:-1])}
        elif node.label == _ORGANISATION:
            continue
        else:
            shorts = {" ".join(words[at:]) for at in range(1, len(words)) if words[at - 1] not in _MODIFIERS}
            if node.label == _PERSON:
                shorts |= {" ".join(words[:at]) for at in range(1, len(words))}
        for short in shorts:
            for label in {node.label, ANY, _PERSON if node.label == ANY else node.label}:
                if (other := Node(short, label)) in nodes:
                    found[other].add(node)
    return found


def _displays(
    mentions: Sequence[Entity], own: Sequence[Node], canonical: Sequence[Node], written: Mapping[str, str]
) -> dict[Node, str]:
    surfaces: dict[Node, Counter[str]] = defaultdict(Counter)
    for mention, node, there in zip(mentions, own, canonical, strict=True):
        surfaces[there][" ".join(mention.text.split())] += node.name == there.name
    displays: dict[Node, str] = {}
    for node in sorted(surfaces):
        surface, times = min(surfaces[node].items(), key=lambda item: (-item[1], item[0]))
        displays[node] = surface if times else written.get(node.name, node.name)
    return displays
