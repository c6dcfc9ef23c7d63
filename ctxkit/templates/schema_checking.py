"""The check of a payload by jsonschema, so that it ends: bounded steps and seconds, nothing fetched, one kind of error.

The library looks a `$ref` up as often as it is met, so that schemas that refer to each other twice double the work with
each level; it compares every two items of a list for `uniqueItems`, and every item with every value of an `enum`. All
three are counted or made linear here. Equality is that of JSON Schema: 1 is 1.0, and true is no number.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from fractions import Fraction
from functools import cache
from typing import Any

from ctxkit.errors import TemplateError

__all__ = ["Checker"]

_PATTERN_SECONDS = 1.0  # for one text
_PATTERNS_SECONDS = 5.0  # for all texts of a payload
_FREE_STEPS = 20_000
_STEPS_A_VALUE = 100


class _Effort:
    """What one check may cost, and has cost."""

    def __init__(self, payload: Any, subject: str) -> None:
        self.subject = subject
        self.steps = 0
        self.most = _FREE_STEPS
        self.seconds = 0.0
        self.enums: dict[int, frozenset[Any]] = {}
        self._payload = payload
        self._counted = False

    def step(self) -> None:
        self.steps += 1
        if self.steps > self.most:
            if not self._counted:  # most payloads are small, and never counted
                self._counted = True
                self.most += _STEPS_A_VALUE * _size(self._payload)
                return
            raise TemplateError(
                f"the schema takes over {self.most:,} steps on this payload",
                subject=self.subject,
                remedy="Refer to each schema fewer times: where two references meet two more, the work doubles.",
            )

    def matches(self, pattern: str, text: str) -> bool:
        import regex

        begun = time.perf_counter()
        left = min(_PATTERN_SECONDS, _PATTERNS_SECONDS - self.seconds)
        try:
            if left <= 0:
                raise TimeoutError
            return regex.search(pattern, text, timeout=left) is not None
        except TimeoutError:
            limit = _PATTERN_SECONDS if left == _PATTERN_SECONDS else _PATTERNS_SECONDS
            raise TemplateError(
                f"the pattern {pattern[:100]!r} takes over {limit:g} s on a text of {len(text):,} characters"
                + ("" if left == _PATTERN_SECONDS else ", with those before it"),
                subject=self.subject,
                remedy="Write it without nested repetitions, or limit maxLength.",
            ) from None
        finally:
            self.seconds += time.perf_counter() - begun


_effort: ContextVar[_Effort] = ContextVar("ctxkit_templates_schema_effort")


class Checker:
    """Finds what is wrong with payloads by one schema, which `check_schema` has passed."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._validator: Any = None

    def first_error(self, payload: Mapping[str, Any], subject: str) -> Any:
        """The error that says most, or None. Raises `TemplateError` where the schema cannot be followed to its end."""
        from jsonschema.exceptions import best_match

        token = _effort.set(_Effort(payload, subject))
        try:
            if self._validator is None:
                from referencing import Registry

                # A registry of our own: the library's would fetch what it does not know.
                self._validator = _validator_class()(self._schema, registry=Registry())
            return best_match(self._validator.iter_errors(payload))
        except RecursionError:
            raise TemplateError(
                "the schema refers to itself without an end", subject=subject, remedy="Take the circle out of its $ref."
            ) from None
        finally:
            _effort.reset(token)


@cache
def _validator_class() -> Any:
    import jsonschema

    base = jsonschema.Draft202012Validator

    def is_array(_: Any, instance: Any) -> bool:
        return isinstance(instance, list | tuple)

    def is_object(_: Any, instance: Any) -> bool:
        return isinstance(instance, Mapping)

    def pattern(validator: Any, wanted: str, instance: Any, _: Any) -> Iterator[Any]:
        if isinstance(instance, str) and not _effort.get().matches(wanted, instance):
            yield jsonschema.ValidationError(f"a text does not match {wanted!r}")

    def unique_items(validator: Any, wanted: bool, instance: Any, _: Any) -> Iterator[Any]:
        if wanted and validator.is_type(instance, "array") and len({*map(_key, instance)}) < len(instance):
            yield jsonschema.ValidationError("two items of a list are the same")

    def enum(validator: Any, wanted: list[Any], instance: Any, _: Any) -> Iterator[Any]:
        enums = _effort.get().enums
        known = enums.get(id(wanted))
        if known is None:
            known = enums[id(wanted)] = frozenset(map(_key, wanted))
        if _key(instance) not in known:
            yield jsonschema.ValidationError(f"a value is none of {repr(wanted)[:100]}")

    def multiple_of(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if not validator.is_type(instance, "number"):
            return
        if isinstance(wanted, float) and isinstance(instance, int) and abs(instance) > 1 << 53:
            if Fraction(instance) % Fraction(wanted):  # too large for a float
                yield jsonschema.ValidationError(f"a number is not a multiple of {wanted!r}")
            return
        yield from base.VALIDATORS["multipleOf"](validator, wanted, instance, schema) or ()

    def counted(check: Any) -> Any:
        def keyword(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
            _effort.get().step()
            yield from check(validator, wanted, instance, schema) or ()

        return keyword

    own = {"pattern": pattern, "uniqueItems": unique_items, "enum": enum, "multipleOf": multiple_of}
    checks = {name: counted(check) for name, check in {**base.VALIDATORS, **own}.items()}
    checker = base.TYPE_CHECKER.redefine_many({"array": is_array, "object": is_object})
    return jsonschema.validators.extend(base, checks, type_checker=checker)


def _key(value: Any) -> Any:
    """What two values have in common exactly where JSON Schema takes them for equal."""
    if isinstance(value, bool):
        return ("truth", value)
    if isinstance(value, Mapping):
        return ("object", frozenset((name, _key(item)) for name, item in value.items()))
    if isinstance(value, list | tuple):
        return ("list", *map(_key, value))
    return value


def _size(value: Any) -> int:
    if isinstance(value, Mapping):
        return 1 + sum(map(_size, value.values()))
    if isinstance(value, list | tuple):
        return 1 + sum(map(_size, value))
    return 1
