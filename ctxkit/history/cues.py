"""What speakers do with a message, by deterministic rules of English: confirm, turn down, correct, decide, promise."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ctxkit.history.repair import Entry

__all__ = ["Cues", "cue_weights"]


def _pattern(*alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(alternatives)})\b", re.IGNORECASE)


CONFIRMING = _pattern(
    r"confirm\w*",
    "verify",
    "double[- ]check",
    "mak(?:e|ing) sure",
    "let me (?:see|review)",
    "ensure",
    "following",
    "(?:just|so) to",
    "you(?:'d| would)? (?:like|want|wish)",
    "is (?:that|this|it|everything) (?:right|ok|okay|correct|alright|good)",
    "to recap",
    "in summary",
)
"""An assistant says what it has understood: everything agreed stands there once more."""

ACCEPTING = re.compile(
    r"\W*(?:yes|yeah|yep|yup|sure|ok|okay|alright|correct|right|perfect|great|good|fine|cool|awesome|sounds?|i like|"
    r"i agree|that(?:'s| is| works| sounds| one)|it(?:'s| is) (?:correct|right|ok|fine|good))\b",
    re.IGNORECASE,
)
"""How a user takes what was said."""

REJECTING = re.compile(
    r"\A\W*(?:no|nope|not (?:that|really|quite|what))\b"
    r"|\b(?:what|who|any(?:thing|one|where)?|some(?:thing|where)?) else\b"
    r"|\bany(?: \w+)? others?\b|\b(?:find|have|show|get|see|search|look)(?: \w+){0,3} (?:an)?other\b"
    r"|\b(?:how|what) about\b|\bsomething (?:different|other)\b|\binstead\b|\bdon'?t (?:like|want)\b",
    re.IGNORECASE,
)
"""How a user turns an offer down."""

CORRECTING = _pattern("i meant?", "correction", "on second thought", "scratch that", "actually,? (?:make|change|no|it)")
DECIDING = _pattern("decided (?:to|on|that)", "decision", "agreed (?:to|on|that)", "settled on", "let'?s go with")
PROMISING = _pattern(
    "i promise", "promised", "remind me", "deadline", "by tomorrow", "follow up", "get back to (?:you|me)"
)
REQUESTING = _pattern("remember (?:that|to|my)", "note that", "keep in mind", "from now on", "don'?t forget")


@dataclass(frozen=True, slots=True)
class Cues:
    """How many times more an entry is worth for what it does.

    `offer_turned_down` is for an assistant's message that the user turns down next: superseded.
    """

    confirmation: float = 1.5
    acceptance: float = 1.3
    offer_turned_down: float = 0.1
    correction: float = 1.3
    decision: float = 1.3
    promise: float = 1.3
    request: float = 1.3


def cue_weights(entries: Sequence[Entry], cues: Cues) -> list[float]:
    """A factor for each entry, from its words and from the user's next message. Linear."""
    weights: list[float] = []
    for at, entry in enumerate(entries):
        text = entry.message.visible
        weight = 1.0
        if entry.message.role == "assistant":
            if CONFIRMING.search(text):
                weight *= cues.confirmation
            following = entries[at + 1].message if at + 1 < len(entries) else None
            if following is not None and following.role == "user":
                if REJECTING.search(following.visible):
                    weight *= cues.offer_turned_down
                elif ACCEPTING.match(following.visible):
                    weight *= cues.acceptance
        for pattern, factor in (
            (CORRECTING, cues.correction),
            (DECIDING, cues.decision),
            (PROMISING, cues.promise),
            (REQUESTING, cues.request),
        ):
            if pattern.search(text):
                weight *= factor
        weights.append(weight)
    return weights
