"""What a payload must be before anything is rendered: every variable, no other, each of its type, all of it JSON."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from ctxkit.errors import MissingVariableError, StorageError, UnexpectedVariableError, VariableTypeError
from ctxkit.storage.checks import parse_json
from ctxkit.templates.slots import WELL_KNOWN, Slot, SlotType, check_json, is_sound, type_name

__all__ = ["PayloadCheck", "parse_payload"]

_FAST: Mapping[SlotType, frozenset[type]] = {
    "number": frozenset({int, float}),
    "integer": frozenset({int}),
    "boolean": frozenset({bool}),
    "list": frozenset({list}),
    "object": frozenset({dict}),
    "section": frozenset({bool, dict, list}),
    "any": frozenset({bool, dict, list, str, int, float, type(None)}),
}
"""The Python types that need no closer look to be of a slot's type."""


def parse_payload(text: str | bytes) -> dict[str, Any]:
    """The payload that a JSON text is.

    Stricter than `json.loads`, since readers disagree on what these mean: a key that stands twice, NaN and Infinity,
    NUL, half of a character, more than 100 levels. Linear.

    Raises:
        VariableTypeError: the text is not such JSON, or no object.

    Example:
        >>> parse_payload('{"tone": "brief"}')
        {'tone': 'brief'}
    """
    try:
        value = parse_json(text, what="the payload")
    except StorageError as error:
        raise VariableTypeError(error.message, subject=error.subject or "payload", remedy=error.remedy) from error
    if not isinstance(value, dict):
        raise VariableTypeError(
            f"the payload is {type_name(value)}", subject="payload", remedy='Write an object: {"name": value, …}.'
        )
    return value


class PayloadCheck:
    """The check of the payloads of one template.

    Args:
        variables: every variable of the template.
        open_slots: those that assembly fills; a payload never does.
        subject: how errors name the template.
    """

    def __init__(self, variables: Mapping[str, Slot], open_slots: Collection[str], subject: str) -> None:
        self.wanted = {name: slot for name, slot in variables.items() if name not in open_slots}
        self._texts = [name for name, slot in self.wanted.items() if slot.type == "string"]
        self._others = [(name, _FAST[slot.type]) for name, slot in self.wanted.items() if slot.type != "string"]
        self._subject = subject

    def __call__(self, payload: Mapping[str, Any]) -> None:
        """Raise the error that names the variable. Linear in the payload."""
        self.names(payload)
        for name in self._texts:
            value = payload[name]
            if type(value) is not str or not is_sound(value):
                self._check(name, value)
        self.all_but_texts(payload)

    def all_but_texts(self, payload: Mapping[str, Any]) -> None:
        """The check of values alone, for a caller that looks at those of text slots itself."""
        for name, kinds in self._others:
            value = payload[name]
            if type(value) not in kinds or not is_sound(value):
                self._check(name, value)

    def names(self, payload: Mapping[str, Any]) -> None:
        """Raise the error that names a variable that is missing or unexpected."""
        if type(payload) is not dict and not isinstance(payload, Mapping):
            raise VariableTypeError(
                f"the payload is {type_name(payload)}",
                subject=self._subject,
                remedy="Pass an object: {name: value, …}.",
            )
        if payload.keys() != self.wanted.keys():
            self._refuse_names(payload)

    def _check(self, name: str, value: Any) -> None:
        if not self.wanted[name].accepts(value):
            raise VariableTypeError(
                f"the variable {name!r} is {type_name(value)}, not {_wanted(self.wanted[name])}",
                subject=self._subject,
                remedy="Convert the value, or declare the slot's type in the template.",
            )
        check_json(value, name=name, subject=self._subject)

    def _refuse_names(self, payload: Mapping[str, Any]) -> None:
        for name, slot in self.wanted.items():
            if name not in payload:
                raise MissingVariableError(
                    f"the variable {name!r} is missing",
                    subject=self._subject,
                    remedy=f"Pass it in the payload as {_wanted(slot)}. "
                    f"If it is a field of a section's item, write {_as_field(name, slot)}.",
                )
        for name in payload:
            if name not in self.wanted:
                raise UnexpectedVariableError(
                    f"the variable {str(name)[:100]!r} is not in the template",
                    subject=self._subject,
                    remedy=_unexpected(name, self.wanted),
                )


def _wanted(slot: Slot) -> str:
    names = {"integer": "an integer", "object": "an object", "section": "a list, an object or a boolean", "any": "JSON"}
    return names.get(slot.type, f"a {slot.type}")


def _as_field(name: str, slot: Slot) -> str:
    """How the template names it where it belongs to the item of the section around."""
    return f"{{{{#.{name}}}}} … {{{{/.{name}}}}}" if slot.type in ("section", "list") else f"{{{{.{name}}}}}"


def _unexpected(name: object, needed: Mapping[str, Slot]) -> str:
    if name in WELL_KNOWN:
        return "Assembly fills it; it is never part of a payload."
    near = difflib.get_close_matches(str(name)[:100], needed, 1)
    known = f"Its variables: {', '.join(needed)}." if needed else "It has none."
    return f"Did you mean {near[0]!r}? {known}" if near else known
