"""Cases for templates, language-neutral: a template, a payload, and the messages or the error that they must give.

    about: What the file is about.
    cases:
      - name: a value is inserted once
        template: "Say {{it}}."              # one message, a file with role lines, or a list of {role, content}
        slots: {it: trusted string}          # as in the head of a template; so is `schema`
        payload: {it: "{{other}}"}           # or `json: '{"it": 1}'`, the text of a payload
        expect: "Say {{other}}."             # one user message, or a list of {role, content}
      - name: nothing is missing in silence
        reference: answer@production         # instead of `template`: one of the store
        error: missing                       # syntax, declaration, payload, missing, unexpected, type or limit
        names: tone                          # what the error's message has to name

Slots of assembly stand in the expected text as «context» and «question», unless the case has `assembly: false`: then
the payload fills them. `includes` maps the references of include tags to the templates that they name.

The cases in `tests/conformance` of ctxkit's repository are in this form; `ctxkit templates test` runs your own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ctxkit.errors import (
    ConfigError,
    CtxkitError,
    MissingVariableError,
    TemplateError,
    TemplateSyntaxError,
    UnexpectedVariableError,
    VariableTypeError,
)
from ctxkit.settings import require
from ctxkit.templates.includes import Resolver
from ctxkit.templates.payload import parse_payload
from ctxkit.templates.rendering import MAX_OUTPUT, RenderedMessage
from ctxkit.templates.slots import WELL_KNOWN
from ctxkit.templates.template import Template

__all__ = ["ERROR_CODES", "Case", "Outcome", "load_cases", "run_case", "shown"]

ERROR_CODES: Mapping[str, type[CtxkitError]] = {
    "missing": MissingVariableError,
    "unexpected": UnexpectedVariableError,
    "type": VariableTypeError,
    "syntax": TemplateSyntaxError,
    "limit": TemplateError,
    "declaration": ConfigError,
}
"""The error of each code; `payload` is any of a payload's JSON text."""

_FIELDS = {
    "name", "template", "reference", "slots", "schema", "includes", "payload", "json", "assembly", "max_characters",
    "expect", "error", "names",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case; its fields are those of the file."""

    name: str
    template: str | list[dict[str, Any]] | None = None
    reference: str = ""
    slots: Mapping[str, Any] = field(default_factory=dict)
    schema: Mapping[str, Any] | None = None
    includes: Mapping[str, Any] = field(default_factory=dict)
    payload: Any = None
    json: str | None = None
    assembly: bool = True
    max_characters: int = MAX_OUTPUT
    expect: str | list[dict[str, str]] | None = None
    error: str = ""
    names: str = ""
    file: str = ""

    @property
    def expected(self) -> list[tuple[str, str]]:
        """The messages that are expected, as roles and texts."""
        if isinstance(self.expect, str):
            return [("user", self.expect)]
        return [(message["role"], message.get("content", "")) for message in self.expect or ()]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a case; `problem` is empty where it passed."""

    case: Case
    problem: str = ""

    @property
    def passed(self) -> bool:
        return not self.problem


def load_cases(path: Path) -> list[Case]:
    """The cases of a YAML file, or of all in a folder. Raises `ConfigError` where one is no case."""
    yaml = require("yaml", extra="yaml")
    if path.is_dir():
        return [case for inner in sorted(path.glob("*.yaml")) for case in load_cases(inner)]
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"no YAML ({error})", subject=str(path), remedy="Give a file of cases.") from error
    found = content.get("cases") if isinstance(content, dict) else None
    if not isinstance(found, list):
        raise ConfigError("there are no cases", subject=str(path), remedy="Write them as a list under 'cases:'.")
    return [_case(entry, index, path) for index, entry in enumerate(found, 1)]


def _case(entry: Any, index: int, path: Path) -> Case:
    problem = ""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        problem = "it has no name"
    elif unknown := sorted(map(str, set(entry) - _FIELDS)):
        problem = f"it has a field {unknown[0]!r}"
    elif ("template" in entry) == ("reference" in entry):
        problem = "it has a template and a reference, or none of both"
    elif ("expect" in entry) == ("error" in entry):
        problem = "it expects messages and an error, or none of both"
    elif "error" in entry and entry["error"] not in (*ERROR_CODES, "payload"):
        problem = f"there is no error {entry['error']!r}"
    elif "expect" in entry and not _are_messages(entry["expect"]):
        problem = "what it expects is no text and no list of {role, content}"
    if problem:
        fields, errors = ", ".join(sorted(_FIELDS)), ", ".join(sorted([*ERROR_CODES, "payload"]))
        raise ConfigError(
            f"case {index} is no case: {problem}",
            subject=str(path),
            remedy=f"Its fields: {fields}; template or reference, expect or error. Errors: {errors}.",
        )
    return Case(**entry, file=path.name)


def _are_messages(expect: Any) -> bool:
    if isinstance(expect, list):
        return all(isinstance(item, dict) and "role" in item and set(item) <= {"role", "content"} for item in expect)
    return isinstance(expect, str)


def run_case(case: Case, *, resolve: Resolver | None = None) -> Outcome:
    """Render a case and compare. `resolve` gives the template of a case's `reference`."""
    try:
        payload = case.payload if case.json is None else parse_payload(case.json)
    except CtxkitError as error:
        return Outcome(case, _judge_error(case, "payload", error))
    try:
        template = _template(case, resolve)
        messages = template.render(
            {} if payload is None else payload,
            well_known=WELL_KNOWN if case.assembly else (),
            max_characters=case.max_characters,
        )
    except CtxkitError as error:
        code = next((code for code, kind in ERROR_CODES.items() if isinstance(error, kind)), type(error).__name__)
        return Outcome(case, _judge_error(case, code, error))
    got = shown(messages)
    if case.error:
        return Outcome(case, f"no error, but {got!r:.300}")
    return Outcome(case, "" if got == case.expected else f"got {got!r:.500} instead of {case.expected!r:.500}")


def shown(messages: Iterable[RenderedMessage]) -> list[tuple[str, str]]:
    """Rendered messages as roles and texts, with open slots as «slot»; the place of the history has no text."""
    return [
        (
            message.role,
            ""
            if message.role == "history"
            else "".join(piece.text if piece.slot is None else f"«{piece.slot}»" for piece in message.pieces),
        )
        for message in messages
    ]


def _template(case: Case, resolve: Resolver | None) -> Template:
    if case.template is None:
        if resolve is None:
            raise ConfigError("there is no store", subject=case.reference, remedy="Write the template into the case.")
        return resolve(case.reference)
    return Template.parse(
        case.template,
        slots=case.slots,
        schema=case.schema,
        includes=_resolver(case.includes) if case.includes else None,
    )


def _resolver(included: Mapping[str, Any]) -> Callable[[str], Template]:
    def resolve(written: str) -> Template:
        if written not in included:
            raise TemplateError("there is no such template", subject=written, remedy="Write it under 'includes'.")
        name, _, version = written.partition("@")
        number = int(version) if version.isascii() and version.isdigit() else 0
        return Template.parse(included[written], name=name, version=number, includes=resolve)

    return resolve


def _judge_error(case: Case, code: str, error: CtxkitError) -> str:
    if not case.error:
        return f"{code}: {error}"
    if code != case.error:
        return f"the error is {code} ({error}), not {case.error}"
    return "" if case.names in f"{error.subject} {error.message}" else f"the error names no {case.names!r}: {error}"
