"""What a method of eviction is, and how one is applied to a cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ctxkit.checking import check_able, check_number, check_whole
from ctxkit.errors import ConfigError, KVCacheError
from ctxkit.kvcache.cache import CompressedCache
from ctxkit.kvcache.codecs.protocol import torch_module
from ctxkit.kvcache.eviction.reading import Queries, Reading

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Evicted", "Eviction", "Evictor", "evict"]


class Evictor(Protocol):
    """Says what each token of a cache is worth; see `evict`."""

    @property
    def name(self) -> str:
        """For messages and tables."""
        ...

    @property
    def observed(self) -> int:
        """Of how many of the last tokens the queries must be observed while the text is read; 0 for none."""
        ...

    def scores(self, reading: Reading) -> list[Tensor]:
        """`(rows, heads, tokens)` for each of `reading.layers()`: the higher, the longer a token stays."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """How much of a prompt stays in the cache, and who says which tokens.

    Args:
        method: such as `KVzip()`, `ExpectedAttention()`, `SnapKV()`, or one of them in an `EntropyGate`.
        keep: a float is a share of the tokens, more than 0 and at most 1; a whole number is tokens.
        sinks: first tokens that always stay.
        recent: last tokens that always stay.
        even: every layer keeps equally many. False lets layers compete: those whose tokens score higher keep more, and
            `keep` is the mean. Better with scores that mean the same in every layer (KVzip's), and then passes of
            several tokens need `per_layer_masks`.
        align: where layers compete, the tokens of each are a multiple of this, so that no block stays unpacked.

    Errors: `ConfigError`.
    """

    method: Evictor
    keep: float | int
    sinks: int = 4
    recent: int = 32
    even: bool = True
    align: int = 1

    def __post_init__(self) -> None:
        check_able(self.method, "scores", "method", remedy="Give a method of eviction, such as KVzip().")
        check_whole(self.sinks, "sinks", minimum=0)
        check_whole(self.recent, "recent", minimum=0)
        check_whole(self.align, "align", minimum=1)
        remedy = "Give a share in (0, 1] as a float, or tokens as a whole number of at least 1."
        if isinstance(self.keep, int):
            check_whole(self.keep, "keep", minimum=1, remedy=remedy)
        else:
            check_number(self.keep, "keep", minimum=0, maximum=1, remedy=remedy)
            if self.keep == 0:
                raise ConfigError("keep is 0.0", remedy=remedy)

    def kept(self, tokens: int) -> int:
        """How many of so many tokens stay, unless the method needs more; never fewer than sinks and recent ones."""
        wanted = self.keep if isinstance(self.keep, int) else round(self.keep * tokens)
        return min(tokens, max(wanted, self.sinks + self.recent, 1))


@dataclass(frozen=True, slots=True)
class Evicted:
    """What an eviction did.

    Args:
        tokens: that were held.
        kept: that still are, in each layer that attends to every token, or the mean of these.
        of_layers: how many each of them holds.
        bytes_before, bytes_after: live bytes of the cache.
        method: by whom.
        reason: why more stayed than was asked for, or "".
    """

    tokens: int
    kept: int
    of_layers: tuple[int, ...]
    bytes_before: int
    bytes_after: int
    method: str
    reason: str = ""


def evict(
    cache: CompressedCache,
    eviction: Eviction,
    *,
    model: Any = None,
    ids: Sequence[int] = (),
    queries: Queries | None = None,
) -> Evicted:
    """Evict all but the tokens that are worth most; every head chooses its own, equally many in every layer.

    What is evicted is freed at once. Positions go on as if it were there, and what is kept stays in order. Layers with
    a sliding window are left as they are. A cache that was evicted from is for its request: a store refuses it.

    Args:
        cache: that holds the text; packed tokens are packed again at the next `demote`.
        model: that read the text.
        ids: of the text, where the method reads it again.
        queries: what `observe` gave while it was read.

    Errors: `KVCacheError` for a padded batch, sliding windows that are kept in full, or what the method cannot do.

    Example:
        eviction = Eviction(method=ExpectedAttention(), keep=0.5)
        with observe(model, eviction.method) as queries:
            model(input_ids=ids, cache=cache)
        evict(cache, eviction, model=model, queries=queries)
    """
    if not isinstance(cache, CompressedCache):
        raise KVCacheError(
            f"a {type(cache).__name__} cannot be evicted from",
            subject=eviction.method.name,
            remedy="Read the text into a CompressedCache (codec='none' packs nothing).",
        )
    reading = Reading(cache=cache, model=model, ids=ids, queries=queries)
    tokens = _check(reading, eviction.method.name)
    before = cache.memory_bytes
    kept, reason = eviction.kept(tokens), ""
    needed = getattr(eviction.method, "at_least", None)
    if needed is not None and kept < tokens and (least := needed(reading)) > kept:
        reason = f"attention is spread over {least:,} tokens, {kept:,} were asked for"
        kept = min(tokens, least)
    if kept < tokens:
        scores = [_protected(found, eviction) for found in eviction.method.scores(reading)]
        counts = [kept] * len(scores) if eviction.even else _counts(scores, kept, eviction)
        chosen = [found.topk(count, -1).indices.sort(-1).values for found, count in zip(scores, counts, strict=True)]
        cache.keep(chosen, uneven=not eviction.even)
    held = tuple(layer.length for _, layer in reading.layers())
    return Evicted(tokens, kept, held, before, cache.memory_bytes, eviction.method.name, reason)


def _protected(scores: Tensor, eviction: Eviction) -> Tensor:
    scores = scores.clone()
    scores[..., : eviction.sinks] = float("inf")
    scores[..., scores.shape[-1] - eviction.recent :] = float("inf")
    return scores


def _counts(scores: list[Tensor], kept: int, eviction: Eviction) -> list[int]:
    """How many tokens each layer keeps: `kept` in the mean, not more.

    A layer's k-th place is worth the geometric mean of the scores that its heads would fill it with, and the best
    places of all layers are taken. (By the arithmetic mean one head with a high score buys places for heads that have
    no use for them: 1.3 times the drift.)
    """
    torch = torch_module()
    tokens, unit = scores[0].shape[-1], eviction.align
    least = -(-max(eviction.sinks + eviction.recent, 1) // unit)
    total = max(kept * len(scores) // unit, least * len(scores))
    places = torch.stack(
        [found.sort(-1, descending=True).values.clamp(min=1e-12).log().mean((0, 1)) for found in scores]
    )
    last = places.flatten().topk(min(places.numel(), kept * len(scores))).values[-1]
    shares = [int((worth >= last).sum()) / unit for worth in places]
    counts = [min(tokens // unit, max(least, int(share))) for share in shares]
    # What rounding down left over goes to the layers that lost most by it; what the least ones took is given back.
    while sum(counts) != total:
        step = 1 if sum(counts) < total else -1
        free = [at for at, count in enumerate(counts) if least <= count + step <= tokens // unit]
        if not free:
            break
        counts[max(free, key=lambda at: step * (shares[at] - counts[at]))] += step
    return [min(tokens, count * unit) for count in counts]


def _check(reading: Reading, method: str) -> int:
    """The tokens that are held, 0 for an empty cache."""
    layers = [layer for _, layer in reading.layers()]
    kinds = getattr(reading.cache.config.get_text_config(decoder=True), "layer_types", None) or ()
    if any(index < len(kinds) and kinds[index] != "full_attention" for index, _ in reading.layers()):
        raise KVCacheError(
            "what a sliding window sees depends on which tokens lie between",
            subject=method,
            remedy="Make the cache with sliding='window'.",
        )
    if any(layer.sinks.padding is not None and bool(layer.sinks.padding.any()) for layer in layers):
        raise KVCacheError(
            "the rows are padded, and a mask of theirs would not fit what is kept",
            subject=method,
            remedy="Read rows of different lengths one by one.",
        )
    return layers[0].length if layers else 0
