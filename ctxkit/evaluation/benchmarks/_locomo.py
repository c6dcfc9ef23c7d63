"""LoCoMo: the part of the turns that answer a question among the turns that fit into 1,000 tokens."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.documents import Chunk, Document, Query, Span
from ctxkit.evaluation.benchmarks._filling import Remembering, store_documents
from ctxkit.evaluation.bootstrap import paired_bootstrap
from ctxkit.evaluation.conversations import named_messages
from ctxkit.evaluation.locomo import CATEGORIES, Conversation, Turn, conversations
from ctxkit.evaluation.metrics import mean
from ctxkit.evaluation.report import Bar, Report
from ctxkit.protocols import Embedder, Stage
from ctxkit.recall import HistoryRetriever
from ctxkit.retrieval import Graph, Hybrid, Neighbourhood, reciprocal_rank
from ctxkit.storage import Store
from ctxkit.tokens import get_counter

__all__ = [
    "PLAIN",
    "SYSTEMS",
    "TUNED",
    "TURN",
    "Once",
    "evidence",
    "fill",
    "measure",
    "rankings",
    "recalled",
    "within",
]

TOKENS = 1_000
TURN = 4
"""Tokens that a turn costs beside its own."""
TUNED = 3
"""The first three conversations are those that parameters were chosen on."""
FOUND = 80
"""Turns; a thousand tokens hold about forty."""

Parts = tuple[Hybrid, Stage | None]
PLAIN = "hybrid without graph, with neighbours"
FULL = "with neighbourhood"
RECALL = "recall over the dialogue"


def _hybrid(store: Store, embedder: Embedder, depth: int, **parts: Any) -> Hybrid:
    return Hybrid(store, embedder, join=False, depth=depth, **parts)


def _without(store: Store, embedder: Embedder, depth: int, **parts: Any) -> Hybrid:
    return _hybrid(store, embedder, depth, weights={"dense": 1, "lexical": 1}, **parts)


def _beside(store: Store) -> Stage:
    """What stands beside a candidate, and nothing that the graph says."""
    return Neighbourhood(store, shared=0, about=0)


SYSTEMS: Mapping[str, Callable[[Store, Embedder, int], Parts]] = {
    "reciprocal rank, constant 10, with neighbours": lambda store, embedder, depth: (
        _without(store, embedder, depth, fusion=partial(reciprocal_rank, constant=10.0)),
        _beside(store),
    ),
    "hybrid without graph": lambda store, embedder, depth: (_without(store, embedder, depth), None),
    PLAIN: lambda store, embedder, depth: (_without(store, embedder, depth), _beside(store)),
    "graph, names in the question alone": lambda store, embedder, depth: (
        _hybrid(store, embedder, depth, graph=Graph(store, hits=0)),
        None,
    ),
    "graph, hits alone": lambda store, embedder, depth: (
        _hybrid(store, embedder, depth, graph=Graph(store, names_weight=0, subject=0)),
        None,
    ),
    "graph": lambda store, embedder, depth: (_hybrid(store, embedder, depth), None),
    FULL: lambda store, embedder, depth: (_hybrid(store, embedder, depth), Neighbourhood(store)),
}


def measure(report: Report, data: Path, embedder: Embedder, *, folder: Path | None = None) -> None:
    """Every system on the seven conversations; rows by system, percent by category."""
    counter = get_counter("cl100k_base")
    embedder = Once(embedder)
    recalls: dict[str, list[float]] = {name: [] for name in (*SYSTEMS, RECALL)}
    categories: list[int] = []
    held_out: list[bool] = []
    with tempfile.TemporaryDirectory() as temporary:
        for number, conversation in enumerate(conversations(data)):
            path = (folder or Path(temporary)) / f"{conversation.name}.db"
            with Store.open(f"sqlite:///{path}") as store:
                fill(store, conversation, embedder)
                costs = {turn.id: counter.count(turn.text) + TURN for turn in conversation.turns}
                asked = Remembering(embedder, [text for text, _, _ in conversation.questions])
                for name, make in SYSTEMS.items():
                    recalls[name] += evidence(store, make(store, asked, FOUND), conversation, costs)
                store.sessions.append(conversation.name, named_messages(conversation))
                HistoryRetriever(store, embedder).update(conversation.name)
                recalls[RECALL] += _recall(HistoryRetriever(store, asked), conversation, costs)
                categories += [category for _, category, _ in conversation.questions]
                held_out += [number >= TUNED] * len(conversation.questions)
    kind, unseen = np.array(categories), np.array(held_out)
    for name, values in recalls.items():
        row: dict[str, Any] = {"set": "locomo", "system": name, "recall": _percent(values, kind > 0)}
        row |= {label: _percent(values, kind == category) for category, label in CATEGORIES.items()}
        row |= {"unseen": _percent(values, unseen), "unseen_multi-hop": _percent(values, unseen & (kind == 1))}
        report.rows.append(row)
    _bars(report, {name: np.array(values) for name, values in recalls.items()}, kind)


def _bars(report: Report, recalls: Mapping[str, Any], kind: Any) -> None:
    overall = paired_bootstrap(100 * recalls[FULL], 100 * recalls[PLAIN])
    report.bars.append(Bar.at_least("locomo_recall", 100 * recalls[FULL].mean(), 81.3))
    report.bars.append(Bar.at_least("locomo_gain_over_plain_low", overall.low, 0.0))
    several = 100 * recalls[FULL][kind == 1]
    report.bars.append(Bar.at_least("locomo_multi_hop", several.mean(), 55.5))
    plain = 100 * recalls[PLAIN][kind == 1]
    for name, key in ((FULL, "gain_over_plain"), (RECALL, "gain_of_recall_over_plain")):
        gain = paired_bootstrap(100 * recalls[name][kind == 1], plain)
        report.rows.append(
            {
                "set": "locomo",
                "system": f"multi-hop: {name} over {PLAIN}",
                "multi-hop": f"{gain.mean:.1f} ({gain.low:.1f} to {gain.high:.1f})",
            }
        )
        report.bars.append(Bar.at_least(f"locomo_multi_hop_{key}", gain.mean, 8.0))


def fill(store: Store, conversation: Conversation, embedder: Embedder) -> None:
    """A document for each session, a chunk for each turn."""
    items = [(document, _chunks(document, turns)) for document, turns in conversation.documents()]
    store_documents(store, items, embedder)


def _chunks(document: Document, turns: Sequence[Turn]) -> list[Chunk]:
    chunks, position = [], 0
    for turn in turns:
        span = Span(position, position + len(turn.text))
        chunks.append(Chunk.of(document, span, get_counter("cl100k_base").count(turn.text) + TURN))
        position = span.end + 1
    return chunks


def evidence(store: Store, parts: Parts, conversation: Conversation, costs: Mapping[str, int]) -> list[float]:
    """For each question the part of its turns among those that fit, taken in the order of their rank."""
    return [
        len(wanted & within(order, costs, TOKENS)) / len(wanted)
        for order, (_, _, wanted) in zip(
            rankings(store, parts, conversation, FOUND), conversation.questions, strict=True
        )
    ]


class Once:
    """An embedder that embeds a text once, whoever asks for it."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, NDArray[np.float32]] = {}
        self.dimension, self.fingerprint = embedder.dimension, embedder.fingerprint

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known.update(zip(new, self._embedder.embed(new), strict=True))
        return np.stack([self._known[text] for text in texts]) if texts else self._embedder.embed([])


