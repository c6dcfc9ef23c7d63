"""A conversation with a model, turn by turn: what is stored when, and what a turn cost."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ctxkit.errors import ProviderError
from ctxkit.messages import Message
from ctxkit.prompts import Budget, Completion, CompletionOptions, Prompt
from ctxkit.protocols import ChatCounter

if TYPE_CHECKING:
    from ctxkit.engine import ContextEngine
    from ctxkit.templates import Template

__all__ = ["Conversation", "Turn", "chat_template", "newest_turn", "shared_tokens", "spent"]

PLAIN = """\
---
name: chat
description: A conversation, without documents.
---

--- system ---
You are a helpful assistant. Answer the user's newest message, briefly and to the point.

--- history ---

--- user ---
{{question}}
"""

WITH_DOCUMENTS = """\
---
name: chat-with-documents
description: A conversation that rests on the store's documents where they bear on it.
---

--- system ---
You are a helpful assistant. Answer the user's newest message, briefly and to the point.
Numbered documents may stand before it. Rest on those that bear on it, and cite each by its number, like [1].

--- history ---

--- user ---
{{context}}

{{question}}
"""


@dataclass(frozen=True, slots=True)
class Turn:
    """A question, what was answered, and the prompt that was sent.

    `completion` is None where the answer was interrupted; `answer` is then what had come. `reused` is how many tokens
    of the prompt's beginning are those of the turn before: what a prompt cache does not read again.
    """

    question: str
    answer: str
    prompt: Prompt
    completion: Completion | None
    reused: int


@dataclass(slots=True)
class Conversation:
    """One session and one model.

    A question is stored as soon as its prompt is known to fit, and the answer when it is complete: a crash in between
    leaves a question that waits for its answer, and a valid history. An answer that is interrupted is stored as far as
    it came. Of an answer that fails nothing is stored.
    """

    engine: ContextEngine
    session: str
    model: str
    budget: Budget
    options: CompletionOptions
    template: str | Template
    payload: Mapping[str, Any] | str | None = None
    recall: bool = False
    last: Turn | None = field(default=None, init=False)

    def say(self, question: str) -> Generator[str, None, None]:
        """Ask, and yield the answer as it comes; then `last` is the turn. Closing it, or an interrupt, ends the turn.

        Raises whatever assembling and the model raise; the question then stays, unless no prompt could be made of it.
        """
        sessions = self.engine.store.sessions
        sessions.check(self.session, [Message("user", question)])  # what cannot be stored is refused before the rest
        prompt = self.engine.assemble(
            question,
            session=self.session,
            model=self.model,
            template=self.template,
            payload=self.payload,
            budget=self.budget,
            recall=self.recall,
            now=datetime.now(UTC) if self.recall else None,
        )
        if not any(segment.section == "question" and segment.message_id for segment in prompt.segments):
            sessions.append(self.session, [Message("user", question, created_at=datetime.now(UTC))])
        target = self.engine.model(self.model)
        pieces: list[str] = []
        completion: Completion | None = None
        try:
            for delta in target.stream(prompt, self.options):
                completion = delta.completion or completion
                if delta.text:
                    pieces.append(delta.text)
                    yield delta.text
        except (KeyboardInterrupt, GeneratorExit):
            self._finish(question, "".join(pieces), prompt, None, target.counter)
            raise
        if completion is None:
            raise ProviderError("the stream ended without a completion", subject=target.name, remedy="Ask again.")
        self._finish(question, completion.text, prompt, completion, target.counter)

    def _finish(
        self, question: str, answer: str, prompt: Prompt, completion: Completion | None, counter: ChatCounter
    ) -> None:
        before = self.last.prompt.turns if self.last else ()
        self.last = Turn(question, answer, prompt, completion, shared_tokens(before, prompt.turns, counter))
        if answer.strip():
            said = Message("assistant", answer, created_at=datetime.now(UTC))
            self.engine.store.sessions.append(self.session, [said])

    def waiting(self) -> str | None:
        """The question that has no answer, if the session ends with one."""
        newest = self.engine.store.sessions.messages(self.session, last=1)
        return newest[0].visible if newest and newest[0].role == "user" else None

    def take_back(self, *, question: bool = True) -> list[Message]:
        """Take back the newest question with all that came after it, or only what came after it."""
        sessions = self.engine.store.sessions
        messages = sessions.messages(self.session)
        count = newest_turn(messages, question=question)
        return sessions.rewind(self.session, count, expected=messages[-1].sequence) if count else []

    def newest_question(self) -> str | None:
        asked = (message for message in reversed(self.engine.store.sessions.messages(self.session)))
        return next((message.visible for message in asked if message.role == "user"), None)


def newest_turn(messages: Sequence[Message], *, question: bool) -> int:
    """How many messages came after the newest question; with it, where `question`. 0 where nobody has asked."""
    count = sum(1 for _ in takewhile(lambda message: message.role != "user", reversed(messages)))
    return 0 if count == len(messages) else count + question


def chat_template(*, documents: bool) -> Template:
    """The template of a chat that was given none."""
    from ctxkit.templates import Template

    return Template.parse(WITH_DOCUMENTS if documents else PLAIN)


def spent(prompt: Prompt) -> dict[str, int]:
    """The tokens of a prompt by what they are for; `other` is the template's own words and the model's chat format.

    They add up to `used`.
    """
    parts = {"system": 0, "history": 0, "context": 0, "question": 0}
    for segment in prompt.segments:
        if segment.section in ("history", "context", "question"):
            parts[segment.section] += segment.token_count
        elif segment.role == "system":
            parts["system"] += segment.token_count
    return {
        "used": prompt.token_count,
        "allowed": prompt.budget.available,
        **parts,
        "other": prompt.token_count - sum(parts.values()),
    }


def shared_tokens(before: Sequence[Message], now: Sequence[Message], counter: ChatCounter) -> int:
    """The tokens at the beginning of a prompt that the one before it begins with too, by whole messages.

    Of the first message that differs, the words that both begin with are counted.
    """
    tokens = 0
    for old, new in zip(before, now, strict=False):
        if old.content_hash == new.content_hash:
            tokens += counter.count_message(new)
            continue
        if old.role == new.role and not old.tool_calls and not new.tool_calls:
            pairs = zip(old.visible, new.visible, strict=False)
            length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            tokens += counter.count(new.visible[:length].rpartition(" ")[0])
        break
    return tokens
