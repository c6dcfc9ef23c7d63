"""Each reader on files of its format, and on broken ones."""

from __future__ import annotations

import io
import sys
import zipfile

import pytest
from hypothesis import given

from ctxkit import registry
from ctxkit.documents import Document
from ctxkit.errors import ConfigError, CtxkitError, MissingExtraError, ReadingError
from ctxkit.protocols import Reader
from ctxkit.reading import (
    CodeReader,
    DocxReader,
    HtmlReader,
    MarkdownReader,
    NothingToRead,
    PdfReader,
    TextReader,
    read_bytes,
)
from ctxkit.testing import ReaderConformance
from tests.reading import files
from tests.strategies import texts


class TestTextReader(ReaderConformance):
    def make_reader(self) -> Reader:
        return TextReader()

    def sample(self) -> tuple[bytes, str, list[str]]:
        return "Größe: 5 €.\r\nZweite Zeile.".encode(), "notes/sizes.txt", ["Größe: 5 €.\r\n"]


class TestMarkdownReader(ReaderConformance):
    def make_reader(self) -> Reader:
        return MarkdownReader()

    def sample(self) -> tuple[bytes, str, list[str]]:
        return b"---\ntitle: 'Keys'\ntags: [a, b]\n---\n# Heading\n\ntext\n", "k.md", ["---\ntitle", "# Heading"]


class TestCodeReader(ReaderConformance):
    def make_reader(self) -> Reader:
        return CodeReader(language="python")

    def sample(self) -> tuple[bytes, str, list[str]]:
        return b"def f():\n\treturn 1\n", "src/f.py", ["def f():\n\treturn 1\n"]


class TestHtmlReader(ReaderConformance):
    def make_reader(self) -> Reader:
        return HtmlReader()

    def sample(self) -> tuple[bytes, str, list[str]]:
        return files.HTML.encode(), "keys.html", ["# Keys", "## Steps", "- open the vault", "  - nested"]


class TestPdfReader(ReaderConformance):
    def make_reader(self) -> Reader:
        return PdfReader()

    def sample(self) -> tuple[bytes, str, list[str]]:
        return (
            files.pdf(["Rotate the key.", "Second page."], title="Keys"),
            "k.pdf",
            ["Rotate the key.", "Second page."],
        )


class TestDocxReader(ReaderConformance):
    def make_reader(self) -> Reader:
        return DocxReader()

    def sample(self) -> tuple[bytes, str, list[str]]:
        return (
            files.docx(),
            "handbook.docx",
            ["# Handbook", "Rotate the key monthly.", "- open the vault", "| signing | 30 |"],
        )


# Plain text.


@given(texts)
def test_the_text_is_the_files_own_character_for_character(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    try:
        document = read_bytes(data, source="x.txt")
    except NothingToRead:
        return
    expected = "".join("\ufffd" if c == "\x00" or "\ud800" <= c <= "\udfff" else c for c in text.removeprefix("\ufeff"))
    if document.metadata["encoding"] == "utf-8":
        assert document.text == expected
        replaced = sum(c != e for c, e in zip(text.removeprefix("\ufeff"), expected, strict=True))
        assert document.metadata.get("replaced_characters", 0) == replaced
    else:  # only what looks like UTF-16 or ISO-2022 may be taken for it
        assert b"\x00" in data or b"\x1b$" in data


def test_nul_and_surrogates_are_replaced_one_for_one() -> None:
    document = read_bytes(b"a\x00b \xed\xa0\x80 c", source="x.md")
    assert document.text == "a\ufffdb \ufffd c"
    assert document.metadata["replaced_characters"] == 2


def test_newlines_stay() -> None:
    assert read_bytes(b"a\r\nb\rc\nd", source="x.txt").text == "a\r\nb\rc\nd"


@pytest.mark.parametrize("data", [b"", b" \n\t\n", "\u3000\u2028".encode()])
def test_a_file_without_text_is_nothing_to_read(data: bytes) -> None:
    with pytest.raises(NothingToRead):
        read_bytes(data, source="x.md")


# Markdown.


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# One\n", "One"),
        ("text\n\n## Two ##\n", "Two"),
        ("Under\n=====\n", "Under"),
        ("```\n# not this\n```\n# This\n", "This"),
        ("~~~\n```\n# no\n~~~\n# Yes\n", "Yes"),
        ("#hashtag\n\nno heading", "name"),
        ("- item\n---\n", "name"),
        ("| a |\n---\n", "name"),
        ("# 标题\r\n\r\n正文", "标题"),
    ],
)
def test_the_title_of_markdown(text: str, title: str) -> None:
    assert read_bytes(text.encode(), source="dir/name.md").title == title


