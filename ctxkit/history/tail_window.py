"""`TailWindow`: the newest part of a dialogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ctxkit.checking import check_whole
from ctxkit.history.filling import fill, tail
from ctxkit.history.timeline import Recent
from ctxkit.messages import Message
from ctxkit.protocols import ChatCounter

__all__ = ["TailWindow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TailWindow:
    """The newest units that fit, repaired; the newest user message is always among them (law 5).

    The result is the leading system messages, then the dialogue from a user message on. Units are taken from the newest
    to the oldest until one does not fit. Where not even the units after the newest user message fit, that message stays
    and the newest of the units behind it. Everything is kept that `repair` keeps, where everything fits.

    Cut as late as possible, the window begins elsewhere on every turn once the dialogue is longer than its room, and no
    provider's prompt cache holds: put it into `Hysteresis` for that.

    Args:
        max_messages: how many messages the window may have, leading system messages apart; None for no limit.

    Example:
        >>> from ctxkit.testing.windows import WordChatCounter
        >>> dialogue = [Message("user", "one two"), Message("assistant", "three"), Message("user", "four five")]
        >>> [message.text for message in TailWindow().select(dialogue, 8, WordChatCounter())]
        ['four five']
    """

    max_messages: int | None = None
    _recent: Recent = field(init=False, repr=False, compare=False, default_factory=Recent)

    def __post_init__(self) -> None:
        if self.max_messages is not None:
            check_whole(self.max_messages, "max_messages", minimum=1, remedy="A window has at least one message.")

    def select(self, messages: Sequence[Message], max_tokens: int, counter: ChatCounter) -> list[Message]:
        """A valid history of at most `max_tokens`, as `counter.count_prompt` counts it by itself. Pure.

        Linear in what is new since the last call with the same messages; only messages that may be kept are counted.

        Raises:
            BudgetError: not even the leading system messages and the newest user message fit.
        """
        with self._recent.read(messages, counter) as timeline:
            return fill(timeline, tail(timeline), max_tokens, max_messages=self.max_messages, gaps=False)
