"""What another framework's message holds and ours does not goes along, and comes back as it was.

It lies in the data of a text part, which is stored and never sent: the message is counted, cut, searched and exported
like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ctxkit.errors import CtxkitError, HistoryError
from ctxkit.messages import Message, Part

__all__ = ["carried", "carry", "reading", "same"]


@contextmanager
def reading(message: object, remedy: str) -> Iterator[None]:
    """What goes wrong in a framework's message, or in the framework itself over it, as one of our errors."""
    try:
        yield
    except CtxkitError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise HistoryError(
            f"a {type(message).__name__} cannot be kept ({type(error).__name__}: {error!s:.200})", remedy=remedy
        ) from error


def carry(message: Message, framework: str, raw: Any) -> Message:
    """The message with the framework's own form of it, as JSON."""
    parts = message.parts
    for index, part in enumerate(parts):
        if part.kind in ("text", "reasoning"):
            holder = replace(part, data={**part.data, framework: raw})
            return replace(message, content=(*parts[:index], holder, *parts[index + 1 :]))
    return replace(message, content=(*parts, Part(data={framework: raw})))


def carried(message: Message, framework: str, read: Callable[[Any], Message]) -> Any:
    """The framework's own form, or None where there is none, or where the message was changed since (a repair, a cut).

    Args:
        read: how the framework's form becomes a message.
    """
    for part in message.parts:
        if framework in part.data:
            raw = part.data[framework]
            return raw if same(read(raw), message) else None
    return None


def same(one: Message, other: Message) -> bool:
    """Whether a model would see the same."""
    return one.content_hash == replace(other, name=one.name).content_hash
