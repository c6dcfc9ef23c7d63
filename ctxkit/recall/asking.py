"""What a question asks for: whose turns, one thing or several, and which days."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ctxkit.recall.entries import Entry
from ctxkit.text import words

__all__ = ["asks_for_several", "speaker_asked"]

_SEVERAL = re.compile(
    r"^(?:in what ways|how (?:many|often)|(?:what|which|who|where)\b.*\b(?:has|have)\b"
    r"|(?:what|which)(?: \w+){0,2}? (?!is|was|does|has|his|this)\w+s\b"
    r"|what (?:do|does|are|kinds?|types?|sorts?)\b|who\b)",
    re.IGNORECASE,
)
_POLITE = re.compile(r"^(?:please,? )?(?:can|could|would|will) you(?: please)? \w+ (?:me|us)\b", re.IGNORECASE)
_PRONOUNS = re.compile(r"\b(?:(i|me|my|mine|myself)|(you|your|yours|yourself))\b|(我)|(你|您)", re.IGNORECASE)


def asks_for_several(question: str) -> bool:
    """Whether an English question asks for what may have been said at several times: "What books has Ada read?"

    Example:
        >>> asks_for_several("Which cities have I seen?"), asks_for_several("When did Ada move?")
        (True, False)
    """
    return _SEVERAL.search(question[:400].strip()) is not None


def speaker_asked(question: str, entries: Sequence[Entry]) -> tuple[str, list[bool]]:
    """Of whom the question asks, and which entries are that one's; "" and none where it names nobody, or two.

    A name of a speaker counts, else `I` is the user and `you` the assistant, whichever the question says first.
    """
    asked = set(words(question))
    parts = {name: words(name) for name in dict.fromkeys(entry.speaker for entry in entries) if name}
    named = [name for name, own in parts.items() if own and own[0] in asked]
    if len({tuple(parts[name]) for name in named}) > 1:
        return "", [False] * len(entries)
    if named:
        return named[0], [entry.speaker in named for entry in entries]
    if (said := _PRONOUNS.search(_POLITE.sub("", question[:400].strip()))) is not None:
        role = "user" if said[1] or said[3] else "assistant"
        return role, [entry.role == role for entry in entries]
    return "", [False] * len(entries)
