"""What peers need to run beside us without a network."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from ctxkit.errors import ConfigError
from ctxkit.settings import cache_dir, require

__all__ = ["peer_python", "run_worker", "tiktoken_cache", "tiktoken_encoding", "tiktoken_ranks"]

# The sums that tiktoken itself checks, and the SHA-1 of the address that it would load each file from, which is the
# file's name in its cache.
_RANKS = {
    "cl100k_base": (
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    ),
    "o200k_base": (
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        "fb374d419588a4632f3f557e76b4b70aebbca790",
    ),
}


def peer_python(name: str) -> Path | None:
    """The interpreter of the environment that `make peers` made of `peers/<name>.txt`, None where there is none.

    The environments lie in `$CTXKIT_PEERS`, by default `.peers` in the working folder: peers do not agree on versions,
    so each group has its own, and is called as a subprocess.
    """
    path = Path(os.environ.get("CTXKIT_PEERS") or ".peers").absolute() / name / "bin" / "python"
    return path if path.exists() else None


def run_worker(python: Path, worker: Path, folder: Path) -> None:
    """Run a script in an environment of the peers, offline, on a folder that it reads from and writes to.

    Errors: `ConfigError` with the end of what it printed, where it fails.
    """
    done = subprocess.run(
        [str(python), "-W", "ignore", str(worker), str(folder)],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ConfigError(
            f"the peers' environment failed: {done.stderr[-400:]}",
            subject=str(python),
            remedy="Build it anew with `make peers`.",
        )


def tiktoken_ranks(encoding: str) -> bytes:
    """The ranks file of an OpenAI encoding, out of the `bpe-openai` wheel, its SHA-256 verified."""
    if encoding not in _RANKS:
        raise ConfigError("unknown encoding", subject=encoding, remedy=f"Known: {', '.join(_RANKS)}.")
    import bpe_openai

    path = Path(str(bpe_openai.__file__)).parent / "data" / f"{encoding}.tiktoken.gz"
    ranks = gzip.decompress(path.read_bytes())
    if hashlib.sha256(ranks).hexdigest() != _RANKS[encoding][0]:
        raise ConfigError("the ranks file is damaged", subject=str(path), remedy="Install bpe-openai again.")
    return ranks


@contextmanager
def tiktoken_cache() -> Iterator[Path]:
    """While it lasts, tiktoken finds its ranks in a folder of ours, and loads nothing from the network.

    Yields:
        The folder, which `$TIKTOKEN_CACHE_DIR` names meanwhile: pass it on to the environment of a subprocess.
    """
    folder = cache_dir() / "tiktoken"
    folder.mkdir(parents=True, exist_ok=True)
    for encoding, (digest, name) in _RANKS.items():
        path = folder / name
        if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            partial = path.with_suffix(f".{os.getpid()}")
            partial.write_bytes(tiktoken_ranks(encoding))
            partial.replace(path)
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    try:
        yield folder
    finally:
        if before is None:
            os.environ.pop("TIKTOKEN_CACHE_DIR", None)
        else:
            os.environ["TIKTOKEN_CACHE_DIR"] = before


@cache
def tiktoken_encoding(name: str) -> Any:
    """A `tiktoken.Encoding`, built offline. Half a second the first time."""
    tiktoken = require("tiktoken", extra="peers")
    with tiktoken_cache():
        return tiktoken.get_encoding(name)
