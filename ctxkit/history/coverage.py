"""What a set of messages says, and what one more would add."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence

from ctxkit.history.terms import Kind, Terms

__all__ = ["Coverage", "worths"]

_KINDS = {Kind.WORD: 1.0, Kind.NAME: 5.0, Kind.NUMBER: 4.0}
"""What a term of a kind is worth, times its rarity."""

_USERS = 1.4
"""How much more a term is worth that the user said: what an assistant found it can find again, a wish it cannot."""


def worths(terms: Sequence[Terms], users: Sequence[bool], rare: Mapping[str, float]) -> dict[str, float]:
    """What each term is worth: its rarity, times what its highest kind is worth, times who said it."""
    kinds: dict[str, Kind] = {}
    said: set[str] = set()
    for each, user in zip(terms, users, strict=True):
        for term, kind in each.items():
            if kind > kinds.get(term, -1):
                kinds[term] = kind
        if user:
            said.update(each)
    return {term: rare[term] * _KINDS[kind] * (_USERS if term in said else 1.0) for term, kind in kinds.items()}


class Coverage:
    """What is said by the entries that are kept."""

    def __init__(self, terms: Sequence[Terms], worth: Mapping[str, float], labels: Sequence[int], reach: int) -> None:
        self._terms = terms
        self._worths = worth
        self._labels = labels
        self._reach = reach
        self._said: dict[str, list[int]] = {}
        self._groups: set[int] = set()

    def add(self, at: int) -> None:
        self._groups.add(self._labels[at])
        for term in self._terms[at]:
            insort(self._said.setdefault(term, []), at)

    def gain(self, at: int) -> float:
        """What keeping one more entry would add; never more than it would have been before."""
        worth = self._worths
        news = sum(worth[term] for term in self._terms[at] if not self._is_said(term, at))
        return news if self._labels[at] in self._groups else 1.5 * news

    def _is_said(self, term: str, at: int) -> bool:
        places = self._said.get(term)
        if places is None:
            return False
        after = bisect_left(places, at)
        return (after < len(places) and places[after] - at <= self._reach) or (
            after > 0 and at - places[after - 1] <= self._reach
        )
