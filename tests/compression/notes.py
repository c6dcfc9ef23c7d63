"""Texts that the tests of sentence compression share, and how long they are."""

from __future__ import annotations

from collections.abc import Sequence

from ctxkit.documents import Candidate
from ctxkit.tokens import get_counter

COUNTER = get_counter()


def tokens(candidates: Sequence[Candidate]) -> int:
    return sum(COUNTER.count(candidate.text) for candidate in candidates)


KEYS = (
    "The vault is in the cellar. Bananas grow in warm places. The signing key is rotated every month. "
    "Nobody likes the rain very much, least of all on Sundays. "
    "The old signing key stays valid for a week. The canteen opens at noon."
)
RAIN = "It rained all day. The key of the piece is C major. The band played on. Nobody left early."
