"""Chunks of whole sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ctxkit.checking import check_able
from ctxkit.chunking.cutting import Cutter
from ctxkit.chunking.recursive import check_sizes, headings_of
from ctxkit.chunking.separators import Places, levels, preset_of
from ctxkit.documents import Chunk, Document
from ctxkit.protocols import TokenCounter
from ctxkit.stage_inputs import check_document
from ctxkit.text import protected_spans, sentence_spans
from ctxkit.tokens import get_counter

__all__ = ["SentenceChunker"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SentenceChunker:
    """Packs as many whole sentences into a chunk as its maximum of tokens allows.

    A sentence that alone is over the maximum is cut at clauses, words and graphemes. Law 1 holds as it does for
    `RecursiveChunker`.

    Args:
        max_tokens: the most tokens of a chunk, at least 1.
        overlap: the most tokens that a chunk repeats from the one before, less than `max_tokens`: as many of its last
            whole sentences as fit, none where the last is longer.
        counter: any counter; counts need not add up.

    Complexity: linear in the text; about one count of each character, two where the density of tokens changes.

    Example:
        >>> document = Document.from_text("He came. He saw. He left.")
        >>> [chunk.text for chunk in SentenceChunker(max_tokens=6, overlap=3).chunk(document)]
        ['He came. He saw.', 'He saw. He left.']
    """

    max_tokens: int = 256
    overlap: int = 0
    counter: TokenCounter = field(default_factory=get_counter)

    def __post_init__(self) -> None:
        check_sizes(self.max_tokens, self.overlap)
        check_able(self.counter, "count", "counter", remedy="Give a counter, such as get_counter('o200k_base').")

    def chunk(self, document: Document) -> Iterator[Chunk]:
        """The chunks in order; none for a blank document."""
        check_document(document)
        text = document.text
        preset = preset_of(document)
        sentences = Places([span.end for span in sentence_spans(text)])
        cutter = Cutter(
            text,
            count=self.counter.count,
            limit=self.max_tokens,
            overlap=self.overlap,
            levels=(sentences, *levels(preset, document)),
            overlap_levels=(sentences,),
            blocks=protected_spans(text),
        )
        headings = headings_of(text, preset)
        for span, tokens in cutter.pieces():
            yield Chunk.of(document, span, tokens, heading_path=headings.at(span.start))
