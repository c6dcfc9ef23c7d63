"""The prompt's messages, from the rendered template, the dialogue, the documents and the question.

The template decides the order; its author puts first what changes least. Assembly adds what a template leaves open: a
history without a marker follows the leading system messages, a question without a slot becomes the last message. What
comes out is a dialogue that every provider takes (law 5): a template that could not give one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ctxkit.assembly.context import Block
from ctxkit.documents import GAP, Source
from ctxkit.errors import ConfigError, TemplateError
from ctxkit.messages import Message, Part, Quotation, Role
from ctxkit.prompts import Trust
from ctxkit.protocols import ChatCounter

if TYPE_CHECKING:
    from ctxkit.templates import Piece, RenderedMessage

__all__ = ["Draft", "Laid", "Layout", "stable_tokens"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A segment that is not counted yet."""

    section: str
    role: Role
    text: str
    trust: Trust
    message: int
    template: str | None = None
    message_id: str | None = None
    sources: tuple[Source, ...] = ()
    gap: str = GAP


@dataclass(slots=True)
class Laid:
    """A laid out prompt: messages, their segments, and how many segments from the start the next turn repeats.

    `left_out` has the template's messages that are not there, by role and reason.
    """

    turns: list[Message] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    stable: int = 0
    left_out: list[str] = field(default_factory=list)


class Layout:
    """The places of a rendered template.

    Args:
        rendered: the template's messages, as `Template.render` gives them.
        template: how segments name the template.
        question: the text of the question, inserted verbatim.
        question_id: the id of the message in the history that asked it, if any.
        in_dialogue: whether a next turn will have more history, so that nothing behind the history is stable.

    Raises:
        TemplateError: the question is not in a user message, or the messages have an order that a provider refuses.
    """

    def __init__(
        self,
        rendered: Sequence[RenderedMessage],
        *,
        template: str,
        question: str,
        question_id: str | None = None,
        in_dialogue: bool = True,
    ) -> None:
        _check_order(rendered, template)
        self._frames: list[tuple[Role, tuple[Piece, ...]] | None] = [  # None is the place of the history
            None if message.role == "history" else (message.role, tuple(message.pieces)) for message in rendered
        ]
        self._template = template
        self._question = question
        self._question_id = question_id
        self._in_dialogue = in_dialogue
        slots = {piece.slot for frame in self._frames if frame for piece in frame[1]}
        self.has_context = "context" in slots
        self._has_question = "question" in slots
        if None not in self._frames:
            at = 0
            while at < len(self._frames) and (frame := self._frames[at]) is not None and frame[0] == "system":
                at += 1
            self._frames.insert(at, None)

    def lay(self, history: Sequence[tuple[str, Message]], blocks: Sequence[Block]) -> Laid:
        """The prompt with this history and these documents.

        A message without any text is left out, and so is an assistant's that would then open the dialogue. System
        messages at the head of the history follow the template's own, wherever the rest of the history stands.
        """
        laid = Laid()
        open_end = True
        shown = False
        head = list(takewhile(lambda past: past[1].role == "system", history))
        for frame in self._frames:
            if head and (frame is None or frame[0] != "system"):
                for name, message in head:
                    self._past(laid, name, message)
                history, head = history[len(head) :], []
                if open_end:
                    laid.stable = len(laid.drafts)
            if frame is None:
                for name, message in history:
                    if open_end and isinstance(message, Quotation):  # the next question recalls something else
                        laid.stable, open_end = len(laid.drafts), False
                    self._past(laid, name, message)
                if open_end:
                    laid.stable = len(laid.drafts)
                    open_end = not self._in_dialogue
                continue
            role, pieces = frame
            if role == "assistant" and all(turn.role == "system" for turn in laid.turns):
                laid.left_out.append("assistant: the message that it answers is left out")
                continue
            first = len(laid.drafts)
            volatile = None
            for piece in pieces:
                if piece.slot is not None and volatile is None:
                    volatile = len(laid.drafts)
                if piece.slot == "context":
                    if not shown:
                        self._documents(laid, role, blocks)
                    shown = True
                else:
                    self._piece(laid, role, piece)
            closed = self._close(laid, role, first)
            if not closed:
                laid.left_out.append(f"{role}: it has no text")
            if open_end:
                if closed:
                    laid.stable = len(laid.drafts) if volatile is None else volatile
                open_end = volatile is None
        if not self._has_question:
            first = len(laid.drafts)
            laid.drafts.append(self._asked(laid, "user", "untrusted"))
            self._close(laid, "user", first)
        return laid

    def _piece(self, laid: Laid, role: Role, piece: Piece) -> None:
        if piece.slot == "question":
            laid.drafts.append(self._asked(laid, role, piece.trust))
        elif piece.text:
            own = piece.trust == "trusted" and piece.section == role
            laid.drafts.append(
                Draft(
                    piece.section,
                    role,
                    piece.text,
                    piece.trust,
                    len(laid.turns),
                    template=self._template if own else None,
                )
            )

    def _asked(self, laid: Laid, role: Role, trust: Trust) -> Draft:
        return Draft("question", role, self._question, trust, len(laid.turns), message_id=self._question_id)

    def _documents(self, laid: Laid, role: Role, blocks: Sequence[Block]) -> None:
        """The documents, and between two of them one fence: the end of the first and the beginning of the second."""
        at = len(laid.turns)
        fence = ""
        for block in blocks:
            laid.drafts.append(Draft("context", role, fence + block.before, "trusted", at))
            laid.drafts.append(
                Draft("context", role, block.text, "untrusted", at, sources=block.sources, gap=block.gap)
            )
            fence = block.after
        if fence:
            laid.drafts.append(Draft("context", role, fence, "trusted", at))

    def _past(self, laid: Laid, name: str, message: Message) -> None:
        """A message of the history; one that quotes others is a segment for each, with the id of the quoted one."""
        pieces = [(message.visible, name)]
        if isinstance(message, Quotation):
            pieces = [(part.text, quoted) for part, quoted in zip(message.parts, message.quotes, strict=True)]
        for text, quoted in pieces:
            laid.drafts.append(
                Draft(
                    "history",
                    message.role,
                    text,
                    "history" if quoted else "trusted",
                    len(laid.turns),
                    message_id=quoted or None,
                )
            )
        laid.turns.append(message)

    def _close(self, laid: Laid, role: Role, first: int) -> bool:
        """End the message that began at segment `first`; without any text it is left out."""
        parts = tuple(Part(text=draft.text) for draft in laid.drafts[first:])
        if any(not part.text.isspace() for part in parts if part.text):
            laid.turns.append(Message(role, parts))
            return True
        del laid.drafts[first:]
        return False


