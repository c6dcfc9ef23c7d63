"""The JSON Schema of a template's payload: derived from its slots, or declared in its head, and part of its content.

A derived schema says what the renderer checks by itself. A declared one (draft 2020-12) is checked as well, by the
jsonschema library, with limits that let a template be taken from anybody: a `$ref` names a schema inside of the schema,
since nothing is ever fetched; the patterns of a payload may take some seconds at most; and so many keywords are looked
at as a payload of its size can need, so that neither schema nor payload makes the check grow faster than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ctxkit.errors import (
    MissingVariableError,
    TemplateSyntaxError,
    UnexpectedVariableError,
    VariableTypeError,
)
from ctxkit.templates.slots import WELL_KNOWN, Slot, SlotType, check_json

__all__ = ["DIALECT", "check_schema", "compile_schema", "derive_schema", "slot_types"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_JSON_TYPES: Mapping[SlotType, str | list[str] | None] = {
    "string": "string",
    "number": "number",
    "integer": "integer",
    "boolean": "boolean",
    "list": "array",
    "object": "object",
    "section": ["array", "boolean", "object"],
    "any": None,
}
_SLOT_TYPES: Mapping[str, SlotType] = {
    "string": "string",
    "number": "number",
    "integer": "integer",
    "boolean": "boolean",
    "array": "list",
    "object": "object",
}
_NAMED = frozenset({"properties", "$defs", "dependentSchemas"})
_DATA = frozenset({"const", "default", "enum", "examples"})
_REFUSED = frozenset({"patternProperties", "$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$vocabulary"})

Check = Callable[[Mapping[str, Any], str], None]
"""Raises where a payload is not what the schema says; the text names the template."""


def derive_schema(variables: Mapping[str, Slot]) -> dict[str, Any]:
    """The schema of the payloads that fill these variables; those of assembly are not in it.

    Example:
        >>> derive_schema({"tone": Slot("string", "trusted")})["properties"]
        {'tone': {'type': 'string'}}
    """
    properties: dict[str, Any] = {}
    for name in sorted(set(variables) - set(WELL_KNOWN)):
        slot = variables[name]
        kind = _JSON_TYPES[slot.type]
        properties[name] = {} if kind is None else {"type": kind}
        if slot.description:
            properties[name]["description"] = slot.description
    return {
        "$schema": DIALECT,
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def slot_types(schema: Mapping[str, Any]) -> dict[str, SlotType]:
    """The types that a declared schema gives to variables whose slot says none."""
    properties = schema.get("properties")
    found: dict[str, SlotType] = {}
    for name, inner in properties.items() if isinstance(properties, Mapping) else ():
        kind = inner.get("type") if isinstance(inner, Mapping) else None
        if isinstance(kind, str) and kind in _SLOT_TYPES:
            found[name] = _SLOT_TYPES[kind]
    return found


def check_schema(schema: Mapping[str, Any], variables: Mapping[str, Slot], *, where: str) -> None:
    """Raise `TemplateSyntaxError` unless `schema` is a JSON Schema that the payloads of these variables can pass."""

    def fail(message: str, remedy: str) -> TemplateSyntaxError:
        return TemplateSyntaxError(message, subject=f"{where}, schema", remedy=remedy)

    check_json(schema, name="schema", subject=where)
    if schema.get("$schema", DIALECT) != DIALECT:
        raise fail(f"the dialect is {str(schema['$schema'])[:100]!r}", f"Write the schema for {DIALECT}.")
    for path, key, value in _keywords(schema, "$"):
        if key == "$ref" and isinstance(value, str) and not value.startswith("#"):
            raise fail(
                f"{path}.{key} refers to {value[:100]!r}, and nothing is ever fetched",
                "Copy what it refers to into $defs, and write #/$defs/name.",
            )
        if key in _REFUSED:
            raise fail(f"{path}.{key} is not supported", "Use properties, additionalProperties and $defs.")
        if key == "pattern" and isinstance(value, str):
            _pattern(value, f"{path}.pattern", fail)
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        problem = f"{error.json_path} is not JSON Schema: {error.message[:200]}"
        raise fail(problem, "See https://json-schema.org/draft/2020-12.") from error
    except RecursionError as error:
        raise fail("the schema nests too deep", "Flatten it.") from error
    for path, key, value in _keywords(schema, "$"):
        if key != "$ref":
            continue
        found = _referred(schema, value)
        if found is None:
            raise fail(f"{path}.$ref refers to {value[:100]!r}, which is not there", "Define it under $defs.")
        try:
            Draft202012Validator.check_schema(found)  # the whole was checked, but for what is under unknown keywords
        except SchemaError as error:
            problem = f"{path}.$ref refers to what is not JSON Schema: {error.message[:200]}"
            raise fail(problem, "See https://json-schema.org/draft/2020-12.") from error
    for name, kind in slot_types(schema).items():
        slot = variables.get(name)
        if (
            slot is not None
            and slot.type not in (kind, "section", "any")
            and {slot.type, kind} != {"integer", "number"}
        ):
            raise fail(f"it says that {name!r} is {kind}, and its slot says {slot.type}", "Say the same in both.")
    for name in schema.get("required", ()):
        if name not in variables or name in WELL_KNOWN:
            raise fail(f"it requires {str(name)[:60]!r}, which is no variable of the template", "Use it or remove it.")


def compile_schema(schema: Mapping[str, Any]) -> Check:
    """The check of payloads against a declared schema."""
    from ctxkit.templates.schema_checking import Checker

    checker = Checker(schema)

    def check(payload: Mapping[str, Any], subject: str) -> None:
        error = checker.first_error(payload, subject)
        if error is None:
            return
        kind = {"required": MissingVariableError, "additionalProperties": UnexpectedVariableError}
        raise kind.get(str(error.validator), VariableTypeError)(
            f"the payload at {error.json_path[:200]} does not fit the schema: {error.message[:200]}",
            subject=subject,
            remedy=f"See {'.'.join(map(str, ('$', *error.absolute_schema_path)))[:200]} in the template's schema.",
        )

    return check


def _pattern(pattern: str, path: str, fail: Callable[[str, str], TemplateSyntaxError]) -> None:
    import regex

    try:
        regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        raise fail(f"{path} is not a pattern: {error}", "Correct it.") from error


def _keywords(schema: Any, path: str) -> Iterator[tuple[str, str, Any]]:
    """Each keyword of a schema and of the schemas in it. Names of properties are no keywords."""
    todo: list[tuple[Any, str, bool]] = [(schema, path, True)]
    while todo:
        value, at, is_schema = todo.pop()
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if is_schema:
                    yield at, key, inner
                if not is_schema or key not in _DATA:
                    named = is_schema and key in _NAMED
                    todo.append((inner, f"{at}.{key}", not named))
        elif isinstance(value, list):
            todo += [(inner, f"{at}[{index}]", True) for index, inner in enumerate(value)]


def _referred(schema: Any, reference: str) -> Any:
    """The schema in this one that a reference names, or None: a value in a `const` or so is none."""
    if not reference.startswith("#/"):
        return schema if reference == "#" else None
    if "%" in reference:  # would be decoded once more
        return None
    is_schema = True
    for part in reference[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if is_schema and key in _DATA:
            return None
        is_schema = not (is_schema and key in _NAMED)
        if isinstance(schema, list) and key.isascii() and key.isdigit() and int(key[:9]) < len(schema):
            schema = schema[int(key)]
        elif isinstance(schema, Mapping) and key in schema:
            schema = schema[key]
        else:
            return None
    return schema if isinstance(schema, Mapping | bool) else None
