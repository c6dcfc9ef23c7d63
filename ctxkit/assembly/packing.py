"""Choosing what goes into a room: a 0/1 knapsack by value per token, near-linear, with an exact finish."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

__all__ = ["Packed", "pack"]

CORE = 12
"""How many items on each side of the break the exact search decides again."""

MAX_NODES = 2_000
"""Where the exact search stops; what it has found by then is used."""

_MISSES = 8
"""How many items must have been weighed before their hints are trusted to say that another one is far too big."""


Weigh = Callable[[int, dict[int, int]], int | None]


@dataclass(slots=True)
class Packed:
    """The items that were taken, with their costs, and the costs that were learnt of those left out.

    Args:
        taken: item to cost, in the order they were taken.
        known: item to cost, for the items that were weighed and do not fit.
        nothing: the items that would add nothing to those taken.
    """

    taken: dict[int, int] = field(default_factory=dict)
    known: dict[int, int] = field(default_factory=dict)
    nothing: list[int] = field(default_factory=list)

    @property
    def used(self) -> int:
        return sum(self.taken.values())


def pack(
    values: Sequence[float],
    hints: Sequence[int],
    room: int,
    *,
    weigh: Weigh,
    items: Sequence[int] | None = None,
    entangled: frozenset[int] = frozenset(),
) -> Packed:
    """Take the items of most value per token that fit, then decide those around the break exactly.

    Items are taken greedily by density; one that does not fit is passed over and the next is tried. Then the `CORE`
    least dense items taken and the `CORE` densest ones left are decided again by branch and bound, and the whole is
    weighed against the single most valuable item (so the value is never under half of the best possible one).

    Costs are asked for late: an item is weighed when its turn comes by its hint, and put back if it is less dense
    than it seemed. A hint only orders; it keeps an item from being weighed only where the hints of the items weighed
    so far show that the item is too big by far.

    Args:
        values: what each item is worth, 0 or more.
        hints: about what each costs, 1 or more.
        room: the sum of costs never exceeds it.
        weigh: the exact cost of an item beside those taken, or None where it adds nothing to them.
        items: the indexes of the items there are; all by default.
        entangled: the items whose cost depends on others that were taken; the exact search leaves them alone.

    Complexity: O(n log n) and at most one `weigh` of an item that is not entangled.
    Source: Dantzig's greedy bound; the core of Balas and Zemel, "An Algorithm for Large Zero-One Knapsack Problems",
    Operations Research 28 (1980).

    Example:
        >>> costs = [60, 50, 50]
        >>> sorted(pack([70.0, 50.0, 50.0], costs, 100, weigh=lambda item, taken: costs[item]).taken)
        [1, 2]
    """
    packed = Packed()
    if room <= 0:
        return packed
    items = range(len(values)) if items is None else items
    scale = _greedy(packed, items, values, hints, room, weigh, entangled)
    for item in _next_best(packed, items, values, hints, entangled):
        if item not in packed.known and hints[item] * scale <= room:
            _learn(packed, item, weigh)
    _exact_core(packed, values, room, entangled)
    _single_best(packed, items, values, room, weigh, entangled)
    _top_up(packed, values, room, weigh, entangled)
    return packed


def _greedy(
    packed: Packed,
    items: Sequence[int],
    values: Sequence[float],
    hints: Sequence[int],
    room: int,
    weigh: Weigh,
    entangled: frozenset[int],
) -> float:
    """Fill `packed`; returns the smallest ratio of cost to hint that was met, 0 while too few were weighed."""
    left = room
    heap = [(-values[item] / hints[item], -values[item], item, -1) for item in items]
    heapq.heapify(heap)
    weighed, smallest = 0, 1.0
    while heap:
        _, value, item, cost = heapq.heappop(heap)
        if cost < 0 or item in entangled:
            scale = smallest if weighed >= _MISSES else 0.0
            if cost < 0 and hints[item] * scale > left:
                continue
            now = weigh(item, packed.taken)
            if now is None:
                packed.nothing.append(item)
                continue
            if cost < 0:
                weighed += 1
                smallest = min(smallest, now / hints[item])
            if now > max(cost, hints[item]) and now <= left:  # less dense than it seemed: it waits for its turn
                heapq.heappush(heap, (value / max(now, 1), value, item, now))
                continue
            cost = now
        if cost <= left:
            packed.taken[item] = cost
            left -= cost
        else:
            packed.known[item] = cost
    return smallest if weighed >= _MISSES else 0.0


def _learn(packed: Packed, item: int, weigh: Weigh) -> None:
    cost = weigh(item, packed.taken)
    if cost is None:
        packed.nothing.append(item)
    else:
        packed.known[item] = cost


def _next_best(
    packed: Packed, items: Sequence[int], values: Sequence[float], hints: Sequence[int], entangled: frozenset[int]
) -> list[int]:
    """The densest items that were left out."""
    nothing = set(packed.nothing)
    left = [item for item in items if item not in packed.taken and item not in nothing and item not in entangled]
    return heapq.nsmallest(CORE, left, key=lambda item: (-values[item] / packed.known.get(item, hints[item]), item))


def _exact_core(packed: Packed, values: Sequence[float], room: int, entangled: frozenset[int]) -> None:
    """Decide the items around the break again, exactly; swap when that is worth more."""
    free = [item for item in packed.taken if item not in entangled]
    last = heapq.nsmallest(CORE, free, key=lambda item: (values[item] / max(1, packed.taken[item]), -item))
    left = [item for item in packed.known if item not in entangled]
    first = heapq.nsmallest(CORE, left, key=lambda item: (-values[item] / max(1, packed.known[item]), item))
    if not first:
        return
    room -= packed.used - sum(packed.taken[item] for item in last)
    costs = {item: packed.taken.get(item, packed.known.get(item, 0)) for item in (*last, *first)}
    order = sorted(costs, key=lambda item: (-values[item] / max(1, costs[item]), item))
    best = _branch_and_bound([values[item] for item in order], [costs[item] for item in order], room)
    chosen = {order[index] for index in best}
    if sum(values[item] for item in chosen) <= sum(values[item] for item in last) + 1e-12:
        return
    for item in last:
        if item not in chosen:
            packed.known[item] = packed.taken.pop(item)
    for item in order:
        if item in chosen and item not in packed.taken:
            packed.taken[item] = packed.known.pop(item)


def _branch_and_bound(values: Sequence[float], costs: Sequence[int], room: int) -> list[int]:
    """The best choice among items that are sorted by density; the best one found when the nodes run out."""
    total_cost = list(accumulate(costs, initial=0))
    total_value = list(accumulate(values, initial=0.0))
    best: list[int] = []
    best_value = -1.0
    nodes = 0
    stack: list[tuple[int, int, float, tuple[int, ...]]] = [(0, room, 0.0, ())]
    while stack and nodes < MAX_NODES:
        index, left, value, chosen = stack.pop()
        nodes += 1
        if value > best_value:
            best, best_value = list(chosen), value
        if index == len(costs):
            continue
        # Dantzig's bound: fill the rest with the densest, the last one in part.
        full = bisect_right(total_cost, total_cost[index] + left, lo=index) - 1
        bound = value + total_value[full] - total_value[index]
        if full < len(costs):
            bound += values[full] * (left - total_cost[full] + total_cost[index]) / costs[full]
        if bound <= best_value + 1e-12:
            continue
        stack.append((index + 1, left, value, chosen))
        if costs[index] <= left:
            stack.append((index + 1, left - costs[index], value + values[index], (*chosen, index)))
    return best


def _single_best(
    packed: Packed,
    items: Sequence[int],
    values: Sequence[float],
    room: int,
    weigh: Weigh,
    entangled: frozenset[int],
) -> None:
    """Where one item alone is worth more than all that was taken, take it, and of the others what still fits."""
    total = sum(values[item] for item in packed.taken)
    nothing = set(packed.nothing)
    better = [
        item
        for item in items
        if values[item] > total and item not in packed.taken and item not in nothing and item not in entangled
    ]
    for item in sorted(better, key=lambda item: (-values[item], item)):
        if item not in packed.known:
            _learn(packed, item, weigh)
        cost = packed.known.get(item, room + 1)
        if cost <= room:
            packed.known |= packed.taken
            packed.taken = {item: packed.known.pop(item)}
            return


def _top_up(
    packed: Packed,
    values: Sequence[float],
    room: int,
    weigh: Weigh,
    entangled: frozenset[int],
) -> None:
    """Fill what is left with the densest items whose cost is known."""
    left = room - packed.used
    for item in sorted(packed.known, key=lambda item: (-values[item] / max(1, packed.known[item]), item)):
        cost: int | None = packed.known[item]
        if item in entangled:
            cost = weigh(item, packed.taken)
        if cost is not None and cost <= left:
            packed.known.pop(item)
            packed.taken[item] = cost
            left -= cost
