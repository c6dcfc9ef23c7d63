"""What a rendering gives: messages of pieces, each with one source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from ctxkit.errors import TemplateError
from ctxkit.messages import Role
from ctxkit.prompts import Trust

__all__ = ["MAX_OUTPUT", "Piece", "RenderedMessage", "Source", "TemplateRole"]

TemplateRole = Literal["system", "user", "assistant", "history"]
MAX_OUTPUT = 16_000_000
"""The characters one rendering may have; `render(max_characters=…)` sets another limit."""


class Source(NamedTuple):
    """Where a stretch of text comes from; see `Piece`."""

    trust: Trust
    section: str
    slot: str | None = None


class Piece(NamedTuple):
    """A stretch of a rendered message that has one source.

    Args:
        text: verbatim; empty where `slot` is set.
        trust: `trusted` for the template's own text, else the trust of the variable.
        section: a message's role for the template's own text, the variable's name for a value, or the slot's name.
        slot: `context`, `history` or `question`, where assembly inserts; None everywhere else.
    """

    text: str
    trust: Trust
    section: str
    slot: str | None = None


class RenderedMessage:
    """A message as pieces. The role `history` marks where the dialogue's messages are inserted.

    Args:
        role: the message's role, or `history`.
        pieces: in order; neighbours from the template itself are one piece.
    """

    __slots__ = ("_pieces", "_sources", "_texts", "role", "text")

    def __init__(self, role: TemplateRole, pieces: Sequence[Piece] = ()) -> None:
        self.role = role
        self._pieces: tuple[Piece, ...] | None = tuple(pieces)
        self._texts: Sequence[str] = ()
        self._sources: Sequence[Source] = ()
        self.text = "".join(piece.text for piece in self._pieces)
        """The texts of the pieces, joined; slots that assembly fills are missing."""

    @classmethod
    def of(cls, role: TemplateRole, text: str, texts: Sequence[str], sources: Sequence[Source]) -> RenderedMessage:
        """A message of a text, its parts and their sources; the pieces are made when somebody asks for them."""
        message = cls.__new__(cls)
        message.role = role
        message.text = text
        message._texts = texts
        message._sources = sources
        message._pieces = None
        return message

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The stretches of the text, and the slots that assembly fills."""
        if self._pieces is None:
            self._pieces = tuple(_pieces(self._texts, self._sources))
        return self._pieces

    @property
    def message_role(self) -> Role:
        """The role of the message to send. Raises `TemplateError` for the `history` marker."""
        if self.role == "history":
            raise TemplateError("the history marker is no message", remedy="Insert the dialogue's messages here.")
        return self.role

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RenderedMessage):
            return NotImplemented
        return self.role == other.role and self.pieces == other.pieces

    def __hash__(self) -> int:
        return hash((self.role, self.pieces))

    def __repr__(self) -> str:
        return f"RenderedMessage(role={self.role!r}, pieces={self.pieces!r})"


def _pieces(texts: Sequence[str], sources: Sequence[Source]) -> list[Piece]:
    found: list[Piece] = []
    run: list[str] = []  # texts of the template's own that follow each other
    last: Source | None = None
    for text, source in zip(texts, sources, strict=True):
        if not text and source.slot is None:
            continue
        if run and source != last:
            found.append(Piece("".join(run), *last))  # type: ignore[misc]
            run = []
        if source.trust == "trusted" and source.slot is None:
            run.append(text)
            last = source
        else:
            found.append(Piece(text, *source))
    if run and last is not None:
        found.append(Piece("".join(run), *last))
    return found
