"""Which blocks a store gives up: hit rates on a production log, beside LRU, LRU-2 and one who knows the future."""

from __future__ import annotations

import gzip
import heapq
import json
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from ctxkit.errors import ConfigError
from ctxkit.evaluation.report import Bar, Report
from ctxkit.kvcache.codecs import get_codec
from ctxkit.kvcache.use_order import UseOrder

__all__ = ["run"]

Requests = list[list[int]]

SIZES = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
_NEARLY_ALL = 0.99

_BLOCK = 512
"""Tokens of a block in the log."""


def run(data: Path, *, full: bool = False) -> Report:
    """Share of the full blocks of all prompts that were found, each after all blocks before it.

    `clairvoyant` gives up the block whose next use is farthest, and keeps none that is not used again (Belady), which
    is the optimum for prefixes too: a block is never used later than one that follows it. `int4 in float16's memory`
    holds as many more blocks as int4 makes them smaller.

    Args:
        full: also caches of 500 and 200,000 blocks.
    """
    requests = read(data)
    total = sum(map(len, requests))
    report = Report("kvcache eviction", f"Mooncake conversations: {len(requests):,} requests, {total:,} full blocks")
    shares: list[tuple[float, float]] = []
    smaller = get_codec("none").nbytes(1, 64, 64) / get_codec("int4").nbytes(1, 64, 64)
    for size in (500, *SIZES, 200_000) if full else SIZES:
        rates: dict[str, float] = {
            name: policy(requests, size) / total
            for name, policy in (("LRU", lru), ("LRU, ends first", lru_ends_first), ("LRU-2", lru_2), ("ours", ours))
        }
        best = clairvoyant(requests, size) / total
        packed = ours(requests, int(size * smaller)) / total
        report.rows.append(
            {
                "blocks": size,
                **{name: round(rate, 4) for name, rate in rates.items()},
                "clairvoyant": round(best, 4),
                "ours / clairvoyant": round(rates["ours"] / best, 3),
                "int4 in float16's memory": round(packed, 4),
                "int4 / clairvoyant": round(packed / best, 3),
            }
        )
        plain = max(rates["LRU"], rates["LRU, ends first"])
        shares.append((rates["ours"] / best, packed / best))
        if plain < _NEARLY_ALL * best:  # else there is nothing to be better at
            above = rates["ours"] > plain
            report.bars.append(
                Bar(f"hit rate above both LRUs, {size:,} blocks", round(rates["ours"], 4), f"> {plain:.4f}", above)
            )
    equal, packed_share = (min(share[which] for share in shares) for which in (0, 1))
    report.bars.append(Bar.at_least("hit rate / clairvoyant, worst size", equal, 0.95))
    report.bars.append(Bar.at_least("the same, int4 in float16's memory, worst size", packed_share, 0.95))
    return report


def read(data: Path) -> Requests:
    """The full blocks of each request; the hash of one that is not full says nothing of a later request."""
    path = data / "llm_traces" / "mooncake_conversation_trace.jsonl.gz"
    if not path.is_file():
        raise ConfigError("the data file is not here", subject=str(path), remedy="Set CTXKIT_DATA to its folder.")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = map(json.loads, lines)
        return [row["hash_ids"][: row["input_length"] // _BLOCK] for row in rows]


def _hits(blocks: list[int], found: Callable[[int], bool]) -> int:
    """How many blocks are found before the first that is not."""
    return next((number for number, block in enumerate(blocks) if not found(block)), len(blocks))


def lru(requests: Requests, size: int) -> int:
    """Blocks are used from the first to the last, and the least recently used goes."""
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for blocks in requests:
        hits += _hits(blocks, held.__contains__)
        for block in blocks:
            held.setdefault(block)
            held.move_to_end(block)
            if len(held) > size:
                held.popitem(last=False)
    return hits


def lru_ends_first(requests: Requests, size: int) -> int:
    """Of the blocks of one request the last goes first, as in vLLM."""
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for blocks in requests:
        hits += _hits(blocks, held.__contains__)
        for block in reversed(blocks):
            held.setdefault(block)
            held.move_to_end(block)
        while len(held) > size:
            held.popitem(last=False)
    return hits


def lru_2(requests: Requests, size: int) -> int:
    """The block whose last use but one is the longest ago goes; all uses are remembered."""
    uses: dict[int, tuple[int, int]] = {}
    held: dict[int, tuple[int, int, int]] = {}
    heap: list[tuple[tuple[int, int, int], int]] = []
    hits = 0
    for now, blocks in enumerate(requests):
        hits += _hits(blocks, held.__contains__)
        for depth, block in enumerate(blocks):
            uses[block] = (uses.get(block, (-1, -1))[1], now)
            held[block] = (*uses[block], -depth)
            heapq.heappush(heap, (held[block], block))
        while len(held) > size:
            rank, block = heapq.heappop(heap)
            if held.get(block) == rank:
                del held[block]
    return hits


def ours(requests: Requests, size: int) -> int:
    """The order of the block store's tiers."""
    order = UseOrder()
    hits = 0
    for blocks in requests:
        keys = [str(block) for block in blocks]
        hits += next((number for number, key in enumerate(keys) if key not in order), len(keys))
        order.use(keys)
        for key in keys:
            order.add(key)
        while len(order) > size:
            order.remove(order.victim(()) or "")
    return hits


def clairvoyant(requests: Requests, size: int) -> int:
    """Belady's rule, with the liberty to keep nothing of a request."""
    following: list[list[int]] = []
    last: dict[int, int] = {}
    never = len(requests)
    for now in range(len(requests) - 1, -1, -1):
        following.append([last.get(block, never) for block in requests[now]])
        last.update(dict.fromkeys(requests[now], now))
    following.reverse()
    held: dict[int, int] = {}
    heap: list[tuple[int, int, int]] = []
    hits = 0
    for blocks, uses in zip(requests, following, strict=True):
        hits += _hits(blocks, held.__contains__)
        for depth, (block, use) in enumerate(zip(blocks, uses, strict=True)):
            held.pop(block, None)
            if use < never:
                held[block] = use
                heapq.heappush(heap, (-use, -depth, block))
        while len(held) > size:
            use, _, block = heapq.heappop(heap)
            if held.get(block) == -use:
                del held[block]
    return hits
