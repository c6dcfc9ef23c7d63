"""Time decay: where newer is better, where it is not, and what dates in the question do instead."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from ctxkit.documents import Candidate, Chunk, Document, Query, Span
from ctxkit.errors import ConfigError
from ctxkit.evaluation.bootstrap import paired_bootstrap
from ctxkit.evaluation.conversations import named_messages
from ctxkit.evaluation.locomo import Conversation
from ctxkit.evaluation.peers import peer_python
from ctxkit.evaluation.report import Bar, Report
from ctxkit.evaluation.state_union import Speech, speeches, topics
from ctxkit.protocols import Embedder
from ctxkit.recall import HistoryRetriever, Ranking, dates_in
from ctxkit.reranking import TimeDecay
from ctxkit.retrieval import Lexical
from ctxkit.storage import Store

__all__ = ["measure"]

_WORKER = Path(__file__).with_name("_decay_worker.py")
_CANDIDATES = 100
_YEAR = timedelta(days=365.25)
SPEECHES = (timedelta(days=91), _YEAR, 2 * _YEAR, 5 * _YEAR, 10 * _YEAR, 20 * _YEAR, 40 * _YEAR, 80 * _YEAR)
TURNS = (timedelta(days=7), timedelta(days=30), timedelta(days=91), _YEAR, 5 * _YEAR)
DEFAULT_RATE = 0.01
"""LangChain's, an hour."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question with what was found for it, and which of that is right."""

    query: Query
    found: tuple[Candidate, ...]
    right: frozenset[str]


def measure(report: Report, data: Path, conversations: Sequence[Conversation], embedder: Embedder | None) -> None:
    """The half-life curve on three sets, beside no decay and LangChain's retriever over the same scores."""
    newest, first = _of_speeches(speeches(data))
    turns, dated = _of_turns(conversations, embedder)
    for name, asked, half_lives in (
        ("state_union, newest", newest, SPEECHES),
        ("state_union, first", first, SPEECHES),
        ("locomo, temporal", turns, TURNS),
    ):
        plain = _scored([_order(one.found) for one in asked], asked)
        _row(report, name, "no decay", plain)
        ours = {half_life: _decayed(asked, TimeDecay(half_life=half_life)) for half_life in half_lives}
        for half_life, values in ours.items():
            _row(report, name, f"half-life {half_life.days:,} days", values)
        _row(report, name, "half-life a year, floor .5", _decayed(asked, TimeDecay(half_life=_YEAR, floor=0.5)))
        theirs = _langchain(asked, half_lives)
        for label, values in theirs.items():
            _row(report, name, label, values)
        if name == "locomo, temporal":
            _row(report, name, "dates in the question", _scored([_order(one.found) for one in dated], dated))
            _dated_rows(report, turns, dated)
        elif name == "state_union, newest":
            _bars(report, plain, ours, theirs)
    if peer_python("frameworks") is None:
        report.rows.append({"measure": "decay", "system": "LangChain is left out: `make peers` makes its environment"})


def _decayed(asked: Sequence[Asked], stage: TimeDecay) -> Any:
    return _scored([_order(stage(one.query, one.found)) for one in asked], asked)


def _bars(report: Report, plain: Any, ours: Mapping[timedelta, Any], theirs: Mapping[str, Any]) -> None:
    """Half-life and rate are each chosen by MRR on every second topic, and compared on the others."""

    def best(curve: Mapping[Any, Any]) -> Any:
        return max(curve, key=lambda key: (curve[key][::2, 1].mean(), str(key)))

    chosen = best(ours)
    peers = {"langchain_default": theirs[_DEFAULT], "langchain_best": theirs[best(theirs)]} if theirs else {}
    _row(report, "state_union, newest, the other half", "no decay", plain[1::2])
    _row(report, "state_union, newest, the other half", f"half-life {chosen.days:,} days, chosen", ours[chosen][1::2])
    if theirs:
        _row(report, "state_union, newest, the other half", f"{best(theirs)}, chosen", theirs[best(theirs)][1::2])
    for at, label in enumerate(("recall3", "mrr")):
        for other, values in {"no_decay": plain, **peers}.items():
            gain = paired_bootstrap(100 * ours[chosen][1::2, at], 100 * values[1::2, at])
            report.bars.append(Bar.at_least(f"decay_{label}_over_{other}_low", gain.low, 0.0))


def _row(report: Report, name: str, system: str, values: Any) -> None:
    recall, reciprocal = 100 * values.mean(axis=0) if len(values) else (0.0, 0.0)
    report.rows.append(
        {
            "measure": "decay",
            "set": name,
            "system": system,
            "questions": len(values),
            "Recall@3": round(float(recall), 1),
            "MRR": round(float(reciprocal), 1),
        }
    )


