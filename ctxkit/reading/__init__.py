"""Files to documents: Markdown, text, HTML, PDF, DOCX and source code, alone or by the folder."""

from ctxkit.reading.decoding import Decoded, decode
from ctxkit.reading.docx import DocxReader
from ctxkit.reading.files import MAX_BYTES, read_bytes, read_file, read_paths
from ctxkit.reading.formats import Format, detect
from ctxkit.reading.html import HtmlReader
from ctxkit.reading.outcomes import Failed, NothingToRead, Skipped
from ctxkit.reading.pdf import PdfReader
from ctxkit.reading.streaming import read_stream
from ctxkit.reading.text import CodeReader, MarkdownReader, TextReader
from ctxkit.reading.walking import source_of, walk

__all__ = [
    "MAX_BYTES",
    "CodeReader",
    "Decoded",
    "DocxReader",
    "Failed",
    "Format",
    "HtmlReader",
    "MarkdownReader",
    "NothingToRead",
    "PdfReader",
    "Skipped",
    "TextReader",
    "decode",
    "detect",
    "read_bytes",
    "read_file",
    "read_paths",
    "read_stream",
    "source_of",
    "walk",
]
