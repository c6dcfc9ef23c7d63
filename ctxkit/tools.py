"""Tool descriptions as plain JSON, checked once, so that whatever reads them later can trust their shape."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ctxkit.errors import ConfigError

__all__ = ["checked_tools"]

_MAX_DEPTH = 64
_MAX_VALUES = 100_000
_MAX_BITS = 1024
"""Of an integer: what a double can hold, and far below what Python refuses to print."""

# What the keywords of JSON Schema must hold; a keyword that is not listed may hold anything.
_SCHEMA_MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMAS = (
    "items",
    "additionalItems",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contains",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
)
_TEXTS = ("description", "title")
_EXAMPLE = '{"type": "function", "function": {"name": "…", "parameters": {"type": "object", "properties": {}}}}'
_KINDS = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}


def checked_tools(tools: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The tools as plain JSON values: new dicts and lists, texts, finite numbers, truth values and None.

    Takes the form of the OpenAI chat API (`{"type": "function", "function": {…}}`), the function alone, Anthropic's
    form (`name`, `input_schema`), and a provider's own tools, which have another `type`. The schemas' keywords must
    have the types that JSON Schema gives them; what a schema says is the provider's to judge.

    Time: linear in the tools. The result depends on nothing but the values, in their order.

    Errors: `ConfigError`, with the tool and the place in it, for what is not JSON (a set, a key that is not a text,
        NaN, a value that contains itself), is nested deeper than 64, holds over 100,000 values, or has not the shape.

    Source: JSON Schema, draft 2020-12 and the older `items` as a list; the tool forms of both providers.

    Example:
        >>> checked_tools([{"name": "f", "parameters": {"type": "object", "required": ("x",)}}])
        ({'name': 'f', 'parameters': {'type': 'object', 'required': ['x']}},)
    """
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Sequence):
        raise ConfigError(
            f"tools are not a list but {_kind(tools)}", subject="tools", remedy=f"Give a list such as [{_EXAMPLE}]."
        )
    return tuple(_Tool(index, tool).checked() for index, tool in enumerate(tools))


