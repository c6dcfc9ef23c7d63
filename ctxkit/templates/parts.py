"""The parts that a template is built of, each read and checked by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ctxkit.errors import TemplateSyntaxError
from ctxkit.templates.includes import Include
from ctxkit.templates.language import Node
from ctxkit.templates.rendering import TemplateRole
from ctxkit.templates.schema import compile_schema, derive_schema
from ctxkit.templates.slots import Slot, type_name
from ctxkit.templates.text_form import TEMPLATE_ROLES, SourceMessage

if TYPE_CHECKING:
    from ctxkit.templates.template import Template

__all__ = [
    "MAX_SOURCE",
    "TemplateMessage",
    "canonical_content",
    "check_head",
    "check_history",
    "check_name",
    "check_size",
    "declared_schemas",
    "merged_slots",
    "read_message",
]

MAX_SOURCE = 1_000_000
"""The characters a template's messages may have together."""
_NAME = re.compile(r"[!-~](?:[ -~]{0,126}[!-~])?\Z")


@dataclass(frozen=True, slots=True)
class TemplateMessage:
    """A message of a template: its role, its source text, and the nodes that this text compiles to."""

    role: TemplateRole
    content: str
    nodes: tuple[Node, ...] = field(repr=False, compare=False)


def check_name(name: str) -> None:
    """Raise `TemplateSyntaxError` for a name that a registry would refuse; no name is fine."""
    if name and not _NAME.match(name):
        raise TemplateSyntaxError(
            f"{name[:60]!r} is no name for a template",
            subject="template",
            remedy="Use at most 128 printable ASCII characters; a registry takes letters, digits and . _ / - alone.",
        )


def declared_schemas(template: Template) -> list[Callable[[Mapping[str, Any], str], None]]:
    """The checks of the schemas that a template and what it includes declare; derived ones need none."""
    found = []
    if template.schema != derive_schema(template.variables):
        found.append(compile_schema(template.schema))
    for include in template.includes:
        inner = include.template
        if inner is not None and (checks := declared_schemas(inner)):
            names = frozenset(inner.variables)
            found += [_narrowed(check, names) for check in checks]
    return found


def _narrowed(
    check: Callable[[Mapping[str, Any], str], None], names: frozenset[str]
) -> Callable[[Mapping[str, Any], str], None]:
    """The check of an included template sees the variables of that template alone."""
    return lambda payload, subject: check({name: payload[name] for name in payload if name in names}, subject)


def merged_slots(own: Mapping[str, Slot], includes: Sequence[Include], where: str) -> dict[str, Slot]:
    """The declarations of a template and of what it includes, which must not contradict each other."""
    merged = dict(own)
    for include in includes:
        template = include.template
        if template is None:
            continue
        for name, slot in merged_slots(template.slots, template.includes, where).items():
            mine = merged.setdefault(name, slot)
            if (mine.type, mine.trust) != (slot.type, slot.trust):
                raise TemplateSyntaxError(
                    f"the slot {name!r} is {mine.trust} {mine.type} here and {slot.trust} {slot.type} in "
                    f"{include.written!r}",
                    subject=where,
                    remedy="Declare it alike in both, or use two names.",
                )
    return merged


def canonical_content(
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


def read_message(item: Any, index: int, where: str) -> SourceMessage:
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


def check_size(characters: int, where: str) -> None:
    if characters > MAX_SOURCE:
        raise TemplateSyntaxError(
            f"the template has {characters:,} characters",
            subject=where,
            remedy=f"A template has at most {MAX_SOURCE:,}; pass long texts as values.",
        )


def check_head(head: Mapping[str, Any], name: str, where: str) -> None:
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


def check_history(messages: Sequence[TemplateMessage], where: str) -> None:
    markers = [message for message in messages if message.role == "history"]
    if len(markers) > 1 or any(message.content.strip() for message in markers):
        raise TemplateSyntaxError(
            "the history has text" if len(markers) == 1 else "the history stands at more than one place",
            subject=where,
            remedy="One message of role 'history' without text marks where the dialogue's messages are inserted.",
        )
