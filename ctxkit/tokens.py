"""Exact token counts of plain text, offline.

The OpenAI encodings are counted by `bpe-openai`, whose merge ranks are inside its wheel: nothing is downloaded, the
time is linear even on a million spaces or letters, and the ids equal those of tiktoken (a test compares them).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

from ctxkit.errors import ConfigError

__all__ = ["ENCODINGS", "BpeCounter", "encoding_for_model", "get_counter"]

ENCODINGS = ("o200k_base", "cl100k_base")


def scalar_text(text: str) -> str:
    """The text as UTF-8 carries it: a lone surrogate becomes U+FFFD, a pair its character; as tiktoken does."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class BpeCounter:
    """Counts by one of OpenAI's encodings. Text such as `<|endoftext|>` counts as the plain text that it is.

    Args:
        encoding: `o200k_base` or `cl100k_base`.

    Example:
        >>> BpeCounter("o200k_base").count("Hello, world!")
        4
    """

    def __init__(self, encoding: str = "o200k_base") -> None:
        if encoding not in ENCODINGS:
            raise ConfigError("unknown encoding", subject=encoding, remedy=f"Known: {', '.join(ENCODINGS)}.")
        self.name = encoding
        self._tokenizer = _tokenizer(encoding)

    def count(self, text: str) -> int:
        """Tokens of `text`. Linear in its length."""
        try:
            return int(self._tokenizer.count(text))
        except UnicodeEncodeError:
            return int(self._tokenizer.count(scalar_text(text)))

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`."""
        return list(self._tokenizer.encode(scalar_text(text)))

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids)))


@cache
def _tokenizer(encoding: str) -> Any:
    with warnings.catch_warnings():  # it opens its data in a way that newer Pythons warn of
        warnings.simplefilter("ignore", DeprecationWarning)
        from bpe_openai import _bindings

        return _bindings.tokenizer_for_encoding(encoding)


@cache
def get_counter(name: str = "o200k_base") -> BpeCounter:
    """The shared counter of an encoding, or of an OpenAI model by name."""
    return BpeCounter(name if name in ENCODINGS else encoding_for_model(name))


def encoding_for_model(model: str) -> str:
    """The encoding of an OpenAI chat model. Raises `ConfigError` for a name that is not known.

    Source: the model table of OpenAI's tiktoken.
    """
    older = ("gpt-4-", "gpt-3.5-turbo", "gpt-35-turbo", "text-embedding-")
    if model == "gpt-4" or model.startswith(older):
        return "cl100k_base"
    if model.startswith(("gpt-4o", "gpt-4.", "gpt-5", "gpt-oss", "chatgpt-4o", "o1", "o3", "o4")):
        return "o200k_base"
    raise ConfigError(
        "no encoding is known for this model",
        subject=model,
        remedy=f"Name an encoding instead: {', '.join(ENCODINGS)}.",
    )
