"""A quotation of older messages: one user message, with a part for each text, under days, between fences."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import date

from ctxkit.messages import Part, Quotation
from ctxkit.recall.entries import Entry

__all__ = ["day_line", "quoted"]


def quoted(units: Sequence[Entry]) -> Quotation:
    """The quotation of these units, in their order.

    The fence and each speaker's label carry digits from the hash of all that is quoted, which occur in none of it: no
    text can close the quotation, or speak with another's label. Deterministic (law 6). A text is quoted as it is, as a
    part of its own.

    Example:
        >>> from ctxkit.messages import Message
        >>> unit = Entry((Message("user", "Hello.", id="a"),), "Hello.", "", 0)
        >>> print(quoted([unit]).text)
        <earlier-944314>
        [944314 user] Hello.
        </earlier-944314>
    """
    named = [one.name for unit in units for one in unit.messages[1:] if one.name]
    tag = _tag([text for unit in units for text in (unit.body, unit.speaker)] + named)
    pieces: list[tuple[str, str]] = [(f"<earlier-{tag}>\n", "")]
    day = None
    for unit in units:
        if unit.created_at is not None and unit.created_at.date() != day:
            day = unit.created_at.date()
            pieces.append((day_line(day), ""))
        pieces += _pieces(unit, tag)
    pieces.append((f"</earlier-{tag}>", ""))
    return Quotation("user", tuple(Part(text=text) for text, _ in pieces), quotes=tuple(name for _, name in pieces))


def day_line(day: date) -> str:
    """The line over what was said on a day; its weekday helps with "last Friday" in a text."""
    return f"{day.isoformat()} {_WEEKDAYS[day.weekday()]}\n"


_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _pieces(unit: Entry, tag: str) -> Iterator[tuple[str, str]]:
    for message in unit.messages:
        if text := message.visible:
            named = f" {' '.join(message.name.split())}" if message.name else ""
            yield f"[{tag} {message.role}{named}] ", ""
            yield text, message.id
            yield "\n", ""


def _tag(texts: Sequence[str]) -> str:
    """Six digits from the hash of the texts that occur in none of them."""
    whole = "\n".join(texts)
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).digest()
    digits = 6
    while True:
        tag = f"{int.from_bytes(digest[:16], 'big') % 10**digits:0{digits}d}"
        if tag not in whole:
            return tag
        digest = hashlib.sha256(digest).digest()
        digits += 1 if digest[0] < 32 else 0
