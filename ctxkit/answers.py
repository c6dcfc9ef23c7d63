"""What comes back from `ask`: the answer, the prompt it came from, and the spans it rests on."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ctxkit.documents import Source
from ctxkit.prompts import Completion, Prompt

__all__ = ["Answer", "Citation", "cite"]


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


def cite(prompt: Prompt, answer: str, text_of: Callable[[str], str]) -> tuple[Citation, ...]:
    """The spans of the prompt's documents that the answer marks as `[n]`, or all of them where it marks none.

    Args:
        text_of: gives the text of a document by its id; called once for each.
    """
    contexts = [segment for segment in prompt.segments if segment.section == "context" and segment.sources]
    marked = {int(number) for number in re.findall(r"\[(\d{1,4})\]", answer)} & set(range(1, len(contexts) + 1))
    texts: dict[str, str] = {}
    citations: list[Citation] = []
    for number, segment in enumerate(contexts, 1):
        if marked and number not in marked:
            continue
        for source in segment.sources:
            if source.document_id not in texts:
                texts[source.document_id] = text_of(source.document_id)
            text = source.span.slice(texts[source.document_id])
            citations.append(Citation(number, source, text, cited=bool(marked)))
    return tuple(citations)
