"""One pass from compiled messages and a payload to texts. A value is inserted and never looked at again.

A template becomes a program once: each message a flat run of texts and slots where it has no sections, else a tree of
them. To render is to walk it, to collect texts by reference, and to join them when somebody asks for the text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ctxkit.errors import TemplateError
from ctxkit.templates.language import Literal as Text
from ctxkit.templates.language import Node, Value
from ctxkit.templates.payload import PayloadCheck
from ctxkit.templates.rendering import RenderedMessage, Source, TemplateRole
from ctxkit.templates.slots import Slot, fence_of, is_sendable
from ctxkit.templates.steps import Fixed, Insert, Repeat, State, Step

__all__ = ["Program"]

_FEW = 32


class Program:
    """A template, ready to render.

    Args:
        messages: roles and nodes.
        variables: every variable of the template.
        open_slots: the variables that assembly fills.
        subject: how errors name the template.
        schemas: checks of the payload beyond the types of slots.
    """

    def __init__(
        self,
        messages: Sequence[tuple[TemplateRole, Sequence[Node]]],
        variables: Mapping[str, Slot],
        *,
        open_slots: Collection[str],
        subject: str,
        schemas: Sequence[Callable[[Mapping[str, Any], str], None]] = (),
    ) -> None:
        self._subject = subject
        self._schemas = schemas
        self._check = PayloadCheck(variables, open_slots, subject)
        self._names = self._check.wanted.keys()
        self._others = any(slot.type != "string" for slot in self._check.wanted.values())
        self._messages = [_compile(role, nodes, variables, open_slots) for role, nodes in messages]
        self._flat = all(message.fills is not None for message in self._messages)
        self._plain = self._flat and not any(message.reaches for message in self._messages)

    def render(self, payload: Mapping[str, Any], max_characters: int) -> list[RenderedMessage]:
        """Every message, in order. Their number and roles do not depend on the payload. Linear in the output."""
        if self._flat and not self._schemas:
            if type(payload) is not dict or payload.keys() != self._names:
                self._check.names(payload)
            if self._others:
                self._check.all_but_texts(payload)
        else:
            self._check(payload)
            for check in self._schemas:
                check(payload, self._subject)
        state = None if self._plain else State(payload, self._subject)
        rendered: list[RenderedMessage] = []
        characters = 0
        sources: Sequence[Source]
        for message in self._messages:
            if message.fills is None and state is not None:
                texts = state.texts = []
                sources = state.sources = []
                for step in message.steps:
                    step.run(state, None)
            else:
                texts, sources = message.texts.copy(), message.sources
                for index, name in message.fills or ():
                    value = texts[index] = payload[name]
                    if type(value) is not str:
                        self._check(payload)
                for index in message.fenced:
                    texts[index - 1], texts[index + 1] = self._fence(texts[index], payload)
                if state is not None:
                    for index, insert in message.reaches:
                        texts[index] = insert.text(state)
            # A few values are in memory already; many are counted before they are joined.
            if len(texts) > _FEW and characters + sum(map(len, texts)) > max_characters:
                raise self._too_long(max_characters)
            text = "".join(texts)
            characters += len(text)
            if characters > max_characters:
                raise self._too_long(max_characters)
            if message.unseen and not is_sendable(text):
                self._check(payload)
            rendered.append(RenderedMessage.of(message.role, text, texts, sources))
        return rendered

    def _too_long(self, max_characters: int) -> TemplateError:
        return TemplateError(
            f"the text grows over {max_characters:,} characters",
            subject=self._subject,
            remedy="Shorten the values, or raise max_characters.",
        )

    def _fence(self, value: str, payload: Mapping[str, Any]) -> tuple[str, str]:
        if "\x00" in value:
            self._check(payload)
        try:
            return fence_of(value, value.encode("utf-8"))
        except UnicodeEncodeError:
            self._check(payload)
            raise


@dataclass(frozen=True, slots=True)
class _Message:
    """A message's program: texts with places to fill, or else steps.

    The places are those of text variables, by name, and those of values without fences inside of objects; `fenced` are
    the places that have one for a fence on both sides. Text variables are not looked at before: whether they can be
    sent shows when they are encoded for a fence, and is asked once, of the whole message, where some are `unseen`.
    """

    role: TemplateRole
    steps: tuple[Step, ...]
    texts: list[str] = field(default_factory=list)
    sources: tuple[Source, ...] = ()
    fills: tuple[tuple[int, str], ...] | None = None
    fenced: tuple[int, ...] = ()
    unseen: bool = False
    reaches: tuple[tuple[int, Insert], ...] = ()


def _compile(
    role: TemplateRole, nodes: Sequence[Node], variables: Mapping[str, Slot], open_slots: Collection[str]
) -> _Message:
    if role == "history":
        return _Message(role, (), [""], (Source("history", "history", "history"),), ())
    steps = _steps(nodes, role, variables, open_slots)
    texts: list[str] = []
    sources: list[Source] = []
    fills: list[tuple[int, str]] = []
    fenced: list[int] = []
    reaches: list[tuple[int, Insert]] = []
    for step in steps:
        if isinstance(step, Fixed):
            texts.append(step.text)
            sources.append(step.source)
        elif isinstance(step, Insert) and step.whole == "string":
            if step.fence is None:
                fills.append((len(texts), step.keys[0]))
                texts.append("")
                sources.append(step.source)
            else:
                fills.append((len(texts) + 1, step.keys[0]))
                fenced.append(len(texts) + 1)
                texts += ["", "", ""]
                sources += [step.fence, step.source, step.fence]
        elif isinstance(step, Insert) and not step.relative and step.fence is None:
            reaches.append((len(texts), step))
            texts.append("")
            sources.append(step.source)
        else:
            return _Message(role, steps)
    return _Message(
        role,
        steps,
        texts,
        tuple(sources),
        tuple(fills),
        tuple(fenced),
        unseen=len(fills) > len(fenced),
        reaches=tuple(reaches),
    )


def _steps(
    nodes: Sequence[Node],
    role: TemplateRole,
    variables: Mapping[str, Slot],
    open_slots: Collection[str],
    root: str = "",
) -> tuple[Step, ...]:
    own = Source("trusted", role)
    steps: list[Step] = []
    for node in nodes:
        if isinstance(node, Text):
            steps.append(Fixed(node.text, own))
            continue
        path = node.path
        name = root if path.relative else path.keys[0]
        if isinstance(node, Value):
            slot = variables[name]
            if name in open_slots and not path.relative:
                steps.append(Fixed("", Source(slot.trust, name, name)))
                continue
            whole = slot.type if not path.relative and len(path.keys) == 1 else ""
            fence = own if slot.trust != "trusted" else None
            steps.append(Insert(path.relative, path.keys, Source(slot.trust, name), fence, whole))
        else:
            body = _steps(node.body, role, variables, open_slots, name if node.kind == "#" else root)
            steps.append(Repeat(path, node.kind, body))
    return tuple(steps)
