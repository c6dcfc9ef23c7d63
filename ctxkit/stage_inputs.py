"""What stages are called with, checked: a text where a document, a query or candidates belong is said in words."""

from __future__ import annotations

import numbers
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ctxkit.checking import check_kind, shown
from ctxkit.documents import Candidate, Document, Query
from ctxkit.errors import ConfigError
from ctxkit.messages import Message

__all__ = ["check_asked", "check_candidates", "check_document", "check_ids", "check_message", "each_text", "run_stage"]


def check_document(document: Any) -> None:
    """A `Document`, not its text."""
    check_kind(document, Document, "a document", remedy="Give a Document: Document.from_text(text).")


def check_asked(query: Any) -> None:
    """A `Query`, not its text."""
    check_kind(query, Query, "a query", remedy="Give a Query: Query(text).")


def check_candidates(query: Any, candidates: Any) -> None:
    """What every stage after retrieval is called with: a `Query`, and a list of `Candidate`. Linear in them."""
    check_asked(query)
    remedy = "Give a list of Candidate; Candidate(chunk) makes one of a chunk."
    if isinstance(candidates, str):
        raise ConfigError("candidates is a str", subject=candidates[:60], remedy=remedy)
    check_kind(candidates, Collection, "candidates", remedy=remedy)
    for candidate in candidates:
        check_kind(candidate, Candidate, "a candidate", remedy=remedy)
        _check_score(candidate)


def run_stage(stage: Any, query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
    """What a stage inside of another gives back; anything but candidates is refused."""
    remedy = f"A stage returns a list of Candidate; look at {type(stage).__name__}."
    found = stage(query, candidates)
    check_kind(found, Iterable, "what a stage gave", remedy=remedy)
    left = list(found)
    for candidate in left:
        check_kind(candidate, Candidate, "what a stage gave", remedy=remedy)
    return left


def _check_score(candidate: Candidate) -> None:
    """A number orders candidates; NaN and infinity are for each stage to rank."""
    remedy = "Give scores by signal, each a number: Candidate(chunk, {'final': 0.5})."
    check_kind(candidate.scores, Mapping, f"the scores of {candidate.chunk.id}", remedy=remedy)
    score: Any = candidate.score
    if type(score) is not float and not isinstance(score, numbers.Real):
        raise ConfigError(f"the score is {shown(score)}", subject=candidate.chunk.id, remedy=remedy)


def check_message(message: Any) -> None:
    """A `Message`, neither its text nor the dict that a provider takes."""
    check_kind(message, Message, "a message", remedy="Give a Message; Message.from_openai() makes one of a dict.")


def check_ids(ids: Any, what: str) -> None:
    """Several ids, not one: its characters would be taken for ids."""
    remedy = f"Give a list of {what}, each a str."
    if isinstance(ids, str):
        raise ConfigError(f"one id is given where {what} are taken", subject=ids[:60], remedy=f"Pass [{ids[:60]!r}].")
    check_kind(ids, Collection, what, remedy=remedy)
    for one in ids:
        check_kind(one, str, f"one of the {what}", remedy=remedy)


def each_text(texts: Iterable[str], method: str) -> Iterator[str]:
    """The texts as they come. One text is refused at once: its characters would be taken for texts."""
    if isinstance(texts, str):
        raise ConfigError(f"{method}() takes texts, not one text", remedy="Pass [text].")
    check_kind(texts, Iterable, "the texts", remedy="Give a list of str, or another iterable.")
    return _checked(texts)


def _checked(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        check_kind(text, str, "a text", remedy="Give a str; bytes must be decoded.")
        yield text
