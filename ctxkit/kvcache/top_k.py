"""Block top-k attention: while decoding, read only the blocks of keys that the query can be interested in.

Each block of keys has its smallest and largest number in every channel; with them a query has an upper bound of its
product with any key of the block, and only the blocks with the highest bounds are read (Quest, arXiv 2406.10774).
Nothing is evicted: the next query chooses anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit.checking import check_number, check_whole
from ctxkit.kvcache.codecs.protocol import torch_module
from ctxkit.settings import require

if TYPE_CHECKING:
    from torch import Tensor

    from ctxkit.kvcache.layer import CompressedLayer

__all__ = ["BlockTopK", "KeyBounds", "block_top_k"]

NAME = "ctxkit_block_top_k"


@dataclass(kw_only=True)
class BlockTopK:
    """What is read of a cache, and how much of it was.

    Args:
        share: of the tokens that are read in the layers that choose; sinks and recent ones count.
        block: tokens that are chosen together.
        recent: last tokens that are always read; the first block is too.
        dense_layers: first layers that read everything: they attend broadly.

    Attributes:
        tokens_read, tokens_held: summed over layers and queries; see `read_share`.

    Example:
        cache = CompressedCache(model.config, top_k=BlockTopK(share=0.5))
        with block_top_k(model):
            model.generate(ids, cache=cache)
        cache.settings.top_k.read_share
    """

    share: float = 0.5
    block: int = 16
    recent: int = 64
    dense_layers: int = 2
    tokens_read: int = 0
    tokens_held: int = 0

    def __post_init__(self) -> None:
        check_number(self.share, "share", minimum=0, maximum=1)
        check_whole(self.block, "block", minimum=1)
        check_whole(self.recent, "recent", minimum=0)
        check_whole(self.dense_layers, "dense_layers", minimum=0)

    @property
    def read_share(self) -> float:
        """Of the tokens held in the layers that choose, the share that was read; 1 before any was."""
        return self.tokens_read / self.tokens_held if self.tokens_held else 1.0


class KeyBounds:
    """Smallest and largest number of each channel of each whole block of keys, FP16, `(rows, heads, blocks, dim)`."""

    def __init__(self, block: int) -> None:
        self.block = block
        self.count = 0
        self._low: Tensor | None = None
        self._high: Tensor | None = None

    def extend(self, keys: Tensor) -> None:
        """Take in the whole blocks of `(rows, heads, tokens, dim)` that are new. O(new tokens)."""
        torch = torch_module()
        blocks = keys.shape[2] // self.block
        if blocks <= self.count:
            return
        new = keys[:, :, self.count * self.block : blocks * self.block].unflatten(2, (-1, self.block))
        if self._low is None or self._high is None or self._low.shape[2] < blocks:
            shape = (*keys.shape[:2], blocks + max(8, blocks // 4), keys.shape[3])
            fresh = [torch.empty(shape, dtype=torch.float16, device=keys.device) for _ in range(2)]
            for old, bound in zip((self._low, self._high), fresh, strict=True):
                if old is not None:
                    bound[:, :, : self.count] = old[:, :, : self.count]
            self._low, self._high = fresh
        self._low[:, :, self.count : blocks] = new.amin(3)
        self._high[:, :, self.count : blocks] = new.amax(3)
        self.count = blocks

    def upper(self, query: Tensor) -> Tensor:
        """The largest product that a query `(rows, heads, queries, dim)` can have with a key of each block."""
        assert self._low is not None
        assert self._high is not None
        low, high = (bound[:, :, : self.count].to(query.dtype) for bound in (self._low, self._high))
        return query.clamp(min=0) @ high.transpose(2, 3) + query.clamp(max=0) @ low.transpose(2, 3)

    def truncate(self, tokens: int) -> None:
        self.count = min(self.count, tokens // self.block)

    def tensors(self) -> list[Tensor | None]:
        return [self._low, self._high]


@contextmanager
def block_top_k(model: Any) -> Iterator[None]:
    """While it lasts, the model attends through the choice of caches that were made with `top_k`.

    Passes of several tokens (a prefill), other caches and the first layers read everything. The attention is registered
    with transformers under a name of its own; the model's is put back at the end.
    """
    _register()
    before = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _register() -> None:
    transformers = require("transformers", extra="local", subject="kvcache")
    masks = require("transformers.masking_utils", extra="local", subject="kvcache")
    transformers.AttentionInterface.register(NAME, attend)
    transformers.AttentionMaskInterface.register(NAME, masks.sdpa_mask)


def attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """An attention function of transformers: `(rows, query heads, queries, dim)` to `(rows, queries, heads, dim)`."""
    layer = getattr(key, "ctxkit_layer", None)
    if layer is not None and query.shape[2] == 1:
        scaled = query * (options.get("scaling") or query.shape[-1] ** -0.5)
        key, value, attention_mask = choose(layer, module.layer_idx, scaled, key, value, attention_mask)
    sdpa = require("transformers.integrations.sdpa_attention", extra="local", subject="kvcache")
    found: tuple[Tensor, None] = sdpa.sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    return found


def choose(
    layer: CompressedLayer, index: int, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The keys, values and mask that this query reads: the first block, the best ones, and the recent tokens.

    Query heads that share keys read the same blocks: those that together they would give most of their attention, if
    the bounds were reached.
    """
    options = layer.settings.top_k
    tokens = key.shape[2]
    if options is None or index < options.dense_layers:
        return key, value, mask
    options.tokens_held += tokens
    bounds = layer.bounds or KeyBounds(options.block)
    layer.bounds = bounds
    bounds.extend(key)
    # The blocks that may be chosen: all but the first and those that hold recent tokens.
    stop = max(0, tokens - options.recent) // options.block
    wanted = int(options.share * tokens) - (tokens - stop * options.block) - options.block
    count = wanted // options.block
    if count < 0 or stop < 1 or count >= stop - 1:
        options.tokens_read += tokens
        return key, value, mask
    torch = torch_module()
    rows, heads = key.shape[:2]
    grouped = query.reshape(rows, heads, -1, query.shape[-1])
    scores = bounds.upper(grouped)[..., 1:stop]
    if mask is not None:
        scores = _masked(scores, mask, options.block, stop)
    # In logarithms: far behind the best one, shares are too small for a float and would all be equal.
    best = scores.log_softmax(-1).logsumexp(2).topk(count, -1).indices + 1
    chosen = torch.cat([best.new_zeros(rows, heads, 1), best.sort(-1).values], -1)
    row = torch.arange(rows, device=key.device)[:, None, None]
    head = torch.arange(heads, device=key.device)[None, :, None]
    read = []
    for x in (key, value):
        blocks = x[:, :, : stop * options.block].unflatten(2, (stop, options.block))
        read.append(torch.cat([blocks[row, head, chosen].flatten(2, 3), x[:, :, stop * options.block :]], 2))
    if mask is not None:
        mask = _mask_of(mask, chosen, options.block, stop, query.shape[1])
    options.tokens_read += read[0].shape[2]
    return read[0], read[1], mask


def _masked(scores: Tensor, mask: Tensor, block: int, stop: int) -> Tensor:
    """No block is chosen of which nothing may be read."""
    visible = mask if mask.dtype == torch_module().bool else mask == 0
    open_ = visible[:, :, -1, : stop * block].unflatten(-1, (stop, block)).any(-1)[:, :1, None, 1:]
    return scores.masked_fill(~open_, -1e30)


def _mask_of(mask: Tensor, chosen: Tensor, block: int, stop: int, query_heads: int) -> Tensor:
    """The mask of what is read, for every query head: `(rows, query heads, 1, tokens read)`."""
    torch = torch_module()
    rows, heads, count = chosen.shape
    blocks = mask[:, :1, -1, : stop * block].unflatten(-1, (stop, block)).expand(rows, heads, stop, block)
    picked = blocks.gather(2, chosen[..., None].expand(rows, heads, count, block)).flatten(2)
    rest = mask[:, :1, -1, stop * block :].expand(rows, heads, -1)
    whole = torch.cat([picked, rest], -1).repeat_interleave(query_heads // heads, 1)
    return whole[:, :, None]
