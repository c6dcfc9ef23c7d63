"""What the store tells about dialogues, and what is to be kept of one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from ctxkit.checking import check_kind, check_whole
from ctxkit.errors import ConfigError
from ctxkit.messages import Message

__all__ = ["Keep", "Retained", "SessionInfo", "SessionMatch"]


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A dialogue without its messages.

    Args:
        message_count: the messages that `messages()` gives, those shared with its ancestors included.
        last_sequence: the number of its newest message.
        parent: the session whose messages up to the number `fork` are its own past; None for one that is no branch.
        replaces: the id of the message whose edit made this branch, or None.
        archived_through: older messages, up to this number, are archived.
        deleted_through: and those up to this number are gone.
        encrypted: whether what is appended must be encrypted.
    """

    id: str
    message_count: int
    created_at: datetime
    updated_at: datetime
    last_sequence: int = 0
    parent: str | None = None
    fork: int = 0
    replaces: str | None = None
    archived_through: int = 0
    deleted_through: int = 0
    encrypted: bool = False


@dataclass(frozen=True, slots=True)
class SessionMatch:
    """A message that a search found, and the session that it was appended to."""

    session: str
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """What of a dialogue stays: its newest messages, within every limit that is given.

    Whole units stay or go: a call and all its results, and a call that is still waiting for one. The newest unit stays
    even where it alone is over a limit, unless the limit is 0. Leading system messages always stay.

    Args:
        messages: at most so many.
        age: none that is older; a unit goes when everything up to its end is older.
            A message without a time counts as old as the newest change of its session.
        size: at most so many bytes of content and calls, in UTF-8.
    """

    messages: int | None = None
    age: timedelta | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        if self.messages is None and self.age is None and self.size is None:
            raise ConfigError("nothing says what to keep", remedy="Give messages=, age= or size=.")
        for name in ("messages", "size"):
            if getattr(self, name) is not None:
                check_whole(getattr(self, name), name, minimum=0)
        if self.age is not None:
            check_kind(self.age, timedelta, "age", remedy="Give a timedelta, such as timedelta(days=30).")
            if self.age < timedelta(0):
                raise ConfigError(f"age is {self.age}", remedy="It must not be negative.")


@dataclass(frozen=True, slots=True)
class Retained:
    """What archiving or pruning did to a session.

    Args:
        archived: messages that left the dialogue and are in the archive.
        deleted: messages that are gone, archived ones included.
        kept: messages that `messages()` still gives.
        size: their bytes.
        shared: of those that left, messages that branches still read, so that their rows stay.
    """

    session: str
    archived: int
    deleted: int
    kept: int
    size: int
    shared: int
