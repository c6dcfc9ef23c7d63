"""`Shortened`: long messages are cut, with a marker, before another window chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ctxkit.checking import check_able, check_whole
from ctxkit.history.tail_window import TailWindow
from ctxkit.messages import Message, Part
from ctxkit.protocols import ChatCounter, Window
from ctxkit.stage_inputs import check_message

__all__ = ["Shortened"]

_DENSEST = 4
"""Tokens that a character may have at most: its bytes in UTF-8."""
_WIDEST = 16
"""Characters that a token is taken to have at most; a text of longer ones is cut shorter than it need be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortened:
    """A window before which each message that is over a limit keeps its beginning and its end, with a marker between.

    The declared policy for messages that no budget holds; without it, a newest user message over the budget is a
    `BudgetError`, and any other is left out. Ids stay, so that a shortened message is still traced to its own. Only
    texts are cut: calls, images and what a counter adds to a message stay.

    Args:
        window: chooses among the shortened messages.
        max_tokens: what a message's text may have; by default a third of the room.
        marker: stands for what was cut.

    Example:
        >>> from ctxkit.testing.windows import WordChatCounter
        >>> dialogue = [Message("user", " ".join(map(str, range(100))))]
        >>> Shortened(max_tokens=8).select(dialogue, 20, WordChatCounter())[0].text
        '0 1 2 3  … 97 98 99'
    """

    window: Window = field(default_factory=TailWindow)
    max_tokens: int | None = None
    marker: str = " … "
    _cut: dict[tuple[int, int, str], tuple[Message, Message]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        check_able(self.window, "select", "window", remedy="Give a window, such as TailWindow().")
        if self.max_tokens is not None:
            check_whole(self.max_tokens, "max_tokens", minimum=1)

    def select(self, messages: Sequence[Message], max_tokens: int, counter: ChatCounter) -> list[Message]:
        """What the window selects of the shortened messages. Pure; each long message is cut once.

        Raises:
            BudgetError: the window has no room for what must stay, shortened.
        """
        limit = max(1, max_tokens // 3 if self.max_tokens is None else self.max_tokens)
        return list(self.window.select([self._short(each, limit, counter) for each in messages], max_tokens, counter))

    def _short(self, message: Message, limit: int, counter: ChatCounter) -> Message:
        check_message(message)
        content = message.content
        size = len(content) if isinstance(content, str) else sum(len(part.text) for part in content)
        if size * _DENSEST <= limit or (size <= limit * _WIDEST and counter.count(message.text) <= limit):
            return message
        key = id(message), limit, counter.name
        known = self._cut.get(key)
        if known is not None and known[0] is message:
            return known[1]
        if len(self._cut) > 256:
            self._cut.clear()
        short = replace(message, content=self._text(message, limit, counter))
        self._cut[key] = message, short
        return short

    def _text(self, message: Message, limit: int, counter: ChatCounter) -> str | tuple[Part, ...]:
        if isinstance(message.content, str):
            return self._ends(message.content, limit, counter)
        texts = sum(bool(part.text) for part in message.content)
        return tuple(
            replace(part, text=self._ends(part.text, max(1, limit // texts), counter)) if part.text else part
            for part in message.content
        )

    def _ends(self, text: str, limit: int, counter: ChatCounter) -> str:
        """The longest beginning and end, of the same length, that fit with the marker."""
        if len(text) <= limit * _WIDEST and counter.count(text) <= limit:
            return text
        low, high = 0, min(len(text) // 2, limit * _WIDEST)
        while low < high:
            middle = (low + high + 1) // 2
            if counter.count(self._joined(text, middle)) <= limit:
                low = middle
            else:
                high = middle - 1
        return self._joined(text, low)

    def _joined(self, text: str, characters: int) -> str:
        """Cut at graphemes, so that no character is broken."""
        from ctxkit.text import Graphemes

        near = text[: characters + 64], text[max(0, len(text) - characters - 64) :]
        start = Graphemes(near[0]).floor(characters)
        end = Graphemes(near[1]).ceil(len(near[1]) - characters)
        return f"{near[0][:start]}{self.marker}{near[1][end:]}"
