"""Sentences of a long dialogue by the stretch they stand in: an answer in a meeting is seldom one sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ctxkit.compression.records import Record
from ctxkit.documents import Candidate

__all__ = ["spread"]

_TURN = re.compile(r"^[^\s:：][^\n:：]{0,40}[:：]\s", re.MULTILINE)
_LINE = re.compile(r"^.*\S", re.MULTILINE)
_LONG, _LOOKED_AT = 200, 4
"""Sentences of a dialogue that counts as long; chunks that are looked at to tell one from prose."""
_WIDTH, _SHARE = 20, 0.8
"""Sentences that are one standard deviation of the window; how much of a sentence's chance is its stretch's."""


def spread(
    chance: NDArray[np.float64], candidates: Sequence[Candidate], records: Sequence[Record]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The chances, those in long dialogues spread over their neighbours; and which sentences those are. Linear.

    A dialogue is a document most of whose lines begin with a name and a colon. On meetings (QMSum) this keeps half as
    much again of what answers; a fifth of a sentence's chance stays its own, so that one that answers alone stands out.
    """
    of: dict[str, list[int]] = {}
    for number, candidate in enumerate(candidates):
        of.setdefault(candidate.chunk.document_id, []).append(number)
    starts = np.concatenate([[0], np.cumsum([len(record) for record in records])])
    found, inside = chance, np.zeros(len(chance), dtype=np.bool_)
    for members in of.values():
        if sum(len(records[one]) for one in members) < _LONG or not _is_dialogue([candidates[one] for one in members]):
            continue
        members.sort(key=lambda one: candidates[one].chunk.span)
        rows = np.concatenate([np.arange(starts[one], starts[one + 1]) for one in members])
        found = found.copy() if found is chance else found
        found[rows] = (1 - _SHARE) * chance[rows] + _SHARE * _smooth(chance[rows])
        inside[rows] = True
    return found, inside


def _is_dialogue(candidates: Sequence[Candidate]) -> bool:
    text = "\n".join(candidate.chunk.text for candidate in candidates[:_LOOKED_AT])
    return 2 * len(_TURN.findall(text)) > len(_LINE.findall(text))


def _smooth(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of each value's neighbours, weighted by a Gaussian; at the ends of those that there are."""
    reach = min(3 * _WIDTH, len(values) // 2)
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / _WIDTH) ** 2)
    total = np.convolve(values, weights, "full")[reach : reach + len(values)]
    there = np.convolve(np.ones_like(values), weights, "full")[reach : reach + len(values)]
    return np.asarray(total / there)
