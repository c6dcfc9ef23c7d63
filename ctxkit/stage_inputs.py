"""What stages are called with, checked: a text where a document, a query or candidates belong is said in words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from ctxkit.checking import check_kind
from ctxkit.documents import Candidate, Document, Query
from ctxkit.errors import ConfigError
from ctxkit.messages import Message

__all__ = ["check_asked", "check_candidates", "check_document", "check_message", "each_text"]


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


def check_message(message: Any) -> None:
    """A `Message`, neither its text nor the dict that a provider takes."""
    check_kind(message, Message, "a message", remedy="Give a Message; Message.from_openai() makes one of a dict.")


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