# HTML.


def test_html_keeps_structure_and_drops_what_no_reader_sees() -> None:
    text = read_bytes(files.HTML.encode(), source="keys.html").text
    for wanted in (
        "# Keys\n",
        "## Steps\n",
        "- open the vault\n",
        "| name | days |\n| --- | --- |\n| signing | 30 |",
        "```python\ndef f():\n    return 1\n```",
        "**signing** key, see the guide.",
        "a * b _c_ <tag> & 1 < 2",
    ):
        assert wanted in text
    for unwanted in ("alert", "color", "no script", "example.org", "The key"):
        assert unwanted not in text


def test_menus_are_no_text() -> None:
    page = """<body><header><h1>Keys</h1><nav><ul><li><a href=/>Home menu</a></li></ul></nav></header>
    <div role="navigation">Side menu</div><div hidden><nav>Hidden menu</nav></div>
    <main><p>Rotate them.</p><nav>Next page menu</nav></main></body>"""
    text = read_bytes(page.encode(), source="k.html").text
    assert "menu" not in text
    assert "# Keys" in text
    assert "Rotate them." in text


def test_html_that_people_write() -> None:
    page = (
        "<table><tr><td>a|b</td><td>x<br>y</td></tr><tr><td>1</td><td>2</td></tr></table>"
        "<ol><li>one<li>two</ol><blockquote>q</blockquote><pre>x\n  y</pre><p># no heading<p>```<p>2 * 3 | 4"
    )
    text = read_bytes(page.encode(), source="k.html").text
    assert "| a\\|b | x y |\n| --- | --- |\n| 1 | 2 |" in text
    assert "1. one\n2. two" in text
    assert "> q" in text
    assert "```\nx\n  y\n```" in text
    assert "\\# no heading" in text
    assert "\\```" in text
    assert "2 * 3 | 4" in text


def test_the_title_of_html() -> None:
    assert read_bytes(files.HTML.encode(), source="keys.html").title == "The key page"
    assert read_bytes(b"<h2>Only a heading</h2><p>x", source="k.html").title == "Only a heading"
    assert read_bytes(b"<p>x", source="dir/k.html").title == "k"


def test_html_in_a_declared_encoding() -> None:
    page = '<html><head><meta charset="{}"></head><body><p>{}</p></body></html>'
    for encoding, text in (("windows-1251", "Привет, мир"), ("koi8-r", "Привет"), ("shift_jis", "日本語です")):
        assert text in read_bytes(page.format(encoding, text).encode(encoding), source="p.html").text


def test_html_nested_too_deep_still_gives_its_words() -> None:
    page = "<div>" * 20_000 + "deep words" + "</div>" * 20_000
    assert "deep words" in read_bytes(page.encode(), source="deep.html").text


def test_a_page_without_an_ending_is_known_by_its_content() -> None:
    document = read_bytes(b"<!doctype html><html><body><h1>Hi</h1></body>", source="download")
    assert document.metadata["format"] == "html"
    assert document.text == "# Hi\n"


