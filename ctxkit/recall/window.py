"""`RecallWindow`: a window, and before the question what of the older dialogue bears on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ctxkit.checking import check_able, check_kind, check_number
from ctxkit.documents import content_hash
from ctxkit.errors import BudgetError, ConfigError
from ctxkit.history import TailWindow, check_history
from ctxkit.messages import Message
from ctxkit.protocols import ChatCounter, Window
from ctxkit.recall.entries import Entry
from ctxkit.recall.quoting import day_line, quoted
from ctxkit.recall.ranking import Ranked
from ctxkit.recall.retriever import HistoryRetriever, reasons

__all__ = ["RecallWindow"]

_PATIENCE = 50
"""Entries in a row that do not fit, after which the room is as good as full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallWindow:
    """What a window keeps, and behind it one user message that quotes what of the rest bears on the question.

    The quoted units stand in the order of the dialogue, under the day they were said on, each with its speaker; each
    is a segment of its own with the id of its message (law 3). Nothing stands twice: what the window keeps is not
    quoted. The quotation comes behind the kept history, next to the question, so that the beginning of the prompt stays
    what it was (law 7): the window's cut depends on its part of the room, never on what is found. It is a user message,
    so that the dialogue stays valid (law 5), and data: a quoted text opens no message and closes no quotation (law 4).
    Where everything fits, nothing is quoted.

    Args:
        retriever: finds the units.
        session: whose messages they are; None for a dialogue that is in no store.
        window: chooses what is kept whole.
        share: the part of the room that the quotation may have, in [0, 1).
        question: what is asked; None for the newest user message.
        now: what dates in the question count from; the newest message's time without it.

    Attributes:
        notes: for the trace: how much was quoted, and through whom and which days it came.

    Raises:
        ConfigError: a parameter is wrong.

    Example:
        >>> from ctxkit.storage import Store
        >>> from ctxkit.testing.windows import WordChatCounter
        >>> said = ["My cat is called Minka.", *("Well, well, so it goes on and on." for _ in range(9)), "Which cat?"]
        >>> dialogue = [Message("user", text, id=str(at)) for at, text in enumerate(said)]
        >>> window = RecallWindow(retriever=HistoryRetriever(Store.open("sqlite://"), None))
        >>> kept = window.select(dialogue, 60, WordChatCounter())
        >>> "Minka" in kept[-2].text, kept[-1].text
        (True, 'Which cat?')
    """

    retriever: HistoryRetriever
    session: str | None = None
    window: Window = field(default_factory=TailWindow)
    share: float = 0.5
    question: str | None = None
    now: datetime | None = None
    times: str = ""
    notes: dict[str, Any] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        check_able(self.retriever, "rank", "retriever", remedy="Give a HistoryRetriever.")
        check_able(self.window, "select", "window", remedy="Give a window, such as TailWindow().")
        check_number(self.share, "share", minimum=0, maximum=1, remedy="A share is a number from 0 to below 1.")
        check_kind(self.question, (str, type(None)), "question", remedy="Give a text, or None.")
        if self.share == 1:
            raise ConfigError("share is 1", remedy="Leave something to the window: give 0.5.")

    def asking(self, question: str) -> RecallWindow:
        """The same for a question that is not in the dialogue yet; the window in it is told, too."""
        inner = getattr(self.window, "asking", None)
        window = inner(question) if callable(inner) else self.window
        return replace(self, question=question if self.question is None else self.question, window=window)

    def of(self, messages: Sequence[Message]) -> RecallWindow:
        """The same, known by the times of these messages, too: days are shown, and the fingerprint must tell them."""
        stamps = [one.created_at.isoformat() if one.created_at else None for one in messages]
        return replace(self, times=content_hash(stamps))

    def select(self, messages: Sequence[Message], max_tokens: int, counter: ChatCounter) -> list[Message]:
        """A valid history of at most `max_tokens`, as `counter.count_prompt` counts it by itself.

        Raises:
            BudgetError: not even what the window must keep fits.
        """
        self.notes.clear()
        whole = list(self.window.select(messages, max_tokens, counter))
        room = int(max_tokens * self.share)
        question = self.question if self.question is not None else _newest(messages)
        if not room or not question.strip() or not _left_out(messages, whole):
            return whole
        try:
            kept = list(self.window.select(messages, max_tokens - room, counter))
        except BudgetError:  # the newest message needs the room itself
            return whole
        found, ranked = self.retriever.rank(self.session, messages, question, self.now)
        shown = {id(message) for message in kept} | {message.id for message in kept if message.id}
        order = [
            at
            for at in ranked.order().tolist()
            if not any(id(one) in shown or (one.id and one.id in shown) for one in found[at].messages)
        ]
        taken = self._fitting(found, order, kept, min(room, max_tokens), counter)
        while taken:
            result = self._placed(kept, [found[at] for at in sorted(taken)])
            if counter.count_prompt(result) <= max_tokens:
                self._note(found, ranked, taken, len(order))
                check_history(result)
                return result
            taken.pop()  # the least
        return kept if order else whole

    def _fitting(
        self, found: Sequence[Entry], order: Sequence[int], kept: Sequence[Message], room: int, counter: ChatCounter
    ) -> list[int]:
        """The best units whose quotation fits the room, best first."""
        taken: list[int] = []
        bare = counter.count_message(quoted([]))
        left, days, missed = room - bare, set(), 0
        for at in order:
            entry = found[at]
            alone = counter.count_message(quoted([entry])) - bare
            day = entry.created_at.date() if entry.created_at else None
            cost = alone if day is None or day not in days else alone - counter.count(day_line(day)) + 1
            if cost > left:
                missed += 1
                if missed > _PATIENCE:
                    break
                continue
            missed, left = 0, left - cost
            days.add(day)
            taken.append(at)
        return taken

    def _placed(self, kept: Sequence[Message], units: Sequence[Entry]) -> list[Message]:
        """Behind what is kept; where the question is the newest user message of the dialogue itself, before it."""
        if self.question is not None:
            return [*kept, quoted(units)]
        at = next((at for at in reversed(range(len(kept))) if kept[at].role == "user"), len(kept))
        return [*kept[:at], quoted(units), *kept[at:]]

    def _note(self, found: Sequence[Entry], ranked: Ranked, taken: Sequence[int], count: int) -> None:
        dates = ", ".join(f"{one.text} ({one.start} to before {one.end})" for one in ranked.dates)
        self.notes["recalled"] = f"{len(taken)} of {count} older units that bear on the question" + (
            f"; dates: {dates}" if dates else ""
        )
        via = {f"message {found[at].id}": list(why) for at in sorted(taken) if (why := reasons(ranked, at))}
        if via:
            self.notes["via"] = via


def _newest(messages: Sequence[Message]) -> str:
    return next((message.visible for message in reversed(messages) if message.role == "user"), "")


def _left_out(messages: Sequence[Message], kept: Sequence[Message]) -> bool:
    """Whether the window keeps fewer messages than there are; what repair changed counts as kept."""
    return len(kept) < len(messages) and len({id(one) for one in messages} - {id(one) for one in kept}) > 0
