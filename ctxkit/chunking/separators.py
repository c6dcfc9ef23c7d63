"""Where each kind of text is best cut: the separators of plain text, Markdown, HTML and source code, best first."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from ctxkit.chunking.cutting import Level
from ctxkit.documents import Document
from ctxkit.text import sentence_breaks

__all__ = ["LANGUAGES", "PRESETS", "Places", "Separator", "levels", "preset_of"]

PRESETS = ("auto", "text", "markdown", "code", "html")


@dataclass(frozen=True, slots=True)
class Separator:
    """Cuts after each match of a pattern, or before it."""

    pattern: re.Pattern[str]
    fill: float = 0.5
    before: bool = False

    def positions(self, text: str, low: int, high: int) -> list[int]:
        # Matches begin at or after `low - 1`, so that a line's end just before `low` is seen.
        found = self.pattern.finditer(text, max(0, low - 1), high)
        if self.before:
            return [match.start() for match in found if low <= match.start()]
        return [match.end() for match in found if low <= match.end()]


@dataclass(frozen=True, slots=True)
class Sentences:
    """Cuts after a sentence, and after a line that is not just wrapped prose."""

    fill: float = 0.3

    def positions(self, text: str, low: int, high: int) -> list[int]:
        return [position for position in sentence_breaks(text, low - 1, high) if position >= low]


@dataclass(frozen=True, slots=True)
class Places:
    """Cuts at given places, in order."""

    places: Sequence[int]
    fill: float = 0.0

    def positions(self, text: str, low: int, high: int) -> Sequence[int]:
        return self.places[bisect_left(self.places, low) : bisect_right(self.places, high)]


def _before(pattern: str, fill: float = 0.4) -> Separator:
    return Separator(re.compile(pattern, re.MULTILINE), fill, before=True)


def _after(pattern: str, fill: float = 0.4) -> Separator:
    return Separator(re.compile(pattern), fill)


_PARAGRAPH = _after(r"\n[^\S\n]*+\n\s*+")
_LINE = _after(r"[\n\r]\s*+")
_SENTENCE = Sentences()
_CLAUSE = _after(r"[,;:)\]](?=\s)\s*+|[，、；：—]", 0.5)
_WORD = _after(r"\s++", 0.5)
_INDENTED_LINE = _after(r"\n(?:[^\S\n]*+\n)*+")

_TEXT: tuple[Level, ...] = (_PARAGRAPH, _SENTENCE, _CLAUSE, _WORD)

_MARKDOWN: tuple[Level, ...] = (
    _before(r"^(?:#{1,2}[ \t]|[^\s#>|`~=+*-][^\n]*\n(?:=+|-{2,})[ \t]*$)", 0.25),
    _before(r"^#{3,6}[ \t]", 0.25),
    _before(r"^(?:```|~~~|---[ \t]*$|\*\*\*[ \t]*$|___[ \t]*$)"),
    _PARAGRAPH,
    _before(r"^[ \t]{0,3}(?:[-*+]|\d{1,9}[.)])[ \t]"),
    _SENTENCE,
    _CLAUSE,
    _WORD,
)

_HTML: tuple[Level, ...] = (
    _before(r"<(?:h[1-3]|section|article|main|header|footer|nav|body)\b"),
    _before(r"<(?:h[4-6]|p|div|ul|ol|dl|table|pre|blockquote|figure|form|aside|details)\b"),
    _before(r"<(?:li|tr|dt|dd|option|br|hr)\b"),
    _PARAGRAPH,
    _LINE,
    _SENTENCE,
    _after(r"/[a-zA-Z][a-zA-Z0-9]*>\s*+"),
    _after(r">\s*+"),
    _CLAUSE,
    _WORD,
)

# What opens a definition at the left margin, and one that is nested, by language.
_C_LIKE = r"(?:class|struct|enum|union|namespace|template|typedef|using|extern|static|inline|void|int|#if|#define)\b"
_JAVA_LIKE = r"(?:class|interface|enum|record|fun|func|trait|object|struct|extension|namespace)\b"
_VISIBLE = r"(?:public|protected|private|internal|abstract|final|static|sealed|override|open)"
_DEFINITIONS: dict[str, tuple[str, str]] = {
    "python": (
        r"^(?:@[^\n]*\n){0,8}(?:async def|def|class|if __name__)\b",
        r"^[ \t]+(?:@[^\n]*\n[ \t]+){0,8}(?:async def|def|class)\b",
    ),
    "javascript": (
        r"^(?:export |default |declare |async |abstract )*"
        r"(?:function|class|interface|type|enum|namespace|module|const|let|var)\b",
        r"^[ \t]+(?:(?:public|private|protected|static|async|get|set|readonly) )*[\w$#]+\([^()\n]*\)[^\n;]*\{[ \t]*$",
    ),
    "java": (
        rf"^(?:@[^\n]*\n){{0,8}}(?:{_VISIBLE} )*{_JAVA_LIKE}",
        rf"^[ \t]+(?:@[^\n]*\n[ \t]+){{0,8}}(?:{_VISIBLE}\b|{_JAVA_LIKE})",
    ),
    "go": (r"^(?:func|type|var|const|import)\b", r"^\t(?:case|default|if|for|switch|select)\b"),
    "rust": (
        r"^(?:#\[[^\n]*\n){0,8}(?:pub(?:\([^)\n]*\))? )?(?:(?:async|unsafe|const|extern|default) )*"
        r"(?:fn|struct|enum|union|trait|impl|mod|use|type|static|macro_rules!)",
        r"^[ \t]+(?:pub(?:\([^)\n]*\))? )?(?:(?:async|unsafe|const) )*fn\b",
    ),
    "c": (rf"^{_C_LIKE}", r"^[ \t]+(?:public|private|protected|case|default)\b"),
    "": (
        r"^(?:def|class|function|func|fn|fun|sub|module|package|interface|struct|enum|trait|impl|type|let|const|public)\b",
        r"^[ \t]+(?:def|class|function|func|fn|fun|sub|public|private|protected)\b",
    ),
}


def _code(language: str) -> tuple[Level, ...]:
    definition, nested = _DEFINITIONS[language]
    return (
        _before(definition, 0.4),
        Separator(re.compile(r"^[})\]]+[;,]?[ \t]*\n\s*+", re.MULTILINE)),
        _before(nested),
        _after(r"\n(?:[^\S\n]*+\n)++"),
        _INDENTED_LINE,
        _after(r"[;{},]\s*+"),
        _WORD,
    )


_CODE = {language: _code(language) for language in _DEFINITIONS}

LANGUAGES = {
    **dict.fromkeys(("py", "pyi", "pyx"), "python"),
    **dict.fromkeys(("js", "jsx", "mjs", "cjs", "ts", "tsx", "mts"), "javascript"),
    **dict.fromkeys(("java", "kt", "kts", "scala", "cs", "groovy", "swift"), "java"),
    "go": "go",
    "rs": "rust",
    **dict.fromkeys(("c", "h", "cc", "cpp", "cxx", "hh", "hpp", "hxx", "m", "mm", "cu", "ino", "proto"), "c"),
    **dict.fromkeys(("rb", "php", "lua", "jl", "r", "sh", "bash", "zsh", "pl", "ex", "exs", "hs", "ml", "dart"), ""),
    **dict.fromkeys(("sql", "css", "scss", "less", "vue", "svelte", "tf", "zig", "nim", "el", "clj", "erl"), ""),
    **dict.fromkeys(("json", "jsonl", "yaml", "yml", "toml", "ini", "cfg", "xml", "gradle", "cmake"), ""),
}
"""The language of a file by its extension; the empty name is any language, cut at its common words and brackets."""

_NAMES = {"python", "javascript", "java", "go", "rust", "c"}
_SAME = {"typescript": "javascript", "js": "javascript", "ts": "javascript", "c++": "c", "cpp": "c", "py": "python"}
_FORMATS = {
    **dict.fromkeys(("md", "markdown", "mdx", "mdown", "mkd", "qmd", "rmd"), "markdown"),
    **dict.fromkeys(("html", "htm", "xhtml"), "html"),
    **dict.fromkeys(("txt", "text", "log", "rst", "plain"), "text"),
}


def preset_of(document: Document) -> str:
    """The preset that `auto` stands for: by `metadata["format"]`, else by the extension of the source, else text."""
    for name in (str(document.metadata.get("format", "")).lower().lstrip("."), _extension(document)):
        if name in _FORMATS:
            return _FORMATS[name]
        if name == "code" or name in LANGUAGES or name in _NAMES or name in _SAME:
            return "code"
    return "text"


def levels(preset: str, document: Document) -> tuple[Level, ...]:
    """The separators for a document, best first."""
    if preset == "markdown":
        return _MARKDOWN
    if preset == "html":
        return _HTML
    if preset == "code":
        return _CODE[_language(document)]
    return _TEXT


def _language(document: Document) -> str:
    for key in ("language", "format"):
        name = str(document.metadata.get(key, "")).lower().lstrip(".")
        name = _SAME.get(name, LANGUAGES.get(name, name))
        if name in _NAMES:
            return name
    return LANGUAGES.get(_extension(document), "")


def _extension(document: Document) -> str:
    return PurePosixPath(document.source.replace("\\", "/")).suffix.lower().lstrip(".")
