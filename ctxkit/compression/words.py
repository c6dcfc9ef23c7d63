"""The words of a text as units that are kept or left out: whole words, whole graphemes, what is guarded in one piece.

White space goes with the word after it, so that words left out between two that are kept leave no scar: the kept spans
side by side are the text. Line breaks are units of their own; they hold the structure of what is kept around them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from ctxkit.documents import Span
from ctxkit.stop_words import ENGLISH_STOP_WORDS
from ctxkit.text import Graphemes

__all__ = ["UNSPACED", "Word", "is_filler", "is_unspaced", "split_words"]

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
"""Characters of scripts that are written without spaces, as the inside of a class of a regular expression."""
_STOPS = "，。！？；：、（）《》“”‘’「」『』【】…—～·"
_MARKS = _STOPS + ".,;:!?\"'()[]{}-–`*_|#"
_CHINESE_FILLERS = frozenset("的了着地得和与及在是也就都而并且")
# In turn: line breaks with the blanks around them; a run written without spaces; a full-width mark; a spaced word. The
# blanks before a word are its own.
_PIECE = re.compile(
    rf"(?P<break>[^\S\r\n]*+(?:\r\n?|\n)\s*+)"
    rf"|(?P<run>[^\S\r\n]*+[{UNSPACED}]++)"
    rf"|(?P<word>[^\S\r\n]*+(?:[{_STOPS}]++|[^\s{UNSPACED}{_STOPS}]++|\Z))"
)
_FIRST_UNSPACED = re.compile(f"[{UNSPACED}]")


@dataclass(frozen=True, slots=True)
class Word:
    """A stretch of a text that is kept or left out whole.

    Args:
        span: in the text, the blanks before the word included.
        guarded: a number, a name of the question, an identifier ...: what makes the difference.
        breaks: a line break: kept where something is kept on both sides.
    """

    span: Span
    guarded: bool = False
    breaks: bool = False


def split_words(text: str, *, guarded: Sequence[Span] = (), blocks: Sequence[Span] = ()) -> list[Word]:
    """The words of a text as contiguous spans that cover all of it. Linear.

    Runs of Chinese are cut by jieba where it is installed, other scripts without spaces into graphemes.

    Args:
        guarded: sorted and disjoint; words that share a character with one of these are guarded, and one word.
        blocks: sorted and disjoint; stretches, such as table rows, that are one word each whatever is in them.

    Example:
        >>> text = "Never open  room 12 again.\\n今天下雨"
        >>> [word.span.slice(text) for word in split_words(text, guarded=[Span(12, 19)])]
        ['Never', ' open', '  room 12', ' again.', '\\n', '今天', '下雨']
    """
    whole = sorted([(span, True) for span in guarded] + [(span, False) for span in blocks])
    words: list[Word] = []
    at = 0
    for word in _pieces(text):
        start = word.span.start
        while at < len(whole) and whole[at][0].end <= start:
            at += 1
        hits = at
        joined = word
        while hits < len(whole) and whole[hits][0].start < word.span.end:
            joined = Word(word.span, guarded=joined.guarded or whole[hits][1])
            hits += 1
        # A stretch that began before this word, in the last one, ties the two together.
        if words and at < len(whole) and whole[at][0].start < start:
            last = words.pop()
            joined = Word(Span(last.span.start, word.span.end), guarded=last.guarded or joined.guarded)
        words.append(joined)
    return words


def is_filler(word: str) -> bool:
    """Whether a word holds a sentence together and says little: articles, auxiliaries, prepositions; lone marks.

    What ends a sentence is none.

    Example:
        >>> [is_filler(word) for word in (" The", " (which", " vault", " it.", "的", "，", "。")]
        [True, True, False, False, True, True, False]
    """
    text = word.strip()
    bare = text.strip(_MARKS).lower()
    if text[-1:] and text[-1] in ".!?。！？":
        return False
    return not bare or bare in ENGLISH_STOP_WORDS or bare in _CHINESE_FILLERS


def is_unspaced(text: str) -> bool:
    """Whether at least a third of what is not blank is written without spaces."""
    letters = sum(not character.isspace() for character in text)
    found = len(_FIRST_UNSPACED.findall(text))
    return found > 0 and 3 * found >= letters


def _pieces(text: str) -> Iterator[Word]:
    """Words as the scripts tell them, moved out of graphemes."""
    graphemes = Graphemes(text)
    start = 0
    for end, breaks in _ends(text):
        end = graphemes.ceil(end)
        if end > start:
            yield Word(Span(start, end), breaks=breaks)
            start = end


def _ends(text: str) -> Iterator[tuple[int, bool]]:
    for piece in _PIECE.finditer(text):
        if piece.lastgroup != "run":
            yield piece.end(), piece.lastgroup == "break"
            continue
        run = piece[0].lstrip()
        position = piece.end() - len(run)
        for part in _parts(run):
            position += len(part)
            yield position, False


def _parts(run: str) -> Sequence[str]:
    if jieba := _jieba():
        parts: list[str] = jieba.lcut(run)
        if "".join(parts) == run:
            return parts
    return list(run)


@lru_cache(maxsize=1)
def _jieba() -> Any:
    """jieba's tokenizer, or None where it is not installed."""
    if find_spec("jieba") is None:
        return None
    from ctxkit.graph.jieba_extractor import load_tokenizer

    return load_tokenizer()