def _dated_rows(report: Report, turns: Sequence[Asked], dated: Sequence[Asked]) -> None:
    """The temporal questions that name a date, apart from those that ask for one."""
    for label, wanted in (("that name a date", True), ("that name none", False)):
        chosen = [at for at, one in enumerate(turns) if bool(dates_in(one.query.text, _now(one))) is wanted]
        for system, asked in (("no decay", turns), ("dates in the question", dated)):
            some = [asked[at] for at in chosen]
            _row(report, f"locomo, temporal, {label}", system, _scored([_order(one.found) for one in some], some))
        some = [turns[at] for at in chosen]
        orders = [_order(TimeDecay(half_life=_YEAR)(one.query, one.found)) for one in some]
        _row(report, f"locomo, temporal, {label}", "half-life 365 days", _scored(orders, some))


def _now(one: Asked) -> datetime:
    return one.query.now or datetime(1970, 1, 1, tzinfo=UTC)


def _order(candidates: Sequence[Candidate]) -> list[str]:
    return [candidate.chunk.id for candidate in candidates]


def _scored(orders: Sequence[Sequence[str]], asked: Sequence[Asked]) -> Any:
    """For each question what of the right is among the first three, of at most three, and the reciprocal rank."""
    rows = []
    for order, one in zip(orders, asked, strict=True):
        among = len(one.right & set(order[:3])) / min(3, len(one.right))
        rank = next((1 / place for place, name in enumerate(order, 1) if name in one.right), 0.0)
        rows.append((among, rank))
    return np.array(rows)


def _of_speeches(said: Sequence[Speech]) -> tuple[list[Asked], list[Asked]]:
    """For each topic: what the last speech that says it says of it, and what the first one did."""
    now = datetime(2007, 1, 1, tzinfo=UTC)
    newest: list[Asked] = []
    first: list[Asked] = []
    with tempfile.TemporaryDirectory() as folder, Store.open(f"sqlite:///{folder}/speeches.db") as store:
        place_of: dict[str, tuple[int, int]] = {}
        for at, speech in enumerate(said):
            text = "\n".join(speech.paragraphs)
            document = Document.from_text(text, source=speech.name, created_at=speech.given_at)
            chunks, start = [], 0
            for place, paragraph in enumerate(speech.paragraphs):
                chunk = Chunk.of(document, Span(start, start + len(paragraph)), len(paragraph) // 4)
                place_of[chunk.id] = at, place
                chunks.append(chunk)
                start += len(paragraph) + 1
            store.documents.put(document, chunks, recipe="benchmark")
        retriever = Lexical(store)
        name_of = {place: name for name, place in place_of.items()}
        for topic in topics(said):
            query = Query(f"What about {topic.name}?", now=now)
            found = tuple(retriever.retrieve(query, _CANDIDATES))
            for asked, right in ((newest, topic.newest), (first, topic.first)):
                asked.append(Asked(query, found, frozenset(name_of[each] for each in right)))
    return newest, first


def _of_turns(conversations: Sequence[Conversation], embedder: Embedder | None) -> tuple[list[Asked], list[Asked]]:
    """LoCoMo's temporal questions, asked when the last session ends: without a look at dates, and with it."""
    undated: list[Asked] = []
    dated: list[Asked] = []
    for conversation in conversations:
        messages = named_messages(conversation)
        now = max(message.created_at for message in messages if message.created_at)
        with Store.open("sqlite://") as store:
            store.sessions.append(conversation.name, messages)
            for asked, ranking in ((undated, Ranking(floor=1.0)), (dated, Ranking())):
                retriever = HistoryRetriever(store, embedder, ranking=ranking)
                for text, category, turns in conversation.questions:
                    if category == 2:
                        query = Query(text, now=now, session=conversation.name)
                        asked.append(Asked(query, tuple(retriever.retrieve(query, _CANDIDATES)), turns))
    return undated, dated


_DEFAULT = "LangChain, its default rate"


def _langchain(asked: Sequence[Asked], half_lives: Sequence[timedelta]) -> dict[str, Any]:
    """Its retriever over the same scores: with its default rate, and with the rates that have these half-lives."""
    python = peer_python("frameworks")
    if python is None:
        return {}
    questions = [
        [(one.score, (_now(each) - _stamp(one)).total_seconds() / 3600) for one in each.found] for each in asked
    ]
    rates = {_DEFAULT: DEFAULT_RATE} | {
        f"LangChain, half-life {half_life.days:,} days": 1 - 0.5 ** (3600 / half_life.total_seconds())
        for half_life in half_lives
    }
    request = {"questions": questions, "rates": list(rates.values()), "k": _CANDIDATES}
    done = subprocess.run(
        [str(python), str(_WORKER)], input=json.dumps(request), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ConfigError("a peer failed", subject=done.stderr.strip()[-500:], remedy="Run `make peers` again.")
    found = json.loads(done.stdout)
    return {
        label: _scored(
            [[each.found[at].chunk.id for at in order] for each, order in zip(asked, orders, strict=True)], asked
        )
        for label, orders in zip(rates, found, strict=True)
    }


def _stamp(candidate: Candidate) -> datetime:
    return datetime.fromisoformat(str(candidate.chunk.metadata["created_at"]))
