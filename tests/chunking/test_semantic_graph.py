"""The graph chunker: where it cuts, what a chunk knows of its place, hostile input, wrong options."""

from __future__ import annotations

import json
import random

import pytest

from ctxkit.chunking import SemanticGraphChunker
from ctxkit.documents import Chunk, Document
from ctxkit.errors import ConfigError
from ctxkit.evaluation.benchmarks.chunking import is_lossless
from ctxkit.graph import LightExtractor
from ctxkit.registry import create
from ctxkit.testing import ChunkerConformance, HashEmbedder
from ctxkit.tokens import get_counter

COUNTER = get_counter("cl100k_base")


def chunks(text: str, *, source: str = "a.md", title: str = "", **parameters: object) -> list[Chunk]:
    chunker = SemanticGraphChunker(counter=COUNTER, **parameters)  # type: ignore[arg-type]
    return list(chunker.chunk(Document.from_text(text, source=source, title=title)))


class TestGraph(ChunkerConformance):
    def make_chunker(self, max_tokens: int) -> SemanticGraphChunker:
        return SemanticGraphChunker(max_tokens=max_tokens, block_size=128)


class TestGraphWithoutEntities(ChunkerConformance):
    def make_chunker(self, max_tokens: int) -> SemanticGraphChunker:
        return SemanticGraphChunker(max_tokens=max_tokens, extractor=None)


class TestGraphWithEmbedder(ChunkerConformance):
    def make_chunker(self, max_tokens: int) -> SemanticGraphChunker:
        return SemanticGraphChunker(max_tokens=max_tokens, embedder=HashEmbedder())


CATS = "Cats purr when they rest. A cat at rest purrs softly. Purring calms the cat. "
RUST = "Rust has traits. A trait in Rust names methods. Methods of a trait have bodies. "


@pytest.mark.parametrize("extractor", [None, "light"])
def test_it_cuts_where_the_subject_changes(extractor: str | None) -> None:
    # Twelve sentences of one length in one line: only what they share says where to cut.
    found = chunks(CATS + RUST + CATS + RUST, max_tokens=40, preferred_tokens=24, extractor=extractor)
    assert [chunk.text for chunk in found] == [CATS.strip(), RUST.strip(), CATS.strip(), RUST.strip()]


def test_meaning_ties_where_words_do_not() -> None:
    class Subjects:
        dimension, fingerprint = 2, "subjects"

        def embed(self, texts: list[str]) -> object:
            import numpy as np

            return np.array([[1, 0] if "sail" in text or "boat" in text else [0, 1] for text in texts], np.float32)

    text = "A sail fills. The boat heels. One sail tears. Bread rises. Dough rests now. Ovens get hot. "
    found = chunks(text, max_tokens=24, preferred_tokens=13, extractor=None, word_weight=0.0, embedder=Subjects())
    assert [chunk.text.split()[0] for chunk in found] == ["A", "Bread"]


def test_a_heading_stays_with_what_follows() -> None:
    text = (
        "# One\n\nFirst sentence here. Second sentence here.\n\n# Two\n\nThird sentence here. Fourth sentence here.\n"
    )
    found = chunks(text, max_tokens=20, preferred_tokens=12)
    assert [chunk.heading_path for chunk in found] == [("One",), ("Two",)]
    assert all(chunk.text.startswith("#") for chunk in found)


def test_the_context_line_says_where_a_chunk_stands() -> None:
    text = (
        "# Keys\n\nEvery key has an owner.\n\n## Rotation\n\nAnn Lee rotates the keys. She does so monthly, at night.\n"
    )
    found = chunks(text, title="Manual", max_tokens=16, preferred_tokens=8)
    last = found[-1]
    assert last.text.startswith("She")
    assert last.context == "Manual > Keys > Rotation | Ann Lee"
    assert "Manual" not in last.text
    assert chunks(text, title="Manual", max_tokens=16, preferred_tokens=8, context_tokens=0)[-1].context == ""


def test_a_table_that_goes_on_names_its_columns() -> None:
    rows = "\n".join(f"| {year} | {year * 7} |" for year in range(2000, 2030))
    found = chunks(f"| year | sales |\n|---|---|\n{rows}\n", max_tokens=80)
    assert len(found) > 2
    assert all(chunk.context == "| year | sales |" for chunk in found[1:])


def test_the_context_line_never_has_more_than_its_tokens() -> None:
    text = (
        "# " + "Long heading words " * 9 + "\n\n## " + "More of them still " * 9 + "\n\nHe left. She stayed behind.\n"
    )
    for limit in (1, 4, 16, 32):
        for chunk in chunks(text, title="A title " * 20, max_tokens=64, context_tokens=limit):
            assert COUNTER.count(chunk.context) <= limit


