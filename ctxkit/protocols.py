"""The stages: one method each, `typing.Protocol`, no base class to inherit.

Each protocol has a conformance class in `ctxkit.testing`; inherit it in your tests and every rule below is checked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ctxkit.documents import Candidate, Chunk, Document, Entity, Query
from ctxkit.messages import Message
from ctxkit.prompts import Completion, CompletionDelta, CompletionOptions, Prompt

__all__ = [
    "ChatCounter",
    "Chunker",
    "Embedder",
    "EntityExtractor",
    "Model",
    "Reader",
    "Retriever",
    "Stage",
    "TokenCounter",
    "VectorIndex",
    "Window",
]


@runtime_checkable
class Reader(Protocol):
    """Turns the bytes of one file into a document. Raises `ReadingError` when it cannot."""

    def read(self, data: bytes, *, source: str) -> Document: ...


@runtime_checkable
class Chunker(Protocol):
    """Cuts a document into chunks, in order, losing nothing (law 1)."""

    def chunk(self, document: Document) -> Iterator[Chunk]: ...


@runtime_checkable
class EntityExtractor(Protocol):
    """Yields, for each text in order, its entities with offsets into that text."""

    def extract(self, texts: Iterable[str]) -> Iterator[Sequence[Entity]]: ...


@runtime_checkable
class Embedder(Protocol):
    """Texts to unit vectors: float32 of shape `(len(texts), dimension)`. `fingerprint` names the weights."""

    @property
    def dimension(self) -> int: ...

    @property
    def fingerprint(self) -> str: ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]: ...


@runtime_checkable
class VectorIndex(Protocol):
    """Nearest vectors by inner product; `keys` are the integers given to `add`."""

    def add(self, keys: NDArray[np.int64], vectors: NDArray[np.float32]) -> None: ...

    def remove(self, keys: NDArray[np.int64]) -> None: ...

    def search(self, vector: NDArray[np.float32], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]: ...


@runtime_checkable
class Retriever(Protocol):
    """At most `k` candidates for a query, best first, `scores["final"]` in [0, 1]."""

    def retrieve(self, query: Query, k: int) -> list[Candidate]: ...


@runtime_checkable
class Stage(Protocol):
    """Rerankers and compressors: candidates in, candidates out. Pure; never invents a candidate or a span."""

    def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[Candidate]: ...


@runtime_checkable
class TokenCounter(Protocol):
    """Counts the tokens of plain text; text that looks like a control token counts as plain text (law 4).

    `name` identifies the tokenizer: two counters of one name count alike, so that stored counts can be used again.
    """

    @property
    def name(self) -> str: ...

    def count(self, text: str) -> int: ...


@runtime_checkable
class ChatCounter(TokenCounter, Protocol):
    """Counts what a model really gets: messages with their roles, tool calls, tool schemas and separators (law 2).

    Where a message's content is parts, a local model encodes part by part and so does its counter. `exact` is False
    for an estimate, which must never be lower than the truth.

    A counter of which a prompt without tools costs always the sum of its messages and a constant may say so by
    `additive = True`: windows then count a message once in its life.

    A counter that is exact for some prompts and an estimate for others also has
    `is_exact(messages, tools) -> bool`; `counted_exactly` asks for both.
    """

    @property
    def exact(self) -> bool: ...

    def count_message(self, message: Message) -> int:
        """About what one message adds to a prompt; used to plan, never to promise."""
        ...

    def count_prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> int:
        """What the model counts for the whole prompt, the opening of its answer included."""
        ...


def counted_exactly(counter: ChatCounter, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> bool:
    """Whether the counter's count of this very prompt is exact."""
    of_prompt = getattr(counter, "is_exact", None)
    return counter.exact and (of_prompt is None or bool(of_prompt(messages, tools)))


@runtime_checkable
class Window(Protocol):
    """Chooses what of a dialogue is sent: a valid history (law 5) of at most `max_tokens`, in order."""

    def select(self, messages: Sequence[Message], max_tokens: int, counter: ChatCounter) -> list[Message]: ...


@runtime_checkable
class Model(Protocol):
    """Answers a prompt. Raises errors of the `ModelError` family, or `ContextOverflowError`."""

    @property
    def name(self) -> str: ...

    @property
    def counter(self) -> ChatCounter: ...

    @property
    def window(self) -> int:
        """The tokens of prompt and answer together."""
        ...

    def complete(self, prompt: Prompt, options: CompletionOptions | None = None) -> Completion: ...

    def stream(self, prompt: Prompt, options: CompletionOptions | None = None) -> Iterator[CompletionDelta]: ...

    async def acomplete(self, prompt: Prompt, options: CompletionOptions | None = None) -> Completion: ...

    def astream(self, prompt: Prompt, options: CompletionOptions | None = None) -> AsyncIterator[CompletionDelta]: ...
