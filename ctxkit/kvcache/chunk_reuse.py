"""Chunks that are read once and used anywhere in a prompt: position-free reuse of keys and values.

Retrieved chunks come in a new order each time, so their prefixes rarely repeat. Each is read ahead, after what every
prompt of its template begins with: a chunk that is read alone takes its own first tokens for the start of everything
(a false attention sink), which costs a third of what the context is worth. At a request its keys are turned to where
it lands, and what is not stored is read on top: the fences' numbers, missing chunks, the question.

The result is an approximation: no chunk has seen the chunks before it. It is off unless asked for, and what it makes
is never stored as blocks of prefix reuse. Related: PromptCache (arXiv 2311.04934), CacheBlend (arXiv 2405.16444), APE
(arXiv 2502.05431).
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit.documents import content_hash
from ctxkit.errors import ConfigError, KVCacheError
from ctxkit.kvcache.blocks import Block, Payload
from ctxkit.kvcache.codecs import Codec, get_codec
from ctxkit.kvcache.compat import cache_argument, cache_utils
from ctxkit.kvcache.files import Problem
from ctxkit.kvcache.identity import PREFILL_GRID, Root, root_of
from ctxkit.kvcache.restoring import cut, groups_of, restore
from ctxkit.kvcache.rope import cannot_move, move_keys
from ctxkit.kvcache.store import BlockStore, check_store
from ctxkit.settings import default_tenant, require

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ChunkCache", "ChunkSpan", "ChunkUse", "chunk_root"]

Layers = list[tuple["Tensor", "Tensor"]]

_PREFIXES = 4
"""Prefixes of templates whose keys and values stay in memory, for each model."""


@dataclass(frozen=True, slots=True)
class ChunkSpan:
    """Where the text of a chunk stands among the ids of a prompt: half-open, without its fences."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ChunkUse:
    """What the last request took from the store.

    Attributes:
        tokens: of the prompt.
        prefix: of them before the first chunk, whose keys and values were stored.
        loaded: of them of stored chunks and their fences.
        recomputed: of them inside the fences of a stored chunk that had to be read again: its number, a changed source.
        read: of them of everything else: chunks that are not stored, the question.
        chunks, found: chunks of the prompt, and of them those that were stored.
        reason: why nothing could be reused, or "".
    """

    tokens: int
    prefix: int = 0
    loaded: int = 0
    recomputed: int = 0
    read: int = 0
    chunks: int = 0
    found: int = 0
    reason: str = ""

    @property
    def reused(self) -> int:
        return self.prefix + self.loaded

    def describe(self) -> str:
        """For people.

        Example:
            >>> ChunkUse(100, prefix=20, loaded=60, recomputed=4, read=16, chunks=3, found=2).describe()
            '20 of the prefix reused, 60 loaded, 4 recomputed, 16 read'
        """
        counts = f"{self.prefix} of the prefix reused, {self.loaded} loaded, {self.recomputed} recomputed"
        return f"{counts}, {self.read} read"


@dataclass(frozen=True, slots=True)
class _Unit:
    """A stored chunk: its ids with its fences, how many stand before the text, where it stood, keys and values."""

    ids: tuple[int, ...]
    before: int
    base: int
    layers: Layers


