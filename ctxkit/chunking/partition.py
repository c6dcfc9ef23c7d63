"""The cheapest way to cut a row of nodes, exactly, by dynamic programming."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["partition"]


def partition(
    sizes: Sequence[int], cut_costs: Sequence[float], *, limit: int, preferred: int, weight: float
) -> list[int]:
    """Where to cut: the starts of the groups, the first of which is 0.

    The groups minimise `sum(cut_costs[start] for each start but 0) + sum(penalty(tokens) for each group)`, where
    `penalty(tokens) = weight * ((tokens - preferred) / preferred) ** 2`, and no group of more than one node has more
    than `limit` tokens.

    Args:
        sizes: tokens of each node.
        cut_costs: of a cut before each node; the first is not used.

    Complexity: O(n * g), where g is the most nodes that fit in a group.
    """
    n = len(sizes)
    total = [0] * (n + 1)
    for at, size in enumerate(sizes):
        total[at + 1] = total[at] + size
    penalties = [weight * ((tokens - preferred) / preferred) ** 2 for tokens in range(limit + 1)]
    infinite = float("inf")
    best = [0.0] * (n + 1)
    before = [0] * (n + 1)
    low = 0
    for end in range(1, n + 1):
        reach = total[end]
        while low < end - 1 and reach - total[low] > limit:
            low += 1
        lowest, chosen = infinite, end - 1
        for start in range(end - 1, low - 1, -1):
            tokens = reach - total[start]
            cost = best[start] + penalties[tokens if tokens <= limit else limit]
            if cost < lowest:
                lowest, chosen = cost, start
        before[end] = chosen
        best[end] = lowest + (cut_costs[end] if end < n else 0.0)
    starts = []
    at = n
    while at > 0:
        at = before[at]
        starts.append(at)
    starts.reverse()
    return starts
