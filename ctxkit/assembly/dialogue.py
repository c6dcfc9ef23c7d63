"""The history's side of assembly: how much of a dialogue a window keeps, what that costs, and what it leaves out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from ctxkit.errors import BudgetError, HistoryError
from ctxkit.history import check_history, repair
from ctxkit.messages import Message, Quotation
from ctxkit.protocols import ChatCounter, Window
from ctxkit.trace import StageRecord

__all__ = ["Dialogue", "check_turns"]


class Dialogue:
    """A history and the window that looks at it.

    The question is not part of a history: it is the newest user message itself, and always in the prompt. A history
    that ends with the very question has it taken off, so that it is not said twice; `asked` is that message.

    Args:
        question: what is asked now.

    Attributes:
        need: the tokens of the whole history.
    """

    def __init__(self, messages: Sequence[Message], question: str, window: Window, counter: ChatCounter) -> None:
        self.messages = list(messages)
        self.asked: Message | None = None
        if self.messages and _asks(self.messages[-1], question):
            self.asked = self.messages.pop()
        asking = getattr(window, "asking", None)  # a window that looks at the question, which is not in the history
        self._window: Window = asking(question) if callable(asking) else window
        self._counter = counter
        self._costs = [counter.count_message(message) for message in self.messages]
        self.need = sum(self._costs)
        self.limit = 0
        self.chosen: list[Message] = []
        self.tokens = 0

    def fit(self, limit: int) -> None:
        """Let the window choose at most `limit` tokens; nothing where not even its minimum fits."""
        self.limit = max(0, limit)
        self.chosen, self.tokens = [], 0
        if not self.messages or limit <= 0:
            return
        try:
            chosen = list(self._window.select(self.messages, limit, self._counter))
        except BudgetError:  # the question itself is the newest user message, so a history may stay out whole
            return
        tokens = self._tokens(chosen)
        if tokens <= limit:
            self.chosen, self.tokens = chosen, tokens

    def _tokens(self, messages: Sequence[Message]) -> int:
        known = {id(message): cost for message, cost in zip(self.messages, self._costs, strict=True)}
        return sum(
            known[id(message)] if id(message) in known else self._counter.count_message(message) for message in messages
        )

    def named(self) -> list[tuple[str, Message]]:
        """What is kept, each message with its id; one without an id is named by its place in the history."""
        places = {id(message): index for index, message in enumerate(self.messages)}
        return [
            (message.id or (f"#{places[id(message)]}" if id(message) in places else "#repaired"), message)
            for message in self.chosen
        ]

    @cached_property
    def repairs(self) -> dict[int, str]:
        """What repair changed, by the place of the message in the history."""
        found: dict[int, str] = {}
        for note in repair(self.messages).notes:
            found[note.index] = f"{found[note.index]}; {note.text}" if note.index in found else note.text
        return found

    def note(self, record: StageRecord) -> None:
        """Record what the window got and gave, and what was repaired first."""
        record.items_out, record.tokens_out = len(self.chosen), self.tokens
        record.notes["limit"] = self.limit
        if self.repairs:
            record.notes["repaired"] = "; ".join(f"message {at}: {text}" for at, text in self.repairs.items())
        notes = getattr(self._window, "notes", None)
        if isinstance(notes, dict):
            record.notes |= notes

    def shrink(self, excess: int) -> None:
        """Choose again with at least `excess` tokens fewer."""
        self.fit(self.tokens - excess)

    def report(self, record: StageRecord) -> None:
        """Record every message of the history that is not in the prompt."""
        identities = {id(message) for message in self.chosen}
        names = {message.id for message in self.chosen if message.id}
        for message in self.chosen:
            if isinstance(message, Quotation):
                names |= set(message.quotes) - {""}
        contents: Counter[str] | None = None
        for index, (message, cost) in enumerate(zip(self.messages, self._costs, strict=True)):
            if id(message) in identities or (message.id and message.id in names):
                continue
            if not message.id:  # a repaired message is a copy without a name: it is known by what it says
                contents = Counter(kept.content_hash for kept in self.chosen) if contents is None else contents
                if contents[message.content_hash] > 0:
                    contents[message.content_hash] -= 1
                    continue
            record.drop(
                "history",
                message.id or f"#{index}",
                cost,
                self.repairs.get(index) or f"the window does not keep it within {self.limit:,} tokens",
            )


def _asks(message: Message, question: str) -> bool:
    """Whether a message is the question and nothing else."""
    return message.role == "user" and message.visible == question and all(part.kind == "text" for part in message.parts)


def check_turns(turns: Sequence[Message]) -> None:
    """Raise `HistoryError` unless every provider takes the messages of a prompt (law 5). Linear.

    A template's order is valid (the layout sees to it), and so is what ctxkit's windows give: it is another's doing.
    """
    try:
        check_history(turns)
    except HistoryError as error:
        raise HistoryError(
            f"the prompt is no valid dialogue: {error.message}",
            subject=error.subject,
            remedy="The window must give what ctxkit.history.check_history() takes; repair() makes it so.",
        ) from error
