"""What stored keys and values are keys and values *of*: every circumstance that changes a number is in the key.

A root names the circumstances (weights, configuration, tokenizer, tenant …); a block's key is a chain of SHA-256 over
the root and all token ids up to the block's end. So two blocks of one key hold the same numbers, in any process.
"""

from __future__ import annotations

import hashlib
import json
import struct
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ctxkit.documents import content_hash
from ctxkit.errors import KVCacheError
from ctxkit.kvcache.codecs import Codec
from ctxkit.settings import cache_dir, require

__all__ = ["BLOCK_TOKENS", "PREFILL_GRID", "Root", "block_key", "block_keys", "reusable_tokens", "root_of"]

BLOCK_TOKENS = 64
"""Tokens of a block; only full blocks are stored."""

PREFILL_GRID = 256
"""Tokens of one step of a prefill, which starts at a multiple of it: so the shapes of a computation, and with them its
bits, do not depend on how much of the prompt was restored. Against 1,024 it costs 5 % on a CPU (64 would cost 38 %)."""

_TAG = b"ctxkit.kvcache.block.1\0"

_VOLATILE = ("_name_or_path", "transformers_version", "_attn_implementation", "attn_implementation", "dtype")
"""What a configuration says that is no property of the numbers, or that has a field of its own."""

_SAMPLES = 64
"""Numbers of each parameter that are looked at, to tell weights that were changed in memory from those of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """The circumstances of a computation; two of equal `digest` may share blocks.

    Every value stands under its name, so no two can be confused by where they stand.

    Args:
        weights: digest of the weights' files and of a sample of the weights in memory.
        config: digest of the model's configuration, RoPE and sliding windows included.
        tokenizer: digest of the tokenizer's files.
        adapter: digest of the adapters on the model, or "".
        dtype: of the computation.
        attention: the attention implementation.
        runtime: device and versions of torch and transformers: other kernels give other bits.
        codec: name and version.
        tenant: whose blocks these are (law 10).
    """

    weights: str
    config: str
    tokenizer: str
    adapter: str
    dtype: str
    attention: str
    runtime: str
    codec: str
    tenant: str

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of the fields, as 64 hexadecimal digits."""
        return content_hash({"ctxkit.kvcache.root": 1, **asdict(self)})


def block_key(parent: str, ids: Sequence[int]) -> str:
    """SHA-256 of the parent's key (of the root's digest, for the first block) and this block's ids, as uint32-LE.

    Example:
        >>> block_key("00" * 32, [1, 2])[:8]
        '67f7153e'
    """
    return hashlib.sha256(_TAG + bytes.fromhex(parent) + struct.pack(f"<{len(ids)}I", *ids)).hexdigest()


def block_keys(root: str, ids: Sequence[int]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The key and the ids of each full block of a prompt, first to last. O(n)."""
    parent = root
    for start in range(0, len(ids) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        block = tuple(ids[start : start + BLOCK_TOKENS])
        parent = block_key(parent, block)
        yield parent, block


def reusable_tokens(count: int, *, step: int = BLOCK_TOKENS) -> int:
    """The tokens of a prompt that blocks may cover: whole steps, and one token at least is left to compute.

    Example:
        >>> reusable_tokens(128), reusable_tokens(129)
        (64, 128)
    """
    return max(0, count - 1) // step * step


def root_of(model: Any, *, codec: Codec, tenant: str) -> Root:
    """The root of a causal language model of transformers. Reads the weights' files once for all processes.

    The model's part is remembered as long as no parameter is written to.

    Errors: `KVCacheError` for a model without parameters or whose configuration is not JSON.
    """
    stamp = sum(parameter._version for parameter in model.parameters() if not parameter.is_inference())
    attention = str(getattr(model.config, "_attn_implementation", None))
    remembered = _models.get(model)
    if remembered is None or remembered[0] != (stamp, attention, _adapters(model)):
        _models[model] = remembered = ((stamp, attention, _adapters(model)), _model_fields(model))
    return Root(**remembered[1], codec=f"{codec.name}/{codec.version}", tenant=tenant)


_models: weakref.WeakKeyDictionary[Any, tuple[Any, dict[str, str]]] = weakref.WeakKeyDictionary()


def _model_fields(model: Any) -> dict[str, str]:
    torch: Any = require("torch", extra="local")
    transformers: Any = require("transformers", extra="local")
    folder = Path(str(getattr(model, "name_or_path", "") or "."))
    files = sorted(folder.glob("*.safetensors")) if (folder / "config.json").is_file() else []
    adapted = bool(_adapters(model))
    # Without files every number is read; with them a sample proves that the files are what is in memory.
    sample = _state_digest(torch, model, whole=not files or adapted)
    config = {name: value for name, value in model.config.to_dict().items() if name not in _VOLATILE}
    try:
        config_digest = content_hash(json.loads(json.dumps(config, default=str)))
    except (TypeError, ValueError) as error:
        raise KVCacheError(
            f"the model's configuration is not JSON ({error})",
            subject=str(folder),
            remedy="Use a configuration that save_pretrained() can write.",
        ) from error
    return {
        "weights": content_hash([[file.name, _file_digest(file)] for file in files] + [sample]),
        "config": config_digest,
        "tokenizer": _tokenizer_digest(folder) if files else "",
        "adapter": sample if adapted else "",
        "dtype": str(model.dtype),
        "attention": str(getattr(model.config, "_attn_implementation", None)),
        "runtime": f"{model.device.type} torch {torch.__version__} transformers {transformers.__version__}",
    }


def _adapters(model: Any) -> str:
    """The names of the adapters on a model (of peft, or of transformers' own integration)."""
    return ",".join(sorted(map(str, getattr(model, "peft_config", None) or ())))


def _state_digest(torch: Any, model: Any, *, whole: bool) -> str:
    """SHA-256 over names, shapes, and all numbers or a sample of each parameter and buffer."""
    digest = hashlib.sha256()
    for name, tensor in sorted((*model.named_parameters(), *model.named_buffers()), key=lambda pair: pair[0]):
        flat = tensor.detach().reshape(-1)
        if not whole:
            flat = flat[:: max(1, flat.numel() // _SAMPLES)]
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype};".encode())
        digest.update(flat.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _tokenizer_digest(folder: Path) -> str:
    names = ("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "vocab.txt", "tokenizer_config.json")
    present = [folder / name for name in names if (folder / name).is_file()]
    return content_hash([[path.name, hashlib.sha256(path.read_bytes()).hexdigest()] for path in present])


def _file_digest(path: Path) -> str:
    """SHA-256 of a large file, remembered in ctxkit's cache under its path, size, time and inode.

    A file that changed in the last two seconds is not remembered: it could change again within one tick of its clock.
    """
    found = path.stat()
    facts = [str(path.resolve()), found.st_size, found.st_mtime_ns, found.st_ino]
    noted = cache_dir() / "kvcache" / f"{content_hash(facts)}.json"
    known = _read_noted(noted, facts)
    if known is not None:
        return known
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if time.time() - found.st_mtime > 2:
        from ctxkit.kvcache.atomic import write_whole

        try:
            noted.parent.mkdir(parents=True, exist_ok=True)
            write_whole(noted, json.dumps({"facts": facts, "sha256": digest}).encode())
        except OSError:
            pass  # it is computed again next time
    return digest


def _read_noted(path: Path, facts: Iterable[Any]) -> str | None:
    try:
        noted: Mapping[str, Any] = json.loads(path.read_bytes())
        digest = str(noted["sha256"])
        return digest if noted["facts"] == list(facts) and len(bytes.fromhex(digest)) == 32 else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
