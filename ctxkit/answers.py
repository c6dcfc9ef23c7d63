"""What comes back from `ask`: the answer, the prompt it came from, and the spans it rests on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.documents import Source
from ctxkit.messages import Message
from ctxkit.prompts import Completion, Prompt

if TYPE_CHECKING:
    from ctxkit.storage import Store

__all__ = ["Answer", "Citation", "answered", "cite"]


@dataclass(frozen=True, slots=True)
class Citation:
    """A document span that the answer rests on.

    `number` is the document's number in the prompt. `cited` is False where the answer marks no document at all, so
    that every span of the prompt is listed.
    """

    number: int
    source: Source
    text: str
    cited: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answered, the prompt it saw, and the spans it rests on."""

    text: str
    citations: tuple[Citation, ...]
    completion: Completion
    prompt: Prompt


def cite(prompt: Prompt, answer: str) -> tuple[Citation, ...]:
    """The spans of the prompt's documents that the answer marks as `[n]`, or all of them where it marks none.

    The texts are what the model saw, whatever has become of the documents since.
    """
    contexts = [segment for segment in prompt.segments if segment.section == "context" and segment.sources]
    marked = {int(number) for number in re.findall(r"\[(\d{1,4})\]", answer)} & set(range(1, len(contexts) + 1))
    return tuple(
        Citation(number, source, text, cited=bool(marked))
        for number, segment in enumerate(contexts, 1)
        if not marked or number in marked
        for source, text in segment.quotes
    )


def answered(store: Store, question: str, session: str | None, prompt: Prompt, completion: Completion) -> Answer:
    """The answer with its citations; question and answer are appended to the session, if there is one, together.

    A question that is the session's newest message stands there already.
    """
    if session is not None:
        said = Message("assistant", completion.text, tool_calls=completion.tool_calls)
        stored = any(segment.section == "question" and segment.message_id for segment in prompt.segments)
        store.sessions.append(session, [said] if stored else [Message("user", question), said])
    return Answer(completion.text, cite(prompt, completion.text), completion, prompt)
