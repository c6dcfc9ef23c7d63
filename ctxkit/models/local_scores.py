"""One forward pass over a text, and what it tells of each token: surprise, attention entropy, the question's attention.

The entropy comes out of the attention itself, in blocks of query rows: no matrix of all tokens by all tokens is ever
held. The model keeps its fast attention (`sdpa`); ours stands around it while a pass lasts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import RLock, local
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.compression.entropy_scores import TokenScores
from ctxkit.kvcache.reuse import PrefixCache
from ctxkit.models.decoding import FreshCache, KeyValueCache, cache_name
from ctxkit.models.local_tokenizer import LocalTokenizer
from ctxkit.settings import require

__all__ = ["score_texts"]

_STEP = 256
"""Tokens of one forward call: their logits over a vocabulary of 50,000 take 50 MB."""
_ROWS = 128
_WINDOW = 2048
"""Tokens read together: beyond, attention costs more than it tells about a word."""
_OVERLAP = 256
_NAME = "ctxkit_recording"

_switching = RLock()
_active = local()


def score_texts(
    weights: Any,
    tokenizer: LocalTokenizer,
    texts: Sequence[str],
    *,
    before: str | Sequence[int],
    after: str,
    entropy: bool,
    window: int,
    cache: KeyValueCache | None,
) -> Iterator[TokenScores]:
    """The scores of each text; see `LocalModel.score_tokens`."""
    opening = tokenizer.encode_data(before) if isinstance(before, str) else list(before)
    closing = tokenizer.encode_data(after)
    opening = opening or [min(tokenizer.special_ids, default=0)]  # the first token, too, is predicted from something
    spare = _STEP // 4
    opening, closing = opening[-(window - spare) // 2 :], closing[: max(0, window // 2 - spare)]
    room = max(spare, min(window, _WINDOW) - len(opening) - len(closing))
    reader = _Reader(weights, opening, closing, entropy=entropy, cache=cache)
    for text in texts:
        ids, spans = tokenizer.locate_data(text)
        yield reader.read(ids, spans, room)


class _Reader:
    """Reads texts after one opening, which is computed once."""

    def __init__(
        self, weights: Any, opening: list[int], closing: list[int], *, entropy: bool, cache: KeyValueCache | None
    ) -> None:
        self._torch: Any = require("torch", extra="local")
        self._weights = weights
        self._opening = opening
        self._closing = closing
        self._entropy = entropy
        self._given = cache
        self._own: Any = None
        self._cache_name = cache_name(type(weights).forward)

    def read(self, ids: list[int], spans: list[tuple[int, int]], room: int) -> TokenScores:
        count = len(ids)
        surprisal: NDArray[np.float64] = np.zeros(count)
        attention: NDArray[np.float64] = np.zeros(count)
        entropies: list[NDArray[np.float64]] = []
        overlap = min(_OVERLAP, room // 2)
        start = 0
        while start < count:
            first = max(0, start - overlap) if start else 0
            end = min(count, first + room)
            told, entropy, received = self._pass(ids[first:end])
            surprisal[start:end] = told[start - first :]
            attention[first:end] = np.maximum(attention[first:end], received)
            entropies.append(entropy[:, start - first :])
            start = end
        joined = np.concatenate(entropies, axis=1) if entropies else np.zeros((0, 0))
        return TokenScores(np.array(spans, dtype=np.int64).reshape(-1, 2), surprisal, joined, attention)

    def _pass(self, ids: list[int]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Surprise, entropy and the question's attention of some tokens after the opening."""
        torch = self._torch
        cache, held = self._take(ids)
        opened = len(self._opening)
        known = [*self._opening, *ids]
        recorder = _Recorder(torch, begin=opened, end=len(known), entropy=self._entropy)
        surprise: list[Any] = []
        with torch.inference_mode(), _recording(self._weights, recorder if self._entropy or self._closing else None):
            for start in range(held, len(known), _STEP):
                logits = self._forward(known[start : start + _STEP], cache)
                following = known[start + 1 : start + 1 + len(logits)]
                logits = logits[: len(following)]
                if following:
                    chosen = logits.gather(1, torch.tensor(following, device=logits.device)[:, None])[:, 0]
                    surprise.append((logits.logsumexp(dim=1) - chosen).cpu())
            recorder.asking = True
            for start in range(0, len(self._closing), _STEP):
                self._forward(self._closing[start : start + _STEP], cache)
        told = torch.cat(surprise).double().numpy()[-len(ids) :]
        self._give(known, cache, fed=cache.get_seq_length() - len(known))
        return told, recorder.entropies(len(ids)), recorder.received(len(ids), len(self._closing))

    def _take(self, ids: list[int]) -> tuple[Any, int]:
        # One token of the text is asked for, so that no more than the opening is there already.
        wanted = [*self._opening, ids[0]]
        if self._given is not None:
            cache, held = self._given.take(self._weights, wanted)
            if (self._entropy or self._closing) and isinstance(self._given, PrefixCache):
                self._given.mark_derived(cache)  # another attention watches, and rounds in its own way
            return cache, min(held, len(self._opening) - 1) if held < len(self._opening) else self._step_back(cache)
        if self._own is None:
            self._own, _ = FreshCache().take(self._weights, wanted)
            return self._own, 0
        return self._own, self._step_back(self._own)

    def _step_back(self, cache: Any) -> int:
        """The last token of the opening is fed again: its logits tell the surprise of the text's first."""
        cache.crop(-(cache.get_seq_length() - len(self._opening) + 1))
        return len(self._opening) - 1

    def _give(self, known: list[int], cache: Any, *, fed: int) -> None:
        if fed:
            cache.crop(-fed)
        if self._given is not None:
            self._given.give(self._weights, known, cache)

    def _forward(self, ids: list[int], cache: Any) -> Any:
        """Logits after each of the ids, of shape `(ids, vocabulary)`."""
        tensor = self._torch.tensor([ids], device=self._weights.device)
        arguments = {self._cache_name: cache, "use_cache": True}
        return self._weights(input_ids=tensor, **arguments).logits[0].float()


