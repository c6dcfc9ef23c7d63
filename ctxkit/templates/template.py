"""`Template`: a list of messages, compiled once, rendered in one pass, and identified by the hash of its content."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ctxkit.documents import content_hash
from ctxkit.errors import (
    MissingVariableError,
    TemplateError,
    TemplateSyntaxError,
    UnexpectedVariableError,
    VariableTypeError,
)
from ctxkit.templates.includes import Include, Includes, Resolver, stored_resolver
from ctxkit.templates.language import Node, compile_text
from ctxkit.templates.rendering import MAX_OUTPUT, RenderedMessage, TemplateRole, render_nodes
from ctxkit.templates.schema import check_schema, compile_schema, derive_schema, slot_types
from ctxkit.templates.slots import WELL_KNOWN, Slot, check_json, type_name
from ctxkit.templates.text_form import TEMPLATE_ROLES, SourceMessage, read_text_form, write_text_form
from ctxkit.templates.variables import derive_variables

__all__ = ["MAX_SOURCE", "Template", "TemplateMessage"]

MAX_SOURCE = 1_000_000
"""The characters a template's messages may have together."""
MAX_MESSAGES = 256
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}\Z")


@dataclass(frozen=True, slots=True)
class TemplateMessage:
    """A message of a template: its role, its source text, and the nodes that this text compiles to."""

    role: TemplateRole
    content: str
    nodes: tuple[Node, ...] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What an application tells a model on every request; made by `Template.parse`.

    Args:
        messages: in order; a message of role `history` marks where the dialogue is inserted.
        slots: the variables that are declared.
        variables: every variable that a payload must have, in order of first use, and `context` and `question` where
            they are used.
        model: settings for the model that the template was written for; ctxkit stores them and changes nothing.
        schema: the JSON Schema of the payload, declared or else derived from the variables.
        includes: the templates inside this one, pinned, in order of their references.
        hash: SHA-256 of the canonical content.

    Example:
        >>> template = Template.parse([{"role": "system", "content": "Answer in {{language}}."},
        ...                            {"role": "user", "content": "{{question}}"}],
        ...                           slots={"language": "trusted string"})
        >>> [message.text for message in template.render({"language": "Dutch"})]
        ['Answer in Dutch.', '']
    """

    messages: tuple[TemplateMessage, ...]
    name: str = ""
    version: int = 0
    description: str = ""
    slots: Mapping[str, Slot] = field(default_factory=dict)
    variables: Mapping[str, Slot] = field(default_factory=dict, compare=False)
    model: Mapping[str, Any] = field(default_factory=dict)
    schema: Mapping[str, Any] = field(default_factory=dict, repr=False)
    includes: tuple[Include, ...] = ()
    hash: str = ""

    @classmethod
    def parse(
        cls,
        source: str | Sequence[Mapping[str, Any]],
        *,
        name: str = "",
        version: int = 0,
        description: str = "",
        slots: Mapping[str, str | Mapping[str, Any] | Slot] | None = None,
        model: Mapping[str, Any] | None = None,
        schema: Mapping[str, Any] | None = None,
        includes: Resolver | None = None,
    ) -> Template:
        """The template that a text, or a sequence of `{"role": …, "content": …}`, describes.

        A text is one file with an optional head and role lines (see `ctxkit.templates.text_form`), or else one user
        message. Slots, description, schema and model settings come from the head or from the arguments. Linear in the
        source and in what it includes.

        Args:
            source: the text, or the messages.
            name: what the template is called; it cannot include one of this name, at any depth.
            version: its number, 0 while it has none.
            description: for people.
            slots: declarations by variable, as `Slot.parse` reads them.
            model: settings for the model.
            schema: a JSON Schema (draft 2020-12) for the payload.
            includes: turns the reference of an include tag, as it is written, into the template that it names; called
                once for each reference. What it gives is frozen: it becomes part of `content` and `hash`.

        Raises:
            TemplateSyntaxError: the source is malformed; the subject names line and column.
            ConfigError: a slot is declared wrongly.
        """
        where = name or "template"
        head: Mapping[str, Any] = {}
        if isinstance(source, str):
            _check_size(len(source), where)
            head, messages = read_text_form(source, where=where)
            _check_head(head, name, where)
        else:
            messages = [_message(item, index, where) for index, item in enumerate(source)]
            _check_size(sum(len(message.content) for message in messages), where)
        return _build(
            messages,
            name=name or head.get("name", ""),
            version=version,
            description=description or head.get("description", ""),
            slots={**head.get("slots", {}), **(slots or {})},
            model={**head.get("model", {}), **(model or {})},
            schema=schema if schema is not None else head.get("schema"),
            includes=includes,
            in_file=isinstance(source, str),
        )

    @classmethod
    def from_content(cls, content: Mapping[str, Any], *, name: str = "", version: int = 0) -> Template:
        """The template of a stored `content`. Raises `TemplateError` where it is not one."""
        unknown = sorted(set(content) - {"messages", "description", "slots", "model", "schema", "includes"})
        if unknown or "messages" not in content:
            raise TemplateError(
                f"a template has no {unknown[0]!r}" if unknown else "the content has no messages",
                subject=name or "template",
                remedy="Store what Template.content gives.",
            )
        return cls.parse(
            content["messages"],
            name=name,
            version=version,
            description=content.get("description", ""),
            slots=content.get("slots"),
            model=content.get("model"),
            schema=content.get("schema"),
            includes=stored_resolver(content.get("includes", {}), where=name or "template"),
        )

    @property
    def content(self) -> dict[str, Any]:
        """The canonical content, as JSON: what is stored and hashed. Name and version are not in it.

        Its `includes` are by the reference as it is written: `{"reference": "rules@3", "hash": …, "content": …}`.
        """
        return _content(self.messages, self.description, self.slots, self.model, self.schema, self.includes)

    @property
    def reference(self) -> str:
        """`name@version`, the name alone while unsaved, or `template` where there is none."""
        name = self.name or "template"
        return f"{name}@{self.version}" if self.version else name

    @property
    def has_history(self) -> bool:
        """Whether there is a place for the dialogue."""
        return any(message.role == "history" for message in self.messages)

    @property
    def source(self) -> str:
        """The template as one text file; parsing it, with its includes at hand, gives the same content."""
        head: dict[str, Any] = {"name": self.name} if self.name else {}
        if self.description:
            head["description"] = self.description
        if self.slots:
            head["slots"] = {name: slot.content for name, slot in self.slots.items()}
        if self.model:
            head["model"] = dict(self.model)
        if self.schema != derive_schema(self.variables):
            head["schema"] = dict(self.schema)
        return write_text_form(head, [SourceMessage(message.role, message.content) for message in self.messages])

    def render(
        self,
        payload: Mapping[str, Any] | None = None,
        *,
        well_known: Collection[str] = WELL_KNOWN,
        max_characters: int = MAX_OUTPUT,
    ) -> list[RenderedMessage]:
        """The messages as pieces, one for each message of the template.

        One pass: a value is inserted and never parsed, so it cannot expand another slot or open a message (law 4), and
        the order of the payload's keys changes nothing (law 6). Texts that are not trusted are fenced by
        `ctxkit.templates.delimiters`. Linear in the output.

        Args:
            payload: a JSON value for each variable, no more and no fewer.
            well_known: the slots that stay open for assembly; one that is left out is a variable of the payload.
            max_characters: the text may not grow longer.

        Raises:
            MissingVariableError, UnexpectedVariableError, VariableTypeError: they name the variable.
            TemplateError: the text is too long.
        """
        payload = {} if payload is None else payload
        subject = f"template {self.reference}"
        self._check(payload, {name for name in WELL_KNOWN if name in well_known}, subject)
        if self.schema != derive_schema(self.variables):
            compile_schema(self.schema)(payload, subject)
        return render_nodes(
            [(message.role, message.nodes) for message in self.messages],
            payload,
            self.variables,
            well_known=well_known,
            subject=subject,
            max_characters=max_characters,
        )

    def _check(self, payload: Mapping[str, Any], open_slots: Collection[str], subject: str) -> None:
        if not isinstance(payload, Mapping):
            raise VariableTypeError(
                f"the payload is {type_name(payload)}", subject=subject, remedy="Pass an object: {name: value, …}."
            )
        needed = {name: slot for name, slot in self.variables.items() if name not in open_slots}
        for name, slot in needed.items():
            if name not in payload:
                raise MissingVariableError(
                    f"the variable {name!r} is missing",
                    subject=subject,
                    remedy=f"Pass it in the payload as {_wanted(slot)}. "
                    f"If it is a field of a section's item, write {{{{.{name}}}}}.",
                )
        for name, value in payload.items():
            if name not in needed:
                raise UnexpectedVariableError(
                    f"the variable {str(name)[:100]!r} is not in the template",
                    subject=subject,
                    remedy=_unexpected(name, needed),
                )
            if not needed[name].accepts(value):
                raise VariableTypeError(
                    f"the variable {name!r} is {type_name(value)}, not {_wanted(needed[name])}",
                    subject=subject,
                    remedy="Convert the value, or declare the slot's type in the template.",
                )
            check_json(value, name=name, subject=subject)


def _build(
    messages: Sequence[SourceMessage],
    *,
    name: str,
    version: int,
    description: str,
    slots: Mapping[str, Any],
    model: Mapping[str, Any],
    schema: Mapping[str, Any] | None,
    includes: Resolver | None,
    in_file: bool,
) -> Template:
    where = name or "template"
    if name and not _NAME.match(name):
        raise TemplateSyntaxError(
            f"{name[:60]!r} is no name for a template",
            subject="template",
            remedy="Use ASCII letters, digits, and . _ / - after the first; at most 128.",
        )
    if not messages or len(messages) > MAX_MESSAGES:
        raise TemplateSyntaxError(
            "there is no message" if not messages else f"there are more than {MAX_MESSAGES} messages",
            subject=where,
            remedy='Give at least one, such as {"role": "user", "content": "{{question}}"}.',
        )
    types = slot_types(schema or {})
    own = {
        key: Slot.parse(value, name=f"{where}, slot {key}", otherwise=types.get(key)) for key, value in slots.items()
    }
    included = Includes(includes, name)
    compiled = tuple(
        TemplateMessage(
            cast(TemplateRole, message.role),
            message.content,
            compile_text(
                message.content,
                where=where if in_file else f"{where}, message {index} ({message.role}),",
                line=message.line,
                include=included.nodes,
            ),
        )
        for index, message in enumerate(messages, 1)
    )
    _check_history(compiled, where)
    found = tuple(included.found.values())
    declared = _declared(own, found, where)
    variables = derive_variables([message.nodes for message in compiled], declared, types=types, where=where)
    check_json(model, name="model", subject=where)
    derived = derive_schema(variables)
    if schema is not None and schema != derived:
        check_schema(schema, variables, where=where)
    ordered = {key: own[key] for key in sorted(own)}
    whole = dict(derived if schema is None else schema)
    return Template(
        messages=compiled,
        name=name,
        version=version,
        description=description,
        slots=ordered,
        variables=variables,
        model=dict(model),
        schema=whole,
        includes=found,
        hash=content_hash(_content(compiled, description, ordered, model, whole, found)),
    )


def _declared(own: Mapping[str, Slot], includes: Sequence[Include], where: str) -> dict[str, Slot]:
    """The declarations of a template and of what it includes, which must not contradict each other."""
    merged = dict(own)
    for include in includes:
        template = include.template
        if template is None:
            continue
        for name, slot in _declared(template.slots, template.includes, where).items():
            mine = merged.setdefault(name, slot)
            if (mine.type, mine.trust) != (slot.type, slot.trust):
                raise TemplateSyntaxError(
                    f"the slot {name!r} is {mine.trust} {mine.type} here and {slot.trust} {slot.type} in "
                    f"{include.written!r}",
                    subject=where,
                    remedy="Declare it alike in both, or use two names.",
                )
    return merged


def _content(
    messages: Sequence[TemplateMessage],
    description: str,
    slots: Mapping[str, Slot],
    model: Mapping[str, Any],
    schema: Mapping[str, Any],
    includes: Sequence[Include],
) -> dict[str, Any]:
    content: dict[str, Any] = {"messages": [{"role": item.role, "content": item.content} for item in messages]}
    if description:
        content["description"] = description
    if slots:
        content["slots"] = {name: slot.content for name, slot in slots.items()}
    if model:
        content["model"] = dict(model)
    content["schema"] = dict(schema)
    if includes:
        content["includes"] = {include.written: include.content for include in includes}
    return content


def _message(item: Any, index: int, where: str) -> SourceMessage:
    if not isinstance(item, Mapping) or not set(item) <= {"role", "content"} or "role" not in item:
        raise TemplateSyntaxError(
            "a message has a role and a content, and nothing else",
            subject=f"{where}, message {index + 1}",
            remedy='Write {"role": "user", "content": "…"}.',
        )
    role, content = item["role"], item.get("content", "")
    if role not in TEMPLATE_ROLES or not isinstance(content, str):
        raise TemplateSyntaxError(
            f"there is no role {str(role)[:40]!r}" if role not in TEMPLATE_ROLES else "the content is not a text",
            subject=f"{where}, message {index + 1}",
            remedy=f"Roles: {', '.join(TEMPLATE_ROLES)}; the content is a text.",
        )
    return SourceMessage(role, content)


def _check_size(characters: int, where: str) -> None:
    if characters > MAX_SOURCE:
        raise TemplateSyntaxError(
            f"the template has {characters:,} characters",
            subject=where,
            remedy=f"A template has at most {MAX_SOURCE:,}; pass long texts as values.",
        )


def _check_head(head: Mapping[str, Any], name: str, where: str) -> None:
    kinds: dict[str, type] = {"name": str, "description": str, "slots": dict, "model": dict, "schema": dict}
    for key, value in head.items():
        if key not in kinds or not isinstance(value, kinds[key]):
            raise TemplateSyntaxError(
                f"the head has no field {key!r}" if key not in kinds else f"the field {key!r} is {type_name(value)}",
                subject=f"{where} 1:1",
                remedy="A head has name and description (texts), slots, model and schema (blocks).",
            )
    if name and head.get("name", name) != name:
        raise TemplateSyntaxError(
            f"the file calls itself {head['name']!r}", subject=f"{where} 1:1", remedy="Use one of the two names."
        )


def _check_history(messages: Sequence[TemplateMessage], where: str) -> None:
    markers = [message for message in messages if message.role == "history"]
    if len(markers) > 1 or any(message.content.strip() for message in markers):
        raise TemplateSyntaxError(
            "the history has text" if len(markers) == 1 else "the history stands at more than one place",
            subject=where,
            remedy="One message of role 'history' without text marks where the dialogue's messages are inserted.",
        )


def _wanted(slot: Slot) -> str:
    names = {"integer": "an integer", "object": "an object", "section": "a list, an object or a boolean"}
    return names.get(slot.type, f"a {slot.type}")


def _unexpected(name: object, needed: Mapping[str, Slot]) -> str:
    if name in WELL_KNOWN:
        return "Assembly fills it; it is never part of a payload."
    near = difflib.get_close_matches(str(name)[:100], needed, 1)
    known = f"Its variables: {', '.join(needed)}." if needed else "It has none."
    return f"Did you mean {near[0]!r}? {known}" if near else known
