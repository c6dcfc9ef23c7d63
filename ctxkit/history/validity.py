"""What a dialogue must look like so that every provider accepts it, and the check that it does.

The rules are the union of what the chat APIs of OpenAI and Anthropic refuse with HTTP 400:

1. System messages stand at the beginning and nowhere else. (Anthropic takes them apart from the dialogue.)
2. The first message after them is the user's. (Anthropic; also most chat templates of local models.)
3. After an assistant message with tool calls come its results and nothing else: exactly one for each call. (Both.)
4. A result follows such a message; there is none without its call. (Both.)
5. The ids of calls are not empty and never used twice in a dialogue. (Anthropic.)
6. No system, user or assistant message is empty or white space only; an assistant message may have only calls.
   (Anthropic.)

Two messages of one role in a row are allowed: OpenAI takes them, and Anthropic joins them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ctxkit.errors import HistoryError
from ctxkit.messages import Message

__all__ = ["check_history", "is_empty"]


def is_empty(message: Message) -> bool:
    """Whether a message says nothing: no text but white space, reasoning apart, and no part of another kind."""
    return all(part.kind == "reasoning" or (part.kind == "text" and not part.text.strip()) for part in message.parts)


def check_history(messages: Sequence[Message], *, require_user: bool = True) -> None:
    """Raise `HistoryError` unless every provider would accept the messages (law 5). Linear.

    Args:
        messages: a whole dialogue, or a window of one.
        require_user: whether there must be a user message, as a prompt must have.
    """
    used: set[str] = set()
    due: dict[str, None] = {}
    seen_user = False
    for index, message in enumerate(messages):
        if due and message.role != "tool":
            raise _error(index, message, f"the call {next(iter(due))!r} before it has no result")
        if message.role == "system":
            if seen_user:
                raise _error(index, message, "a system message stands inside the dialogue")
        elif message.role == "tool":
            if message.tool_call_id not in due:
                raise _error(index, message, f"the result of {message.tool_call_id!r} answers no call before it")
            del due[str(message.tool_call_id)]
            continue
        elif message.role == "user":
            seen_user = True
        elif not seen_user:
            raise _error(index, message, "the dialogue begins with an assistant message")
        if is_empty(message) and not message.tool_calls:
            raise _error(index, message, "the message is empty")
        for call in message.tool_calls:
            if not call.id or call.id in used:
                raise _error(index, message, f"the call id {call.id!r} is {'used twice' if call.id else 'empty'}")
            used.add(call.id)
            due[call.id] = None
    if due:
        raise _error(len(messages) - 1, messages[-1], f"the call {next(iter(due))!r} has no result")
    if require_user and not seen_user:
        raise HistoryError("there is no user message", remedy="A prompt needs at least one.")


def _error(index: int, message: Message, problem: str) -> HistoryError:
    return HistoryError(
        problem,
        subject=f"message {index} ({message.role}{', ' + message.id if message.id else ''})",
        remedy="Pass the messages through ctxkit.history.repair() first.",
    )
