"""`Template`: a list of messages, compiled once, rendered in one pass, and identified by the hash of its content."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from ctxkit.documents import content_hash
from ctxkit.errors import TemplateError, TemplateSyntaxError
from ctxkit.templates.includes import Include, Includes, Resolver, stored_resolver
from ctxkit.templates.jinja_import import convert_jinja
from ctxkit.templates.language import compile_text
from ctxkit.templates.parts import (
    MAX_SOURCE,
    TemplateMessage,
    canonical_content,
    check_head,
    check_history,
    check_name,
    check_size,
    declared_schemas,
    merged_slots,
    read_message,
)
from ctxkit.templates.program import Program
from ctxkit.templates.rendering import MAX_OUTPUT, RenderedMessage, TemplateRole
from ctxkit.templates.schema import check_schema, derive_schema, slot_types
from ctxkit.templates.slots import WELL_KNOWN, Slot, check_json
from ctxkit.templates.text_form import SourceMessage, read_text_form, write_text_form
from ctxkit.templates.variables import derive_variables
from ctxkit.templates.writing import write_nodes

__all__ = ["MAX_SOURCE", "Template", "TemplateMessage"]

MAX_MESSAGES = 256
_CONTENT: Mapping[str, type | tuple[type, ...]] = {
    "messages": (list, tuple),
    "description": str,
    "slots": Mapping,
    "model": Mapping,
    "schema": Mapping,
    "includes": Mapping,
}


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
    _programs: dict[frozenset[str] | None, Program] = field(default_factory=dict, init=False, repr=False, compare=False)

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
            check_size(len(source), where)
            head, messages = read_text_form(source, where=where)
            check_head(head, name, where)
        else:
            messages = [read_message(item, index, where) for index, item in enumerate(source)]
            check_size(sum(len(message.content) for message in messages), where)
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
    def from_jinja(
        cls,
        source: str,
        *,
        name: str = "",
        role: TemplateRole = "user",
        description: str = "",
        slots: Mapping[str, str | Mapping[str, Any] | Slot] | None = None,
        rename: Mapping[str, str] | None = None,
    ) -> Template:
        """The template that a Jinja template without logic is; it is parsed, never rendered.

        It renders the text that Jinja renders, wherever both render: a missing variable is an error here, a boolean
        that is written out is `true`, and a loop takes a list alone. Values are fenced unless `slots` declares them
        trusted. `context`, `history` and `question` are slots of assembly; `rename` gives variables other names.

        Raises:
            TemplateSyntaxError: it has logic that has no form here; the message begins with the reason.
            MissingExtraError: jinja2 is not installed.

        Example:
            >>> Template.from_jinja("Hi {% if not brief %}dear {% endif %}{{ user['name'] }}").messages[0].content
            'Hi {{^brief}}dear {{/brief}}{{user.name}}'
        """
        where = name or "template"
        check_size(len(source), where)
        converted = convert_jinja(source, where=where, rename=rename)
        declared = {**converted.slots, **(slots or {})}
        parse = partial(
            cls.parse,
            [{"role": role, "content": write_nodes(converted.nodes)}],
            name=name,
            description=description,
            slots=declared,
        )
        found = parse()
        if converted.schema is None:
            return found
        properties = {
            key: {**value, **converted.schema.get(key, {})} for key, value in found.schema["properties"].items()
        }
        return parse(schema={**found.schema, "properties": properties})

    @classmethod
    def from_content(cls, content: Mapping[str, Any], *, name: str = "", version: int = 0) -> Template:
        """The template of a stored `content`. Raises `TemplateError` where it is not one."""
        if not isinstance(content, Mapping):
            raise TemplateError(
                "the content is no object", subject=name or "template", remedy="Store what Template.content gives."
            )
        wrong = sorted(
            key for key, value in content.items() if not isinstance(value, _CONTENT.get(key, ())) or value is None
        )
        if wrong or "messages" not in content:
            raise TemplateError(
                f"a template has no such {wrong[0]!r}" if wrong else "the content has no messages",
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
        return canonical_content(self.messages, self.description, self.slots, self.model, self.schema, self.includes)

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
        key = None if well_known is WELL_KNOWN else frozenset(well_known)
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = self._compile(WELL_KNOWN if key is None else key)
        return program.render({} if payload is None else payload, max_characters)

    def _compile(self, well_known: Collection[str]) -> Program:
        return Program(
            [(message.role, message.nodes) for message in self.messages],
            self.variables,
            open_slots=[name for name in WELL_KNOWN if name in well_known],
            subject=f"template {self.reference}",
            schemas=declared_schemas(self),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.content, self.name, self.version)


def _restore(content: Mapping[str, Any], name: str, version: int) -> Template:
    return Template.from_content(content, name=name, version=version)


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
    check_name(name)
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
    check_history(compiled, where)
    found = tuple(included.found.values())
    declared = merged_slots(own, found, where)
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
        hash=content_hash(canonical_content(compiled, description, ordered, model, whole, found)),
    )