class ChunkCache:
    """Reads chunks ahead, and gives a local model the keys and values of those that a prompt holds, wherever they land.

    A chunk is found by the root (weights, configuration, tokenizer, dtype, tenant, codec …), the ids of the prefix
    that it was read after, and its own ids; so another template, another tenant or a changed text is a miss, and the
    chunk is read. Blocks are marked as derived and lie under roots of their own: prefix reuse never sees them.

    Args:
        store: a `BlockStore`, or its folder; it may be the one of prefix reuse.
        codec: the name of a codec, or a `Codec`.
        tenant: whose chunks; default `$CTXKIT_TENANT`. Tenants never meet (law 10).

    Full attention with RoPE only; for other models `take` gives nothing, and `last.reason` says why.

    Example:
        cache = ChunkCache("kv")
        cache.learn(model, prefix, neighbour=other, before=fence, text=ids, after=closing)
        model = LocalModel("local", chunks=cache)
    """

    def __init__(
        self, store: BlockStore | str | Path, *, codec: str | Codec = "int8", tenant: str | None = None
    ) -> None:
        self.store = check_store(store)
        self.codec = get_codec(codec)
        self.tenant = default_tenant() if tenant is None else tenant
        self.last = ChunkUse(0)
        self._prefixes: weakref.WeakKeyDictionary[Any, dict[str, Layers]] = weakref.WeakKeyDictionary()

    def close(self) -> None:
        """Wait until everything is stored."""
        self.store.close()

    # Ahead of any request.

    def learn(
        self,
        model: Any,
        prefix: Sequence[int],
        *,
        text: Sequence[int],
        before: Sequence[int] = (),
        after: Sequence[int] = (),
        neighbour: Sequence[int] = (),
    ) -> bool:
        """Read one chunk after the prefix and store it; False where it is there already. One prefill of its ids.

        Args:
            prefix: what prompts of the template begin with, up to the first chunk's fence.
            before, text, after: the ids of the fence, the chunk and the closing fence.
            neighbour: read between the prefix and the chunk and not stored: a chunk that never stands first.

        Errors: `ConfigError` for an empty prefix or text; `KVCacheError` for a model whose keys cannot be moved.
        """
        if not prefix or not text:
            raise ConfigError(
                f"the {'text' if prefix else 'prefix'} of a chunk has no ids",
                remedy="Give the ids of the template's beginning, and of the chunk.",
            )
        if reason := cannot_move(model):
            raise KVCacheError(
                f"its chunks cannot be read ahead: {reason}",
                subject=str(getattr(model, "name_or_path", "")) or type(model).__name__,
                remedy="Leave it out; prefixes are reused all the same.",
            )
        root = root_of(model, codec=self.codec, tenant=self.tenant)
        parent = chunk_root(root, prefix)
        known = self._unit(parent, tuple(text), model)
        ids = (*before, *text, *after)
        if known is not None and known.ids == ids:
            return False
        start = len(prefix) + len(neighbour)
        cache = _filled(self._prefix(model, root, (*prefix, *neighbour))[0])
        _feed(model, cache, list(ids), list(range(start, start + len(ids))))
        layers = [(layer.keys[..., start:, :], layer.values[..., start:, :]) for layer in cache.layers]
        self.keep(model, prefix, layers, text=text, before=before, after=after, base=start)
        if self.store.head(_block(root, chunk_root(root, ()), prefix).key) is None:
            self.keep(model, (), self._prefix(model, root, prefix)[0], text=prefix, base=0)
        return True

    def keep(
        self,
        model: Any,
        prefix: Sequence[int],
        layers: Layers,
        *,
        text: Sequence[int],
        before: Sequence[int] = (),
        after: Sequence[int] = (),
        base: int,
    ) -> None:
        """Store keys and values of a chunk with its fences that were computed elsewhere, from position `base` on."""
        torch: Any = require("torch", extra="local")
        root = root_of(model, codec=self.codec, tenant=self.tenant)
        ids = (*before, *text, *after)
        groups = groups_of(layers)
        with torch.inference_mode():
            payload = cut(layers, 0, len(ids), groups=groups, codec=self.codec)
        payload["chunk.ids"] = torch.tensor([len(before), base, *ids], dtype=torch.int64)
        block = replace(_block(root, chunk_root(root, prefix), text), layout=groups)
        self.store.remove(block.key)  # a derived block is not replaced, and the fences may be others
        self.store.put(block, payload)

    # At a request.

    def take(self, model: Any, ids: Sequence[int], prefix: int, chunks: Sequence[ChunkSpan]) -> tuple[Any, int]:
        """A cache that holds all ids but the last, and their number; or None and 0 where no chunk is stored.

        What is not stored is read here, in the order of the prompt and on top of what stands before it.

        Args:
            prefix: the ids before the first chunk's fence.
            chunks: where the texts of whole chunks stand, in order.
        """
        given = tuple(ids)
        if reason := cannot_move(model):
            return self._nothing(given, chunks, reason)
        if not prefix or not chunks:
            return self._nothing(given, chunks, f"the prompt has no {'chunks' if prefix else 'prefix'}")
        root = root_of(model, codec=self.codec, tenant=self.tenant)
        parent = chunk_root(root, given[:prefix])
        found = [(span, self._unit(parent, given[span.start : span.end], model)) for span in chunks]
        stored = [(span, unit) for span, unit in found if unit is not None]
        if not stored:
            return self._nothing(given, chunks, "no chunk of the prompt is stored for this template and model")
        torch: Any = require("torch", extra="local")
        with torch.inference_mode():
            layers, held_before = self._prefix(model, root, given[:prefix])
            parts: list[tuple[Sequence[int], Layers]] = [(range(prefix), layers)]
            loaded, spanned = set(range(prefix)), set[int]()
            for span, unit in stored:
                free = max(loaded) + 1
                at, taken = _landing(given, span, unit, free_from=free)
                loaded.update(at)
                spanned.update(range(free, max(loaded) + 1))
                distance = span.start - (unit.base + unit.before)
                parts.append((at, [_moved(model, layer, taken, distance) for layer in unit.layers]))
            cache = _filled(_joined(parts))
            missing = [at for at in range(len(given) - 1) if at not in loaded]
            held = torch.tensor([at for rows, _ in parts for at in rows], device=model.device)
            for start in range(0, len(missing), PREFILL_GRID):
                fed = missing[start : start + PREFILL_GRID]
                mask = _mask(model, held, fed)
                _feed(model, cache, [given[at] for at in fed], fed, mask=mask)
                held = torch.cat([held, torch.tensor(fed, device=model.device)])
        recomputed = len(spanned.intersection(missing))
        self.last = ChunkUse(
            tokens=len(given),
            prefix=prefix if held_before else 0,
            loaded=len(loaded) - prefix,
            recomputed=recomputed,
            read=len(given) - len(loaded) - recomputed + (0 if held_before else prefix),
            chunks=len(chunks),
            found=len(stored),
        )
        self.store.use([_block(root, parent, given[span.start : span.end]).key for span, _ in stored])
        return cache, len(given) - 1

    def _nothing(self, ids: Sequence[int], chunks: Sequence[ChunkSpan], reason: str) -> tuple[None, int]:
        self.last = ChunkUse(len(ids), read=len(ids), chunks=len(chunks), reason=reason)
        return None, 0

    # The store.

    def _prefix(self, model: Any, root: Root, prefix: Sequence[int]) -> tuple[Layers, bool]:
        """Keys and values of a prefix, and whether they were there; those of the last few are kept in memory."""
        key = chunk_root(root, prefix)
        held = self._prefixes.setdefault(model, {})
        if known := held.get(key):
            return known, True
        unit = self._unit(chunk_root(root, ()), tuple(prefix), model)
        if unit is None:
            cache = cache_utils().DynamicCache()
            _feed(model, cache, list(prefix), list(range(len(prefix))))
            layers = [(layer.keys, layer.values) for layer in cache.layers]
        else:
            layers = unit.layers
        while len(held) >= _PREFIXES:
            held.pop(next(iter(held)))
        held[key] = layers
        return layers, unit is not None

    def _unit(self, parent: str, text: tuple[int, ...], model: Any) -> _Unit | None:
        """A stored chunk, decoded; None for a miss, which a damaged one is as well."""
        key = Block(parent=parent, ids=text, lineage="derived", codec="").key
        with self.store.pinned([key]):
            found = self.store.get(key, ids=text)
        if found is None or found[0].codec != f"{self.codec.name}/{self.codec.version}":
            return None
        try:
            return self._decoded(*found, model)
        except Exception as error:  # tensors of other shapes set off whatever torch likes: the chunk is read
            what = error.message if isinstance(error, KVCacheError) else f"{type(error).__name__}: {error}"
            self.store.report(Problem(key, f"cannot be restored ({what})"))
            return None

    def _decoded(self, block: Block, payload: Payload, model: Any) -> _Unit:
        header = payload.get("chunk.ids")
        before, base, *ids = header.tolist() if header is not None else (0, 0)
        if tuple(ids[before : before + len(block.ids)]) != block.ids:
            raise KVCacheError(
                "a stored chunk holds other ids than its name", subject=block.key, remedy="It is read again."
            )
        torch: Any = require("torch", extra="local")
        with torch.inference_mode():
            layers = restore(
                [payload], [len(ids)], groups=block.layout, codec=self.codec, dtype=model.dtype, device=model.device
            )
        return _Unit(tuple(ids), before, base, layers)