def _recall(retriever: HistoryRetriever, conversation: Conversation, costs: Mapping[str, int]) -> list[float]:
    """The same of recall over the turns as the messages of a session, with their names and times."""
    found = recalled(retriever, conversation)
    return [
        len(wanted & within(order, costs, TOKENS)) / len(wanted)
        for order, (_, _, wanted) in zip(found, conversation.questions, strict=True)
    ]


def recalled(retriever: HistoryRetriever, conversation: Conversation) -> list[list[str]]:
    """For each question the ids of the turns, best first; asked when the last session ends."""
    messages = retriever.store.sessions.messages(conversation.name)
    orders = []
    for text, _, _ in conversation.questions:
        entries, ranked = retriever.rank(conversation.name, messages, text, None)
        orders.append([entries[at].id for at in ranked.order().tolist()])
    return orders


def within(order: Sequence[str], costs: Mapping[str, int], tokens: int) -> set[str]:
    """The turns that fit, taken in this order; one that does not fit is passed over."""
    taken: set[str] = set()
    for turn in order:
        if costs[turn] <= tokens:
            tokens -= costs[turn]
            taken.add(turn)
    return taken


def rankings(store: Store, parts: Parts, conversation: Conversation, depth: int) -> list[list[str]]:
    """For each question the ids of the turns that are found, best first."""
    retriever, stage = parts
    turn_at = {
        (document.id, chunk.span.start): turn.id
        for document, turns in conversation.documents()
        for turn, chunk in zip(turns, _chunks(document, turns), strict=True)
    }
    chunks = store.documents.chunks(store.documents.keys())
    turn_of = {key: turn_at[chunk.document_id, chunk.span.start] for key, chunk in chunks.items()}
    orders = []
    for text, _, _ in conversation.questions:
        query = Query(text, tenant=store.tenant)
        if stage is None:
            ranked = retriever.rank(query, depth)[0].tolist()
        else:
            ranked = [each.chunk.metadata["key"] for each in stage(query, retriever.retrieve(query, depth))]
        orders.append([turn_of[key] for key in ranked])
    return orders


def _percent(values: Sequence[float], chosen: Any) -> float:
    return round(100 * mean(np.asarray(values)[chosen].tolist()), 1)
