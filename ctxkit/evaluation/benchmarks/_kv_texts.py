"""The model and the texts that the parts of the cache's benchmark share."""

from __future__ import annotations

import gzip
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from ctxkit.errors import ConfigError
from ctxkit.kvcache.compat import cache_argument
from ctxkit.models.catalogue import resolve
from ctxkit.models.loading import load_weights
from ctxkit.settings import require

__all__ = ["LayerStates", "Reading", "load", "model_folder", "read", "texts", "tokenizer"]

LayerStates = list[tuple[Any, Any]]
"""Keys and values of every layer."""

_CHUNK = 1024
_MODULES = ("argparse", "tarfile", "subprocess", "typing", "pathlib", "ast", "inspect", "shutil")


@lru_cache(maxsize=1)
def model_folder() -> Path:
    return resolve("local").folder()


def load() -> Any:
    return load_weights(model_folder(), device="cpu", dtype="float32")


@lru_cache(maxsize=1)
def tokenizer() -> Any:
    return require("tokenizers", extra="local").Tokenizer.from_file(str(model_folder() / "tokenizer.json"))


def texts(data: Path, tokens: int, count: int) -> Iterator[tuple[str, list[int]]]:
    """Prose, code and Chinese: `count` stretches of that many tokens each, evenly from the whole text."""
    files = {
        "prose": data / "gutenberg" / "war_and_peace_2600-0.txt.gz",
        "chinese": data / "zh_novels" / "The_Story_of_the_Stone.txt.gz",
    }
    sources = {}
    for name, file in files.items():
        if not file.is_file():
            raise ConfigError("the data file is not here", subject=str(file), remedy="Set CTXKIT_DATA to its folder.")
        sources[name] = gzip.decompress(file.read_bytes()).decode("utf-8")
    library = Path(sysconfig.get_paths()["stdlib"])
    sources["code"] = "\n".join((library / f"{name}.py").read_text("utf-8") for name in _MODULES)
    for name in ("prose", "code", "chinese"):
        text = sources[name]
        for number in range(count):
            start = len(text) * (2 * number + 1) // (2 * count + 1)
            ids = tokenizer().encode(text[start : start + 8 * tokens], add_special_tokens=False).ids[:tokens]
            if len(ids) == tokens:
                yield name, ids


@dataclass(frozen=True, slots=True)
class Reading:
    """What the model computed for one stretch, exactly: states of all tokens, log-probabilities of the asked ones."""

    states: LayerStates
    log_probabilities: dict[int, Any]

    def prefix(self, tokens: int) -> LayerStates:
        return [(keys[:, :, :tokens], values[:, :, :tokens]) for keys, values in self.states]


def read(model: Any, ids: list[int], scored: dict[int, int]) -> Reading:
    """One prefill; the log-probabilities after each prefix length in `scored`, for that many tokens that follow."""
    torch: Any = require("torch", extra="local")
    cache = require("transformers", extra="local").DynamicCache(config=model.config)
    given = torch.tensor([ids])
    cuts = sorted({0, len(ids), *scored, *(start + count for start, count in scored.items())})
    found = {}
    with torch.inference_mode():
        for start, stop in pairwise(cuts):
            asked = scored.get(start) == stop - start
            for at in range(start, stop, stop - start if asked else _CHUNK):
                end = stop if asked else min(at + _CHUNK, stop)
                options = {cache_argument(model): cache, "logits_to_keep": 0 if asked else 1}
                logits = model(input_ids=given[:, at:end], **options).logits
                if asked:
                    found[start] = logits[0].log_softmax(-1)
    return Reading([(layer.keys, layer.values) for layer in cache.layers], found)