def chunk_root(root: Root, prefix: Sequence[int]) -> str:
    """What chunks are read after, as the parent of their blocks: another one than any prefix of a prompt has."""
    return content_hash({"ctxkit.kvcache.chunk": 1, "root": root.digest, "prefix": list(prefix)})


def _block(root: Root, parent: str, text: Sequence[int]) -> Block:
    return Block(parent=parent, ids=tuple(text), lineage="derived", codec=root.codec, root=asdict(root))


def _landing(
    ids: Sequence[int], span: ChunkSpan, unit: _Unit, *, free_from: int
) -> tuple[range | list[int], list[int]]:
    """Which positions of the prompt a unit fills, and with which of its tokens: its text, and what fits of its fences.

    Fences differ in their number, and the first has no line before it: token by token, outwards from the text, those
    that are the same are taken. The last id of a prompt is left to be read: what follows it is asked for.
    """
    offset = span.start - unit.before
    taken = [
        number
        for number, token in enumerate(unit.ids)
        if free_from <= offset + number < len(ids) - 1 and ids[offset + number] == token
    ]
    return [offset + number for number in taken], taken


def _moved(model: Any, layer: tuple[Tensor, Tensor], taken: list[int], distance: int) -> tuple[Tensor, Tensor]:
    keys, values = layer
    if len(taken) < keys.shape[-2]:
        keys, values = keys[..., taken, :], values[..., taken, :]
    return move_keys(model, keys, distance), values


