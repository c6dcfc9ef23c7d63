"""The compressed key-value cache: packed while a sequence is idle, in working memory while it is active."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from ctxkit.checking import check_whole, shown
from ctxkit.errors import ConfigError, KVCacheError
from ctxkit.kvcache.codecs import Codec, get_codec
from ctxkit.kvcache.codecs.protocol import torch_module
from ctxkit.kvcache.compat import cache_utils, is_plain, is_sliding_window, plain_layers
from ctxkit.kvcache.layer import CompressedLayer, LayerSettings
from ctxkit.kvcache.memory import MemoryReport, held_bytes

if TYPE_CHECKING:
    from torch import Tensor

    from ctxkit.kvcache.top_k import BlockTopK

__all__ = ["CompressedCache"]


class CompressedCache:
    """A `transformers.Cache` that models and `generate()` take as it is.

    A sequence is *active* from its first token on: keys and values lie in preallocated working memory, and decoding
    costs no more than without compression. `demote()` makes it *idle*: sinks and window stay exact, everything older
    is in packed blocks, and the working memory is free. The next token makes it active again, by decoding once.
    What has been packed is never packed again.

    Args:
        config: of the model (a transformers config); tells the kinds of its layers.
        codec: `int4`, `int4-hq`, `int8`, `none`, or a `Codec`.
        sinks: first tokens that stay exact.
        window: last tokens that stay exact; when idle there are up to `block - 1` more, until a block is whole.
        block: tokens of a packed block.
        resident: keep the working memory between tokens. False decodes for every token: slow, and never more than
            one layer in compute precision.
        eager: let later tokens see packed tokens as packed, as soon as they have left the window. By default they see
            them exactly until the sequence has been idle: better, and as fast, but what a model answers then depends
            on when its sequence was demoted.
        sliding: `window` keeps of sliding-window layers what attention needs, exactly, in transformers' own layers;
            `full` packs all their tokens as those of other layers, which a store of prefixes needs.
        window_dtype: `auto` keeps sinks and window of a float32 model in FP16 while idle (2 bytes, an error of 0.05 %,
            exact again from there on), and in float32 where a number does not fit; `exact` always as computed.
        padding: tokens of left padding of each row of a batch, so that the sinks are each row's first real tokens.
        top_k: read only the blocks of keys that matter; see `BlockTopK`.

    Errors: `KVCacheError` for an encoder-decoder, a model without attention, layers or heads that cannot be packed;
    `ConfigError` for a wrong parameter.

    Example:
        cache = CompressedCache(model.config)
        model.generate(ids, cache=cache)    # past_key_values=cache before transformers 5.24
        cache.demote()
        cache.memory().total
    """

    layers: list[Any]

    def __new__(cls, *_: Any, **__: Any) -> CompressedCache:
        made: CompressedCache = object.__new__(_concrete(cast(Hashable, cls)))
        return made

    def __init__(
        self,
        config: Any,
        *,
        codec: str | Codec = "int4",
        sinks: int = 4,
        window: int = 64,
        block: int = 64,
        resident: bool = True,
        eager: bool = False,
        sliding: str = "window",
        window_dtype: str = "auto",
        padding: Sequence[int] | None = None,
        top_k: BlockTopK | None = None,
    ) -> None:
        if sliding not in ("window", "full"):
            raise ConfigError(f"sliding is {sliding!r}", remedy="Give 'window' or 'full'.")
        self.settings = LayerSettings(
            codec=get_codec(codec),
            sinks=sinks,
            window=window,
            block=block,
            resident=resident,
            eager=eager,
            window_dtype=window_dtype,
            top_k=top_k,
        )
        self.config = config
        padding = _checked(padding)
        plain = plain_layers(config)
        _check_heads(config, self.settings)
        torch = torch_module()
        layers = []
        for layer in plain:
            if is_plain(layer) or (sliding == "full" and is_sliding_window(layer)):
                # A tensor for each: rows are selected layer by layer.
                pads = None if padding is None else torch.tensor(padding, dtype=torch.long)
                layer = CompressedLayer(self.settings, padding=pads)
            layers.append(layer)
        cache_utils().Cache.__init__(self, layers=layers)

    @property
    def compressed_layers(self) -> list[CompressedLayer]:
        return [layer for layer in self.layers if isinstance(layer, CompressedLayer)]

    @property
    def active(self) -> bool:
        return any(layer.active for layer in self.compressed_layers)

    def activate(self, *, room: int = 0) -> None:
        """Decode into working memory now, with room for that many more tokens; else the next token does it."""
        for layer in self.compressed_layers:
            layer.activate(room=room)

    def compress(self) -> None:
        """Pack what has left the window now, and stay active; else `demote` does it."""
        for layer in self.compressed_layers:
            layer.compress()

    def demote(self) -> None:
        """Make the sequence idle: pack what has left the window, free the working memory."""
        for layer in self.layers:
            if isinstance(layer, CompressedLayer):
                layer.demote()
            elif is_sliding_window(layer) and layer.is_initialized:
                layer.keys, layer.values = layer.keys.clone(), layer.values.clone()  # views of the whole prompt

    def memory(self) -> MemoryReport:
        """Live bytes by what they are for. O(layers)."""
        seen: set[int] = set()
        reports = [layer.memory(seen) for layer in self.compressed_layers]
        others = [layer for layer in self.layers if not isinstance(layer, CompressedLayer)]
        names = ("keys", "values", "_sliding_window_tensor")
        return MemoryReport(
            packed=sum(report.packed for report in reports),
            window=sum(report.window for report in reports),
            working=sum(report.working for report in reports),
            bounds=sum(report.bounds for report in reports),
            sliding=held_bytes((getattr(layer, name, None) for layer in others for name in names), seen),
        )

    @property
    def memory_bytes(self) -> int:
        """All bytes of storage that the cache keeps alive, in the state that it is in."""
        return self.memory().total

    @property
    def removed(self) -> int:
        """Tokens that were evicted; `get_seq_length` counts them."""
        return max((layer.removed for layer in self.compressed_layers), default=0)

    def keys_values(self, start: int, stop: int) -> list[tuple[Tensor, Tensor]]:
        """Of each layer, keys and values of held tokens `[start, stop)` in compute precision, as attention sees them.

        Errors: `KVCacheError` for tokens that are not held, or a layer that keeps a sliding window only.
        """
        return [layer.keys_values(start, stop) for layer in self._packing_layers()]

    def blocks(self, start: int, stop: int) -> list[list[dict[str, Tensor]]]:
        """Packed blocks `start` to `stop - 1`, each a dict of tensors a layer: copies, for a store to keep.

        Blocks that are still in the window are packed for the caller; the cache keeps them as they are.
        """
        layers = self._packing_layers()
        return [[layer.block(index) for layer in layers] for index in range(start, stop)]

    @classmethod
    def from_blocks(
        cls,
        config: Any,
        blocks: Sequence[Sequence[Mapping[str, Tensor]]],
        *,
        dtype: Any,
        device: Any = "cpu",
        **settings: Any,
    ) -> CompressedCache:
        """A cache that begins with blocks that `blocks` gave (by block, then by layer); nothing is packed again.

        Args:
            dtype: of the model's keys and values.
            settings: as of the class; codec and block must be those that the blocks were made with.

        Layers that keep a sliding window get the last tokens of theirs.
        """
        made = cls(config, **settings)
        if not blocks:
            return made
        if any(len(block) != len(made.layers) for block in blocks):
            raise KVCacheError(
                f"the blocks have {len(blocks[0])} layers, the model {len(made.layers)}",
                remedy="Load blocks of this model, made with sliding='full' where it has sliding-window layers.",
            )
        for index, layer in enumerate(made.layers):
            of_layer = [dict(block[index]) for block in blocks]
            if isinstance(layer, CompressedLayer):
                layer.load_blocks(of_layer, dtype=dtype, device=device)
            elif is_sliding_window(layer):
                whole = CompressedLayer(made.settings)
                whole.load_blocks(of_layer, dtype=dtype, device=device)
                kept = min(whole.length, layer.sliding_window - 1)
                layer.update(*whole.keys_values(whole.length - kept, whole.length))
                layer.cumulative_length = whole.length
        return made

    def keep(self, indices: Tensor | Sequence[Tensor], *, uneven: bool = False) -> None:
        """Evict all tokens but these, the same ones in every layer or a choice of each; see `CompressedLayer.keep`.

        Args:
            uneven: layers may keep different numbers; passes of several tokens then need `per_layer_masks`.
        """
        layers = self.compressed_layers
        of_layers: list[Any] = list(indices) if isinstance(indices, list | tuple) else [indices] * len(layers)
        if not all(getattr(index, "ndim", 0) in (1, 3) and not index.is_floating_point() for index in of_layers):
            raise KVCacheError(
                "indices are whole numbers in a tensor of one or three axes",
                remedy="Give torch.tensor([0, 1, …]) of what stays, or one for each layer.",
            )
        lengths = {index.shape[-1] for index in of_layers}
        if (len(lengths) > 1 and not uneven) or len(of_layers) != len(layers):
            raise KVCacheError(
                "every layer must keep the same number of tokens",
                remedy=f"Give indices for {len(layers)} layers, equally many for each: one mask serves all layers.",
            )
        for layer, index in zip(layers, of_layers, strict=True):
            layer.keep(index)

    def _packing_layers(self) -> list[CompressedLayer]:
        layers = [layer for layer in self.layers if type(layer).__name__ != "DummyLayer"]
        if any(not isinstance(layer, CompressedLayer) for layer in layers):
            raise KVCacheError(
                "some layers keep a sliding window only", remedy="Make the cache with sliding='full' to export it."
            )
        return layers


@lru_cache(maxsize=8)
def _concrete(cls: Any) -> type[CompressedCache]:
    """The class that is also a `transformers.Cache`: made when the first cache is, so that importing loads nothing."""
    utils = cache_utils()
    if issubclass(cls, utils.Cache):
        return cast(type[CompressedCache], cls)
    utils.CacheLayerMixin.register(CompressedLayer)
    made: type[CompressedCache] = type(cls.__name__, (cls, utils.Cache), {"__module__": cls.__module__})
    return made


def _checked(padding: Any) -> list[int] | None:
    """The padding of each row. Errors: `ConfigError`."""
    if padding is None:
        return None
    remedy = "Give the tokens of left padding of each row, such as [0, 50]."
    try:
        rows = [operator.index(row) for row in padding]  # also of numpy and torch
    except (TypeError, ValueError) as error:
        raise ConfigError(f"padding is {shown(padding)}", remedy=remedy) from error
    for row in rows:
        check_whole(row, "padding", minimum=0, remedy=remedy)
    return rows


def _check_heads(config: Any, settings: LayerSettings) -> None:
    """Refuse what cannot be packed before the first token is read."""
    text = config.get_text_config(decoder=True)
    dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    settings.codec.nbytes(1, settings.block, dim)
