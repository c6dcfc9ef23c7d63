"""The conformance suite, and that its runner sees what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ctxkit.errors import ConfigError
from ctxkit.templates import Template
from ctxkit.templates.conformance import Case, load_cases, run_case

SUITE = Path(__file__).parents[1] / "conformance"
CASES = load_cases(SUITE)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.file.removesuffix('.yaml')}: {case.name}")
def test_the_suite(case: Case) -> None:
    assert run_case(case).problem == ""


def test_there_are_cases_of_every_kind() -> None:
    assert len(CASES) >= 300
    assert {case.error for case in CASES} >= {
        "syntax", "declaration", "payload", "missing", "unexpected", "type", "limit",
    }  # fmt: skip
    assert len({(case.file, case.name) for case in CASES}) == len(CASES)


@pytest.mark.parametrize(
    ("case", "problem"),
    [
        ({"template": "{{a}}", "payload": {}, "expect": "x"}, "missing: "),
        ({"template": "a", "expect": "b"}, "instead of"),
        ({"template": "a", "expect": [{"role": "system", "content": "a"}]}, "instead of"),
        ({"template": "a", "error": "syntax"}, "no error"),
        ({"template": "{{a}}", "error": "syntax"}, "not syntax"),
        ({"template": "{{a}}", "error": "missing", "names": "tone"}, "names no 'tone'"),
        ({"template": "a", "json": "{", "expect": "a"}, "payload: "),
        ({"template": "a", "json": "{", "error": "missing"}, "not missing"),
        ({"reference": "a@1", "expect": "a"}, "there is no store"),
    ],
)
def test_a_case_that_does_not_hold_says_why(case: dict[str, Any], problem: str) -> None:
    outcome = run_case(Case(name="n", **case))
    assert not outcome.passed
    assert problem in outcome.problem


def test_a_case_can_name_a_template() -> None:
    template = Template.parse("Say {{it}}.", slots={"it": "trusted"})
    case = Case(name="n", reference="say@production", payload={"it": "x"}, expect="Say x.")
    assert run_case(case, resolve={"say@production": template}.__getitem__).passed


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cases: 3", "no cases"),
        ("[", "no YAML"),
        ("cases: [x]", "no name"),
        ("cases: [{name: n, template: a, expect: a, colour: red}]", "'colour'"),
        ("cases: [{name: n, expect: a}]", "none of both"),
        ("cases: [{name: n, template: a, reference: b, expect: a}]", "none of both"),
        ("cases: [{name: n, template: a, expect: a, error: type}]", "none of both"),
        ("cases: [{name: n, template: a, error: typo}]", "'typo'"),
        ("cases: [{name: n, template: a, expect: [a]}]", "no text"),
        ("!!python/object/apply:os.getcwd []", "no YAML"),
    ],
)
def test_what_is_no_file_of_cases(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="cases") as caught:
        load_cases(path)
    assert problem in caught.value.message


def test_an_unknown_error_names_the_known_ones(tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text("cases: [{name: n, template: a, error: typo}]", encoding="utf-8")
    with pytest.raises(ConfigError, match="Errors: declaration, limit, missing, payload, syntax, type, unexpected"):
        load_cases(path)
