"""LoCoMo: the turns that answer a question among those that fit 1,000, 2,000 and 4,000 tokens, found by recall."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ctxkit.evaluation.benchmarks import _locomo
from ctxkit.evaluation.benchmarks._filling import Remembering
from ctxkit.evaluation.benchmarks.experiments import wilson
from ctxkit.evaluation.bootstrap import paired_bootstrap
from ctxkit.evaluation.conversations import named_messages
from ctxkit.evaluation.locomo import CATEGORIES, Conversation, conversations
from ctxkit.evaluation.report import Bar, Report
from ctxkit.protocols import Embedder
from ctxkit.recall import HistoryRetriever, Ranking
from ctxkit.storage import Store
from ctxkit.tokens import get_counter

__all__ = ["BUDGETS", "measure"]

BUDGETS = (1_000, 2_000, 4_000)
TARGETS = {1_000: (86.0, 58.0), 2_000: (92.0, 74.0), 4_000: (95.0, 84.0)}
"""Percent of all questions' turns, and of multi-hop ones."""
DEPTHS = {1_000: 80, 2_000: 160, 4_000: 320}
"""Turns that a retriever of documents is asked for: twice as many as fit."""
OURS = "recall"

Made = Callable[[Store, Embedder], HistoryRetriever]
ROWS: Mapping[str, Made] = {
    OURS: lambda store, embedder: HistoryRetriever(store, embedder),
    "recall, no dates": lambda store, embedder: HistoryRetriever(store, embedder, ranking=Ranking(floor=1.0)),
    "recall, nobody asked about": lambda store, embedder: HistoryRetriever(
        store, embedder, ranking=Ranking(about=0.0, about_several=0.0)
    ),
    "recall, no cue of several": lambda store, embedder: HistoryRetriever(
        store, embedder, ranking=Ranking(about_several=Ranking().about)
    ),
    "recall, nothing beside": lambda store, embedder: HistoryRetriever(
        store, embedder, ranking=Ranking(beside=(), sitting=0.0)
    ),
    "recall, words alone": lambda store, _: HistoryRetriever(store, None),
}


def measure(
    report: Report, data: Path, embedder: Embedder, *, folder: Path | None = None, ablations: bool = True
) -> None:
    """Recall, what each part of it does, and retrieval over documents of the same turns, by budget and category."""
    embedder = _locomo.Once(embedder)
    rows = ROWS if ablations else {OURS: ROWS[OURS]}
    names = ["newest first", _locomo.PLAIN, *rows]
    shares: dict[tuple[str, int], list[float]] = {(name, budget): [] for name in names for budget in BUDGETS}
    hits: dict[tuple[str, int], int] = dict.fromkeys(shares, 0)
    categories: list[int] = []
    held_out: list[bool] = []
    wanted = 0
    with tempfile.TemporaryDirectory() as temporary:
        for number, conversation in enumerate(conversations(data)):
            path = (folder or Path(temporary)) / f"{conversation.name}.db"
            costs = costs_of(conversation)
            with Store.open(f"sqlite:///{path}") as store:
                _locomo.fill(store, conversation, embedder)
                store.sessions.append(conversation.name, named_messages(conversation))
                HistoryRetriever(store, embedder).update(conversation.name)
                asked = Remembering(embedder, [text for text, _, _ in conversation.questions])
                rankings = {
                    "newest first": [[turn.id for turn in reversed(conversation.turns)]] * len(conversation.questions),
                    **{name: _locomo.recalled(make(store, asked), conversation) for name, make in rows.items()},
                }
                for budget in BUDGETS:
                    found = dict(rankings)
                    parts = _locomo.SYSTEMS[_locomo.PLAIN](store, asked, DEPTHS[budget])
                    found[_locomo.PLAIN] = _locomo.rankings(store, parts, conversation, DEPTHS[budget])
                    for name in names:
                        for order, (_, _, turns) in zip(found[name], conversation.questions, strict=True):
                            taken = len(turns & _locomo.within(order, costs, budget))
                            shares[name, budget].append(taken / len(turns))
                            hits[name, budget] += taken
            categories += [category for _, category, _ in conversation.questions]
            wanted += sum(len(turns) for _, _, turns in conversation.questions)
            held_out += [number >= _locomo.TUNED] * len(conversation.questions)
    kind, unseen = np.array(categories), np.array(held_out)
    for name in names:
        for budget in BUDGETS:
            low, high = wilson(hits[name, budget], wanted)
            values = np.array(shares[name, budget])
            row: dict[str, Any] = {"measure": "recall", "system": name, "tokens": budget}
            row |= {"all": _percent(values), "turns": f"{100 * low:.1f} to {100 * high:.1f}"}
            row |= {label: _percent(values[kind == category]) for category, label in CATEGORIES.items()}
            row |= {"unseen": _percent(values[unseen]), "unseen_multi-hop": _percent(values[unseen & (kind == 1)])}
            report.rows.append(row)
    _bars(report, {key: 100 * np.array(values) for key, values in shares.items()}, kind)


def _bars(report: Report, shares: Mapping[tuple[str, int], Any], kind: Any) -> None:
    for budget in BUDGETS:
        ours, plain = shares[OURS, budget], shares[_locomo.PLAIN, budget]
        whole, several = TARGETS[budget]
        report.bars.append(Bar.at_least(f"recall_{budget}", float(ours.mean()), whole))
        report.bars.append(Bar.at_least(f"recall_{budget}_multi_hop", float(ours[kind == 1].mean()), several))
        for label, chosen in (("all", kind > 0), ("multi-hop", kind == 1)):
            gain = paired_bootstrap(ours[chosen], plain[chosen])
            report.rows.append(
                {
                    "measure": "recall",
                    "system": f"what recall gains over the plain hybrid with neighbours, {label}",
                    "tokens": budget,
                    "all": round(gain.mean, 1),
                    "turns": f"{gain.low:.1f} to {gain.high:.1f}",
                }
            )


def costs_of(conversation: Conversation) -> dict[str, int]:
    """The cl100k tokens of each turn with its speaker's name, and four."""
    counter = get_counter("cl100k_base")
    return {turn.id: counter.count(turn.text) + _locomo.TURN for turn in conversation.turns}


def _percent(values: Any) -> float:
    return round(100 * float(values.mean()), 1) if len(values) else 0.0
