"""Chunks at the best separator before the maximum: headings, paragraphs, sentences, clauses, words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from ctxkit.checking import check_able
from ctxkit.chunking.cutting import Cutter
from ctxkit.chunking.headings import Headings, html_headings, markdown_headings
from ctxkit.chunking.separators import PRESETS, levels, preset_of
from ctxkit.chunking.stream import CutStream
from ctxkit.documents import Chunk, Document, Span
from ctxkit.errors import ConfigError
from ctxkit.protocols import TokenCounter
from ctxkit.stage_inputs import check_document
from ctxkit.text import code_fences, protected_spans
from ctxkit.tokens import get_counter

__all__ = ["RecursiveChunker"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecursiveChunker:
    """Cuts a document at its structure, as near below a maximum of tokens as the structure allows.

    Law 1 holds whole: chunks are spans of the text, in order, and cover every non-blank character; blank lines around
    a chunk and white space after it belong to none. No chunk has more than `max_tokens`, as `counter.count(chunk.text)`
    says. A code fence or a table row is cut only where it alone is over the maximum, a grapheme likewise (then between
    its code points). A single character over the maximum raises `ChunkingError`: no byte-pair encoding needs more than
    four tokens for one.

    Args:
        max_tokens: the most tokens of a chunk, at least 1.
        overlap: the most tokens that a chunk repeats from the end of the one before, less than `max_tokens`. A chunk
            always brings something new, and never repeats the whole of the one before.
        counter: any counter; counts need not add up.
        preset: the separators: `text`, `markdown`, `code` (the language by the source's extension or
            `metadata["language"]`), `html`, or `auto`, which goes by `metadata["format"]` or the source's extension.

    Complexity: linear in the text; about one count of each character, two where the density of tokens changes.

    Example:
        >>> document = Document.from_text("# Keys\\n\\nRotate them. Often.\\n", source="keys.md")
        >>> [(chunk.text, chunk.heading_path) for chunk in RecursiveChunker(max_tokens=4).chunk(document)]
        [('# Keys', ('Keys',)), ('Rotate them.', ('Keys',)), ('Often.', ('Keys',))]
    """

    max_tokens: int = 256
    overlap: int = 0
    counter: TokenCounter = field(default_factory=get_counter)
    preset: str = "auto"

    def __post_init__(self) -> None:
        check_sizes(self.max_tokens, self.overlap)
        check_able(self.counter, "count", "counter", remedy="Give a counter, such as get_counter('o200k_base').")
        if not isinstance(self.preset, str) or self.preset not in PRESETS:
            raise ConfigError("unknown preset", subject=str(self.preset), remedy=f"Known: {', '.join(PRESETS)}.")

    def chunk(self, document: Document) -> Iterator[Chunk]:
        """The chunks in order; none for a blank document."""
        check_document(document)
        text = document.text
        headings = headings_of(text, self._preset_of(document))
        for span, tokens in self._cutter(document, text, protected_spans(text)).pieces():
            yield Chunk.of(document, span, tokens, heading_path=headings.at(span.start))

    def open(self, document: Document) -> CutStream:
        """A stream that takes the text in pieces of any size and gives the chunks that `chunk` gives for the whole.

        Args:
            document: id, source and metadata of what will arrive; its own text is not read.
        """
        check_document(document)
        return CutStream(document, self._preset_of(document), partial(self._cutter, document))

    def _preset_of(self, document: Document) -> str:
        return preset_of(document) if self.preset == "auto" else self.preset

    def _cutter(self, document: Document, text: str, blocks: Sequence[Span]) -> Cutter:
        separators = levels(self._preset_of(document), document)
        return Cutter(
            text,
            count=self.counter.count,
            limit=self.max_tokens,
            overlap=self.overlap,
            levels=separators,
            overlap_levels=separators,
            blocks=blocks,
        )


def headings_of(text: str, preset: str) -> Headings:
    """The headings of Markdown and HTML; other formats have none."""
    if preset == "markdown":
        return Headings(markdown_headings(text, code_fences(text)))
    if preset == "html":
        return Headings(html_headings(text))
    return Headings()


def check_sizes(max_tokens: int, overlap: int) -> None:
    """Raise `ConfigError` for sizes that no chunker can keep."""
    for name, value in (("max_tokens", max_tokens), ("overlap", overlap)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{name} must be a whole number of tokens", subject=repr(value), remedy="Give an int.")
    if max_tokens < 1:
        raise ConfigError("max_tokens must be at least 1", subject=str(max_tokens), remedy="Give 1 or more.")
    if not 0 <= overlap < max_tokens:
        raise ConfigError(
            "overlap must be at least 0 and less than max_tokens",
            subject=f"overlap={overlap}, max_tokens={max_tokens}",
            remedy="Lower overlap, or raise max_tokens.",
        )
