"""KVzip (Kim et al. 2025, arXiv 2505.23416), with equal lengths: what the model needs to say the text again stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ctxkit.checking import check_whole
from ctxkit.errors import KVCacheError
from ctxkit.kvcache.codecs.protocol import torch_module
from ctxkit.kvcache.compat import cache_argument, cache_utils
from ctxkit.kvcache.eviction.reading import Reading, attention_shares, capture

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["KVzip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KVzip:
    """The most attention that each key gets from any query while the model reads the text a second time.

    For a question that is not known, and for text that is kept for many: what cannot be said again is lost to all.
    The text is read again in chunks, each over its own keys and the sinks alone; the paper reads it over the whole
    cache, after an instruction in words, and gives heads unequal lengths, for which memory is freed only by kernels
    of its own.

    Args:
        chunk: tokens that are read again together.
        lead: tokens before the chunk that are read first, so that the model finds its place.
        sinks: first tokens that every chunk sees.

    O(tokens chunk): about as long as a prefill of the text in pieces of two chunks.

    Errors: `KVCacheError` for a model with sliding windows, a batch, or ids that are not those of the cache.
    """

    name: ClassVar[str] = "KVzip"
    observed: ClassVar[int] = 0
    chunk: int = 256
    lead: int = 8
    sinks: int = 4

    def __post_init__(self) -> None:
        check_whole(self.chunk, "chunk", minimum=1)
        check_whole(self.lead, "lead", minimum=0)
        check_whole(self.sinks, "sinks", minimum=0)

    def scores(self, reading: Reading) -> list[Tensor]:
        """`(rows, heads, tokens)` of each layer."""
        torch = torch_module()
        layers = [layer for _, layer in reading.layers()]
        if len(layers) != len(reading.cache.layers):
            raise KVCacheError(
                "a model with sliding windows cannot read its cache again in chunks",
                subject=self.name,
                remedy="Use ExpectedAttention, or SnapKV where the question is known.",
            )
        tokens = layers[0].length
        if len(reading.ids) != tokens or layers[0].get_seq_length() != tokens or reading.model is None:
            raise KVCacheError(
                f"{len(reading.ids)} ids are given, and the cache holds {tokens} tokens",
                subject=self.name,
                remedy="Give the model and the ids of everything that the cache holds; evict from it once.",
            )
        states = [layer.keys_values(0, tokens) for layer in layers]
        if states[0][0].shape[0] != 1:
            raise KVCacheError("the cache is of a batch", subject=self.name, remedy="Evict row by row.")
        scores = [torch.zeros(keys.shape[:3], device=keys.device) for keys, _ in states]
        for start in range(0, tokens, self.chunk):
            begin, stop = max(0, start - self.lead), min(tokens, start + self.chunk)
            for total, found in zip(scores, self._again(reading, states, begin, stop), strict=True):
                torch.maximum(total[:, :, begin:stop], found, out=total[:, :, begin:stop])
        return scores

    def _again(self, reading: Reading, states: list[tuple[Tensor, Tensor]], begin: int, stop: int) -> list[Tensor]:
        """The most attention that tokens `[begin, stop)` get while they are read again: `(rows, heads, tokens)`."""
        torch = torch_module()
        sinks = min(self.sinks, begin)
        cache = cache_utils().DynamicCache()
        for index, pair in enumerate(states):
            keys, values = (torch.cat([x[:, :, :sinks], x[:, :, begin:stop]], 2) for x in pair)
            cache.update(keys, values, index)
        ids = torch.tensor([list(reading.ids[begin:stop])], device=states[0][0].device)
        positions = torch.arange(len(reading.ids), len(reading.ids) + stop - begin, device=ids.device)[None]
        found: list[Tensor] = []

        def seen(module: Any, _: Tensor, queries: Tensor) -> None:
            shares = attention_shares(module, queries, cache.layers[module.layer_idx].keys)
            found.append(shares[..., sinks : sinks + stop - begin].amax((2, 3)))

        with torch.inference_mode(), capture(reading.model, seen):
            # Without the head: nobody reads the logits.
            options = {cache_argument(reading.model): cache, "position_ids": positions, "use_cache": True}
            reading.model.base_model(input_ids=ids, **options)
        return found
