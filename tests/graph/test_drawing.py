"""The page of a document's graph: loads nothing, runs nothing, says every text exactly, is the same each time."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.chunking import SentenceChunker
from ctxkit.documents import Chunk, Document, Entity, Span
from ctxkit.graph.drawing import CHUNKS, ENTITIES, page_of
from ctxkit.graph.layout import HEIGHT, WIDTH, choose
from ctxkit.graph.light import LightExtractor
from ctxkit.graph.picture import Picture, picture_of
from ctxkit.graph.tagging import tag
from tests.graph.making import chunk_mentions, fewer, named, names
from tests.strategies import texts

TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "section", "article", "div", "h1", "h2", "h3", "p"),
    *("ul", "li", "i", "b", "bdi", "span", "mark", "a", "svg", "g", "line", "path", "circle", "text"),
}


class Page(HTMLParser):
    """Reads a page, and checks that it holds nothing but our own tags, well nested."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.titles: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self._inside: int | None = None
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, f"<{tag}> is not ours"
        given = dict(attributes)
        assert not [name for name in given if name.startswith("on") or name in ("src", "style", "action")]
        self.links += [given["href"]] if "href" in given else []  # type: ignore[list-item]
        self.ids += [given["id"]] if "id" in given else []  # type: ignore[list-item]
        self.titles += [given["title"]] if "title" in given else []  # type: ignore[list-item]
        if tag == "meta":
            return
        self.open.append(tag)
        if given.get("class") == "text":
            self.texts.append("")
            self._inside = len(self.open)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if self._inside == len(self.open):
            self._inside = None
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._inside is not None:
            self.texts[-1] += data


def picture(document: Document, chunks: list[Chunk]) -> Picture:
    return picture_of(document, dict(enumerate(chunks)))


class TestAnyText:
    @fewer
    @given(texts, st.integers(4, 40))
    def test_it_is_shown_as_it_is(self, text: str, size: int) -> None:
        document = Document("d", text, source=text[:30], title=text[-30:])
        ((_, chunks),) = tag([(document, list(SentenceChunker(max_tokens=size).chunk(document)))], LightExtractor())
        page = page_of(picture(document, chunks))
        read = Page(page)
        assert read.texts == [chunk.text for chunk in chunks]
        assert set(read.links) <= {f"#{id_}" for id_ in read.ids}
        # Beside the texts there is no address, and no style that loads something.
        assert "url(" not in page.partition("</style>")[0]

    def test_hostile_names_headings_and_contexts(self) -> None:
        evil = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>"
        document = Document("d", evil * 2, source=evil, title=evil)
        end = len(evil)
        chunks = [
            Chunk.of(
                document,
                span,
                1,
                heading_path=(evil, evil),
                context=evil,
                entities=(Entity(evil, evil, span),),
            )
            for span in (Span(0, end), Span(end, 2 * end))
        ]
        read = Page(page_of(picture(document, chunks)))
        assert read.texts == [evil, evil]
        assert read.titles == [f"{evil} ({evil})"] * 2

    def test_the_page_forbids_what_it_does_not_need(self) -> None:
        page = page_of(picture(*named([names("Ada")])))
        assert "default-src 'none'; style-src 'unsafe-inline'" in page
        assert not re.search(r"https?:|//[a-z]|@import|<script|<link|<iframe", page)


class TestPicture:
    def test_chunks_cuts_and_ties(self) -> None:
        found = picture(*named([names("Tim Cook", "Paris"), names("Cook", "Ada"), names("Bob")])).to_json()
        by_name = {node["name"]: index for index, node in enumerate(found["nodes"])}
        cook = by_name["tim cook"]
        assert found["nodes"][cook] == {
            "name": "tim cook",
            "label": "NAME",
            "display": "Tim Cook",
            "chunks": 2,
            "mentions": 2,
        }
        assert [cut["shared"] for cut in found["cuts"]] == [[cook], []]
        assert [cut["at"] for cut in found["cuts"]] == [chunk["start"] for chunk in found["chunks"][1:]]
        near = {(edge["source"], edge["target"]) for edge in found["edges"] if edge["kind"] == "near"}
        expected = {tuple(sorted((cook, by_name["paris"]))), tuple(sorted((cook, by_name["ada"])))}
        assert near == expected
        (alias,) = [edge for edge in found["edges"] if edge["kind"] == "alias"]
        assert {alias["source"], alias["target"]} == {cook, by_name["cook"]}
        assert [entity["text"] for entity in found["chunks"][1]["entities"]] == ["Cook", "Ada"]
        assert [entity["node"] for entity in found["chunks"][1]["entities"]] == [cook, by_name["ada"]]

    @settings(max_examples=20)
    @given(chunk_mentions)
    def test_the_same_picture_gives_the_same_page(self, chunks: list[list[tuple[str, str]]]) -> None:
        one, two = (picture(*named(chunks)) for _ in range(2))
        assert one.to_json() == two.to_json()
        assert page_of(one) == page_of(two)
        drawn = choose(one, ENTITIES)
        assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in drawn.places.values())
        Page(page_of(one))

    def test_what_is_left_out_is_said(self) -> None:
        many = [names(*(f"Name{number}" for number in range(start, start + 5))) for start in range(0, 300, 5)]
        page = page_of(picture(*named(many)))
        assert f"The {ENTITIES} of 300 that most chunks name are drawn." in page
        assert page.count("<circle") == ENTITIES
        page = page_of(picture(*named([names("Ada")] * (CHUNKS + 2))))
        assert f"The first {CHUNKS} of {CHUNKS + 2} chunks are shown." in page
        assert len(Page(page).texts) == CHUNKS

    @pytest.mark.parametrize("chunks", [[], [[]], [[], []]])
    def test_a_document_that_names_nothing(self, chunks: list[list[tuple[str, str]]]) -> None:
        page = page_of(picture(*named(chunks)))
        assert "name no entity" in page
        assert len(Page(page).texts) == len(chunks)
