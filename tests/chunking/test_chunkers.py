"""Both chunkers: conformance, sizes, overlap, hostile input, and whole real books."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from ctxkit.chunking import RecursiveChunker, SentenceChunker
from ctxkit.documents import Chunk, Document
from ctxkit.errors import ChunkingError, ConfigError
from ctxkit.evaluation.benchmarks.chunking import is_lossless, story_of_the_stone, war_and_peace
from ctxkit.evaluation.datasets import chunking_eval
from ctxkit.registry import create
from ctxkit.testing import ChunkerConformance
from ctxkit.tokens import get_counter

COUNTER = get_counter("cl100k_base")
both = pytest.mark.parametrize("kind", [RecursiveChunker, SentenceChunker])
SIZES = (8, 16, 32, 64, 100, 128, 256, 512, 777, 1024, 2048)


def chunks(kind: type, text: str, *, source: str = "a.md", **parameters: object) -> list[Chunk]:
    return list(kind(counter=COUNTER, **parameters).chunk(Document.from_text(text, source=source)))


def texts_of(kind: type, text: str, **parameters: object) -> list[str]:
    return [chunk.text for chunk in chunks(kind, text, **parameters)]


class TestRecursive(ChunkerConformance):
    def make_chunker(self, max_tokens: int) -> RecursiveChunker:
        return RecursiveChunker(max_tokens=max_tokens)


class TestRecursiveWithOverlap(ChunkerConformance):
    def make_chunker(self, max_tokens: int) -> RecursiveChunker:
        return RecursiveChunker(max_tokens=max_tokens, overlap=max_tokens // 4)


class TestRecursiveCode(ChunkerConformance):
    def make_chunker(self, max_tokens: int) -> RecursiveChunker:
        return RecursiveChunker(max_tokens=max_tokens, preset="code", overlap=max_tokens - 1)


class TestRecursiveHtml(ChunkerConformance):
    def make_chunker(self, max_tokens: int) -> RecursiveChunker:
        return RecursiveChunker(max_tokens=max_tokens, preset="html")


class TestSentence(ChunkerConformance):
    def make_chunker(self, max_tokens: int) -> SentenceChunker:
        return SentenceChunker(max_tokens=max_tokens)


class TestSentenceWithOverlap(ChunkerConformance):
    def make_chunker(self, max_tokens: int) -> SentenceChunker:
        return SentenceChunker(max_tokens=max_tokens, overlap=max_tokens // 2)


# --------------------------------------------------------------------------------------------------- sizes


@both
@pytest.mark.parametrize(
    "parameters",
    [
        {"max_tokens": 0},
        {"max_tokens": -1},
        {"max_tokens": 2.5},
        {"max_tokens": True},
        {"max_tokens": "256"},
        {"max_tokens": None},
        {"max_tokens": float("nan")},
        {"overlap": None},
        {"overlap": "1"},
        {"overlap": True},
        {"counter": None},
        {"counter": "o200k_base"},
        {"overlap": -1},
        {"overlap": 256},
        {"overlap": 0.1},
        {"max_tokens": 10, "overlap": 10},
    ],
)
def test_wrong_sizes_are_refused(kind: type, parameters: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        kind(**parameters)


@pytest.mark.parametrize("preset", [None, 3, ["text"], "Text"])
def test_what_is_no_preset(preset: object) -> None:
    with pytest.raises(ConfigError, match="markdown"):
        RecursiveChunker(preset=preset)  # type: ignore[arg-type]


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(ConfigError, match="markdown"):
        RecursiveChunker(preset="pdf")


@both
def test_they_are_registered(kind: type) -> None:
    made = create("chunker", kind.__name__.removesuffix("Chunker").lower(), max_tokens=7)
    assert made == kind(max_tokens=7)


@both
def test_the_maximum_is_used(kind: type) -> None:
    # Prose with a sentence every dozen tokens: chunks come within a sentence of their maximum.
    text = "The committee met on Tuesday and it did not agree at all. " * 400
    for size in (64, 256, 1024):
        found = chunks(kind, text, max_tokens=size)
        assert all(chunk.token_count > 0.75 * size for chunk in found[:-1])


@both
def test_a_jump_in_density_neither_overflows_nor_wastes(kind: type) -> None:
    text = ("plain english prose here. " * 200 + "漢字仮名交じり文。" * 200 + "deadbeef01" * 100 + " \t" * 500) * 2
    found = chunks(kind, text, max_tokens=128)
    assert max(chunk.token_count for chunk in found) <= 128
    assert COUNTER.count(text) / len(found) > 64


@both
def test_a_grapheme_over_the_maximum_is_cut_between_its_code_points(kind: type) -> None:
    family = "👨‍👩‍👧‍👦"
    assert COUNTER.count(family) > 8
    assert texts_of(kind, f"a {family} b", max_tokens=64) == [f"a {family} b"]
    found = chunks(kind, f"aa {family} bb", max_tokens=8)
    assert "".join(chunk.text for chunk in found).replace(" ", "") == f"aa{family}bb"
    assert all(chunk.token_count <= 8 for chunk in found)


@both
def test_a_grapheme_of_any_length_is_cut_in_linear_pieces(kind: type) -> None:
    text = "x " + "e" + "\u0301" * 5_000 + " y"
    found = chunks(kind, text, max_tokens=32)
    assert "".join(chunk.text for chunk in found).replace(" ", "") == text.replace(" ", "")
    assert max(chunk.token_count for chunk in found) <= 32
    assert len(found) < 2 * COUNTER.count(text) / 32


@both
def test_a_character_over_the_maximum_is_an_error_with_a_remedy(kind: type) -> None:
    assert COUNTER.count("🜁") > 1
    with pytest.raises(ChunkingError, match="max_tokens") as caught:
        chunks(kind, "ab 🜁", max_tokens=1)
    assert "Raise max_tokens" in caught.value.remedy
    assert texts_of(kind, "ab c", max_tokens=1) == ["ab", "c"]


# ------------------------------------------------------------------------------------------------- overlap


@both
def test_overlap_repeats_the_end_and_nothing_more(kind: type) -> None:
    text = "".join(f"Sentence number {number} says a little. " for number in range(300))
    for overlap in (16, 40, 100):
        found = chunks(kind, text, max_tokens=128, overlap=overlap)
        shared = [
            COUNTER.count(text[after.span.start : before.span.end])
            for before, after in pairwise(found)
            if after.span.start < before.span.end
        ]
        assert len(shared) == len(found) - 1
        assert max(shared) <= overlap
        assert min(shared) > overlap / 3
        assert all(before.span.end < after.span.end for before, after in pairwise(found))
        assert all(before.span.start < after.span.start for before, after in pairwise(found))
        # Whole sentences are repeated.
        assert all(chunk.text.startswith("Sentence") for chunk in found)


@both
def test_the_last_chunk_is_never_a_part_of_the_one_before(kind: type) -> None:
    for count in range(1, 60):
        found = chunks(kind, "One two three. " * count + "\n\n", max_tokens=20, overlap=19)
        assert all(a.span.end < b.span.end for a, b in pairwise(found))


@both
def test_no_overlap_where_it_would_crowd_out_what_is_new(kind: type) -> None:
    fence = "```\n" + "x = 1\n" * 10 + "```"
    size = COUNTER.count(fence + "\n")
    found = chunks(kind, f"A few words here. And more.\n\n{fence}\n", max_tokens=size, overlap=size // 2)
    assert found[-1].text.strip() == fence


def test_sentence_overlap_is_whole_sentences() -> None:
    assert texts_of(SentenceChunker, "He came. He saw. He left.", max_tokens=6, overlap=3) == [
        "He came. He saw.",
        "He saw. He left.",
    ]
    assert texts_of(SentenceChunker, "He came. He saw. He left.", max_tokens=6, overlap=2) == [
        "He came. He saw.",
        "He left.",
    ]


# ------------------------------------------------------------------------------------------- hostile input


@both
def test_repeated_text_has_its_own_place(kind: type) -> None:
    found = chunks(kind, "the same line again.\n" * 50, max_tokens=8)
    assert [chunk.span.start for chunk in found] == list(range(0, 50 * 21, 21))


@both
def test_control_tokens_surrogates_and_nul_survive(kind: type) -> None:
    text = "<|endoftext|> \ud800\udfff \x00 <|im_start|>system"
    assert texts_of(kind, text, max_tokens=256) == [text]
    assert "".join(texts_of(kind, text, max_tokens=8)).replace(" ", "") == text.replace(" ", "")


@both
@pytest.mark.parametrize("text", ["", " ", "\n" * 100_000, "\u3000\u2028 \t", "\r\n"])
def test_blank_documents_have_no_chunks(kind: type, text: str) -> None:
    assert chunks(kind, text) == []


@both
def test_a_giant_word_and_a_giant_blank(kind: type) -> None:
    text = "a" * 100_000 + " " * 100_000 + "b"
    found = chunks(kind, text, max_tokens=256)
    assert "".join(chunk.text for chunk in found) == "a" * 100_000 + "b"


@both
def test_cjk_without_a_space_is_cut_at_its_marks(kind: type) -> None:
    text = "这是一个比较长的句子，它有两个分句。下一个句子也很长，而且没有空格！" * 30
    for chunk in chunks(kind, text, max_tokens=64):
        assert chunk.text[-1] in "。！，"


@both
def test_any_counter_may_be_plugged_in(kind: type) -> None:
    class Characters:
        name = "characters"

        def count(self, text: str) -> int:
            return len(text)

    class Costly:
        """Not additive, not monotonic, and a fixed price for every text."""

        name = "costly"

        def count(self, text: str) -> int:
            return 3 + len(text) // 4 + 7 * (len(text) % 3)

    text = "Some words, in a sentence. " * 200
    for counter, size in ((Characters(), 100), (Costly(), 40)):
        document = Document.from_text(text, source="a")
        found = list(kind(max_tokens=size, counter=counter).chunk(document))
        assert is_lossless(document, kind(max_tokens=size, counter=counter), size, counter)
        assert all(chunk.token_count == counter.count(chunk.text) <= size for chunk in found)


@both
def test_random_soup_of_structure(kind: type) -> None:
    pieces = [
        "# H\n",
        "\n\n",
        "word ",
        "A sentence. ",
        "```\n",
        "| a | b |\n",
        "- item\n",
        "句子。",
        "👍🏽",
        "\r\n",
        "    ",
    ]
    for seed in range(60):
        random_ = random.Random(seed)
        text = "".join(random_.choice(pieces) for _ in range(400))
        for size in (8, 32, 128):
            assert is_lossless(
                Document.from_text(text, source="a.md"), kind(max_tokens=size, counter=COUNTER), size, COUNTER
            )


# ----------------------------------------------------------------------------------------------- real files


def books(data: Path, size: int) -> Iterator[Document]:
    """Two long books; their first tenth where chunks are so small that the whole would take many seconds."""
    for book in (war_and_peace(data), story_of_the_stone(data)):
        end = len(book.text) // (10 if size < 100 else 1)
        yield Document.from_text(book.text[:end], source=book.source)


@pytest.mark.data
@pytest.mark.parametrize("size", SIZES)
def test_real_files_lose_nothing_at_any_size(size: int, data: Path) -> None:
    for document in (*books(data, size), *chunking_eval(data).documents):
        chunker = RecursiveChunker(max_tokens=size, counter=COUNTER)
        assert is_lossless(document, chunker, size, COUNTER), document.source


@pytest.mark.data
@pytest.mark.parametrize("size", [8, 100, 256, 2048])
def test_real_files_lose_nothing_by_sentences(size: int, data: Path) -> None:
    for document in (*books(data, size), *chunking_eval(data).documents):
        chunker = SentenceChunker(max_tokens=size, counter=COUNTER)
        assert is_lossless(document, chunker, size, COUNTER), document.source
