"""`ctxkit templates test` and `ctxkit templates import`, from outside."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run

CASES = """\
cases:
  - name: it greets
    reference: greet@production
    payload: {name: Ann}
    expect: Hello <data-26750003>Ann</data-26750003>!
  - name: nobody is missing in silence
    reference: greet@production
    payload: {}
    error: missing
    names: name
"""


class TestTest:
    def test_cases_of_stored_templates(self, ctxkit: Run, tmp_path: Path) -> None:
        (tmp_path / "greet.txt").write_text("Hello {{name}}!", encoding="utf-8")
        (tmp_path / "cases.yaml").write_text(CASES, encoding="utf-8")
        assert ctxkit("templates", "push", "greet", "greet.txt").code == 0
        assert ctxkit("templates", "label", "greet", "production", "1").code == 0
        done = ctxkit("templates", "test", "cases.yaml")
        assert done.out == "2 of 2 cases hold\n"
        assert done.code == 0

    def test_a_case_that_does_not_hold_fails(self, ctxkit: Run, tmp_path: Path) -> None:
        (tmp_path / "cases.yaml").write_text("cases: [{name: n, template: 'a', expect: 'b'}]", encoding="utf-8")
        done = ctxkit("templates", "test", "cases.yaml")
        assert done.code == 1
        assert "[('user', 'a')] instead of [('user', 'b')]" in done.out
        assert "0 of 1 cases hold" in done.out
        found = ctxkit("templates", "test", "cases.yaml", "--json")
        assert found.code == 1
        assert (found.json["cases"], found.json["failed"]) == (1, 1)
        assert found.json["outcomes"][0]["case"] == "n"

    def test_no_store_and_no_file(self, ctxkit: Run, tmp_path: Path) -> None:
        (tmp_path / "cases.yaml").write_text(CASES, encoding="utf-8")
        assert ctxkit("templates", "test", "cases.yaml").code != 0
        missing = ctxkit("templates", "test", "nothing.yaml")
        assert missing.code == 2
        assert "nothing.yaml" in missing.err


class TestImport:
    def test_what_can_be_pushed(self, ctxkit: Run, tmp_path: Path) -> None:
        source = "Dear {{ user.name }},\n{% for x in items %}- {{ x }}\n{% endfor %}"
        (tmp_path / "letter.j2").write_text(source, encoding="utf-8")
        done = ctxkit("templates", "import", "letter.j2", "--role", "system", "--rename", "items=lines", "--out", "out")
        assert done.code == 0, done.err
        assert "variables: lines, user" in done.out
        assert ctxkit("templates", "push", "letter", "out/letter.prompt").code == 0
        payload = '{"user": {"name": "Ann"}, "lines": ["a"]}'
        rendered = ctxkit("templates", "render", "letter", "--payload", payload, "--json")
        [message] = rendered.json
        assert message["role"] == "system"
        assert "\n- <data-" in message["content"]

    def test_a_refusal_names_reason_and_line(self, ctxkit: Run, tmp_path: Path) -> None:
        (tmp_path / "a.j2").write_text("Hi {{ name }}", encoding="utf-8")
        (tmp_path / "b.j2").write_text("Hi\n{{ name | upper }}", encoding="utf-8")
        done = ctxkit("templates", "import", "a.j2", "b.j2")
        assert done.code == 1
        assert "Hi {{name}}" in done.out
        assert "b.j2: refused: template, line 2: a filter: upper" in done.out
        found = ctxkit("templates", "import", "a.j2", "b.j2", "--json").json
        assert [row["imported"] for row in found] == [True, False]
        assert "filter" in found[1]["reason"]

    def test_wrong_usage(self, ctxkit: Run, tmp_path: Path) -> None:
        (tmp_path / "a.j2").write_text("x", encoding="utf-8")
        assert ctxkit("templates", "import", "a.j2", "--role", "history").code == 2
        assert ctxkit("templates", "import", "a.j2", "--rename", "a").code == 2
        assert ctxkit("templates", "import", "none.j2").code == 2
