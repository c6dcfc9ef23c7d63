"""What a provider's SDK raises, as ctxkit's errors; and which of them are worth another try.

Both SDKs are generated alike: `APIStatusError` has `status_code`, `response` and `body`, `APITimeoutError` is an
`APIConnectionError`. So one translation serves both.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ctxkit.errors import (
    AuthenticationError,
    ContextOverflowError,
    CtxkitError,
    ModelError,
    ModelNotFoundError,
    ModelTimeoutError,
    ProviderError,
    RateLimitError,
)

__all__ = ["Transient", "translate", "unsupported_parameter"]

_OVERFLOW = re.compile(
    r"context_length_exceeded|context.?length|context window|context limit|prompt is too long|input is too long"
    r"|too many (?:input )?tokens|maximum.{0,40}tokens|request_too_large",
    re.IGNORECASE,
)
_QUOTA = re.compile(r"insufficient_quota|billing|credit balance", re.IGNORECASE)
_UNSUPPORTED = re.compile(
    r"unsupported|not supported|unrecognized|unknown|extra (?:inputs|fields)|does not support|deprecated|not permitted",
    re.IGNORECASE,
)


class Transient(Exception):
    """Wraps an error that may vanish when the request is sent again."""

    def __init__(self, error: ModelError, retry_after: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry_after = retry_after


def translate(error: BaseException, *, subject: str, window: int, tokens: int, key: str) -> CtxkitError | Transient:
    """The error of an SDK as one of ours, wrapped in `Transient` where another try may help.

    Args:
        subject: the model.
        window, tokens: for the report of an overflow.
        key: the environment variable that holds the credentials.
    """
    if isinstance(error, CtxkitError | Transient):
        return error
    status = getattr(error, "status_code", None)
    said = _message(error)
    if _is_timeout(error):
        return ModelTimeoutError("no answer in time", subject=subject, remedy="Raise the timeout, or ask for less.")
    if isinstance(status, int):
        return _by_status(status, error, said, subject=subject, window=window, tokens=tokens, key=key)
    if _OVERFLOW.search(said) and _has_body(error):
        return _overflow(said, subject, window, tokens)
    if "Connect" in type(error).__name__:
        return Transient(
            ProviderError(
                f"the provider cannot be reached ({said})",
                subject=subject,
                remedy="Check the base URL and the network.",
            )
        )
    if isinstance(error, json.JSONDecodeError) or "Validation" in type(error).__name__:
        said = "the answer is not what the protocol says"
    return ProviderError(
        f"the provider failed ({type(error).__name__}: {said})",
        subject=subject,
        remedy="Ask again, or check the base URL.",
    )


def _by_status(
    status: int, error: BaseException, said: str, *, subject: str, window: int, tokens: int, key: str
) -> CtxkitError | Transient:
    if status in (401, 403):
        return AuthenticationError(
            f"the provider refused the credentials (HTTP {status}: {said})",
            subject=subject,
            remedy=f"Set {key} to a key that may use this model.",
        )
    if status == 429:
        wait = _retry_after(error)
        limit = RateLimitError(
            f"the provider refused the rate of requests (HTTP 429: {said})",
            subject=subject,
            remedy=f"Ask again in {wait:g} s." if wait is not None else "Ask less often, or raise the account's limit.",
        )
        limit.retry_after = wait
        return limit if _QUOTA.search(said + str(getattr(error, "code", ""))) else Transient(limit, wait)
    if status == 413 or (status in (400, 422) and _OVERFLOW.search(f"{getattr(error, 'code', '')} {said}")):
        return _overflow(said, subject, window, tokens)
    if status == 404:
        return ModelNotFoundError(
            f"the provider knows no such model or address (HTTP 404: {said})",
            subject=subject,
            remedy="Check the model's name and the base URL.",
        )
    failed = ProviderError(
        f"the provider failed (HTTP {status}: {said})" if status >= 500 else f"refused (HTTP {status}: {said})",
        subject=subject,
        remedy="Ask again later." if status >= 500 else "Change what the message names.",
    )
    return Transient(failed, _retry_after(error)) if status >= 500 or status in (408, 409) else failed


def _overflow(said: str, subject: str, window: int, tokens: int) -> ContextOverflowError:
    return ContextOverflowError(
        f"the provider says that the prompt does not fit ({said})",
        parts={"prompt": tokens},
        available=window,
        subject=subject,
    )


def unsupported_parameter(error: BaseException, names: tuple[str, ...]) -> str | None:
    """Which of these parameters a provider refused as unknown to its model, or None."""
    if getattr(error, "status_code", None) not in (400, 422):
        return None
    said = f"{getattr(error, 'code', '')} {_message(error)}"
    if not _UNSUPPORTED.search(said):
        return None
    named = getattr(error, "param", None)
    if named in names:
        return str(named)
    return next((name for name in names if re.search(rf"\b{name}\b", said)), None)


def _message(error: BaseException) -> str:
    """The provider's own words, in one line."""
    body = getattr(error, "body", None)
    if isinstance(body, dict):
        inner = body.get("error", body)
        if isinstance(inner, dict) and inner.get("message"):
            return " ".join(str(inner["message"]).split())[:500]
    text = " ".join((str(error) or type(error).__name__).split())
    return text[:500]


def _has_body(error: BaseException) -> bool:
    return isinstance(getattr(error, "body", None), dict)


def _is_timeout(error: BaseException) -> bool:
    return isinstance(error, TimeoutError) or "Timeout" in type(error).__name__


def _retry_after(error: BaseException) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None)
    if headers is None:
        return None
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers.get(name, "")) / scale)
        except ValueError:
            continue
    return None


def empty_answer(subject: str) -> ProviderError:
    """The provider answered, and said nothing."""
    return ProviderError("the provider answered nothing", subject=subject, remedy="Ask again, or change the prompt.")


def nonsense(subject: str, what: Any) -> ProviderError:
    """The provider answered something that is not a completion."""
    return ProviderError(
        f"the provider's answer is not a completion ({' '.join(str(what).split())[:120]!r})",
        subject=subject,
        remedy="Check that the base URL is that of the API, with its version.",
    )