def test_wiki_headings_and_plain_titles() -> None:
    text = " = Gambia = \n The team is old . It has won little since it began . \n = = Players = = \n All play . "
    assert {chunk.heading_path for chunk in chunks(text, source="a.txt", max_tokens=24, preferred_tokens=12)} == {
        ("Gambia",),
        ("Gambia", "Players"),
    }
    plain = "Methods\nWe counted the cells by hand each day. Then we counted them once more by a machine.\n"
    assert chunks(plain, source="a.txt", max_tokens=14, preferred_tokens=10)[-1].context == "Methods"


def test_entities_have_the_offsets_of_the_document() -> None:
    text = ("Yesterday Tim Cook met Angela Merkel in Berlin. They spoke for an hour. " * 40).strip()
    found = chunks(text, max_tokens=64, block_size=512)
    assert found[-1].entities
    for chunk in found:
        for entity in chunk.entities:
            assert text[entity.span.start : entity.span.end] == entity.text
            assert chunk.span.contains(entity.span)


def test_an_escaped_log_has_lines() -> None:
    line = "user asked about the invoice of may\\n"
    found = chunks(line * 30, source="a.txt", max_tokens=24)
    assert all(chunk.text.endswith("\\n") for chunk in found)


_random = random.Random(1)
BAD = {
    "one token": "x",
    "one entity again and again": "Tim Cook. " * 10_000,
    "entities in one paragraph": " ".join(f"Alice{number} Smith{number}" for number in range(5_000)),
    "Chinese and English": "苹果公司的Tim Cook说，iPhone很好。He said so. " * 800,
    "a mail thread": "> > On Monday, Ann wrote:\n> > > hi\n\n" * 1_000,
    "minified JSON": json.dumps([{"id": number, "v": [1, 2]} for number in range(5_000)], separators=(",", ":")),
    "base64": "".join(_random.choices("ABCDEFGHabcdefgh0123456789+/", k=100_000)),
    "one line": "word " * 40_000,
    "short lines": "x\n" * 20_000,
    "marks": ". \u0301" * 20_000,
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_chunked_like_any_other(name: str) -> None:
    document = Document.from_text(BAD[name], source="bad.txt")
    assert is_lossless(document, SemanticGraphChunker(max_tokens=128, counter=COUNTER), 128, COUNTER)


def test_a_stream_takes_pieces_of_any_size() -> None:
    text = "".join(f"## Part {number}\n\n{CATS}\n\n{RUST}\n\n" for number in range(60))
    chunker = SemanticGraphChunker(max_tokens=32, block_size=1024, extractor=LightExtractor())
    document = Document.from_text(text, source="a.md")
    stream = chunker.open(document)
    found = []
    for at in range(0, len(text), 97):
        found += stream.feed(text[at : at + 97])
    assert found, "chunks leave before the text ends"
    assert found + stream.finish() == list(chunker.chunk(document))
    with pytest.raises(ConfigError):
        stream.feed("more")


def test_it_is_registered() -> None:
    assert create("chunker", "graph", max_tokens=64) == SemanticGraphChunker(max_tokens=64)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0},
        {"max_tokens": True},
        {"max_tokens": 10, "preferred_tokens": 11},
        {"preferred_tokens": 0},
        {"counter": 3},
        {"extractor": 3},
        {"embedder": []},
        {"preset": "nope"},
        {"context_tokens": -1},
        {"block_size": 1},
        {"word_weight": -0.1},
        {"size_weight": float("nan")},
        {"structure_weight": "1"},
    ],
    ids=str,
)
def test_wrong_options(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        SemanticGraphChunker(**wrong)  # type: ignore[arg-type]


def test_an_unknown_extractor() -> None:
    with pytest.raises(ConfigError, match="there is no extractor"):
        list(SemanticGraphChunker(extractor="nobody").chunk(Document.from_text("a", source="a")))


@pytest.mark.parametrize(
    ("count", "most"),
    [
        pytest.param(lambda text: len(text) + 2 * (not text.startswith(" ")), 6, id="dearer without its white space"),
        pytest.param(lambda text: max(0, len(text) - 4), 2, id="nothing alone"),
        pytest.param(lambda text: len(text) ** 2 // 8, 20, id="dearer together"),
    ],
)
def test_counts_that_do_not_add_up_come_to_an_end(count: object, most: int) -> None:
    counter = type("Counter", (), {"count": staticmethod(count)})()
    document = Document.from_text("Ab. Cdef. Gh. Ijklm. N. O. P. " * 5, source="a.txt")
    chunker = SemanticGraphChunker(max_tokens=most, extractor=None, counter=counter)
    assert is_lossless(document, chunker, most, counter)
