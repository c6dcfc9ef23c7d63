"""Models, counters and windows by specification: `local`, `local:PATH-or-NAME`, `openai:gpt-4o`, `anthropic:claude-…`.

`echo` is the fake of `ctxkit.testing`; an encoding (`o200k_base`, `cl100k_base`) counts as OpenAI does; any other kind
is a third party's, registered under `ctxkit.model`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from ctxkit import registry
from ctxkit.errors import ConfigError
from ctxkit.models.windows import anthropic_window, openai_window
from ctxkit.protocols import ChatCounter, Model
from ctxkit.settings import require
from ctxkit.tokens import ENCODINGS

__all__ = ["get_chat_counter", "get_model", "get_window"]


def get_model(spec: str, **parameters: Any) -> Model:
    """The model of a specification; nothing is loaded or asked before the first use.

    Args:
        spec: see this module.
        parameters: for the model's class, such as `base_url` or `device`.

    Errors: `ConfigError` for a specification that is not understood, `ModelNotFoundError` for a local model that is
    not installed, `MissingExtraError`.

    Example:
        >>> get_model("echo").name
        'echo'
    """
    kind, name = _split(spec)
    if kind in _BUILT_IN:
        return _BUILT_IN[kind](name, parameters)
    if kind in ENCODINGS:
        raise ConfigError("an encoding cannot answer", subject=spec, remedy=f"Name a model: {_KNOWN}.")
    if kind in registry.names("model"):
        return cast("Model", registry.load("model", kind)(*([name] if name else []), **parameters))
    raise _unknown(spec)


def get_chat_counter(spec: str) -> ChatCounter:
    """The counter of a specification; a local model's weights are not loaded. Counters are shared and remember.

    Example:
        >>> get_chat_counter("openai:gpt-4o").count("Hello, world!")
        4
    """
    kind, name = _split(spec)
    if kind == "local":
        return _local_counter(name)
    if kind == "openai" or kind in ENCODINGS:
        return _openai_counter(name if kind == "openai" else kind)
    if kind == "anthropic":
        return _anthropic_counter(_named(spec, name))
    return get_model(spec).counter


def get_window(spec: str) -> int:
    """The tokens of prompt and answer together that the model of a specification has; nothing is loaded."""
    kind, name = _split(spec)
    if kind == "local":
        from ctxkit.models.catalogue import resolve
        from ctxkit.models.local_config import read_window

        return read_window(resolve(name or "local"))
    if kind == "openai" or kind in ENCODINGS:
        return openai_window(name)
    if kind == "anthropic":
        return anthropic_window(_named(spec, name))
    return get_model(spec).window


def _split(spec: str) -> tuple[str, str]:
    kind, _, name = spec.partition(":")
    return kind.strip(), name.strip()


def _named(spec: str, name: str) -> str:
    if not name:
        raise ConfigError("the model's name is missing", subject=spec, remedy=f"Write it after the colon: {_KNOWN}.")
    return name


def _unknown(spec: str) -> ConfigError:
    others = [name for name in registry.names("model") if name not in _BUILT_IN]
    more = f"; registered: {', '.join(others)}" if others else ""
    if spec and (Path(spec).expanduser().exists() or "/" in spec):
        return ConfigError("not a model's specification", subject=spec, remedy=f"For a folder write local:{spec}.")
    return ConfigError("unknown model", subject=spec, remedy=f"Known: {_KNOWN}{more}.")


def _local(name: str, parameters: dict[str, Any]) -> Model:
    from ctxkit.models.local import LocalModel

    return LocalModel(name or "local", **parameters)


def _openai(name: str, parameters: dict[str, Any]) -> Model:
    from ctxkit.models.openai import OpenAIModel

    return OpenAIModel(_named("openai", name), **parameters)


def _anthropic(name: str, parameters: dict[str, Any]) -> Model:
    from ctxkit.models.anthropic import AnthropicModel

    return AnthropicModel(_named("anthropic", name), **parameters)


def _echo(name: str, parameters: dict[str, Any]) -> Model:
    from ctxkit.testing.models import EchoModel

    return EchoModel(**parameters)


_BUILT_IN: dict[str, Callable[[str, dict[str, Any]], Model]] = {
    "local": _local,
    "openai": _openai,
    "anthropic": _anthropic,
    "echo": _echo,
}
_KNOWN = "local, local:PATH-or-NAME, openai:MODEL, anthropic:MODEL, echo, o200k_base, cl100k_base (counting only)"


def _local_counter(name: str) -> ChatCounter:
    require("tokenizers", extra="local", subject=f"local:{name}" if name else "local")
    from ctxkit.models.catalogue import resolve

    return _counter_of_folder(resolve(name or "local").tokenizer_folder())


@lru_cache(maxsize=8)
def _counter_of_folder(folder: Path) -> ChatCounter:
    from ctxkit.models.template_counting import ChatTemplateCounter

    return ChatTemplateCounter(folder)


@lru_cache(maxsize=8)
def _openai_counter(model: str) -> ChatCounter:
    from ctxkit.models.openai_counting import OpenAIChatCounter

    return OpenAIChatCounter(model or "gpt-4o")


@lru_cache(maxsize=8)
def _anthropic_counter(model: str) -> ChatCounter:
    from ctxkit.models.anthropic_counting import AnthropicChatCounter

    return AnthropicChatCounter(model)
