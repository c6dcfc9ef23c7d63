"""HTML to Markdown: headings, lists, tables and code stay what they are; scripts, styles and menus go."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

from ctxkit.documents import Document
from ctxkit.errors import ReadingError
from ctxkit.reading.decoding import clean, decode
from ctxkit.reading.text import markdown_title, name_title
from ctxkit.settings import require

__all__ = ["HtmlReader", "html_to_markdown"]

# What a page shows to no reader, or shows as controls.
_DROPPED = (
    *("script", "style", "noscript", "template", "svg", "canvas", "iframe", "object", "head", "form", "button"),
    "nav",  # a menu is the same on every page, and says nothing of this one
)
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+\n")
_BLOCK_START = re.compile(r"^(\s*)(#{1,6}\s|```|~~~)")
_LANGUAGE = re.compile(r"(?:language|lang|highlight-source)-([\w+#-]+)")


@dataclass(frozen=True, kw_only=True)
class HtmlReader:
    """HTML through Beautiful Soup and markdownify; the text is Markdown, so offsets point into that.

    The title is the page's `<title>`, else its first heading, else the file's name. Links keep their text and lose
    their address; images leave their alternative text.

    Raises:
        MissingExtraError: the `readers` extra is not installed.
        ReadingError: the page cannot be parsed.
    """

    def read(self, data: bytes, *, source: str) -> Document:
        markup, encoding, _ = decode(data, subject=source)
        text, title, replaced = html_to_markdown(markup, source=source)
        metadata: dict[str, Any] = {"format": "html", "encoding": encoding}
        if replaced:
            metadata["replaced_characters"] = replaced
        title = title or markdown_title(text) or name_title(source)
        return Document.from_text(text, source=source, title=title, metadata=metadata)


def html_to_markdown(markup: str, *, source: str = "") -> tuple[str, str, int]:
    """The Markdown of a page, its `<title>`, and how many characters were replaced by U+FFFD."""
    bs4 = require("bs4", extra="readers", subject=source)
    require("lxml", extra="readers", subject=source)
    require("markdownify", extra="readers", subject=source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of pages that look like addresses or XML: ours to judge
            soup = bs4.BeautifulSoup(markup, "lxml")
        title = " ".join(soup.title.get_text().split()) if soup.title else ""
        for element in soup(list(_DROPPED)):
            element.decompose()
        for unseen in ({"hidden": True}, {"role": "navigation"}):
            for element in soup.find_all(attrs=unseen):
                element.decompose()
        try:
            text = _converter()(
                heading_style="ATX",
                bullets="-",
                strip=["a"],
                code_language_callback=_language,
                table_infer_header=True,
            ).convert_soup(_without_images(soup))
        except RecursionError:
            text = soup.get_text("\n")  # nested deeper than any page a person made: the words still count
    except Exception as error:
        raise ReadingError(
            f"the page cannot be parsed ({type(error).__name__}: {error})",
            subject=source,
            remedy="Save it again from a browser, or as text.",
        ) from error
    text, replaced = clean(_BLANK_LINES.sub("\n\n", text).strip())
    return (f"{text}\n" if text else ""), clean(title)[0], replaced


@cache
def _converter() -> Any:
    from markdownify import MarkdownConverter

    class Converter(MarkdownConverter):
        """Escapes only what would change the structure: elsewhere the words stay as the page shows them."""

        def escape(self, text: str, parent_tags: Any) -> str:
            if "td" in parent_tags or "th" in parent_tags:
                text = text.replace("|", "\\|")
            return _BLOCK_START.sub(r"\1\\\2", text)

    return Converter


def _without_images(soup: Any) -> Any:
    for image in soup("img"):
        image.replace_with(image.get("alt") or "")
    return soup


def _language(element: Any) -> str:
    for node in [element, *element.find_all("code", limit=1)]:
        names = " ".join(node.get("class") or ())
        if match := _LANGUAGE.search(names):
            return match[1]
    return ""
