"""How many tokens the providers' models hold, prompt and answer together; a model takes another as a parameter.

Source: the model pages of OpenAI and Anthropic. A name that is not known gets the smallest of its provider's current
models, so that a guess never overflows.
"""

from __future__ import annotations

__all__ = ["anthropic_window", "openai_window"]

_OPENAI = {
    "gpt-3.5": 16_385,
    "gpt-35": 16_385,
    "gpt-4": 8_192,
    "gpt-4-32k": 32_768,
    "gpt-4-turbo": 128_000,
    "gpt-4-1106": 128_000,
    "gpt-4-0125": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-4.5": 128_000,
    "gpt-4o": 128_000,
    "gpt-5": 400_000,
    "gpt-oss": 131_072,
    "o1": 200_000,
    "o1-mini": 128_000,
    "o1-preview": 128_000,
    "o3": 200_000,
    "o4": 200_000,
}


def openai_window(model: str) -> int:
    """The window of an OpenAI model, in tokens."""
    keys = [key for key in _OPENAI if model.startswith(key)]
    return _OPENAI[max(keys, key=len)] if keys else 128_000


def anthropic_window(model: str) -> int:
    """The window of an Anthropic model, in tokens; the larger ones that some accounts have are a parameter."""
    return 100_000 if model.startswith(("claude-instant", "claude-2.0")) else 200_000
