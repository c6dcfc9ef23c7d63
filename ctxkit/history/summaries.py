"""Summaries of what is no longer sent: rolled over a dialogue, each message once, and traced to their messages."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ctxkit.checking import check_kind
from ctxkit.documents import content_hash
from ctxkit.errors import CtxkitError, HistoryError
from ctxkit.history.timeline import SUMMARY
from ctxkit.messages import Message
from ctxkit.protocols import TokenCounter
from ctxkit.trace import StageRecord

__all__ = ["Summariser", "Summary", "apply_summary", "digest", "extend", "roll"]


@dataclass(frozen=True, slots=True)
class Summary:
    """What messages said, shorter.

    Args:
        message_ids: of the messages that it stands for, in order (law 3).
        content: a hash of these messages: a summary never stands for others of the same ids.
        by: the summariser's name.
    """

    text: str
    message_ids: tuple[str, ...]
    content: str
    by: str

    @property
    def id(self) -> str:
        return SUMMARY + content_hash([self.text, list(self.message_ids), self.content, self.by])[:24]

    @property
    def message(self) -> Message:
        """The user message that stands in the dialogue for the messages that are summed up.

        A system message would be an instruction, and the assistant's would stand first, which no provider takes.
        """
        count = len(self.message_ids)
        return Message("user", f"[Summary of {count} earlier message{'s'[: count != 1]}]\n{self.text}", id=self.id)

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "message_ids": list(self.message_ids), "content": self.content, "by": self.by}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Summary:
        """The summary that `to_json` wrote. Raises `HistoryError` when it is none."""
        try:
            found = cls(data["text"], tuple(data["message_ids"]), data["content"], data["by"])
            for value in (found.text, found.content, found.by, *found.message_ids):
                if not isinstance(value, str):
                    raise TypeError(f"expected a text, got {value!r:.40}")
        except (KeyError, TypeError) as error:
            raise HistoryError(
                f"not a summary ({error})", subject=str(data)[:80], remedy="Give what Summary.to_json() wrote."
            ) from error
        return found


@runtime_checkable
class Summariser(Protocol):
    """Sums up messages, going on from an earlier summary. Raises an error of ctxkit when it cannot."""

    @property
    def name(self) -> str: ...

    @property
    def counter(self) -> TokenCounter: ...

    def summarise(self, messages: Sequence[Message], previous: str) -> str: ...


def roll(
    messages: Sequence[Message],
    summariser: Summariser,
    previous: Summary | None = None,
    *,
    record: StageRecord | None = None,
) -> Summary | None:
    """A summary of all the messages, going on from one of their beginning: what that stands for is not read again.

    Fail-safe: where the summariser fails, or gives nothing, or nothing shorter, the previous summary comes back, and
    the record says why. Nothing is lost, since nothing is replaced.

    Args:
        messages: each with an id, as stored ones have.
        previous: a summary of the first of these messages; of any others it is not used.
        record: of a trace; gets the notes `summary` and `summarised`.

    Raises:
        HistoryError: a message has no id, so that the summary could not be traced to it.
    """
    for place, message in enumerate(messages):
        if not message.id:
            raise HistoryError(
                "a message without an id cannot be summed up",
                subject=f"message {place}",
                remedy="Append it to a session first, or give it an id.",
            )
    if previous is not None and not stands_for(previous, messages):
        _note(record, "the earlier summary is of other messages, and is not used")
        previous = None
    new = messages[len(previous.message_ids) if previous else 0 :]
    return extend(previous, new, digest(messages), summariser, record=record) if new else previous


def extend(
    previous: Summary | None,
    new: Sequence[Message],
    content: str,
    summariser: Summariser,
    *,
    record: StageRecord | None = None,
) -> Summary | None:
    """`roll` for who knows already that the previous summary is of what comes before, and the digest of it all."""
    before = previous.text if previous else ""
    try:
        text = summariser.summarise(new, before).strip()
    except CtxkitError as error:
        _note(record, f"failed: {error}")
        return previous
    counter = summariser.counter
    original = counter.count(before) + sum(counter.count(_shown(message)) for message in new)
    length = counter.count(text)
    if not text or length >= original:
        _note(record, f"{length} tokens for {original}: not used" if text else "empty: not used")
        return previous
    _note(record, f"{length} tokens for {original}")
    if record is not None:
        record.notes["summarised"] = len(new)
    earlier = previous.message_ids if previous else ()
    return Summary(text, (*earlier, *(message.id for message in new)), content, summariser.name)


def digest(messages: Sequence[Message]) -> str:
    """A hash of what a model sees of messages, in order."""
    running = hashlib.sha256()
    for message in messages:
        running.update(message.content_hash.encode("ascii"))
    return running.hexdigest()


def stands_for(summary: Summary, messages: Sequence[Message]) -> bool:
    """Whether a summary is of the first of these messages, as they are now."""
    count = len(summary.message_ids)
    first = messages[:count]
    return summary.message_ids == tuple(message.id for message in first) and summary.content == digest(first)


def apply_summary(messages: Sequence[Message], summary: Summary | None) -> list[Message]:
    """The dialogue with the summary in the place of its messages; leading system messages stay.

    A summary of other messages, or of all of them, replaces nothing. Linear.
    """
    check_kind(summary, (Summary, type(None)), "summary", remedy="Give a Summary, or None.")
    head = next((at for at, message in enumerate(messages) if message.role != "system"), len(messages))
    body = messages[head:]
    if summary is None or len(summary.message_ids) >= len(body) or not stands_for(summary, body):
        return list(messages)
    return [*messages[:head], summary.message, *body[len(summary.message_ids) :]]


def _shown(message: Message) -> str:
    return "\n".join([message.visible, *(f"{call.name}({call.arguments})" for call in message.tool_calls)])


def _note(record: StageRecord | None, text: str) -> None:
    if record is not None:
        record.notes["summary"] = text
