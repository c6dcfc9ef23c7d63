"""Loads the weights of a local model, once for all its users."""

from __future__ import annotations

import os
import warnings
import weakref
from pathlib import Path
from threading import Lock
from typing import Any

from ctxkit.errors import ConfigError, ModelError
from ctxkit.models.conversion import offline_transformers
from ctxkit.models.local_config import check_decoder, verify_weights
from ctxkit.models.tuning import choose_dtype
from ctxkit.settings import require

__all__ = ["load_weights"]

_lock = Lock()
_loaded: weakref.WeakValueDictionary[tuple[Path, str, str], Any] = weakref.WeakValueDictionary()


def load_weights(folder: Path, *, device: str = "auto", dtype: Any = "auto") -> Any:
    """A causal language model of transformers in evaluation mode; models of one folder share their weights.

    Args:
        folder: as `save_pretrained` writes it, with safetensors weights.
        device: a device of torch, or `auto`: a GPU where there is one.
        dtype: of torch or its name, or `auto`: on a CPU float32, or bfloat16 where it is measured to be faster (on many
            it makes prefill some five times slower); else what the weights have. `$CTXKIT_DTYPE` is another default.

    Errors: `ConfigError` for a device or dtype that does not exist, `ModelError` for weights that cannot be loaded.
    """
    torch: Any = require("torch", extra="local", subject=str(folder))
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if dtype == "auto":
        dtype = os.environ.get("CTXKIT_DTYPE") or choose_dtype(device)
    chosen = "auto" if dtype == "auto" else getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if chosen != "auto" and not (isinstance(chosen, torch.dtype) and chosen.is_floating_point):
        raise ConfigError(
            "torch has no such dtype for weights", subject=str(dtype), remedy="Use float32, bfloat16 or float16."
        )
    key = (folder.resolve(), device, str(chosen))
    with _lock:
        model = _loaded.get(key)
        if model is None:
            verify_weights(folder)
            check_decoder(folder)
            _loaded[key] = model = _load(folder, device, chosen)
        return model


def _load(folder: Path, device: str, dtype: Any) -> Any:
    with offline_transformers() as transformers, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries, about their own insides
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(str(folder), dtype=dtype, local_files_only=True)
            return model.to(device).eval()
        except Exception as error:
            raise ModelError(
                f"the model cannot be loaded ({type(error).__name__}: {error})",
                subject=str(folder),
                remedy="Check it with `ctxkit models check`, that transformers knows its architecture, and the memory.",
            ) from error
