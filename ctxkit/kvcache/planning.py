"""How much memory a context takes before anything is computed: by codec, in both states, and while it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ctxkit.checking import check_number, check_whole
from ctxkit.errors import ConfigError, KVCacheError
from ctxkit.kvcache.architecture import Architecture
from ctxkit.kvcache.codecs import Codec, get_codec

__all__ = ["CODECS", "Plan", "PlanRow", "fitting_codecs", "plan"]

CODECS = ("none", "int8", "int4-hq", "int4")
_OVERHEAD = 0.02
"""Part of the memory that is left to the allocator and to small things."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One codec's bytes.

    Args:
        bytes_per_token: what one more token of one sequence adds to an idle cache, in the long run.
        idle: of the caches of the whole batch while they are idle.
        active: while they are active: uncompressed, with the room that they grow into.
        total: weights, one active batch and the peak of reading.
        longest_context: tokens at this batch that fit the memory, at most the model's positions; None without a memory.
        largest_batch: sequences of this context of which one at a time is active, None without a memory.
    """

    codec: str
    bits: float
    bytes_per_token: float
    idle: int
    active: int
    total: int
    longest_context: int | None = None
    largest_batch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The memory of a model with a context; `rows` by codec.

    Args:
        context, batch: tokens of a sequence, and sequences.
        itemsize: bytes of a number of the computation.
        weights: bytes of the model's weights.
        prefill_peak: bytes beside weights and cache while `prefill` tokens are read, the whole context held. An upper
            estimate: hidden states, the feed-forward's, one layer's attention, the logits of the last token.
        memory: bytes to fit into, or None.
    """

    architecture: Architecture
    context: int
    batch: int
    itemsize: int
    prefill: int
    weights: int
    prefill_peak: int
    memory: int | None
    rows: tuple[PlanRow, ...]

    @property
    def fits(self) -> bool:
        """Whether some codec's `total` fits the memory; True where none was given."""
        return self.memory is None or any(row.total <= self.memory for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"fits": self.fits}


def plan(
    architecture: Architecture,
    *,
    context: int,
    batch: int = 1,
    itemsize: int = 4,
    memory: int | None = None,
    codecs: tuple[str | Codec, ...] = CODECS,
    prefill: int = 256,
    sinks: int = 4,
    window: int = 64,
    block: int = 64,
) -> Plan:
    """What a context takes, and what fits.

    Args:
        context: tokens, prompt and answer together.
        itemsize: bytes of a number of the computation: 4 for float32, as on a CPU; 2 for bfloat16 and float16.
        memory: bytes to fit into.
        prefill: tokens that are read at once.
        sinks, window, block: as of `CompressedCache`.

    Errors: `ConfigError` for a number that cannot be, a context beyond the model's positions, or an unknown codec.

    Example:
        >>> smol = Architecture(layers=30, kv_heads=3, head_dim=64)
        >>> [round(row.bytes_per_token) for row in plan(smol, context=4096, itemsize=2).rows]
        [23040, 12240, 6840, 6480]
    """
    for name, value in {"context": context, "batch": batch, "itemsize": itemsize, "prefill": prefill}.items():
        check_whole(value, name, minimum=1)
    if memory is not None:
        check_number(memory, "memory", minimum=0)
    if architecture.positions and context > architecture.positions:
        raise ConfigError(
            f"a context of {context:,} tokens is beyond the model's {architecture.positions:,} positions",
            remedy="Ask for a shorter context.",
        )
    sizes = _Sizes(architecture, itemsize, prefill, sinks, window, block)
    weights = architecture.weights * itemsize
    rows = []
    for codec in (get_codec(one) for one in codecs):
        idle, active = sizes.idle(codec, context), sizes.active(codec, context)
        row = PlanRow(
            codec=codec.name,
            bits=8 * sizes.block_bytes(codec) / (2 * architecture.kv_heads * architecture.head_dim * block),
            bytes_per_token=(sizes.idle(codec, context + 64 * block) - idle) / (64 * block),
            idle=batch * idle,
            active=batch * active,
            total=weights + batch * active + sizes.peak(context, batch),
        )
        if memory is not None:
            row = _limits(row, sizes, codec, weights, memory, context, batch)
        rows.append(row)
    return Plan(
        architecture=architecture,
        context=context,
        batch=batch,
        itemsize=itemsize,
        prefill=prefill,
        weights=weights,
        prefill_peak=sizes.peak(context, batch),
        memory=memory,
        rows=tuple(rows),
    )


