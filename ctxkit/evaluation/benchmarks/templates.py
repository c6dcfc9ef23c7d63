"""Templates: who is confused by what, Jinja templates imported, and the renderer's speed beside Jinja's."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ctxkit.errors import ConfigError, CtxkitError
from ctxkit.evaluation import prompt_collections
from ctxkit.evaluation.peers import peer_python
from ctxkit.evaluation.report import Bar, Report
from ctxkit.settings import require
from ctxkit.templates import Template
from ctxkit.templates.conformance import Case, load_cases, run_case
from ctxkit.templates.language import Literal, Value

__all__ = ["run"]

COLUMNS = (
    "expanded twice",
    "role opened",
    "altered",
    "crash on data",
    "missing silent",
    "unexpected silent",
    "attributes reached",
    "past turn expanded",
)
_ATTRIBUTE: dict[str, Any] = {
    "messages": [["user", [["text", "Hi "], ["slot", "a.__class__"]]]],
    "payload": {"a": "x"},
}
_PAST: dict[str, Any] = {
    "messages": [
        ["system", [["text", "Policy: "], ["slot", "policy"]]],
        ["history", []],
        ["user", [["text", "Go on."]]],
    ],
    "payload": {"policy": "SECRET"},
    "history": "What is {{policy}} and {policy}?",
}


def run(data: Path, *, suite: str = "tests/conformance", rounds: int = 9, batch: int = 20) -> Report:
    """Measure everything; half a minute.

    Args:
        suite: the folder of the conformance suite.
        rounds: how often each timing is repeated; both sides take turns, and the median counts. Timings are processor
            time, so that a busy machine does not decide.
        batch: renderings of one template in a row.
    """
    folder = Path(suite)
    if not folder.is_dir():
        raise ConfigError("the conformance suite is not here", subject=suite, remedy="Run it in ctxkit's repository.")
    cases = load_cases(folder)
    report = Report("templates", f"{len(cases)} conformance cases; 2,085 Jinja templates and four other collections")
    held = sum(run_case(case).passed for case in cases)
    report.bars.append(Bar.at_least("conformance cases that hold", held, len(cases)))
    _confusion(report, cases)
    pairs = _imports(report, data)
    _speed(report, pairs, rounds, batch)
    _throughput(report, rounds)
    return report


@dataclass(slots=True)
class _PeerCase:
    """A case that any template language can write: texts and slots of texts."""

    messages: list[tuple[str, list[tuple[str, str]]]]
    payload: dict[str, str]
    error: str = ""
    expected: list[tuple[str, list[str]]] = field(default_factory=list)

    def to_json(self, *, turned: bool) -> dict[str, Any]:
        items = list(self.payload.items())
        return {"messages": self.messages, "payload": dict(reversed(items) if turned else items)}


def _confusion(report: Report, cases: Sequence[Case]) -> None:
    shared = [found for case in cases if (found := _for_peers(case)) is not None]
    sent = [case.to_json(turned=turned) for turned in (False, True) for case in shared]
    answers = {"ctxkit": [*map(_ours, sent), _ours(_ATTRIBUTE), _our_past()]}
    python = peer_python("registries")
    if python is None:
        report.data += "; without the peers (`make peers`)"
    else:
        script = Path(__file__).with_name("_template_peers.py")
        done = subprocess.run(
            [str(python), str(script)],
            input=json.dumps([*sent, _ATTRIBUTE, _PAST]),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ConfigError("the peers failed", subject=done.stderr[-300:], remedy="Run make peers.")
        answers |= json.loads(done.stdout)
    for name, results in answers.items():
        half = len(shared)
        judged = [
            set().union(*(_judge(case, result) for result in (results[index], results[index + half])))
            for index, case in enumerate(shared)
        ]
        counts: Counter[str] = Counter(column for found in judged for column in found)
        counts["attributes reached"] = _says(results[-2], "<class")
        counts["past turn expanded"] = _says(results[-1], "What is SECRET", "and SECRET")
        asked = sum("left out" not in found for found in judged)
        report.rows.append(
            {"measure": "confusion", "library": name, "cases": asked, **{column: counts[column] for column in COLUMNS}}
        )
        if name == "ctxkit":
            report.bars.append(Bar.at_most("ctxkit confused", sum(counts[column] for column in COLUMNS), 0))


def _for_peers(case: Case) -> _PeerCase | None:
    """The case, where it uses nothing that some peer has not; None elsewhere."""
    if case.includes or case.reference or case.schema or case.json is not None or not isinstance(case.payload, dict):
        return None
    if case.error not in ("", "missing", "unexpected") or not all(isinstance(v, str) for v in case.payload.values()):
        return None
    try:
        template = Template.parse(case.template or "", slots=case.slots)
    except CtxkitError:
        return None
    messages: list[tuple[str, list[tuple[str, str]]]] = []
    expected: list[tuple[str, list[str]]] = []
    for message in template.messages:
        parts: list[tuple[str, str]] = []
        for node in message.nodes:
            if isinstance(node, Literal):
                parts.append(("text", node.text))
            elif isinstance(node, Value) and len(node.path.keys) == 1 and not node.path.relative:
                parts.append(("slot", node.path.keys[0]))
            else:
                return None
        if message.role == "history" or any(kind == "slot" and name in ("context", "question") for kind, name in parts):
            return None
        messages.append((message.role, parts))
        expected.append(
            (message.role, [case.payload.get(name, "") if kind == "slot" else name for kind, name in parts])
        )
    return _PeerCase(messages, case.payload, case.error, expected)


def _ours(case: dict[str, Any]) -> dict[str, Any]:
    """The same through ctxkit, all slots trusted, so that values stand without fences."""
    source = [
        {
            "role": role,
            "content": "".join(_escaped(text) if kind == "text" else f"{{{{{text}}}}}" for kind, text in parts),
        }
        for role, parts in case["messages"]
    ]
    names = {text for _, parts in case["messages"] for kind, text in parts if kind == "slot" and "." not in text}
    try:
        template = Template.parse(source, slots=dict.fromkeys(sorted(names), "trusted"))
        return {"messages": [(message.role, message.text) for message in template.render(case["payload"])]}
    except CtxkitError as error:
        return {"error": str(error)}


def _our_past() -> dict[str, Any]:
    from ctxkit.assembly import assemble
    from ctxkit.documents import Query
    from ctxkit.history import TailWindow
    from ctxkit.messages import Message
    from ctxkit.models import get_chat_counter
    from ctxkit.prompts import Budget

    prompt = assemble(
        Query("Go on."),
        template=Template.parse("--- system ---\nPolicy: {{policy}}\n--- history ---\n--- user ---\n{{question}}\n"),
        payload={"policy": "SECRET"},
        history=[Message("user", str(_PAST["history"])), Message("assistant", "Hm.")],
        candidates=[],
        budget=Budget(2_000, reserve_output=100),
        counter=get_chat_counter("openai:gpt-4o"),
        window=TailWindow(),
    )
    return {"messages": [(message["role"], message["content"]) for message in prompt.messages]}


def _says(result: dict[str, Any] | None, *texts: str) -> int:
    """1 where a message holds one of the texts."""
    messages = result.get("messages", ()) if result else ()
    return int(any(wanted in text for _, text in messages for wanted in texts))


def _escaped(text: str) -> str:
    return text.replace("{", '{{"{"}}')


def _judge(case: _PeerCase, result: dict[str, Any] | None) -> set[str]:
    if result is None:
        return {"left out"}
    if case.error:
        return set() if "error" in result else {f"{case.error} silent"}
    if "error" in result:
        return {"crash on data"}
    got = [(role, text) for role, text in result["messages"]]
    if [role for role, _ in got] != [role for role, _ in case.expected]:
        # A peer may leave out a message that says nothing.
        if [role for role, _ in got] == [role for role, parts in case.expected if "".join(parts).strip()]:
            return set()
        return {"role opened"}
    found = set()
    for (_, text), (_, parts) in zip(got, case.expected, strict=True):
        if "SECRET" in text and text.count("SECRET") > "".join(parts).count("SECRET"):
            found.add("expanded twice")
        elif any(part not in text for part in parts if part.strip()):
            found.add("altered")
    return found


@dataclass(slots=True)
class _Pair:
    ours: Template
    fenced: Template
    theirs: Any
    payload: dict[str, Any]


def _imports(report: Report, data: Path) -> list[_Pair]:
    sandbox = require("jinja2.sandbox", extra="jinja").SandboxedEnvironment()
    reasons: Counter[str] = Counter()
    pairs: list[_Pair] = []
    crashed = different = 0
    for name, sources in prompt_collections.collections(data).items():
        imported = same = 0
        for source in sources:
            try:
                template = Template.from_jinja(source)
            except CtxkitError as error:
                reasons[error.message.split(":")[0].removesuffix(" has no form here")] += 1
                continue
            except Exception:
                crashed += 1
                continue
            imported += 1
            slots = {key: f"{slot.type} trusted" for key, slot in template.variables.items()}
            trusted = Template.from_jinja(source, slots=slots)
            theirs = sandbox.from_string(source)
            payloads = [prompt_collections.payload(template, seed) for seed in range(4)]
            fits = [theirs.render(p) == trusted.render(p, well_known=())[0].text for p in payloads]
            same += all(fits)
            different += not all(fits)
            if name == "promptsource":
                pairs.append(_Pair(trusted, template, theirs, payloads[0]))
        report.rows.append(
            {
                "measure": "import",
                "collection": name,
                "templates": len(sources),
                "imported": imported,
                "same text as Jinja": same,
            }
        )
    report.rows += [
        {"measure": "refused", "reason": reason, "templates": count} for reason, count in reasons.most_common()
    ]
    report.bars.append(Bar.at_most("imports that crash", crashed, 0))
    report.bars.append(Bar.at_most("imports that render another text than Jinja", different, 0))
    return pairs


def _speed(report: Report, pairs: Sequence[_Pair], rounds: int, batch: int) -> None:
    ratios: dict[str, list[float]] = {"trusted": [], "fenced": []}
    totals = {"jinja": 0.0, "trusted": 0.0, "fenced": 0.0}
    nothing = frozenset[str]()
    for pair in pairs:
        sides: dict[str, Callable[[], Any]] = {
            "jinja": partial(pair.theirs.render, pair.payload),
            "trusted": partial(pair.ours.render, pair.payload, well_known=nothing),
            "fenced": partial(pair.fenced.render, pair.payload, well_known=nothing),
        }
        times = _in_turns(sides, rounds, batch)
        for side, found in times.items():
            totals[side] += found
        for side, values in ratios.items():
            values.append(times["jinja"] / times[side])
    for side, values in ratios.items():
        report.rows.append(
            {
                "measure": "render",
                "text": "the same text" if side == "trusted" else "with a fence around each value",
                "times Jinja, median": round(statistics.median(values), 2),
                "least": round(min(values), 2),
                "all templates": round(totals["jinja"] / totals[side], 2),
            }
        )
    report.bars.append(Bar.at_least("times as fast as sandboxed Jinja", statistics.median(ratios["trusted"]), 3))


def _throughput(report: Report, rounds: int) -> None:
    texts = {
        "ASCII": "some plain words of a long document. " * 300_000,
        "accents": "größere Wörter über Öl und Äpfel. " * 300_000,
        "Chinese": "这是一个很长的句子，没有别的意思。" * 300_000,
    }
    slowest = float("inf")
    for name, text in texts.items():
        size = len(text.encode()) / 1e6
        for trust in ("trusted", "untrusted"):
            template = Template.parse("Read this: {{text}} Then answer.", slots={"text": trust})
            times = _in_turns({name: partial(template.render, {"text": text})}, rounds, 1)
            speed = size / times[name]
            slowest = min(slowest, speed)
            report.rows.append({"measure": "throughput", "text": name, "slot": trust, "MB/s": round(speed)})
    report.bars.append(Bar.at_least("MB/s of payload text, the slowest", slowest, 200))


def _in_turns(sides: dict[str, Callable[[], Any]], rounds: int, batch: int) -> dict[str, float]:
    """Seconds of processor time of one call, for each side the median of its turns."""
    times: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, call in sides.items():
            started = time.process_time()
            for _ in range(batch):
                call()
            times[side].append((time.process_time() - started) / batch)
    return {side: max(statistics.median(found), sys.float_info.epsilon) for side, found in times.items()}