class _Recorder:
    """What the attention of each layer tells while a text is read.

    Args:
        begin, end: the places of the text's tokens among all keys.
        entropy: also look at the attention from the text itself, and not only at that from the question.
    """

    def __init__(self, torch: Any, *, begin: int, end: int, entropy: bool) -> None:
        self._torch = torch
        self._wanted = entropy
        self._begin = begin
        self._end = end
        self.asking = False
        self._entropy: dict[int, list[Any]] = {}
        self._received: Any = None
        self._layers: set[int] = set()

    def record(self, layer: int, query: Any, key: Any, mask: Any, scaling: float | None) -> None:
        """Look at one call of one layer: `query` is `(1, heads, q, d)`, `key` `(1, key heads, k, d)`."""
        if not (self.asking or self._wanted):
            return
        torch = self._torch
        _, heads, rows, width = query.shape
        keys = key.shape[2]
        groups = heads // key.shape[1]
        scale = width**-0.5 if scaling is None else scaling
        transposed = key[0].transpose(1, 2)[:, None]  # (key heads, 1, d, k)
        self._layers.add(layer)
        for start in range(0, rows, _ROWS):
            some = query[0, :, start : start + _ROWS].reshape(key.shape[1], groups, -1, width)
            scores = (some @ transposed).float().reshape(heads, -1, keys) * scale
            last = torch.arange(start, start + scores.shape[1], device=key.device) + (keys - rows)
            hidden = torch.arange(keys, device=key.device)[None, :] > last[:, None]
            if mask is not None and mask.shape[-1] == keys:
                seen = mask[0, 0, start : start + scores.shape[1]]
                hidden = hidden | (~seen if seen.dtype == torch.bool else seen < -1e4)
            scores.masked_fill_(hidden[None], float("-inf"))
            total = scores.logsumexp(dim=-1)
            shares = (scores - total[..., None]).exp_()
            if self.asking:
                received = shares[..., self._begin : self._end].mean(dim=0).sum(dim=0)
                self._received = received if self._received is None else self._received + received
            else:
                expected = (shares * scores.masked_fill_(hidden[None], 0.0)).sum(dim=-1)
                sizes = (~hidden).sum(dim=-1).clamp(min=2).float().log()
                self._entropy.setdefault(layer, []).append(((total - expected) / sizes).mean(dim=0))

    def entropies(self, count: int) -> NDArray[np.float64]:
        rows = [self._torch.cat(self._entropy[layer])[-count:] for layer in sorted(self._entropy)]
        if not rows:
            return np.zeros((0, count))
        return np.asarray(self._torch.stack(rows).double().cpu().numpy())

    def received(self, count: int, asked: int) -> NDArray[np.float64]:
        if self._received is None or not asked:
            return np.zeros(count)
        return np.asarray(self._received.double().cpu().numpy()) / (asked * max(1, len(self._layers)))


@contextmanager
def _recording(weights: Any, recorder: _Recorder | None) -> Iterator[None]:
    """While it lasts, the attention of these weights tells the recorder of this thread; others notice nothing."""
    before = getattr(weights.config, "_attn_implementation", None)
    if recorder is None or before not in ("sdpa", _NAME):
        yield  # another attention than ours can stand around: surprise alone
        return
    _register()
    with _switching:
        weights.set_attn_implementation(_NAME)
        _active.recorder = recorder
        try:
            yield
        finally:
            _active.recorder = None
            weights.set_attn_implementation("sdpa")


def _register() -> None:
    transformers: Any = require("transformers", extra="local")
    masking: Any = require("transformers.masking_utils", extra="local")
    attention: Any = require("transformers.integrations.sdpa_attention", extra="local")

    def recording_attention(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **options: Any) -> Any:
        recorder: _Recorder | None = getattr(_active, "recorder", None)
        if recorder is not None:
            layer = getattr(module, "layer_idx", 0) or 0
            recorder.record(layer, query, key, attention_mask, options.get("scaling"))
        return attention.sdpa_attention_forward(module, query, key, value, attention_mask, **options)

    transformers.AttentionInterface.register(_NAME, recording_attention)
    masking.AttentionMaskInterface.register(_NAME, masking.sdpa_mask)
