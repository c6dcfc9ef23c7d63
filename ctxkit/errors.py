"""Every error that leaves ctxkit, in one tree.

    CtxkitError
    ├── ConfigError                a parameter, a name or a setting is wrong
    │   └── MissingExtraError      an optional dependency is not installed
    ├── ReadingError               a file could not be turned into a document
    ├── ChunkingError              a document could not be chunked
    ├── EmbeddingError             texts could not be embedded
    ├── StorageError               the store could not be opened, read or written
    │   ├── StoreFormatError       the database is not a ctxkit store
    │   ├── StoreVersionError      the store was written by a newer ctxkit
    │   ├── NotFoundError          the named thing is not in the store
    │   ├── ConflictError          somebody else changed it first
    │   └── ProtectedError         the thing is protected or archived, and stays as it is
    ├── TemplateError              a template is malformed or was filled wrongly
    │   ├── TemplateSyntaxError
    │   ├── MissingVariableError
    │   ├── UnexpectedVariableError
    │   └── VariableTypeError
    ├── HistoryError               a dialogue history is not valid
    ├── BudgetError                the mandatory parts do not fit the budget
    │   └── ContextOverflowError   the prompt is longer than the model's window
    ├── KVCacheError               keys and values could not be compressed, kept or restored
    └── ModelError                 a model could not answer
        ├── ModelNotFoundError     the model is not installed or not known
        ├── AuthenticationError    the provider refused the key (401, 403)
        ├── RateLimitError         the provider refused the rate (429)
        ├── ModelTimeoutError      no answer in time
        ├── MemoryBudgetError      it needs more memory than there is
        └── ProviderError          the provider failed (5xx) or answered nonsense

Each carries what failed, on which input (`subject`) and what to do about it (`remedy`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "AuthenticationError",
    "BudgetError",
    "ChunkingError",
    "ConfigError",
    "ConflictError",
    "ContextOverflowError",
    "CtxkitError",
    "EmbeddingError",
    "HistoryError",
    "KVCacheError",
    "MemoryBudgetError",
    "MissingExtraError",
    "MissingVariableError",
    "ModelError",
    "ModelNotFoundError",
    "ModelTimeoutError",
    "NotFoundError",
    "ProtectedError",
    "ProviderError",
    "RateLimitError",
    "ReadingError",
    "StorageError",
    "StoreFormatError",
    "StoreVersionError",
    "TemplateError",
    "TemplateSyntaxError",
    "UnexpectedVariableError",
    "VariableTypeError",
]


class CtxkitError(Exception):
    """The root of the tree.

    Args:
        message: what failed, in one line.
        subject: the input it failed on (a path, a name, a parameter), or "".
        remedy: what the reader can do about it, or "".
    """

    def __init__(self, message: str, *, subject: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.subject = subject
        self.remedy = remedy

    def __str__(self) -> str:
        text = f"{self.subject}: {self.message}" if self.subject else self.message
        if self.remedy:
            text = f"{text.rstrip('.')}. {self.remedy}"
        return text

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.__dict__.copy()))


def _rebuild(kind: type[CtxkitError], message: str, state: dict[str, object]) -> CtxkitError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class ConfigError(CtxkitError):
    """A parameter, a name or a setting is wrong."""


class MissingExtraError(ConfigError):
    """An optional dependency is not installed; the remedy names the extra to install."""

    def __init__(self, package: str, *, extra: str, subject: str = "") -> None:
        super().__init__(
            f"the package {package!r} is not installed",
            subject=subject,
            remedy=f"Install it with: pip install 'ctxkit-sdk[{extra}]'",
        )
        self.package = package
        self.extra = extra


class ReadingError(CtxkitError):
    """A file could not be turned into a document."""


class ChunkingError(CtxkitError):
    """A document could not be chunked."""


class EmbeddingError(CtxkitError):
    """Texts could not be embedded."""


class StorageError(CtxkitError):
    """The store could not be opened, read or written."""


class StoreFormatError(StorageError):
    """The database exists but is not a ctxkit store."""


class StoreVersionError(StorageError):
    """The store was written by a newer version of ctxkit."""


class NotFoundError(StorageError):
    """The named thing is not in the store."""


class ConflictError(StorageError):
    """Somebody else changed the thing first."""


class ProtectedError(StorageError):
    """The thing is protected, archived or referred to, so it stays as it is."""


class TemplateError(CtxkitError):
    """A template is malformed or was filled wrongly."""


class TemplateSyntaxError(TemplateError):
    """A template cannot be parsed; the subject names line and column."""


class MissingVariableError(TemplateError):
    """A template needs a variable that the payload does not have."""


class UnexpectedVariableError(TemplateError):
    """A payload has a variable that the template does not know."""


class VariableTypeError(TemplateError):
    """A payload's variable has a type the template does not take."""


class HistoryError(CtxkitError):
    """A dialogue history is not valid."""


class BudgetError(CtxkitError):
    """The mandatory parts do not fit the budget.

    Attributes:
        parts: tokens of each mandatory part, by section.
        available: the tokens the budget leaves for the prompt.
        excess: by how many tokens the parts are over.
    """

    default_remedy = "Raise max_tokens, lower reserve_output, or shorten the named parts."

    def __init__(
        self,
        message: str = "",
        *,
        parts: dict[str, int] | None = None,
        available: int = 0,
        subject: str = "",
        remedy: str = "",
    ) -> None:
        self.parts = dict(parts or {})
        self.available = available
        self.excess = max(0, sum(self.parts.values()) - available)
        if not message:
            listed = ", ".join(f"{name} {count:,}" for name, count in self.parts.items())
            message = (
                f"the mandatory parts need {sum(self.parts.values()):,} tokens ({listed}), "
                f"but only {available:,} are available: {self.excess:,} too many"
            )
        super().__init__(
            message,
            subject=subject,
            remedy=remedy or self.default_remedy,
        )


class ContextOverflowError(BudgetError):
    """The prompt, or the prompt and its answer, are longer than the model's window."""

    default_remedy = "Lower the budget to the model's window, or use a model with a larger one."


class KVCacheError(CtxkitError):
    """Keys and values of a model could not be compressed, kept or restored."""


class ModelError(CtxkitError):
    """A model could not answer."""


class ModelNotFoundError(ModelError):
    """The model is not installed or not known."""


class AuthenticationError(ModelError):
    """The provider refused the credentials (HTTP 401 or 403)."""


class RateLimitError(ModelError):
    """The provider refused the rate of requests (HTTP 429).

    Attributes:
        retry_after: the seconds after which it says to ask again, or None.
    """

    retry_after: float | None = None


class ModelTimeoutError(ModelError):
    """The model did not answer in time."""


class MemoryBudgetError(ModelError):
    """A request needs more memory than there is, by its plan or because it ran out.

    Attributes:
        needed: bytes that the request takes by its plan: its cache, and the peak of reading the prompt.
        free: bytes that there were for it.
        report: the measurements; after memory ran out also their `cause`.
    """

    needed: int = 0
    free: int = 0
    report: Mapping[str, Any] | None = None


class ProviderError(ModelError):
    """The provider failed (HTTP 5xx) or answered something that is not a completion."""
