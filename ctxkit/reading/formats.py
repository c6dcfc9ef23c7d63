"""What a file is: by its content first, its name second."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import NamedTuple

from ctxkit.reading.outcomes import NothingToRead

__all__ = ["Format", "detect"]


class Format(NamedTuple):
    """`name` chooses the reader: markdown, text, html, pdf, docx, code. `language` is set for code and data."""

    name: str
    language: str | None = None


_MARKDOWN = ".md .markdown .mdown .mkd .mdx .qmd .rmd"
_TEXT = ".txt .text .log .rst .adoc .asciidoc .org .tex .csv .tsv .srt .vtt .po"
_HTML = ".html .htm .xhtml"
_CODE = {
    "python": ".py .pyi .pyw",
    "javascript": ".js .mjs .cjs .jsx",
    "typescript": ".ts .tsx .mts .cts",
    "c": ".c .h",
    "cpp": ".cc .cpp .cxx .hpp .hh .hxx .cu .cuh",
    "csharp": ".cs",
    "css": ".css .scss .sass .less",
    "dart": ".dart",
    "elixir": ".ex .exs",
    "erlang": ".erl .hrl",
    "fortran": ".f90 .f95 .f03",
    "go": ".go",
    "graphql": ".graphql .gql",
    "groovy": ".groovy .gradle",
    "haskell": ".hs",
    "ini": ".ini .cfg .conf .properties .editorconfig",
    "java": ".java",
    "json": ".json .jsonl .ndjson .json5 .ipynb",
    "julia": ".jl",
    "kotlin": ".kt .kts",
    "latex": ".sty .cls .bib",
    "lisp": ".lisp .el .clj .cljs .scm",
    "lua": ".lua",
    "make": ".mk",
    "nix": ".nix",
    "objectivec": ".m .mm",
    "ocaml": ".ml .mli",
    "perl": ".pl .pm",
    "php": ".php",
    "powershell": ".ps1 .psm1",
    "proto": ".proto",
    "r": ".r",
    "ruby": ".rb",
    "rust": ".rs",
    "scala": ".scala .sc",
    "shell": ".sh .bash .zsh .fish",
    "sql": ".sql",
    "svelte": ".svelte",
    "swift": ".swift",
    "terraform": ".tf .hcl",
    "toml": ".toml",
    "vue": ".vue",
    "xml": ".xml .xsd .xsl .xslt .svg .rss .atom",
    "yaml": ".yaml .yml",
    "zig": ".zig",
}
_BY_SUFFIX = (
    {suffix: Format("markdown") for suffix in _MARKDOWN.split()}
    | {suffix: Format("text") for suffix in _TEXT.split()}
    | {suffix: Format("html") for suffix in _HTML.split()}
    | {suffix: Format("code", language) for language, suffixes in _CODE.items() for suffix in suffixes.split()}
)
_BY_NAME = {
    "makefile": Format("code", "make"),
    "gnumakefile": Format("code", "make"),
    "dockerfile": Format("code", "dockerfile"),
    "containerfile": Format("code", "dockerfile"),
    "jenkinsfile": Format("code", "groovy"),
    "gemfile": Format("code", "ruby"),
    "rakefile": Format("code", "ruby"),
    "cmakelists.txt": Format("code", "cmake"),
}
_SHEBANG = re.compile(rb"#!\s*\S*?(?:/env\s+(?:-\S+\s+)*)?([a-z]+)[\d.]*\s*$", re.MULTILINE)
_INTERPRETERS = {
    "bash": "shell",
    "sh": "shell",
    "zsh": "shell",
    "python": "python",
    "node": "javascript",
    "perl": "perl",
    "ruby": "ruby",
}
_HTML_START = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype html|html)\b", re.IGNORECASE | re.DOTALL
)

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"II*\x00", "a TIFF image"),
    (b"MM\x00*", "a TIFF image"),
    (b"RIFF", "a RIFF file (image, sound or video)"),
    (b"\x7fELF", "an ELF program"),
    (b"MZ\x90", "a Windows program"),
    (b"\xcf\xfa\xed\xfe", "a Mach-O program"),
    (b"\xca\xfe\xba\xbe", "a Java class or Mach-O program"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive"),
    (b"SQLite format 3\x00", "a SQLite database"),
    (b"OggS", "an Ogg file"),
    (b"ID3", "an MP3 file"),
    (b"fLaC", "a FLAC file"),
    (b"\x00\x00\x01\x00", "an icon"),
    (b"wOFF", "a font"),
    (b"wOF2", "a font"),
    (b"\x00asm", "a WebAssembly module"),
    (b"PAR1", "a Parquet file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"{\\rtf", "an RTF document"),
    (b"%!PS", "a PostScript document"),
)
_BOMS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
# Control bytes that no text has; tab, newlines, form feed, backspace and escape may be in a log.
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b\x0b")) + b"\x7f"


def detect(head: bytes, source: str) -> Format:
    """The format of the file whose first bytes (4 KiB or more, or all) are `head`.

    The content decides where it can: a PNG named `notes.md` is a PNG. For text, the name tells Markdown from code.

    Raises:
        NothingToRead: binary, or a container that no reader here opens; the message says what it is.
    """
    path = PurePosixPath(source.replace("\\", "/"))
    suffix = path.suffix.lower()
    named = _BY_NAME.get(path.name.lower()) or _BY_SUFFIX.get(suffix)
    # Rubbish before the mark is common in PDFs, and the mark is common in programs that write them.
    if head.lstrip().startswith(b"%PDF-") or (named is None and b"%PDF-" in head[:1024]):
        return Format("pdf")
    if head.startswith(b"PK\x03\x04"):
        if suffix in (".docx", ".docm") or b"word/document.xml" in head:
            return Format("docx")
        raise NothingToRead(
            f"binary: {_container(suffix)}", subject=source, remedy="Convert it to Markdown, PDF or DOCX."
        )
    if head.startswith(_OLE):
        # An encrypted DOCX is an OLE container too; the DOCX reader says so.
        if suffix in (".docx", ".docm"):
            return Format("docx")
        raise NothingToRead(
            "binary: an old Microsoft Office document", subject=source, remedy="Save it as DOCX or PDF."
        )
    if suffix == ".pdf" or suffix in (".docx", ".docm"):
        return Format(suffix[1:4] if suffix == ".pdf" else "docx")
    for magic, what in _MAGIC:
        if head.startswith(magic):
            raise NothingToRead(f"binary: {what}", subject=source)
    if head[4:8] == b"ftyp":
        raise NothingToRead("binary: an MP4 or HEIF file", subject=source)
    if not head.startswith(_BOMS) and _is_binary(head, lenient=named is not None):
        raise NothingToRead("binary: not text in any known encoding", subject=source)
    if named is not None:
        return named
    if _HTML_START.match(head[:1024]):
        return Format("html")
    if (match := _SHEBANG.match(head[:256])) and (language := _INTERPRETERS.get(match[1].decode("ascii"))):
        return Format("code", language)
    return Format("text")


def _container(suffix: str) -> str:
    known = {
        ".xlsx": "an Excel workbook",
        ".pptx": "a PowerPoint presentation",
        ".odt": "an OpenDocument text",
        ".epub": "an EPUB book",
        ".jar": "a Java archive",
        ".whl": "a Python wheel",
    }
    return known.get(suffix, "a ZIP archive")


def _is_binary(head: bytes, *, lenient: bool) -> bool:
    controls = len(head) - len(head.translate(None, _CONTROLS))
    if not controls or _is_wide(head):
        return False
    # A stray NUL in a file that is named as text is replaced by the decoder; a twentieth of them is no text.
    return controls > max(2, len(head) // 20) if lenient else b"\x00" in head or controls > len(head) // 50


def _is_wide(head: bytes) -> bool:
    """UTF-16 without a mark: zero bytes on one side of the pairs only."""
    even, odd = head[::2].count(0), head[1::2].count(0)
    return max(even, odd) >= 0.3 * (len(head) / 2) and min(even, odd) <= 0.05 * max(even, odd)
