"""A stored block: its numbers as named tensors, and a manifest that says what they are and proves it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from ctxkit.documents import content_hash
from ctxkit.errors import KVCacheError
from ctxkit.kvcache.identity import block_key
from ctxkit.settings import require

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Block", "Payload", "pack", "read_manifest", "unpack"]

Payload = Mapping[str, "Tensor"]
"""The numbers of a block: tensors by name, as a codec packed them."""

_FORMAT = 1
_KEYS = {"format", "key", "parent", "root", "ids", "lineage", "codec", "layout", "version", "sha256", "nbytes", "file"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What a block holds: the keys and values of these ids after everything that `parent` stands for.

    Args:
        parent: the key of the block before, or the digest of a root.
        root: the fields of the root, for people and for `verify`.
        ids: of its tokens.
        lineage: `exact` where every token before was computed too or restored bit for bit; `derived` where the
            computation rested on rounded numbers, or the tokens were decoded one by one.
        codec: name and version.
        layout: for each group of equal layers, their numbers.
        version: 1 for the first that was stored under this key.
        file, sha256, nbytes: of the file of its numbers.
    """

    parent: str
    ids: tuple[int, ...]
    lineage: Literal["exact", "derived"]
    codec: str
    layout: tuple[tuple[int, ...], ...] = ()
    root: Mapping[str, str] = field(default_factory=dict)
    version: int = 0
    file: str = ""
    sha256: str = ""
    nbytes: int = 0
    created_at: float = field(default_factory=time.time)

    @property
    def key(self) -> str:
        return block_key(self.parent, self.ids)

    def stored_as(self, *, version: int, file: str, content: bytes) -> Block:
        digest = hashlib.sha256(content).hexdigest()
        return replace(self, version=version, file=file, sha256=digest, nbytes=len(content))

    def manifest(self) -> bytes:
        """JSON with a checksum of itself: a flipped bit in it is found like one in the numbers."""
        content = {
            "format": _FORMAT,
            "key": self.key,
            "parent": self.parent,
            "root": dict(self.root),
            "ids": list(self.ids),
            "lineage": self.lineage,
            "codec": self.codec,
            "layout": [list(layers) for layers in self.layout],
            "version": self.version,
            "file": self.file,
            "sha256": self.sha256,
            "nbytes": self.nbytes,
            "created_at": self.created_at,
        }
        return json.dumps({**content, "checksum": content_hash(content)}, separators=(",", ":")).encode("ascii")


def read_manifest(content: bytes, *, key: str) -> Block:
    """The block of a manifest, after all checks. Errors: `KVCacheError` that says what does not hold."""
    try:
        values = json.loads(content)
        checksum = values.pop("checksum")
        problem = _problem(values, checksum)
        block = None if problem else _block(values)
    except Exception as error:  # whatever a stranger's file can set off: wrong types, ids out of range, deep nesting
        problem, block = f"{type(error).__name__}: {error}", None
    if block is not None:
        if not block.key == key == values["key"]:
            problem = f"it belongs to {block.key[:12]}"
        elif "/" in block.file or "\\" in block.file or block.file.startswith("."):
            problem = "its file lies elsewhere"
    if block is None or problem:
        raise KVCacheError(
            f"a manifest is damaged or foreign ({problem})", subject=key, remedy="The block is computed again."
        )
    return block


def _problem(values: Mapping[str, Any], checksum: str) -> str:
    """What is wrong with a manifest by itself, or ""."""
    if content_hash(values) != checksum:
        return "the checksum does not fit"
    if values["format"] != _FORMAT:
        return f"its format is {values['format']!r}, not {_FORMAT}"
    if missing := _KEYS - values.keys():
        return f"it lacks {', '.join(sorted(missing))}"
    if values["lineage"] not in ("exact", "derived"):
        return f"its lineage is {values['lineage']!r}"
    return ""


def _block(values: Mapping[str, Any]) -> Block:
    block = Block(
        parent=str(values["parent"]),
        ids=tuple(map(int, values["ids"])),
        lineage=values["lineage"],
        codec=str(values["codec"]),
        layout=tuple(tuple(map(int, layers)) for layers in values["layout"]),
        root={str(name): str(value) for name, value in values["root"].items()},
        version=int(values["version"]),
        file=str(values["file"]),
        sha256=str(values["sha256"]),
        nbytes=int(values["nbytes"]),
        created_at=float(values.get("created_at", 0.0)),
    )
    _ = block.key  # ids that are no uint32, a parent that is not hexadecimal
    return block


def pack(payload: Payload, *, key: str) -> bytes:
    """The bytes of a safetensors file. Nothing in it can be executed, unlike a pickle."""
    save: Any = require("safetensors.torch", extra="local").save
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in payload.items()}
    packed: bytes = save(tensors, {"key": key})
    return packed


def unpack(content: bytes | bytearray, block: Block) -> dict[str, Tensor]:
    """The numbers of a block in memory of their own. Errors: `KVCacheError` where the bytes are not the block's."""
    problem = ""
    if len(content) != block.nbytes:
        problem = f"it has {len(content):,} bytes and not {block.nbytes:,}"
    elif hashlib.sha256(content).hexdigest() != block.sha256:
        problem = "its SHA-256 is another"
    else:
        load: Any = require("safetensors.torch", extra="local").load
        try:
            tensors: dict[str, Tensor] = load(bytes(content))
            return tensors
        except Exception as error:  # of safetensors, which has no common class for what it finds
            problem = f"safetensors: {error}"
    raise KVCacheError(f"a block is damaged ({problem})", subject=block.key, remedy="The block is computed again.")
