"""What every chunker must do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from ctxkit.documents import Chunk, Document
from ctxkit.protocols import Chunker, TokenCounter
from ctxkit.text import Graphemes, protected_spans
from ctxkit.tokens import get_counter

__all__ = ["ChunkerConformance"]

_SIZES = (8, 32, 256)
_TEXTS = (
    "One sentence. And another! A third? " * 12,
    "# Title\n\nIntro.\n\n## Part\n\n- item\n- item\n  - nested\n\n" + "Prose goes on and on. " * 30,
    "before\n\n```python\ndef f():\n    return 1\n\n\nf()\n```\n\nafter\n",
    "```\nnever closed\n\n\n" + "x = 1\n" * 60,
    "| a | b |\n|---|---|\n" + "| one | two |\n" * 30 + "\nafter",
    "这是一个句子。这是另一个句子！真的吗？、，" * 10,
    "e\u0301a\u0300o\u0302 " * 30 + "👨‍👩‍👧‍👦🏳️‍🌈👍🏽🇩🇪🇫🇷" * 5,
    "x" * 3000,
    "chunk chunk chunk " * 50,
    "a\r\nb\r\n\r\nc\r\n" * 30,
    "\x00 \ud800 \udfff <|endoftext|> <|im_start|>system\n" * 5,
    "שלום עולם. مرحبا بالعالم؟ \u202ertl\u202c " * 8,
    "def f(x):\n\treturn x\n\n\nclass C:\n\tpass\n" * 15,
    "\n" * 500 + "x" + " " * 500 + "\u3000\u2028y",
)


class ChunkerConformance:
    """What every `Chunker` must do: law 1, on the texts that break chunkers. Override `make_chunker`.

    Override `make_counter` where the chunker counts by anything else than the default encoding.
    """

    def make_chunker(self, max_tokens: int) -> Chunker:
        raise NotImplementedError

    def make_counter(self) -> TokenCounter:
        return get_counter()

    def _cases(self) -> Iterator[_Case]:
        for size in _SIZES:
            for number, text in enumerate(_TEXTS):
                document = Document.from_text(text, source=f"text-{number}.md")
                yield _Case(document, list(self.make_chunker(size).chunk(document)), size)

    def test_it_is_a_chunker(self) -> None:
        chunker = self.make_chunker(64)
        assert isinstance(chunker, Chunker), f"{type(chunker).__name__} has no chunk(document)"

    def test_blank_documents_have_no_chunks(self) -> None:
        for text in ("", " ", "\n" * 40, "\r\n\t\u3000\u2028"):
            chunks = list(self.make_chunker(64).chunk(Document.from_text(text, source="blank")))
            assert chunks == [], f"the blank document {text!r} has {len(chunks)} chunks, not 0"

    def test_chunks_are_spans_of_the_text_in_order(self) -> None:
        for case in self._cases():
            document, chunks, _ = case
            for number, chunk in enumerate(chunks):
                there = document.text[chunk.span.start : chunk.span.end]
                assert chunk.text == there, case.law(
                    f"chunk {number} says that {_short(chunk.text)} is at {_place(chunk)}; there is {_short(there)}"
                )
                assert chunk.text.strip(), case.law(f"chunk {number} at {_place(chunk)} is blank: {_short(chunk.text)}")
                assert chunk.document_id == document.id, case.law(
                    f"chunk {number} belongs to document {chunk.document_id!r}, not to {document.id!r}"
                )
            for number, (before, after) in enumerate(pairwise(chunks)):
                places = f"chunk {number} is at {_place(before)}, chunk {number + 1} at {_place(after)}"
                assert before.span.start < after.span.start, case.law(f"chunks begin one after the other: {places}")
                assert before.span.end < after.span.end, case.law(f"each chunk brings something new: {places}")
            ids = len({chunk.id for chunk in chunks})
            assert ids == len(chunks), case.law(f"{len(chunks)} chunks have {ids} different ids")

    def test_chunks_cover_every_character_that_is_not_blank(self) -> None:
        for case in self._cases():
            document, chunks, _ = case
            position = 0
            for start, end in [*(chunk.span for chunk in chunks), (len(document.text), len(document.text))]:
                lost = document.text[position:start]
                assert not lost.strip(), case.law(f"no chunk holds characters {position} to {start}: {_short(lost)}")
                position = max(position, end)

    def test_no_chunk_is_longer_than_its_maximum(self) -> None:
        counter = self.make_counter()
        for case in self._cases():
            _, chunks, size = case
            for number, chunk in enumerate(chunks):
                count = counter.count(chunk.text)
                assert chunk.token_count == count, case.law(
                    f"chunk {number} says {chunk.token_count} tokens, {counter.name} counts {count}: "
                    f"{_short(chunk.text)}"
                )
                assert count <= size, case.law(
                    f"chunk {number} at {_place(chunk)} has {count} tokens, {size} is the most: {_short(chunk.text)}"
                )

    def test_no_grapheme_fence_or_row_that_fits_is_cut(self) -> None:
        counter = self.make_counter()
        for case in self._cases():
            document, chunks, size = case
            graphemes, blocks = Graphemes(document.text), protected_spans(document.text)
            for position in (edge for chunk in chunks for edge in chunk.span):
                around = [block for block in blocks if block.start < position < block.end]
                cluster = graphemes.around(position)
                for span in around if cluster is None else [*around, cluster]:
                    whole = span.slice(document.text)
                    count = counter.count(whole)
                    assert count > size, case.law(
                        f"a cut at {position} goes through {_short(whole)} at {span.start}-{span.end}, "
                        f"whose {count} tokens fit in one chunk"
                    )

    def test_the_same_document_gives_the_same_chunks(self) -> None:
        for case in self._cases():
            again = list(self.make_chunker(case.size).chunk(case.document))
            assert again == case.chunks, (
                f"law 6, the same in gives the same out: {case.where} has {len(case.chunks)} chunks, then "
                f"{len(again)} that are not the same"
            )


class _Case(NamedTuple):
    document: Document
    chunks: list[Chunk]
    size: int

    @property
    def where(self) -> str:
        text = self.document.text
        return f"the text {_short(text)} of {len(text)} characters at {self.size} tokens a chunk"

    def law(self, broken: str) -> str:
        return f"law 1, chunks lose nothing: {broken}\nin {self.where}"


def _place(chunk: Chunk) -> str:
    return f"{chunk.span.start}-{chunk.span.end}"


def _short(text: str) -> str:
    """The beginning of a text and its end, whatever is in it."""
    return repr(text) if len(text) <= 60 else f"{text[:40]!r}…{text[-16:]!r}"
