"""DOCX through mammoth, which maps Word's styles to HTML, and from there to Markdown."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from typing import Any

from ctxkit.documents import Document
from ctxkit.errors import ConfigError, ReadingError
from ctxkit.reading.html import html_to_markdown
from ctxkit.reading.text import markdown_title, name_title
from ctxkit.settings import require

__all__ = ["DocxReader"]

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


@dataclass(frozen=True, kw_only=True)
class DocxReader:
    """Word documents; the text is Markdown, so offsets point into that. Pictures are left out.

    Args:
        max_expanded: bytes that the archive may expand to; more is taken for a bomb.

    Raises:
        MissingExtraError: the `readers` extra is not installed.
        ReadingError: encrypted, damaged, or too large once expanded.
    """

    max_expanded: int = 512 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.max_expanded < 1:
            raise ConfigError(
                "max_expanded must be at least 1", subject=str(self.max_expanded), remedy="Give 1 or more."
            )

    def read(self, data: bytes, *, source: str) -> Document:
        mammoth = require("mammoth", extra="readers", subject=source)
        self._check(data, source)
        try:
            # An image handler that gives no address keeps megabytes of base64 out of the text.
            pictures = mammoth.images.img_element(lambda image: {"src": ""})
            markup = mammoth.convert_to_html(io.BytesIO(data), convert_image=pictures).value
        except Exception as error:
            raise ReadingError(
                f"the DOCX cannot be read ({type(error).__name__}: {error})",
                subject=source,
                remedy="Open it in Word or LibreOffice and save it again.",
            ) from error
        text, _, replaced = html_to_markdown(markup, source=source)
        metadata: dict[str, Any] = {"format": "docx"}
        if replaced:
            metadata["replaced_characters"] = replaced
        title = markdown_title(text) or name_title(source)
        return Document.from_text(text, source=source, title=title, metadata=metadata)

    def _check(self, data: bytes, source: str) -> None:
        if data.startswith(_OLE):
            raise ReadingError(
                "the DOCX is encrypted, or an old .doc under a new name",
                subject=source,
                remedy="Remove its password, or save it as DOCX.",
            )
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                entries = archive.infolist()
        except Exception as error:
            raise ReadingError(
                f"the DOCX is damaged ({error})",
                subject=source,
                remedy="Open it in Word or LibreOffice and save it again.",
            ) from error
        if any(entry.flag_bits & 1 for entry in entries):
            raise ReadingError("the DOCX is encrypted", subject=source, remedy="Remove its password.")
        if sum(entry.file_size for entry in entries) > self.max_expanded:
            raise ReadingError(
                f"the DOCX expands to more than {self.max_expanded:,} bytes",
                subject=source,
                remedy="If it is no attack, split it or raise DocxReader(max_expanded=…).",
            )
