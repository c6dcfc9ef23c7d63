"""Local models that are not there, not whole, not of the right kind, or asked for in the wrong way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ctxkit.errors import ConfigError, KVCacheError, ModelError, ModelNotFoundError
from ctxkit.messages import Message
from ctxkit.models import LocalModel
from ctxkit.models.decoding import FreshCache, decode_steps
from ctxkit.prompts import Prompt
from ctxkit.testing.models import prompt_of

transformers = pytest.importorskip("transformers")


def ask(model: LocalModel, text: str) -> Prompt:
    return prompt_of(Message("user", text), counter=model.counter)


def test_models_that_are_not_there_or_not_whole(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="Known: smollm2"):
        LocalModel("no-such-model")
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        (tmp_path / name).write_bytes((tiny_folder / name).read_bytes())
    with pytest.raises(ModelNotFoundError, match=r"model\.safetensors are missing"):
        LocalModel(tmp_path).complete(ask(LocalModel(tiny_folder), "x"))
    whole = (tiny_folder / "model.safetensors").read_bytes()
    for broken in (whole[:-100], b"", b"\xff" * 100, whole[:8]):
        (tmp_path / "model.safetensors").write_bytes(broken)
        with pytest.raises(ModelError, match="damaged or cut short"):
            LocalModel(tmp_path).complete(ask(LocalModel(tiny_folder), "x"))


def test_wrong_parameters_are_refused(tiny_folder: Path) -> None:
    with pytest.raises(ConfigError, match="window"):
        LocalModel(tiny_folder, window=0)
    with pytest.raises(ConfigError, match="dtype"):
        LocalModel(tiny_folder, dtype="float33").complete(ask(LocalModel(tiny_folder), "x"))
    for dtype in (None, "int8", "nn", 3):
        with pytest.raises(ConfigError, match="dtype"):
            LocalModel(tiny_folder, dtype=dtype).weights  # noqa: B018
    for options in ({"window": "x"}, {"window": float("nan")}, {"window": True}, {"kv_codec": "int4"}, {"cache": "x"}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            LocalModel(tiny_folder, **options)
    with pytest.raises(ModelError, match="cannot be loaded"):
        LocalModel(tiny_folder, device="nonsense").complete(ask(LocalModel(tiny_folder), "x"))


def test_a_model_without_keys_and_values_is_refused() -> None:
    config = transformers.OpenAIGPTConfig(vocab_size=30, n_embd=16, n_layer=1, n_head=2)
    model = transformers.OpenAIGPTLMHeadModel(config).eval()
    cache, held = FreshCache().take(model, [1, 2, 3])
    steps = decode_steps(
        model,
        [1, 2, 3],
        cache=cache,
        reused=held,
        max_tokens=2,
        stop_ids=frozenset(),
        temperature=0.0,
        top_p=1.0,
        seed=None,
        check=lambda: None,
    )
    with pytest.raises(KVCacheError, match="keeps no keys and values"):
        next(steps)


def test_an_encoder_decoder_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    config = json.loads((tiny_folder / "config.json").read_text()) | {"is_encoder_decoder": True}
    for path in tiny_folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="encoder-decoder"):
        LocalModel(tmp_path).weights  # noqa: B018
