"""One layer of the compressed cache: packed blocks, an exact window, and working memory while it is active."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit.checking import check_kind, check_whole
from ctxkit.errors import ConfigError, KVCacheError
from ctxkit.kvcache.codecs import Codec
from ctxkit.kvcache.codecs.protocol import check_pair, torch_module
from ctxkit.kvcache.compat import crop_zero_removes_all, query_length
from ctxkit.kvcache.memory import MemoryReport, held_bytes
from ctxkit.kvcache.packed import PackedBlocks, clone_blocks
from ctxkit.kvcache.sinks import Sinks
from ctxkit.kvcache.top_k import BlockTopK

if TYPE_CHECKING:
    from torch import Tensor

    from ctxkit.kvcache.top_k import KeyBounds

__all__ = ["CompressedLayer", "LayerSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSettings:
    """See `CompressedCache`."""

    codec: Codec
    sinks: int = 4
    window: int = 64
    block: int = 64
    resident: bool = True
    eager: bool = False
    window_dtype: str = "auto"
    top_k: BlockTopK | None = None

    def __post_init__(self) -> None:
        check_whole(self.sinks, "sinks", minimum=0)
        check_whole(self.window, "window", minimum=0)
        check_whole(self.block, "block", minimum=1)
        if self.sinks > self.block:
            raise ConfigError(
                f"sinks is {self.sinks}, block {self.block}", remedy="The exact first tokens must fit the first block."
            )
        for name in ("resident", "eager"):
            check_kind(getattr(self, name), bool, name, remedy="Give True or False.")
        if self.top_k is not None:
            check_kind(self.top_k, BlockTopK, "top_k", remedy="Give a BlockTopK(share=…).")
        if self.window_dtype not in ("auto", "exact"):
            raise ConfigError(f"window_dtype is {self.window_dtype!r}", remedy="Give 'auto' or 'exact'.")


class CompressedLayer:
    """Keys and values of one layer, `(rows, heads, tokens, dim)`, as transformers' cache layers give and take them.

    Tokens `[0, packed.tokens)` are packed; the rest are exact. An *active* layer also holds all tokens in preallocated
    working memory, and nothing but that is read or written from one token to the next. An *idle* one holds the packed
    blocks, the sinks and the exact tail.

    Invariants:
        A token is packed once. `length` counts the tokens that are held, `removed` those that were evicted, and
        `get_seq_length` both, so that positions go on where they were.
    """

    is_sliding = False
    is_compileable = False
    is_croppable = True
    supports_early_init = False

    def __init__(self, settings: LayerSettings, *, padding: Tensor | None = None) -> None:
        self.settings = settings
        self.packed = PackedBlocks(settings.codec, settings.block)
        self.sinks = Sinks(settings.sinks, padding)
        self.tail: tuple[Tensor, Tensor] | None = None
        self.working: tuple[Tensor, Tensor] | None = None
        self.bounds: KeyBounds | None = None
        self.length = 0
        self.removed = 0
        self.is_initialized = False
        self.dtype: Any = None
        self.device: Any = None
        self._shapes: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))
        self._rows = 0

    # What transformers calls

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        check_pair(key_states, value_states)
        self.sinks.fit(key_states.shape[0])
        heads = key_states.shape[1]
        for states in (key_states, value_states):
            self.settings.codec.nbytes(heads, self.settings.block, states.shape[-1])  # refuses what cannot be packed
        self.dtype, self.device = key_states.dtype, key_states.device
        self._shapes = ((heads, key_states.shape[-1]), (heads, value_states.shape[-1]))
        self._rows = key_states.shape[0]
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append new tokens; all visible keys and values, as views of the working memory.

        In a forward pass the new tokens see each other exactly; they are packed when they have left the window and the
        layer is demoted (or, with `eager`, at the next pass).
        """
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        elif key_states.shape[0] != self._rows:
            raise KVCacheError(
                f"the cache holds {self._rows} rows, the new tokens are of {key_states.shape[0]}",
                remedy="Repeat or select the cache's rows first, or reset it.",
            )
        if self.settings.eager:
            self._settle()
        new = key_states.shape[-2]
        self.activate(room=new)
        assert self.working is not None
        for working, states in zip(self.working, (key_states, value_states), strict=True):
            working[:, :, self.length : self.length + new] = states
        self.length += new
        keys, values = (working[:, :, : self.length] for working in self.working)
        if self.settings.top_k is not None:
            keys.ctxkit_layer = self  # for the attention function, which is given the tensor and not the cache
        if not self.settings.resident:
            self.demote()
        return keys, values

    def get_seq_length(self, *_: Any) -> int:
        return self.length + self.removed

    def get_mask_sizes(self, query: Any, *_: Any) -> tuple[int, int]:
        return self.length + query_length(query), self.removed

    def get_max_length(self) -> int:
        return -1

    def get_max_cache_shape(self) -> int:
        return -1

    def crop(self, tokens: int) -> None:
        """Remove tokens from the end: -n removes n. A positive n, which older versions allow, keeps n."""
        if tokens > 0 or (tokens == 0 and crop_zero_removes_all()):
            tokens = -max(0, self.get_seq_length() - tokens)
        self._cut(max(0, self.length + tokens))

    def reset(self) -> None:
        self.packed = PackedBlocks(self.settings.codec, self.settings.block)
        self.sinks.clear()
        self.tail = self.working = self.bounds = None
        self.length = self.removed = 0
        self.is_initialized = False

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self._map(lambda tensor: tensor.index_select(0, beam_idx.to(tensor.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._map(lambda tensor: tensor.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: Tensor) -> None:
        self._map(lambda tensor: tensor[indices.to(tensor.device)])

    def offload(self) -> None:
        self._map(lambda tensor: tensor.to("cpu"))

    def prefetch(self) -> None:
        self._map(lambda tensor: tensor.to(self.device))

    @property
    def keys(self) -> Tensor | None:
        return self._whole()[0] if self.is_initialized else None

    @property
    def values(self) -> Tensor | None:
        return self._whole()[1] if self.is_initialized else None

    # The two states

    @property
    def active(self) -> bool:
        return self.working is not None

    def activate(self, *, room: int = 0) -> None:
        """Decode into working memory, once, with room for more tokens; grow it where there is none."""
        if not self.is_initialized:
            return
        needed = self.length + room
        if self.working is not None and self.working[0].shape[2] >= needed:
            return
        # An eighth more than is needed: copies are rare, and at most that much is unused.
        capacity = needed + max(self.settings.block, needed // 8) if self.settings.resident else needed
        fresh = self._empty(capacity)
        if self.working is not None:
            for new, old in zip(fresh, self.working, strict=True):
                new[:, :, : self.length] = old[:, :, : self.length]
        else:
            self._write(fresh)
            self.tail = None
        self.working = fresh

    def compress(self) -> None:
        """Pack every whole block that has left the window. Working memory stays as it is."""
        if self.working is None:
            return
        start, block = self.packed.tokens, self.settings.block
        while self.length - start >= self.settings.window + (block - start % block):
            if start % block:  # after a cut inside a block: a short one brings the next back to the grid
                stop = start + block - start % block
            else:
                stop = start + (self.length - self.settings.window - start) // block * block
            keys, values = (working[:, :, start:stop] for working in self.working)
            self.packed.append(*self.sinks.take(keys, values, start))
            start = stop

    def demote(self) -> None:
        """Pack what has left the window and free the working memory."""
        if self.working is None:
            return
        self.compress()
        start = self.packed.tokens
        keys, values = (self._rested(working[:, :, start : self.length]) for working in self.working)
        self.tail = keys, values
        self.sinks.held = _both(self._rested, self.sinks.held)
        self.working = self.bounds = None

    def _settle(self) -> None:
        """Pack, and let the working memory see what was packed."""
        before = self.packed.tokens
        self.compress()
        if self.working is not None and self.packed.tokens > before:
            self._write(self.working, tail=False)

    # What a store and an eviction need

    def keys_values(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Keys and values of held tokens `[start, stop)` in compute precision: copies, as attention sees them."""
        if not 0 <= start <= stop <= self.length:
            raise KVCacheError(
                f"tokens [{start}, {stop}) are not within the {self.length} held", remedy="Ask for tokens it holds."
            )
        keys, values = (x[:, :, start:stop].clone() for x in self._whole())
        return keys, values

    def block(self, index: int) -> dict[str, Tensor]:
        """Tokens `[index * block, (index + 1) * block)` packed: as they lie here, else packed now for the caller.

        Block 0 also has `sink_keys` and `sink_values`, the exact first tokens.
        """
        size, count = self.settings.block, self.settings.sinks
        found, exact = self.packed.block(index), self.sinks.held
        if found is None or (index == 0 and exact is None):
            keys, values = self.keys_values(index * size, (index + 1) * size)
            if found is None:
                replaced = Sinks(count, self.sinks.padding).take(keys, values, index * size)
                found = self.settings.codec.encode(*replaced)
            exact = self._rested(keys[:, :, :count]), self._rested(values[:, :, :count])
        block = clone_blocks(found)
        if index == 0 and count and exact is not None:
            block |= clone_blocks({"sink_keys": exact[0], "sink_values": exact[1]})
        return block

    def load_blocks(self, blocks: list[dict[str, Tensor]], *, dtype: Any, device: Any) -> None:
        """Start from packed blocks, the first ones of a sequence, as `block` gives them. Nothing is packed again."""
        if self.is_initialized or not blocks:
            raise KVCacheError("blocks are loaded into an empty layer", remedy="Make a new cache for them.")
        torch = torch_module()
        first = dict(blocks[0])
        exact = first.pop("sink_keys", None), first.pop("sink_values", None)
        parts = [first, *blocks[1:]]
        if any(part.keys() != first.keys() for part in parts):
            raise KVCacheError("the blocks are not of one codec", remedy="Load blocks that one cache gave.")
        codec = self.settings.codec
        try:
            tensors = {name: torch.stack([part[name].to(device) for part in parts], 2) for name in first}
            one = {name: tensor[:, :, 0] for name, tensor in tensors.items()}
            keys, values = codec.decode(one, tokens=1, dtype=dtype, device=device)
        except Exception as error:  # tensors of another codec set off whatever torch likes
            raise KVCacheError(
                f"the blocks cannot be decoded ({type(error).__name__}: {error})",
                subject=codec.name,
                remedy="Load blocks with the codec that they were made with.",
            ) from error
        self.lazy_initialization(keys, values)
        if exact[0] is not None and exact[1] is not None:
            self.sinks.held = self._rested(exact[0].to(device)), self._rested(exact[1].to(device))
        self.packed.append_packed(tensors, len(parts))
        self.length = self.packed.tokens
        keys, values = self._empty(0)
        self.tail = keys, values

    def keep(self, indices: Tensor) -> None:
        """Evict all held tokens but these: their memory is freed, and positions go on as if they were there.

        Args:
            indices: ascending, `(kept,)`, or `(rows, heads, kept)` for a choice of each head.

        What was packed already is packed a second time at the next `demote`.
        """
        if not self.is_initialized:
            return
        if indices.ndim == 1:
            indices = indices.expand(self._rows, self._shapes[0][0], -1)
        kept = indices.shape[-1]
        if kept and (int(indices.min()) < 0 or int(indices.max()) >= self.length):
            raise KVCacheError(f"there are {self.length} tokens", remedy="Give indices of tokens that are held.")
        chosen = [
            x.gather(2, indices.to(x.device).unsqueeze(-1).expand(-1, -1, -1, x.shape[-1])) for x in self._whole()
        ]
        self.removed += self.length - kept
        self.length = kept
        self.packed = PackedBlocks(self.settings.codec, self.settings.block)
        self.sinks.clear()
        self.tail = self.bounds = None
        self.working = chosen[0], chosen[1]

    def memory(self, seen: set[int] | None = None) -> MemoryReport:
        seen = set() if seen is None else seen
        return MemoryReport(
            packed=held_bytes(self.packed.tensors(), seen),
            window=held_bytes([*(self.sinks.held or ()), self.sinks.padding, *(self.tail or ())], seen),
            working=held_bytes(self.working or (), seen),
            bounds=held_bytes(self.bounds.tensors() if self.bounds else (), seen),
            sliding=0,
        )

    # Inside

    def _empty(self, tokens: int) -> tuple[Tensor, Tensor]:
        torch = torch_module()
        keys, values = (
            torch.empty(self._rows, heads, tokens, dim, dtype=self.dtype, device=self.device)
            for heads, dim in self._shapes
        )
        return keys, values

    def _whole(self) -> tuple[Tensor, Tensor]:
        if self.working is not None:
            keys, values = (working[:, :, : self.length] for working in self.working)
            return keys, values
        whole = self._empty(self.length)
        self._write(whole)
        return whole

    def _write(self, out: tuple[Tensor, Tensor], *, tail: bool = True) -> None:
        """Everything that is held while idle, in its place."""
        self.packed.decode_into(*out)
        self.sinks.put(*out, stop=self.packed.tokens)
        if tail and self.tail is not None:
            start = self.packed.tokens
            for x, rest in zip(out, self.tail, strict=True):
                x[:, :, start : start + rest.shape[2]] = rest

    def _rested(self, x: Tensor) -> Tensor:
        """A copy in the precision of the idle state: FP16 for float32, where every number fits."""
        torch = torch_module()
        if self.dtype == torch.float32 and self.settings.window_dtype == "auto" and self.settings.codec.name != "none":
            half = x.to(torch.float16)
            if bool(half.isfinite().all()):
                return half.clone() if half is x else half
        return x.clone(memory_format=torch.contiguous_format)

    def _cut(self, length: int) -> None:
        if not self.is_initialized or length >= self.length:
            return
        if length < self.packed.tokens:
            self.packed.truncate(length)
        if self.tail is not None:
            keep = length - self.packed.tokens
            keys, values = (x[:, :, :keep].clone() for x in self.tail)
            self.tail = keys, values
        if self.bounds is not None:
            self.bounds.truncate(length)
        self.length = length

    def _map(self, change: Callable[[Tensor], Tensor]) -> None:
        if not self.is_initialized:
            return
        self.packed.map(change)
        self.sinks.map(change)
        self.tail = _both(change, self.tail)
        if self.working is not None:
            # Of the tokens that are there; a copy of the free room would be wasted.
            self.working = _both(change, (self.working[0][:, :, : self.length], self.working[1][:, :, : self.length]))
            self.working = _both(lambda x: x.contiguous(), self.working)
        self.bounds = None
        found = next(iter([*(self.working or ()), *(self.tail or ())]))
        self._rows = found.shape[0]


def _both(change: Callable[[Tensor], Tensor], pair: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor] | None:
    return None if pair is None else (change(pair[0]), change(pair[1]))
