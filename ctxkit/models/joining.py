"""Exact token counts of texts that are joined, without counting the whole again.

A provider sees the parts of a message as one text, and byte-pair counts are not additive: "under" + "stand" is one
token. But OpenAI's encodings first cut a text by a regular expression and merge only inside its pieces. Where that
expression must cut, counts are additive. Each part is therefore counted once, from its first sure cut to its last, and
only the few characters around each joint are counted again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import regex

from ctxkit.models.memo import Memo

__all__ = ["JoinedCounter"]

# Places where the expressions of cl100k_base and o200k_base cut whatever stands to the left and right:
# between a newline and a character that is neither white space nor "/" (o200k lets "/" follow newlines in one piece);
# before a space that follows a visible character.
_SURE = r"(?<=\n)(?=[^\s/])|(?<=[^\s])(?=\x20)"
_CUT = regex.compile(_SURE)
_CUT_FROM_END = regex.compile(f"(?r){_SURE}")


class _Counted(NamedTuple):
    """A text as what stands before its first cut, the tokens between, and what stands after its last cut.

    `tokens` is None where the text has no cut; then all of it is in `head`.
    """

    head: str
    tokens: int | None
    tail: str


class JoinedCounter:
    """Counts `"".join(texts)` for one of OpenAI's encodings; each text is counted once, joints are counted again.

    Args:
        count: the exact count of a text.

    Time: linear in the texts that were not seen before, plus the joints.
    """

    def __init__(self, count: Callable[[str], int]) -> None:
        self.memo: Memo[int] = Memo(count)
        self._parts: Memo[_Counted] = Memo(self._part)

    def __call__(self, texts: Iterable[str]) -> int:
        """The tokens of the texts joined without a separator."""
        head, tokens, tail = "", None, ""
        glue: list[str] = []
        for text in texts:
            part = self._parts(text)
            if part.tokens is None:
                glue.append(part.head)
                continue
            glue.append(part.head)
            joint = "".join(glue)
            if tokens is None:
                head, tokens = joint, part.tokens
            else:
                tokens += self.memo(joint) + part.tokens
            glue = [part.tail]
        tail = "".join(glue)
        if tokens is None:
            return self.memo(tail) if tail else 0
        return self.memo(head) + tokens + self.memo(tail)

    def _part(self, text: str) -> _Counted:
        first, last = _CUT.search(text), _CUT_FROM_END.search(text)
        if first is None or last is None:
            return _Counted(text, None, "")
        start, end = first.start(), last.start()
        return _Counted(text[:start], self.memo(text[start:end]), text[end:])
