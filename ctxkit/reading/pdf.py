"""PDF through pypdf: the text layer, page by page."""

from __future__ import annotations

import io
import logging
from dataclasses import dataclass
from typing import Any

from ctxkit.documents import Document
from ctxkit.errors import ConfigError, CtxkitError, ReadingError
from ctxkit.reading.decoding import clean
from ctxkit.reading.outcomes import NothingToRead
from ctxkit.reading.text import name_title
from ctxkit.settings import require

__all__ = ["PdfReader"]

_BETWEEN_PAGES = "\n\n"


@dataclass(frozen=True, kw_only=True)
class PdfReader:
    """The text of a PDF. `metadata["page_starts"]` holds the offset at which each page begins.

    Args:
        max_characters: of the extracted text; more is taken for a bomb.

    Raises:
        MissingExtraError: the `readers` extra is not installed.
        ReadingError: encrypted, damaged, or too large once extracted.
        NothingToRead: the pages are images.
    """

    max_characters: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.max_characters < 1:
            raise ConfigError(
                "max_characters must be at least 1", subject=str(self.max_characters), remedy="Give 1 or more."
            )

    def read(self, data: bytes, *, source: str) -> Document:
        pypdf = require("pypdf", extra="readers", subject=source)
        _silence()
        try:
            pages, title = self._extract(pypdf, data, source)
        except CtxkitError:
            raise
        except Exception as error:  # pypdf raises a dozen kinds, KeyError and RecursionError among them
            encrypted = "crypt" in f"{type(error).__name__} {error}".lower()
            raise ReadingError(
                "the PDF is encrypted" if encrypted else f"the PDF is damaged ({type(error).__name__}: {error})",
                subject=source,
                remedy="Remove its password." if encrypted else "Repair it, for example by printing it to a new PDF.",
            ) from error
        if not any(page.strip() for page in pages):
            raise NothingToRead(
                "the PDF has no text layer", subject=source, remedy="Run OCR over it first, for example ocrmypdf."
            )
        starts: list[int] = []
        position = 0
        for page in pages:
            starts.append(position)
            position += len(page) + len(_BETWEEN_PAGES)
        text, replaced = clean(_BETWEEN_PAGES.join(pages))
        metadata: dict[str, Any] = {"format": "pdf", "pages": len(pages), "page_starts": starts}
        if replaced:
            metadata["replaced_characters"] = replaced
        return Document.from_text(text, source=source, title=title or name_title(source), metadata=metadata)

    def _extract(self, pypdf: Any, data: bytes, source: str) -> tuple[list[str], str]:
        reader = pypdf.PdfReader(io.BytesIO(data))
        # Many PDFs are encrypted against printing only: their password for reading is empty.
        if reader.is_encrypted and not reader.decrypt(""):
            raise ReadingError("the PDF is encrypted", subject=source, remedy="Remove its password.")
        pages: list[str] = []
        total = 0
        for page in reader.pages:
            text = page.extract_text() or ""
            total += len(text)
            if total > self.max_characters:
                raise ReadingError(
                    f"the PDF has more than {self.max_characters:,} characters of text",
                    subject=source,
                    remedy="If it is no attack, split it or raise PdfReader(max_characters=…).",
                )
            pages.append(text)
        title = getattr(reader.metadata, "title", None) if reader.metadata else None
        return pages, clean(" ".join(str(title or "").split()))[0]


def _silence() -> None:
    """Keep pypdf's complaints about damaged files off standard error unless the application asks for its log.

    A handler of its own replaces Python's last resort; records still reach the handlers that an application installs.
    """
    logger = logging.getLogger("pypdf")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
