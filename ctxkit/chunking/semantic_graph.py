"""Chunks cut where the fewest ties between sentences break."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from ctxkit.checking import check_able, check_kind, check_number, check_whole
from ctxkit.chunking.blocks import Block, BlockReader
from ctxkit.chunking.context_line import context_line, refers_back
from ctxkit.chunking.cutting import Level
from ctxkit.chunking.nodes import Kind, Nodes, nodes_of, pieces_of
from ctxkit.chunking.partition import partition
from ctxkit.chunking.recursive import check_sizes
from ctxkit.chunking.sections import Sections
from ctxkit.chunking.separators import PRESETS, levels, preset_of
from ctxkit.chunking.ties import Floats, mention_ties, similarity_ties, word_mentions
from ctxkit.documents import Chunk, Document, Entity, Span
from ctxkit.embedded import embedded
from ctxkit.errors import ConfigError
from ctxkit.protocols import Embedder, EntityExtractor, TokenCounter
from ctxkit.stage_inputs import check_document
from ctxkit.tokens import get_counter

__all__ = ["GraphStream", "SemanticGraphChunker"]

_CHARACTERS = 64  # a token: a block holds at least so many for each token of a chunk
_NEIGHBOURHOOD = 6  # nodes before a chunk whose entities its context line may name
_NUMBERS = frozenset({"CARDINAL", "ORDINAL", "PERCENT", "MONEY", "QUANTITY", "TIME", "DATE", "URL", "EMAIL", "HANDLE"})
_LONGEST_TABLE = 100  # rows that a context line looks back over for the first
_LONGEST_ENTITY = 200  # characters within which a sentence does not end
_EMBEDDED = 120  # characters of a node that its vector is made of: how it begins tells what it is about
_INSIDE_ENTITY = 10.0  # what a cut there costs


@dataclass(frozen=True, kw_only=True, slots=True)
class SemanticGraphChunker:
    """Cuts a document where the fewest ties between its sentences break.

    The sentences, headings, list items, table rows and code fences of a text are nodes. Ties are what they share: words
    and entities, each weighted by how rare it is, meaning where there is an embedder, and structure. The cuts
    minimise the sum of the broken ties and of what the sizes cost, `size_weight * ((tokens - preferred) / preferred)^2`
    a chunk, exactly, by dynamic programming over blocks of at most `block_size` characters.

    Law 1 holds whole, as for `RecursiveChunker`. Each chunk has its `entities`, its `heading_path`, and a `context`: a
    line of at most `context_tokens` tokens with the title, the headings, and what its neighbours name. An index sees
    that line; it is never part of the text.

    Args:
        max_tokens: the most tokens of a chunk, at least 1.
        preferred_tokens: the size that costs nothing, at most `max_tokens`; None for half of `max_tokens`.
        counter: any counter; counts need not add up.
        extractor: finds the entities: the name of a registered one, an `EntityExtractor`, or None for none.
        embedder: makes ties of meaning: the name of a registered one, an `Embedder`, or None for none.
        preset: the structure to expect, as in `RecursiveChunker`.
        context_tokens: the most tokens of the context line; 0 for none.
        word_weight, entity_weight, meaning_weight, structure_weight: of each kind of tie.
        size_weight: of the distance from the preferred size.
        block_size: characters that are optimised together.

    Complexity: linear in the text.

    Example:
        >>> document = Document.from_text("Cats purr. Cats sleep a lot.\\n\\nRust has traits. Traits are interfaces.")
        >>> [chunk.text for chunk in SemanticGraphChunker(max_tokens=16, extractor=None).chunk(document)]
        ['Cats purr. Cats sleep a lot.', 'Rust has traits. Traits are interfaces.']
    """

    max_tokens: int = 256
    preferred_tokens: int | None = None
    counter: TokenCounter = field(default_factory=get_counter)
    extractor: EntityExtractor | str | None = "light"
    embedder: Embedder | str | None = None
    preset: str = "auto"
    context_tokens: int = 32
    word_weight: float = 0.6
    entity_weight: float = 0.1
    meaning_weight: float = 0.6
    structure_weight: float = 1.0
    size_weight: float = 0.3
    block_size: int = 65_536

    def __post_init__(self) -> None:
        check_sizes(self.max_tokens, 0)
        if self.preferred_tokens is not None:
            check_whole(self.preferred_tokens, "preferred_tokens", minimum=1)
            if self.preferred_tokens > self.max_tokens:
                raise ConfigError(
                    "preferred_tokens is more than max_tokens",
                    subject=f"preferred_tokens={self.preferred_tokens}, max_tokens={self.max_tokens}",
                    remedy="Lower preferred_tokens, or raise max_tokens.",
                )
        check_able(self.counter, "count", "counter", remedy="Give a counter, such as get_counter('o200k_base').")
        for name, method in (("extractor", "extract"), ("embedder", "embed")):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                check_able(value, method, name, remedy=f"Give a registered {name}'s name, an object with it, or None.")
        if not isinstance(self.preset, str) or self.preset not in PRESETS:
            raise ConfigError("unknown preset", subject=str(self.preset), remedy=f"Known: {', '.join(PRESETS)}.")
        check_whole(self.context_tokens, "context_tokens", minimum=0)
        check_whole(self.block_size, "block_size", minimum=64)
        for name in ("word_weight", "entity_weight", "meaning_weight", "structure_weight", "size_weight"):
            check_number(getattr(self, name), name, minimum=0.0, maximum=1e6)

    def chunk(self, document: Document) -> Iterator[Chunk]:
        """The chunks in order; none for a blank document."""
        stream = self.open(document)
        yield from stream.chunks(document.text)
        yield from stream.rest()

    def open(self, document: Document) -> GraphStream:
        """A stream that takes the text in pieces of any size and gives the chunks that `chunk` gives for the whole.

        It holds at most a few blocks of text.

        Args:
            document: id, title, source and metadata of what will arrive; its own text is not read.
        """
        check_document(document)
        return GraphStream(self, document)


class GraphStream:
    """Text in, chunks out: one document on its way through a `SemanticGraphChunker`."""

    def __init__(self, chunker: SemanticGraphChunker, document: Document) -> None:
        from ctxkit.registry import create

        self._chunker = chunker
        self._document = document
        self._count = chunker.counter.count
        self._preset = preset_of(document) if chunker.preset == "auto" else chunker.preset
        self._levels: Sequence[Level] = levels(self._preset, document)
        self._reader = BlockReader(
            size=max(chunker.block_size, _CHARACTERS * chunker.max_tokens), limit=chunker.max_tokens, count=self._count
        )
        self._sections = Sections(self._preset)
        parts: list[Any] = [
            create(kind, part) if isinstance(part, str) else part
            for kind, part in (("extractor", chunker.extractor), ("embedder", chunker.embedder))
        ]
        self._extractor = cast("EntityExtractor | None", parts[0])
        self._embedder = cast("Embedder | None", parts[1])
        self._finished = False

    def feed(self, text: str) -> list[Chunk]:
        """Add a piece of text; the chunks that are certain now."""
        return list(self.chunks(text))

    def finish(self) -> list[Chunk]:
        """The text ends here: the chunks that were left."""
        return list(self.rest())

    def chunks(self, text: str) -> Iterator[Chunk]:
        """What `feed` gives, one by one."""
        self._check_open()
        check_kind(text, str, "a piece of text", remedy="Decode bytes first, incrementally.")
        for block in self._reader.feed(text):
            yield from self._chunks_of(block)

    def rest(self) -> Iterator[Chunk]:
        """What `finish` gives, one by one."""
        self._check_open()
        self._finished = True
        for block in self._reader.finish():
            yield from self._chunks_of(block)

    def _check_open(self) -> None:
        if self._finished:
            raise ConfigError("this stream is finished", remedy="Open another one for another text.")

    # ---------------------------------------------------------------------------------------------- one block

    def _chunks_of(self, block: Block) -> Iterator[Chunk]:
        chunker, text = self._chunker, block.text
        entities: Sequence[Entity] = ()
        if self._extractor is not None:
            (entities,) = self._extractor.extract([text])
        nodes = nodes_of(
            block, limit=chunker.max_tokens, count=self._count, levels=self._levels, code=self._preset == "code"
        )
        if not len(nodes):
            return
        starts = np.asarray(nodes.starts)
        home = np.searchsorted(starts, [entity.span.start for entity in entities], side="right") - 1
        self._sections.enter(block, nodes)
        costs = self._costs(text, nodes, starts, entities, home)
        groups = self._groups(text, nodes, costs)
        named = _names_by_node(entities, home, len(nodes))
        at = 0
        for first, after, span, tokens in groups:
            inside: list[Entity] = []
            while at < len(entities) and entities[at].span.start < span.end:
                entity = entities[at]
                if entity.span.start >= span.start and entity.span.end <= span.end:
                    inside.append(Entity(entity.text, entity.label, entity.span.shift(block.start)))
                at += 1
            yield self._chunk(block, nodes, named, first, after, span, tokens, tuple(inside))

    def _costs(self, text: str, nodes: Nodes, starts: Any, entities: Sequence[Entity], home: Any) -> list[float]:
        """What a cut before each node costs."""
        chunker, n = self._chunker, len(nodes)
        parts = [text[start:end] for start, end in zip(nodes.starts, nodes.ends, strict=True)]
        costs: Floats = np.zeros(n)
        if chunker.word_weight:
            costs += chunker.word_weight * mention_ties(*word_mentions(parts), n)
        if chunker.entity_weight and len(entities):
            costs += chunker.entity_weight * mention_ties(*_entity_mentions(entities, home), n)
        if chunker.meaning_weight and self._embedder is not None:
            vectors = embedded(self._embedder, [part[:_EMBEDDED] for part in parts])
            costs += chunker.meaning_weight * similarity_ties(vectors, nodes.tokens)
        if chunker.structure_weight:
            costs += chunker.structure_weight * _structure(text, nodes)
        if len(entities):
            # Where sentences were told apart wrongly, inside an entity, no cut is worth it.
            begins = np.asarray([entity.span.start for entity in entities])
            ends = np.asarray([entity.span.end for entity in entities])
            cuts = home + 1
            known = np.append(starts, len(text))[cuts]
            costs[cuts[(known < ends) & (ends - begins <= _LONGEST_ENTITY)]] += _INSIDE_ENTITY
        return cast("list[float]", costs.tolist())

    def _groups(self, text: str, nodes: Nodes, costs: list[float]) -> Iterator[tuple[int, int, Span, int]]:
        """The chunks: first node, node after the last, span, exact tokens."""
        chunker = self._chunker
        preferred = chunker.preferred_tokens or max(1, chunker.max_tokens // 2)
        waiting = [(0, len(nodes), chunker.max_tokens)]
        while waiting:
            low, high, limit = waiting.pop()
            starts = partition(
                nodes.tokens[low:high], costs[low:high], limit=limit, preferred=preferred, weight=chunker.size_weight
            )
            again: list[tuple[int, int, int]] = []
            for first, after in zip(starts, [*starts[1:], high - low], strict=True):
                span = Span(nodes.starts[low + first], nodes.ends[low + after - 1])
                tokens = self._count(span.slice(text))
                if tokens <= chunker.max_tokens and not again:
                    yield low + first, low + after, span, tokens
                    continue
                # The counts did not add up; what comes after waits, so that chunks leave in order.
                part = (low + first, low + after)
                if tokens <= chunker.max_tokens:
                    again.append((*part, limit))
                elif after - first > 1:
                    smaller = max(1, limit * chunker.max_tokens // (tokens + 1))
                    if smaller < limit:
                        again.append((*part, smaller))
                    else:  # nodes that count for nothing alone and for too much together
                        middle = (part[0] + part[1]) // 2
                        again += [(part[0], middle, limit), (middle, part[1], limit)]
                elif again:
                    again.append((*part, limit))
                else:
                    # A node may count for more without the white space before it: " Foo" is one token, "Foo" two.
                    for piece, size in pieces_of(text, span, chunker.max_tokens, self._count, self._levels):
                        yield *part, piece, size
            waiting.extend(reversed(again))

    def _chunk(
        self,
        block: Block,
        nodes: Nodes,
        named: list[list[str]],
        first: int,
        after: int,
        span: Span,
        tokens: int,
        entities: tuple[Entity, ...],
    ) -> Chunk:
        chunker, text = self._chunker, span.slice(block.text)
        section = self._sections.at(first)
        context = ""
        if chunker.context_tokens:
            path = (
                self._document.title,
                *section,
                self._sections.title(first),
                _table_header(block.text, nodes, first),
            )
            before = _before(named, self._sections.begin(first), first) if refers_back(text) else ()
            context = context_line(path, before, text, limit=chunker.context_tokens, count=self._count)
        whole = span.shift(block.start)
        return Chunk(
            id=f"{self._document.id}:{whole.start}-{whole.end}",
            document_id=self._document.id,
            span=whole,
            text=text,
            token_count=tokens,
            heading_path=section,
            entities=entities,
            context=context,
        )


def _key(entity: Entity) -> str:
    return " ".join(entity.text.lower().split())


def _entity_mentions(entities: Sequence[Entity], home: Any) -> tuple[Any, Any]:
    known: dict[str, int] = {}
    pairs = {
        (known.setdefault(_key(entity), len(known)), int(node))
        for entity, node in zip(entities, home, strict=True)
        if node >= 0 and entity.label not in _NUMBERS
    }
    table = np.asarray(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _table_header(text: str, nodes: Nodes, first: int) -> str:
    """The first row of the table that a chunk begins in the middle of; empty where it does not."""
    at = first
    while (
        at > 0
        and at > first - _LONGEST_TABLE
        and nodes.kinds[at] is nodes.kinds[at - 1] is Kind.ROW
        and nodes.gaps[at] < 2
    ):
        at -= 1
    return text[nodes.starts[at] : nodes.ends[at]] if at < first else ""


def _before(named: list[list[str]], low: int, first: int) -> Iterator[str]:
    """The names in the nodes before `first`, the nearest first."""
    for node in range(first - 1, max(low, first - _NEIGHBOURHOOD) - 1, -1):
        yield from reversed(named[node])


def _names_by_node(entities: Sequence[Entity], home: Any, size: int) -> list[list[str]]:
    """The names that a context line may say, by the node they stand in."""
    named: list[list[str]] = [[] for _ in range(size)]
    for entity, node in zip(entities, home, strict=True):
        if node >= 0 and entity.label not in _NUMBERS:
            named[node].append(" ".join(entity.text.split()))
    return named


_GAPS = (0.0, -0.12, -0.25)  # of a cut where a line ends, and where a blank line is


def _structure(text: str, nodes: Nodes) -> Floats:
    """What structure adds to the cost of a cut: less where lines end, more behind a heading and inside a table."""
    costs = np.asarray([_GAPS[gap] for gap in nodes.gaps])
    for at in range(1, len(nodes)):
        before, here = nodes.kinds[at - 1], nodes.kinds[at]
        if before is Kind.HEADING:
            costs[at] += 1.0
        elif here is Kind.ROW or text[nodes.ends[at - 1] - 1] in "?？":
            costs[at] += 0.2
    return costs