@given(texts)
def test_any_text_as_html(text: str) -> None:
    try:
        document = read_bytes(f"<p>{text}".encode("utf-8", "surrogatepass"), source="x.html")
    except NothingToRead:
        return
    assert "\x00" not in document.text


# PDF and DOCX.


def test_pdf_pages_and_title() -> None:
    document = read_bytes(files.pdf(["First page.", "Second page."], title="The book"), source="b.pdf")
    starts = document.metadata["page_starts"]
    assert document.title == "The book"
    assert document.metadata["pages"] == 2
    assert document.text[starts[1] :].startswith("Second page.")


def test_an_encrypted_pdf_says_so() -> None:
    with pytest.raises(ReadingError, match=r"encrypted.*password"):
        read_bytes(files.pdf(["secret"], password="x"), source="s.pdf")


def test_a_pdf_without_text_says_ocr() -> None:
    with pytest.raises(NothingToRead, match="OCR"):
        read_bytes(files.pdf([""]), source="scan.pdf")


def test_a_damaged_pdf_says_nothing_on_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ReadingError, match=r"damaged|text layer"):
        read_bytes(files.pdf(["text"])[:700], source="cut.pdf")
    assert capfd.readouterr().err == ""


def test_a_pdf_with_too_much_text_is_refused() -> None:
    with pytest.raises(ReadingError, match="more than 10 characters"):
        PdfReader(max_characters=10).read(files.pdf(["more than ten characters"]), source="b.pdf")


def test_docx_structure() -> None:
    document = read_bytes(files.docx("Keys"), source="k.docx")
    assert document.title == "Keys"
    assert "## Steps" in document.text


def test_an_encrypted_docx_says_so() -> None:
    with pytest.raises(ReadingError, match="encrypted"):
        read_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), source="s.docx")


def test_a_docx_bomb_is_refused() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b" " * 5_000_000)
    assert len(buffer.getvalue()) < 10_000
    with pytest.raises(ReadingError, match="expands"):
        DocxReader(max_expanded=1_000_000).read(buffer.getvalue(), source="bomb.docx")


@pytest.mark.parametrize("make", [lambda: PdfReader(max_characters=0), lambda: DocxReader(max_expanded=0)])
def test_wrong_limits(make: type) -> None:
    with pytest.raises(ConfigError):
        make()


@pytest.mark.parametrize(
    ("module", "source"), [("bs4", "x.html"), ("pypdf", "x.pdf"), ("mammoth", "x.docx"), ("lxml", "x.html")]
)
def test_a_missing_extra_names_its_remedy(monkeypatch: pytest.MonkeyPatch, module: str, source: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    data = {"x.html": b"<p>x", "x.pdf": files.pdf(["x"]), "x.docx": files.docx()}[source]
    with pytest.raises(MissingExtraError, match=r"ctxkit-sdk\[readers\]"):
        read_bytes(data, source=source)


# Third parties.


class _Mute:
    pass


class _Shouting:
    def read(self, data: bytes, *, source: str) -> Document:
        return Document.from_text(data.decode().upper(), source=source, metadata={"format": "shout"})


def test_a_registered_reader_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._registered, ("reader", "shout"), _Shouting)
    assert read_bytes(b"hello", source="a.SHOUT").text == "HELLO"


def test_a_registered_thing_that_is_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._registered, ("reader", "odd"), _Mute)
    with pytest.raises(ConfigError, match="read"):
        read_bytes(b"hello", source="a.odd")


@given(texts)
def test_any_bytes_of_any_ending_give_a_document_or_our_error(text: str) -> None:
    subjects: set[bool] = set()
    for encoding in ("utf-16", "utf-32-le", "latin-1"):
        data = text.encode(encoding, "replace")
        for source in ("x", "x.md", "x.py", "x.bin"):
            try:
                document = read_bytes(data, source=source)
            except CtxkitError as error:
                subjects.add(error.subject == source)
            else:
                subjects.add(document.source == source and bool(document.text.strip()))
    assert subjects <= {True}
