"""Prefix reuse across requests: the block store as the cache of a local model."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ctxkit.errors import KVCacheError
from ctxkit.kvcache.blocks import Block
from ctxkit.kvcache.codecs import Codec, get_codec
from ctxkit.kvcache.files import Problem
from ctxkit.kvcache.identity import BLOCK_TOKENS, PREFILL_GRID, Root, block_keys, reusable_tokens, root_of
from ctxkit.kvcache.restoring import Layers, cut, groups_of, restore
from ctxkit.kvcache.store import BlockStore, check_store, finished
from ctxkit.settings import default_tenant, require

__all__ = ["PrefixCache", "Reuse"]

_LAYERS = ("full_attention", "sliding_attention")
"""Layer types whose state is the keys and values of single tokens."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """What the last request took from the store.

    Attributes:
        tokens: of the prompt.
        reused: of them that were not computed again.
        exact: whether what was reused is bit for bit what would have been computed.
        reason: why nothing could be reused or stored, or "".
    """

    tokens: int
    reused: int
    exact: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Taken:
    root: Root
    tokens: int
    reused: int
    exact: bool


class PrefixCache:
    """Gives a local model the keys and values of the longest prefix that is stored, and stores what it computes.

    With the codec `none` nothing is reused but whole steps of a prefill (256 tokens), so that an answer is bit for bit
    what it would be without the store, on one machine with as many threads. With another codec keys and values are
    rounded once, and every block is reused, those of answers too.

    All tokens of sliding-window layers are kept, so that a prompt can go on from any block.

    A model with other layers (state spaces, linear attention) gets a plain cache; `last.reason` says so, and so does
    `store.problems`.

    Args:
        store: a `BlockStore`, or its folder.
        codec: the name of a codec, or a `Codec`.
        tenant: whose blocks; default `$CTXKIT_TENANT`. Tenants never meet (law 10).

    Safe to use from several threads. Packing and writing happen in threads of their own; `close` waits for them.

    Example:
        model = LocalModel("local", cache=PrefixCache("kv"))
    """

    def __init__(
        self, store: BlockStore | str | Path, *, codec: str | Codec = "none", tenant: str | None = None
    ) -> None:
        self.store = check_store(store)
        self.codec = get_codec(codec)
        self.tenant = default_tenant() if tenant is None else tenant
        self.last = Reuse(0, 0, True)
        self._lock = threading.Lock()
        self._taken: weakref.WeakKeyDictionary[Any, _Taken] = weakref.WeakKeyDictionary()
        self._packing: dict[str, Future[None]] = {}
        self._packer: ThreadPoolExecutor | None = None

    @property
    def lossless(self) -> bool:
        return self.codec.name == "none"

    @property
    def step(self) -> int:
        """Reused tokens are a multiple of this: of the prefill's steps, where every bit must be the same."""
        return PREFILL_GRID if self.lossless else BLOCK_TOKENS

    def take(self, model: Any, ids: Sequence[int]) -> tuple[Any, int]:
        """A cache that holds the longest stored prefix, and its tokens: a multiple of `step`, fewer than `ids`."""
        cache_utils: Any = require("transformers.cache_utils", extra="local")
        if reason := _unfit(model):
            self.last = Reuse(len(ids), 0, True, reason)
            self.store.report(Problem("", f"nothing is reused: {reason}"))
            return cache_utils.DynamicCache(config=model.config), 0
        root = root_of(model, codec=self.codec, tenant=self.tenant)
        wanted = list(block_keys(root.digest, ids[: reusable_tokens(len(ids), step=self.step)]))
        self._wait(key for key, _ in wanted)
        found = self.store.prefix(wanted, accept=self._usable)
        found = found[: len(found) // (self.step // BLOCK_TOKENS) * (self.step // BLOCK_TOKENS)]
        # Without a configuration the cache keeps every token of sliding layers, so that blocks of them can be stored.
        cache = cache_utils.DynamicCache()
        reused = 0
        if found:
            try:
                reused = self._fill(cache, model, found)
            except Exception as error:  # tensors of other shapes set off whatever torch likes: the prompt is computed
                what = error.message if isinstance(error, KVCacheError) else f"{type(error).__name__}: {error}"
                self.store.report(Problem(found[-1][0].key, f"cannot be restored ({what})"))
                cache = cache_utils.DynamicCache()
        exact = self.lossless and all(block.lineage == "exact" for block, _ in found)
        self._taken[cache] = _Taken(root, len(ids), reused, reused == 0 or exact)
        self.last = Reuse(len(ids), reused, reused == 0 or exact)
        return cache, reused

    def mark_derived(self, cache: Any) -> None:
        """Say that a cache that was taken is filled by other steps than a prompt's, so with other bits.

        With the codec `none` nothing of it is stored then.
        """
        taken = self._taken.get(cache)
        if taken is not None:
            self._taken[cache] = replace(taken, exact=False)

    def give(self, model: Any, ids: Sequence[int], cache: Any) -> None:
        """Store the full blocks that were computed; returns at once."""
        taken = self._taken.pop(cache, None)
        if taken is None or cache.get_seq_length() != len(ids):
            return
        layers = [(layer.keys, layer.values) for layer in cache.layers]
        if not all(keys.shape[0] == 1 and keys.shape[-2] == len(ids) for keys, _ in layers):
            return
        self._start(taken, list(ids), layers)

    def flush(self) -> None:
        """Wait until everything is stored. Errors: `KVCacheError` for what went wrong in a thread."""
        with self._lock:
            waiting = list(dict.fromkeys(self._packing.values()))
        for future in waiting:
            finished(future)
        self.store.flush()

    def close(self) -> None:
        """Flush, and stop the threads."""
        try:
            self.flush()
        finally:
            if self._packer is not None:
                self._packer.shutdown(wait=True)
                self._packer = None
            self.store.close()

    def __enter__(self) -> PrefixCache:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _usable(self, block: Block) -> bool:
        return block.codec == f"{self.codec.name}/{self.codec.version}" and (
            block.lineage == "exact" or not self.lossless
        )

    def _fill(self, cache: Any, model: Any, found: list[tuple[Block, Any]]) -> int:
        lengths = [len(block.ids) for block, _ in found]
        torch: Any = require("torch", extra="local")
        with torch.inference_mode():
            layers = restore(
                [payload for _, payload in found],
                lengths,
                groups=found[0][0].layout,
                codec=self.codec,
                dtype=model.dtype,
                device=model.device,
            )
            for number, (keys, values) in enumerate(layers):
                cache.update(keys, values, number)
        return sum(lengths)

    def _start(self, taken: _Taken, ids: list[int], layers: Layers) -> None:
        """Queue the packing of the new blocks; a request that wants one of them waits for it."""
        root = taken.root
        fields = asdict(root)
        parent = root.digest
        used: list[str] = []
        work: list[tuple[Block, int]] = []
        groups = groups_of(layers)
        for number, (key, block_ids) in enumerate(block_keys(root.digest, ids)):
            start = number * BLOCK_TOKENS
            read = (start // self.step + 1) * self.step <= taken.tokens
            exact = read and taken.exact
            if start >= taken.reused and (exact or not self.lossless):
                block = Block(
                    parent=parent,
                    ids=block_ids,
                    lineage="exact" if exact else "derived",
                    codec=root.codec,
                    layout=groups,
                    root=fields,
                )
                work.append((block, start))
                used.append(key)
            elif start < taken.reused:
                used.append(key)
            parent = key
        self.store.use(used)
        if not work:
            return
        with self._lock:
            if self._packer is None:
                self._packer = ThreadPoolExecutor(1, thread_name_prefix="ctxkit-kv-pack")
            future = self._packer.submit(self._pack, work, layers, groups)
            self._packing.update((block.key, future) for block, _ in work)
        future.add_done_callback(lambda done: self._packed(done, work))

    def _pack(self, work: list[tuple[Block, int]], layers: Layers, groups: Sequence[Sequence[int]]) -> None:
        torch: Any = require("torch", extra="local")
        with torch.inference_mode():
            for block, start in work:
                self.store.put(block, cut(layers, start, start + len(block.ids), groups=groups, codec=self.codec))

    def _packed(self, done: Future[None], work: list[tuple[Block, int]]) -> None:
        error = done.exception()
        if error is not None:  # the request is answered long ago; `flush` raises it as well
            self.store.report(Problem(work[0][0].key, f"cannot be packed ({type(error).__name__}: {error})"))
            return
        with self._lock:
            for block, _ in work:
                if self._packing.get(block.key) is done:
                    del self._packing[block.key]

    def _wait(self, keys: Any) -> None:
        with self._lock:
            waiting = {self._packing[key] for key in keys if key in self._packing}
        for future in waiting:
            future.exception()


def _unfit(model: Any) -> str:
    """Why blocks of this model cannot be stored, or ""."""
    config = model.config.get_text_config(decoder=True)
    if getattr(model.config, "is_encoder_decoder", False):
        return "the model has an encoder"
    types = getattr(config, "layer_types", None) or ()
    others = sorted({kind for kind in types if kind not in _LAYERS})
    if others:
        return f"the model has layers of type {', '.join(others)}"
    if not getattr(model, "_supports_default_dynamic_cache", lambda: True)():
        return "the model has a cache of its own kind"
    return ""