def _joined(parts: Sequence[tuple[Sequence[int], Layers]]) -> Layers:
    torch: Any = require("torch", extra="local")
    layers = zip(*(layers for _, layers in parts), strict=True)
    return [
        (torch.cat([keys for keys, _ in pieces], dim=-2), torch.cat([values for _, values in pieces], dim=-2))
        for pieces in layers
    ]


def _filled(layers: Layers) -> Any:
    cache = cache_utils().DynamicCache()
    for number, (keys, values) in enumerate(layers):
        cache.update(keys, values, number)
    return cache


def _mask(model: Any, held: Any, fed: Sequence[int]) -> Any:
    """What each fed id may see: every id at its own position or before, wherever it lies in memory."""
    torch: Any = require("torch", extra="local")
    asking = torch.tensor(fed, device=model.device)
    there = torch.cat([held, asking])
    hidden = there[None, :] > asking[:, None]
    mask = torch.zeros(hidden.shape, dtype=model.dtype, device=model.device)
    return mask.masked_fill_(hidden, torch.finfo(model.dtype).min)[None, None]


def _feed(model: Any, cache: Any, ids: list[int], positions: list[int], *, mask: Any = None) -> None:
    """Read ids at positions on top of what the cache holds."""
    torch: Any = require("torch", extra="local")
    options = {} if mask is None else {"attention_mask": mask}
    decoder = model.base_model  # without the head: no logits are wanted
    with torch.inference_mode():
        decoder(
            input_ids=torch.tensor([ids], device=model.device),
            position_ids=torch.tensor([positions], device=model.device),
            use_cache=True,
            **{cache_argument(decoder): cache},
            **options,
        )
