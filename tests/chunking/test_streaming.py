"""A text in pieces gives the chunks of the whole, as soon as they are certain, in bounded memory."""

import io
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit import Document
from ctxkit.chunking import RecursiveChunker, SemanticGraphChunker, SentenceChunker, StreamingChunker
from ctxkit.documents import Chunk
from ctxkit.errors import ConfigError
from ctxkit.reading import read_bytes, read_stream
from ctxkit.testing import ChunkerConformance
from tests.strategies import texts

MARKS = [
    "\n", "\n\n", "```", "```\n", "```py\n", "~~~~\n", "| a | b |\n", "a | b\n--- | ---\nc | d\n", "# T\n",
    "Title\n===\n", "<h1>x</h1>", "<h2 class='a'>y</h2>\n", "<h3>", "<h2", "a. B. c? 'D'", "e\u0301", " " * 300,
    "\U0001f1e9\U0001f1ea" * 3, "\r\n", "\r", "word " * 200, "x" * 500, "x" * 9_000, "- item one\n", "|" * 3,
    "|" + "z " * 3_000, "的。" * 30, "   ", "\n" * 700, " \n" * 400, "=-|:" * 1_500,
    "He jumped. He went on, and on; then (finally) he slept.\n",
]  # fmt: skip
"""What decides over cuts from far away: fences, tables, headings, long lines, blank stretches, long graphemes."""

marked = st.lists(st.one_of(texts, st.sampled_from(MARKS), st.text(max_size=30)), max_size=12).map("".join)
sizes = st.lists(st.integers(1, 200), min_size=1, max_size=5)


class TestConformance(ChunkerConformance):
    def make_chunker(self, max_tokens: int) -> StreamingChunker:
        return StreamingChunker(chunker=RecursiveChunker(max_tokens=max_tokens), piece_size=7)


def in_pieces(chunker: StreamingChunker, document: Document, size: Callable[[], int]) -> list[Chunk]:
    stream = chunker.open(replace(document, text=""))
    chunks: list[Chunk] = []
    at = 0
    while at < len(document.text):
        step = size()
        chunks += stream.feed(document.text[at : at + step])
        at += step
    return chunks + stream.finish()


@settings(max_examples=max(5, settings().max_examples // 3))  # each is cut twice, piece by piece
@given(
    marked,
    sizes,
    st.sampled_from([4, 8, 13, 40, 200]),
    st.sampled_from([0, 3]),
    st.sampled_from(["text", "markdown", "html", "code"]),
)
def test_recursive_chunks_do_not_depend_on_the_pieces(text, steps, most, overlap, preset):
    chunker = RecursiveChunker(max_tokens=most, overlap=overlap, preset=preset)
    document = Document.from_text(text, source="a.md")
    turns = iter(steps * (len(text) + 1))
    assert in_pieces(StreamingChunker(chunker=chunker), document, lambda: next(turns)) == list(chunker.chunk(document))


@settings(max_examples=150)
@given(marked, sizes, st.sampled_from([13, 64]), st.sampled_from(["text", "markdown", "code"]))
def test_graph_chunks_do_not_depend_on_the_pieces(text, steps, most, preset):
    chunker = SemanticGraphChunker(max_tokens=most, preset=preset, block_size=64)
    document = Document.from_text(text, source="a.md")
    turns = iter(steps * (len(text) + 1))
    assert in_pieces(StreamingChunker(chunker=chunker), document, lambda: next(turns)) == list(chunker.chunk(document))


@pytest.mark.parametrize("seed", range(3))
def test_long_texts_full_of_marks_come_out_the_same(seed):
    chance = random.Random(seed)
    text = "".join(chance.choice(MARKS) for _ in range(120))
    document = Document.from_text(text, source="a.md")
    for preset, most, overlap in (("markdown", 20, 5), ("html", 100, 0), ("text", 256, 64)):
        chunker = RecursiveChunker(max_tokens=most, overlap=overlap, preset=preset)
        streaming = StreamingChunker(chunker=chunker)
        assert in_pieces(streaming, document, lambda: chance.randint(1, 2_000)) == list(chunker.chunk(document))


def test_a_chunk_leaves_when_it_is_certain_and_memory_stays_bounded():
    stream = RecursiveChunker(max_tokens=64).open(Document.from_text("", source="a.txt"))
    sentence = "The committee met on Tuesday, and it did not agree about anything. "
    held = [stream.held]
    emitted = 0
    for number in range(2_000):
        emitted += sum(chunk.span.length for chunk in stream.feed(sentence))
        held.append((number + 1) * len(sentence) - emitted)
    # Never more than some chunks behind: a chunk is about five sentences.
    assert max(held) < 12 * len(sentence)
    assert stream.held < 40_000


@pytest.mark.parametrize("text", ["\n" * 2_000_000, "x" * 400_000, " " * 2_000_000, "|" + "a " * 200_000], ids=len)
def test_what_never_ends_is_not_kept(text):
    stream = RecursiveChunker(max_tokens=64).open(Document.from_text("", source="a.md"))
    most = 0
    for at in range(0, len(text), 10_000):
        stream.feed(text[at : at + 10_000])
        most = max(most, stream.held)
    assert most < 60_000


def test_a_finished_stream_takes_no_more():
    for chunker in (RecursiveChunker(), SemanticGraphChunker()):
        stream = chunker.open(Document.from_text("", source="a"))
        assert [chunk.text for chunk in (*stream.feed("Hello."), *stream.finish())] == ["Hello."]
        with pytest.raises(ConfigError, match="finished"):
            stream.feed("more")


def test_wrong_parts_are_refused():
    with pytest.raises(ConfigError, match="open"):
        StreamingChunker(chunker=SentenceChunker())
    with pytest.raises(ConfigError, match="piece_size"):
        StreamingChunker(piece_size=0)
    with pytest.raises(ConfigError, match="a piece of text is a bytes"):
        list(StreamingChunker().stream([b"x"], Document.from_text("", source="a")))


class Trickle(io.BytesIO):
    """A stream that never gives more than a few bytes, in the middle of characters too."""

    def read1(self, size: int | None = -1) -> bytes:
        return self.read(min(size or 7, 7))


@settings(max_examples=40)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200), st.sampled_from(["a.md", "a.txt", "a.py"]))
def test_a_stream_of_bytes_reads_as_its_bytes_do(text, source):
    data = (text * (1 + 20_000 // (len(text) + 1)) + ".").encode()
    try:
        whole = read_bytes(data, source=source)
    except Exception as error:
        with pytest.raises(type(error)):
            list(read_stream(Trickle(data), source=source)[1])
        return
    head, pieces = read_stream(Trickle(data), source=source)
    assert "".join(pieces) == whole.text
    assert (head.source, head.title, head.metadata["format"]) == (whole.source, whole.title, whole.metadata["format"])


def test_other_encodings_and_formats_are_read_to_their_end():
    page = ("<html><body><h1>Keys</h1>" + "<p>Rotate them.</p>" * 2_000 + "</body></html>").encode()
    latin = ("Größe über alles. " * 1_000).encode("latin-1")
    for data, source in ((page, "a.html"), (latin, "a.txt")):
        head, pieces = read_stream(io.BytesIO(data), source=source)
        assert "".join(pieces) == read_bytes(data, source=source).text
        assert head.text == ""