def _check_order(rendered: Sequence[RenderedMessage], template: str) -> None:
    """Raise `TemplateError` unless the messages make a valid dialogue, whatever history stands among them."""
    problem = ""
    opened = asked = False
    for message in rendered:
        role = message.role
        if role != "user" and any(piece.slot == "question" for piece in message.pieces):
            problem = f"the question stands in the message of role {role}"
            remedy = "Put {{question}} in a user message."
        elif role == "system" and opened:
            problem = "a system message stands inside the dialogue"
            remedy = "Put system messages first, before the history and all others."
        elif role == "assistant" and not asked:
            problem = "the dialogue begins with an assistant message"
            remedy = "Put the user message that it answers before it."
        if problem:
            raise TemplateError(problem, subject=f"template {template}", remedy=remedy)
        opened = opened or role != "system"
        asked = asked or role == "user"


def stable_tokens(laid: Laid, counter: ChatCounter, tools: Sequence[Mapping[str, Any]]) -> int:
    """How many tokens at the start of the prompt the next turn repeats; a lower bound where it must be a bound.

    Whole messages are counted as a prompt of their own, less the opening of the answer. Of a message that is stable in
    part, the text is counted up to its last word: a tokenizer may join that one with what follows.
    """
    if not laid.stable:
        return 0
    last = laid.drafts[laid.stable - 1].message
    whole = laid.stable == len(laid.drafts) or laid.drafts[laid.stable].message > last
    ahead = laid.turns[: last + 1 if whole else last]
    tokens = 0
    if ahead:
        small = Message("user", "x")
        opening = counter.count_prompt([small]) - counter.count_message(small)
        try:
            tokens = max(0, counter.count_prompt(ahead, tools) - opening)
        except ConfigError:  # a chat template that takes no prompt without a user message
            behind = sum(map(counter.count_message, laid.turns[len(ahead) :]))
            tokens = max(0, counter.count_prompt(laid.turns, tools) - behind - opening)
    if not whole:
        text = "".join(draft.text for draft in laid.drafts[: laid.stable] if draft.message == last).rstrip()
        head = text[: -len(text.split()[-1])].rstrip() if text else ""
        tokens += max(0, counter.count(head) - 1)
    return tokens
