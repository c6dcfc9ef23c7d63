"""A pytest plugin: LangChain's tests of chat histories run on ctxkit's in place of the one in memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import langchain_core.chat_history
from langchain_core.messages import BaseMessage

from ctxkit.storage import Store
from ctxkit_adapters.langchain import CtxkitChatMessageHistory

_numbers = itertools.count()
_store = Store.open("sqlite://")


class Replaced(CtxkitChatMessageHistory):
    # Takes what `InMemoryChatMessageHistory` takes; each is a session of its own. Ids that the store gives are taken
    # off, since the tests compare with messages that have none.

    __doc__ = langchain_core.chat_history.InMemoryChatMessageHistory.__doc__

    def __init__(self, messages: Sequence[BaseMessage] = ()) -> None:
        super().__init__(_store, f"history-{next(_numbers)}")
        self.add_messages(messages)

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        given = f"{self.session_id}:"
        return [
            message.model_copy(update={"id": None}) if (message.id or "").startswith(given) else message
            for message in super().messages
        ]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Replaced) and self.messages == other.messages

    __hash__ = None  # type: ignore[assignment]


langchain_core.chat_history.InMemoryChatMessageHistory = Replaced  # type: ignore[assignment, misc]