def fitting_codecs(architecture: Architecture) -> tuple[str, ...]:
    """Those of `CODECS` that can pack heads of this many channels."""

    def fits(name: str) -> bool:
        try:
            get_codec(name).nbytes(1, 64, architecture.head_dim)
        except KVCacheError:
            return False
        return True

    return tuple(filter(fits, CODECS))


def _limits(row: PlanRow, sizes: _Sizes, codec: Codec, weights: int, memory: int, context: int, batch: int) -> PlanRow:
    room = int(memory * (1 - _OVERHEAD)) - weights

    def fits_context(tokens: int) -> bool:
        return batch * sizes.active(codec, tokens) + sizes.peak(tokens, batch) <= room

    def fits_batch(count: int) -> bool:
        idle = (count - 1) * sizes.idle(codec, context)
        return idle + sizes.active(codec, context) + sizes.peak(context, 1) <= room

    longest = _largest(fits_context, sizes.architecture.positions or 1 << 40)
    values = asdict(row) | {"longest_context": longest, "largest_batch": _largest(fits_batch, 1 << 24)}
    return PlanRow(**values)


def _largest(fits: Callable[[int], bool], limit: int) -> int:
    """The largest number up to `limit` that fits; 0 where not even 1 does. O(log limit)."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Bytes of one sequence, as `CompressedCache` lays them out."""

    architecture: Architecture
    itemsize: int
    prefill: int
    sinks: int
    window: int
    block: int

    def block_bytes(self, codec: Codec) -> int:
        one = self.architecture
        return codec.nbytes(one.kv_heads, self.block, one.head_dim, itemsize=self.itemsize)

    def rested(self, codec: Codec) -> int:
        """Bytes of a number of the exact window while idle: FP16 where the cache is packed."""
        return self.itemsize if codec.name == "none" else min(2, self.itemsize)

    def numbers(self, layers: int) -> int:
        """Keys and values of one token in so many layers."""
        return 2 * layers * self.architecture.kv_heads * self.architecture.head_dim

    def sliding(self, tokens: int, *, more: int = 0) -> int:
        """Sliding layers hold the last `window - 1` tokens as they were computed, and what was read with the last."""
        one = self.architecture
        held = min(tokens, max(0, one.sliding_window - 1) + more)
        return self.numbers(one.sliding_layers) * held * self.itemsize

    def idle(self, codec: Codec, tokens: int) -> int:
        blocks = max(0, tokens - self.window) // self.block
        exact = tokens - blocks * self.block + (self.sinks if blocks else 0)
        layers = self.architecture.full_layers
        packed = layers * blocks * self.block_bytes(codec)
        return packed + self.numbers(layers) * exact * self.rested(codec) + self.sliding(tokens)

    def active(self, codec: Codec, tokens: int) -> int:
        """Working memory with the eighth that it grows by."""
        room = tokens + max(self.block, tokens // 8)
        return self.numbers(self.architecture.full_layers) * room * self.itemsize + self.sliding(
            tokens, more=self.prefill
        )

    def peak(self, tokens: int, batch: int) -> int:
        """While the last tokens are read on top of the rest: what one layer holds at once, the mask and the logits."""
        one = self.architecture
        prefill = min(self.prefill, tokens)
        queries = max(one.query_heads, one.kv_heads) * one.head_dim
        hidden = max(one.hidden_size, queries)
        of_tokens = prefill * (4 * hidden + 3 * max(one.intermediate_size, 0) + 3 * queries)
        # Grouped heads are repeated for the attention where there is a mask.
        repeated = 2 * tokens * queries
        mask = prefill * tokens
        return batch * (self.itemsize * (of_tokens + repeated + one.vocabulary) + mask)
