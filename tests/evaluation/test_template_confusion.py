"""What counts as confused, in the comparison of template libraries."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ctxkit.evaluation.benchmarks import templates as bench
from ctxkit.templates.conformance import Case, load_cases

SUITE = Path(__file__).parents[1] / "conformance"


def case(**fields: Any) -> bench._PeerCase:
    found = bench._for_peers(
        Case(
            name="n",
            template=[{"role": "system", "content": "P: {{policy}}"}, {"role": "user", "content": "{{note}}"}],
            payload={"policy": "SECRET", "note": "a {{policy}}"},
            **fields,
        )
    )
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ([["system", "P: SECRET"], ["user", "a {{policy}}"]], set()),
        ([["system", "P: SECRET"], ["user", "a SECRET"]], {"expanded twice"}),
        ([["system", "P: SECRET"], ["user", "a {policy}"]], {"altered"}),
        ([["system", "P: SECRET"], ["user", "a "], ["system", "x"]], {"role opened"}),
        ([["user", "P: SECRET"], ["user", "a {{policy}}"]], {"role opened"}),
    ],
)
def test_messages_are_judged(messages: list[list[str]], found: set[str]) -> None:
    assert bench._judge(case(expect=""), {"messages": messages}) == found


def test_errors_are_judged() -> None:
    assert bench._judge(case(expect=""), {"error": "x"}) == {"crash on data"}
    assert bench._judge(case(error="missing"), {"error": "x"}) == set()
    assert bench._judge(case(error="missing"), {"messages": []}) == {"missing silent"}
    assert bench._judge(case(error="unexpected"), {"messages": []}) == {"unexpected silent"}
    assert bench._judge(case(expect=""), None) == {"left out"}


def test_most_of_the_corpus_can_be_asked_of_anybody() -> None:
    asked = [found for case in load_cases(SUITE) if (found := bench._for_peers(case)) is not None]
    assert len(asked) >= 100
    assert {found.error for found in asked} == {"", "missing", "unexpected"}
    assert all(bench._judge(found, bench._ours(found.to_json(turned=True))) == set() for found in asked)
    assert bench._ours(bench._ATTRIBUTE).keys() == {"error"}
    assert bench._says(bench._our_past(), "What is {{policy}} and {policy}?") == 1


def test_the_script_of_the_peers_answers() -> None:
    """Run here, with the peers that this environment has."""
    script = Path(bench.__file__).with_name("_template_peers.py")
    asked = [case(expect="").to_json(turned=False), bench._ATTRIBUTE, bench._PAST]
    code = (
        "import runpy, sys; module = runpy.run_path(sys.argv[1]); peers = module['PEERS'];"
        "[peers.pop(name) for name in list(peers) if name not in ('str.format', 'jinja2 sandboxed')];"
        "module['main']()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(script)], input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    answers = {name.split(" 3")[0]: results for name, results in json.loads(done.stdout).items()}
    assert answers["str.format"][0] == {"messages": [["system", "P: SECRET"], ["user", "a {{policy}}"]]}
    assert "<class" in answers["str.format"][1]["messages"][0][1]
    assert "<class" not in answers["jinja2 sandboxed"][1]["messages"][0][1]
    assert [results[2] for results in answers.values()] == [None, None]
