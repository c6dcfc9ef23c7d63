"""Scoring a chunk by the stretch of its document around it: where an answer is no sentence but ten minutes of talk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ctxkit.checking import check_whole
from ctxkit.documents import Candidate, Query
from ctxkit.retrieval.neighbours import best_first
from ctxkit.stage_inputs import check_candidates

__all__ = ["Stretches"]

Scores = NDArray[np.float64]
_DECIMALS = 9
_FURTHEST = 4  # reaches: what lies further weighs less than 2 %


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretches:
    """Gives each candidate the mean score of what stands around it, so that the best stretches come first.

    "What did the team say about the budget?" is answered by a stretch of a meeting, most of whose turns say neither
    "team" nor "budget". `final` becomes the sum of the scores around a candidate, each weighted by its tokens and by
    `exp(-distance / reach)`, divided by the greatest sum of weights in its document: near a document's ends there is
    less to find. Text between candidates counts as found with score 0, text behind a document's last one is not
    there: ask the retriever for as many chunks as a document has.

    Args:
        reach: tokens over which the weight falls to a third; a third to a half of the stretch that is looked for.
            0 changes nothing.

    Raises:
        ConfigError: `reach` is negative.

    Complexity: O(n * m) in the candidates n of a document and the most of them, m, within four times `reach`.

    Example:
        >>> Stretches()(Query("anything"), [])
        []
    """

    reach: int = 500

    def __post_init__(self) -> None:
        check_whole(self.reach, "reach", minimum=0)

    def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
        check_candidates(query, candidates)
        if not self.reach:
            return list(candidates)
        documents: dict[str, list[Candidate]] = {}
        for candidate in candidates:
            documents.setdefault(candidate.chunk.document_id, []).append(candidate)
        found: list[Candidate] = []
        for group in documents.values():
            group.sort(key=lambda each: each.chunk.span)
            for candidate, value in zip(group, self._means(group), strict=True):
                found.append(candidate.scored(final=round(float(value), _DECIMALS)))
        return sorted(found, key=best_first)

    def _means(self, group: Sequence[Candidate]) -> Scores:
        """For the candidates of one document, in order."""
        starts = np.array([candidate.chunk.span.start for candidate in group], dtype=np.float64)
        ends = np.array([candidate.chunk.span.end for candidate in group], dtype=np.float64)
        tokens = np.array([candidate.chunk.token_count for candidate in group], dtype=np.float64)
        scores = np.array([candidate.score for candidate in group])
        a_character = tokens.sum() / max(1.0, (ends - starts).sum())
        gaps = np.maximum(0.0, starts - np.concatenate([[0.0], np.maximum.accumulate(ends)[:-1]])) * a_character
        # Gaps and candidates take turns on one line of tokens.
        sizes = np.stack([gaps, tokens], axis=1).ravel()
        values = np.stack([np.zeros(len(group)), scores], axis=1).ravel()
        after = np.cumsum(sizes)
        middle = after - sizes / 2
        sums, weights = np.zeros(len(group)), np.zeros(len(group))
        for at in range(len(group)):
            here = middle[2 * at + 1]
            furthest = _FURTHEST * self.reach
            low, high = np.searchsorted(middle, (here - furthest, here + furthest))
            weight = np.exp(-np.abs(middle[low:high] - here) / self.reach) * sizes[low:high]
            sums[at], weights[at] = weight @ values[low:high], weight.sum()
        greatest = weights.max()
        return sums / greatest if greatest > 0 else scores
