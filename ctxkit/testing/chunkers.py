"""What every chunker must do."""

from __future__ import annotations

from itertools import pairwise

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

    def _cases(self) -> list[tuple[Document, list[Chunk], int]]:
        return [
            (document, list(self.make_chunker(size).chunk(document)), size)
            for size in _SIZES
            for document in (Document.from_text(text, source="text.md") for text in _TEXTS)
        ]

    def test_it_is_a_chunker(self) -> None:
        assert isinstance(self.make_chunker(64), Chunker)

    def test_blank_documents_have_no_chunks(self) -> None:
        for text in ("", " ", "\n" * 40, "\r\n\t\u3000\u2028"):
            assert list(self.make_chunker(64).chunk(Document.from_text(text, source="blank"))) == []

    def test_chunks_are_spans_of_the_text_in_order(self) -> None:
        for document, chunks, _ in self._cases():
            for chunk in chunks:
                assert chunk.text == document.text[chunk.span.start : chunk.span.end]
                assert chunk.text.strip()
                assert chunk.document_id == document.id
            for before, after in pairwise(chunks):
                assert before.span.start < after.span.start
                assert before.span.end < after.span.end
            assert len({chunk.id for chunk in chunks}) == len(chunks)

    def test_chunks_cover_every_character_that_is_not_blank(self) -> None:
        for document, chunks, _ in self._cases():
            position = 0
            for chunk in chunks:
                assert not document.text[position : chunk.span.start].strip()
                position = max(position, chunk.span.end)
            assert not document.text[position:].strip()

    def test_no_chunk_is_longer_than_its_maximum(self) -> None:
        counter = self.make_counter()
        for _, chunks, size in self._cases():
            for chunk in chunks:
                assert chunk.token_count == counter.count(chunk.text)
                assert chunk.token_count <= size

    def test_no_grapheme_fence_or_row_that_fits_is_cut(self) -> None:
        counter = self.make_counter()
        for document, chunks, size in self._cases():
            graphemes, blocks = Graphemes(document.text), protected_spans(document.text)
            for position in (edge for chunk in chunks for edge in chunk.span):
                around = [block for block in blocks if block.start < position < block.end]
                cluster = graphemes.around(position)
                for span in around if cluster is None else [*around, cluster]:
                    assert counter.count(span.slice(document.text)) > size

    def test_the_same_document_gives_the_same_chunks(self) -> None:
        for document, chunks, size in self._cases():
            assert list(self.make_chunker(size).chunk(document)) == chunks
