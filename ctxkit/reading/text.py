"""Plain text, source code and Markdown: the text is the file's own, so offsets point into the file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from ctxkit.documents import Document
from ctxkit.errors import ConfigError
from ctxkit.reading.decoding import decode
from ctxkit.reading.front_matter import front_matter
from ctxkit.timestamps import parse_timestamp

__all__ = ["CodeReader", "MarkdownReader", "TextReader", "markdown_title", "name_title"]

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.+?)(?:[ \t]+#+)?[ \t]*$")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-{3,})[ \t]*$")
_TITLE_LIMIT = 1 << 16


@dataclass(frozen=True, kw_only=True)
class TextReader:
    """Plain text as it is, in any encoding. The title is the file's name without its ending.

    Raises:
        ReadingError: the encoding cannot be found.
    """

    def read(self, data: bytes, *, source: str) -> Document:
        text, metadata = _decoded(data, source, "text")
        return Document.from_text(text, source=source, title=name_title(source), metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class CodeReader:
    """Source code as it is; `metadata["language"]` names the language. The title is the file's name."""

    language: str | None = None

    def read(self, data: bytes, *, source: str) -> Document:
        text, metadata = _decoded(data, source, "code")
        if self.language:
            metadata["language"] = self.language
        return Document.from_text(text, source=source, title=PurePosixPath(source).name or source, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class MarkdownReader:
    """Markdown as it is. Title: the front matter's, else the first heading, else the file's name.

    The fields of the front matter become metadata (they also stay in the text, whose offsets are the file's), and its
    `date`, or `created_at`, the document's time. A date that cannot be read is left in the metadata alone.
    """

    def read(self, data: bytes, *, source: str) -> Document:
        text, metadata = _decoded(data, source, "markdown")
        fields, body = front_matter(text)
        title = str(fields.get("title") or "") or markdown_title(text, body) or name_title(source)
        try:
            created_at = parse_timestamp(fields.get("date", fields.get("created_at")), subject=source)
        except ConfigError:
            created_at = None
        return Document.from_text(
            text, source=source, title=title, created_at=created_at, metadata={**fields, **metadata}
        )


def _decoded(data: bytes, source: str, name: str) -> tuple[str, dict[str, Any]]:
    text, encoding, replaced = decode(data, subject=source)
    metadata: dict[str, Any] = {"format": name, "encoding": encoding}
    if replaced:
        metadata["replaced_characters"] = replaced
    return text, metadata


def name_title(source: str) -> str:
    """The name of a file without its ending."""
    path = PurePosixPath(source)
    return path.stem or source


def markdown_title(text: str, start: int = 0) -> str:
    """The text of the first heading (`# …` or underlined) outside fences in the first 64 KiB, or ""."""
    fence = ""
    above = ""
    for line in text[start : start + _TITLE_LIMIT].splitlines():
        if match := _FENCE.match(line):
            marks = match[1]
            if not fence:
                fence = marks
            elif marks[0] == fence[0] and len(marks) >= len(fence) and not line.strip().strip(marks[0]):
                fence = ""
            above = ""
            continue
        if fence:
            continue
        if match := _HEADING.match(line):
            return match[1].strip()
        if above and _UNDERLINE.match(line):
            return above
        above = line.strip()
        # A list item, a quotation, a table row or indented code above a rule is no heading.
        if line[:4].isspace() or above.startswith(("- ", "* ", "+ ", ">", "|")):
            above = ""
    return ""
