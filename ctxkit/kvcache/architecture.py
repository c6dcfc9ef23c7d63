"""What a model's configuration says about its memory, read without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ctxkit.checking import check_whole, shown
from ctxkit.errors import ConfigError, KVCacheError

__all__ = ["Architecture"]

_GEMMA3_PATTERN = 6
_KINDS = ("full_attention", "sliding_attention", "chunked_attention")


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """The numbers of a decoder that its memory follows from.

    Args:
        layers: with attention, sliding ones included.
        kv_heads: heads of keys and values of a layer.
        head_dim: channels of a head.
        query_heads: of a layer; default as many as `kv_heads`.
        hidden_size, intermediate_size, vocabulary: of the layers between; 0 where they are not known.
        tied: whether the output layer is the embedding.
        sliding_layers: how many of the layers attend to the last `sliding_window` tokens only.
        positions: the longest context of the model, or 0.
        experts, expert_size: feed-forwards of a layer where there are several, and their width, or 0 where it is
            `intermediate_size`.
        parameters: weights of the model, where they are known better than by the formula.

    Errors: `ConfigError` for a number that cannot be.

    Example:
        >>> Architecture(layers=30, kv_heads=3, head_dim=64).token_bytes(itemsize=2)
        23040
    """

    layers: int
    kv_heads: int
    head_dim: int
    query_heads: int = 0
    hidden_size: int = 0
    intermediate_size: int = 0
    vocabulary: int = 0
    tied: bool = True
    sliding_layers: int = 0
    sliding_window: int = 0
    positions: int = 0
    experts: int = 0
    expert_size: int = 0
    parameters: int = 0

    def __post_init__(self) -> None:
        for name in ("layers", "kv_heads", "head_dim"):
            check_whole(getattr(self, name), name, minimum=1)
        for name in ("query_heads", "hidden_size", "intermediate_size", "vocabulary", "sliding_layers"):
            check_whole(getattr(self, name), name, minimum=0)
        for name in ("sliding_window", "positions", "experts", "expert_size", "parameters"):
            check_whole(getattr(self, name), name, minimum=0)
        if self.sliding_layers > self.layers or (self.sliding_layers and not self.sliding_window):
            raise ConfigError(
                f"{self.sliding_layers} of {self.layers} layers have a window of {self.sliding_window} tokens",
                remedy="Give at most as many sliding layers as layers, and their sliding_window.",
            )

    @property
    def full_layers(self) -> int:
        return self.layers - self.sliding_layers

    def token_bytes(self, *, itemsize: int) -> int:
        """Bytes of the keys and values of one token in all layers, uncompressed: `2 * layers * heads * dim * size`."""
        return 2 * self.layers * self.kv_heads * self.head_dim * itemsize

    @property
    def weights(self) -> int:
        """The number of weights: as given, or those of a gated feed-forward decoder (Llama and its kin), or 0."""
        if self.parameters or not (self.hidden_size and self.vocabulary):
            return self.parameters
        attention = self.hidden_size * self.head_dim * 2 * (max(self.query_heads, self.kv_heads) + self.kv_heads)
        inner = max(1, self.experts) * ((self.expert_size if self.experts else 0) or self.intermediate_size)
        layer = attention + 3 * self.hidden_size * inner + 2 * self.hidden_size
        embeddings = self.vocabulary * self.hidden_size * (1 if self.tied else 2)
        return self.layers * layer + embeddings + self.hidden_size

    @classmethod
    def of(cls, config: Any, *, parameters: int = 0) -> Architecture:
        """From a config of transformers, or the mapping that a `config.json` holds.

        Errors: `KVCacheError` for an encoder-decoder, or a model without attention or with layers of another kind.
        """
        whole: Mapping[str, Any] = config if isinstance(config, Mapping) else config.to_dict()
        name = str(whole.get("model_type") or "the model")
        remedy = "Give the numbers themselves: layers, heads of keys and values, channels of a head."
        if whole.get("is_encoder_decoder"):
            raise KVCacheError("an encoder-decoder has two caches", subject=name, remedy=remedy)
        nested = whole.get("text_config")
        text: Mapping[str, Any] = {**whole, **nested} if isinstance(nested, Mapping) else whole
        layers, heads = _first(text, "num_hidden_layers", "n_layer"), _first(text, "num_attention_heads", "n_head")
        if not layers or not heads:
            raise KVCacheError("the configuration names no attention layers", subject=name, remedy=remedy)
        kinds = _kinds(text, layers)
        if len(kinds) != layers:
            raise KVCacheError(f"it names the kinds of {len(kinds)} layers of {layers}", subject=name, remedy=remedy)
        if unknown := sorted(set(kinds) - set(_KINDS)):
            raise KVCacheError(f"there are layers of the kind {unknown[0]}", subject=name, remedy=remedy)
        hidden = _first(text, "hidden_size", "n_embd")
        inner = _first(text, "intermediate_size", "n_inner") or 4 * hidden
        if text.get("kv_lora_rank"):
            raise KVCacheError(
                "latent attention keeps whole heads in some versions of transformers and latents in others",
                subject=name,
                remedy=remedy,
            )
        sliding = sum(kind != _KINDS[0] for kind in kinds)
        window = _first(text, "sliding_window", "attention_chunk_size")
        return cls(
            layers=layers,
            kv_heads=_first(text, "num_key_value_heads") or heads,
            head_dim=_first(text, "head_dim") or hidden // heads,
            query_heads=heads,
            hidden_size=hidden,
            intermediate_size=inner,
            vocabulary=_first(text, "vocab_size"),
            tied=bool(text.get("tie_word_embeddings", True)),
            sliding_layers=sliding,
            sliding_window=window if sliding else 0,
            positions=_first(text, "max_position_embeddings", "n_positions"),
            experts=_first(text, "num_local_experts", "num_experts", "n_routed_experts"),
            expert_size=_first(text, "moe_intermediate_size"),
            parameters=parameters,
        )


def _first(values: Mapping[str, Any], *names: str) -> int:
    """The first of these values that is there, or 0. Errors: `KVCacheError` for what is no whole number."""
    name = next((name for name in names if values.get(name)), "")
    found = values.get(name, 0)
    if isinstance(found, list | tuple) and found and all(one == found[0] for one in found):
        found = found[0]  # of every layer, and the same
    if isinstance(found, bool) or (
        not isinstance(found, int) and not (isinstance(found, float) and found.is_integer())
    ):
        raise KVCacheError(
            f"{name} is {shown(found)}",
            subject=str(values.get("model_type") or "the model"),
            remedy="It must be one whole number; else give the numbers themselves: layers, heads, channels of a head.",
        )
    return int(found)


def _kinds(text: Mapping[str, Any], layers: int) -> list[str]:
    """The kind of each layer; older files say it by a pattern or by a window alone."""
    kinds = text.get("layer_types")
    if kinds:
        if not isinstance(kinds, list | tuple):
            raise KVCacheError(
                f"layer_types is {shown(kinds)}",
                subject=str(text.get("model_type") or "the model"),
                remedy="It must be a list of the kind of each layer.",
            )
        return [str(kind) for kind in kinds]
    if not text.get("sliding_window") or text.get("use_sliding_window") is False:
        return [_KINDS[0]] * layers
    model = str(text.get("model_type", ""))
    pattern = _first(text, "sliding_window_pattern", "_sliding_window_pattern")
    if not pattern and model.startswith("gemma"):
        pattern = 2 if model == "gemma2" else _GEMMA3_PATTERN
    if pattern:
        return [_KINDS[1] if (layer + 1) % pattern else _KINDS[0] for layer in range(layers)]
    first = _first(text, "max_window_layers") if "use_sliding_window" in text else 0
    return [_KINDS[0] if layer < first else _KINDS[1] for layer in range(layers)]