class _Tool:
    """One tool under examination."""

    def __init__(self, index: int, tool: object) -> None:
        self._tool = tool
        self._subject = f"tools[{index}]"
        self._values = 0
        self._open: set[int] = set()

    def checked(self) -> dict[str, Any]:
        tool = self._tool
        if not isinstance(tool, Mapping):
            self._refuse("", f"it is {_kind(tool)}, not an object", f"Give a dict such as {_EXAMPLE}.")
        name = _name(tool)
        if name:
            self._subject = f"{self._subject} {name:.64}"
        plain: dict[str, Any] = self._plain(tool, ())
        kind = plain.get("type", "function")
        if not isinstance(kind, str):
            self._refuse("type", f"it is {_kind(kind)}, not a text", 'Give "function", or the provider\'s own type.')
        if "function" in plain:
            self._function(self._object(plain["function"], ("function",)), ("function",))
        elif kind == "function" or "input_schema" in plain:
            self._function(plain, ())
        return plain

    def _function(self, function: Mapping[str, Any], path: tuple[str, ...]) -> None:
        name = function.get("name")
        if not isinstance(name, str) or not name:
            self._refuse((*path, "name"), "the name is missing", f"Give the tool a name, as in {_EXAMPLE}.")
        self._text(function, "description", path)
        for key in ("parameters", "input_schema"):
            if key in function:
                self._schema(self._object(function[key], (*path, key)), (*path, key))

    def _schema(self, schema: Any, path: tuple[str, ...]) -> None:
        if isinstance(schema, bool):
            return
        schema = self._object(schema, path)
        for key in _TEXTS:
            self._text(schema, key, path)
        for key in ("enum", "required", *_SCHEMA_LISTS):
            if key in schema and not isinstance(schema[key], list):
                self._refuse((*path, key), f"it is {_kind(schema[key])}, not a list", "Give a list, or leave it out.")
        if not all(isinstance(name, str) for name in schema.get("required", ())):
            self._refuse((*path, "required"), "it holds what is not a text", "List the names of properties.")
        kinds = schema.get("type", "object")
        if not isinstance(kinds, str) and not (isinstance(kinds, list) and all(isinstance(k, str) for k in kinds)):
            remedy = 'Give a type\'s name such as "string", or a list of them.'
            self._refuse((*path, "type"), f"it is {_kind(kinds)}, not a text", remedy)
        for key in _SCHEMA_MAPS:
            for name, inner in self._object(schema.get(key, {}), (*path, key)).items():
                self._schema(inner, (*path, key, name))
        for key in _SCHEMA_LISTS:
            for index, inner in enumerate(schema.get(key, ())):
                self._schema(inner, (*path, key, str(index)))
        for key in _SCHEMAS:
            inner = schema.get(key, True)
            listed = inner if key == "items" and isinstance(inner, list) else [inner]
            for index, item in enumerate(listed):
                self._schema(item, (*path, key) if listed is not inner else (*path, key, str(index)))

    def _object(self, value: Any, path: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._refuse(path, f"it is {_kind(value)}, not an object", "Give a dict, or leave it out.")
        return value

    def _text(self, owner: Mapping[str, Any], key: str, path: tuple[str, ...]) -> None:
        if not isinstance(owner.get(key, ""), str):
            self._refuse((*path, key), f"it is {_kind(owner[key])}, not a text", "Give a text, or leave it out.")

    def _plain(self, value: Any, path: tuple[str, ...]) -> Any:
        """A copy of the value in JSON's own types."""
        self._values += 1
        if self._values > _MAX_VALUES:
            self._refuse((), f"it holds more than {_MAX_VALUES:,} values", "Describe the tool by a smaller schema.")
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, int):
            if value.bit_length() > _MAX_BITS:
                self._refuse(path, "the number is too large", "Leave the bound out.")
            return int(value)
        if isinstance(value, float):
            if not math.isfinite(value):
                self._refuse(path, "the number is not finite, and JSON has no such number", "Leave it out.")
            return float(value)
        if not isinstance(value, Mapping | list | tuple):
            if isinstance(value, set | frozenset):
                self._refuse(path, "it is a set, which has no order", "Give a list.")
            self._refuse(path, f"it is {_kind(value)}, not a JSON value", "Give dicts, lists, texts and numbers.")
        if id(value) in self._open:
            self._refuse(path[:8], "it contains itself", "Say it by $ref and $defs.")
        if len(path) >= _MAX_DEPTH:
            self._refuse(path[:8], f"it is nested deeper than {_MAX_DEPTH}", "Flatten it, or use $ref and $defs.")
        self._open.add(id(value))
        plain: dict[str, Any] | list[Any]
        if isinstance(value, Mapping):
            plain = {}
            for key, item in value.items():
                if not isinstance(key, str):
                    self._refuse(path, f"a key is {_kind(key)}, not a text", "Give texts as keys.")
                plain[str.__str__(key)] = self._plain(item, (*path, key))
        else:
            plain = [self._plain(item, (*path, str(index))) for index, item in enumerate(value)]
        self._open.discard(id(value))
        return plain

    def _refuse(self, path: str | tuple[str, ...], problem: str, remedy: str) -> NoReturn:
        place = path if isinstance(path, str) else ".".join(path)
        raise ConfigError(f"{place}: {problem}" if place else problem, subject=self._subject, remedy=remedy)


def _name(tool: Mapping[Any, Any]) -> str:
    """The tool's name where it has one, to speak of it."""
    inner = tool.get("function")
    name = (inner if isinstance(inner, Mapping) else tool).get("name")
    return name if isinstance(name, str) else ""


def _kind(value: object) -> str:
    return _KINDS.get(type(value), f"of type {type(value).__name__}")
