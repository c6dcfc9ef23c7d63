"""Models and their counters: local (transformers), OpenAI, Anthropic; by specification or by class.

get_model("local")                 the small model that `ctxkit models pull` gets
get_model("local:path/to/folder")  any causal language model of transformers
get_model("openai:gpt-4o")         the API, or any server that speaks it
get_chat_counter("anthropic:…")    counts without a model
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ctxkit.models.resolving import get_chat_counter, get_model, get_window

if TYPE_CHECKING:
    from ctxkit.models.anthropic import AnthropicModel
    from ctxkit.models.anthropic_counting import AnthropicChatCounter
    from ctxkit.models.local import LocalModel
    from ctxkit.models.openai import OpenAIModel
    from ctxkit.models.openai_counting import OpenAIChatCounter
    from ctxkit.models.template_counting import ChatTemplateCounter

__all__ = [
    "AnthropicChatCounter",
    "AnthropicModel",
    "ChatTemplateCounter",
    "LocalModel",
    "OpenAIChatCounter",
    "OpenAIModel",
    "get_chat_counter",
    "get_model",
    "get_window",
]

_HOMES = {
    "AnthropicChatCounter": "anthropic_counting",
    "AnthropicModel": "anthropic",
    "ChatTemplateCounter": "template_counting",
    "LocalModel": "local",
    "OpenAIChatCounter": "openai_counting",
    "OpenAIModel": "openai",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"ctxkit.models.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
