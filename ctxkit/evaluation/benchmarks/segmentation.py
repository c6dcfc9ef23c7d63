"""QMSum meetings: topic segmentation beside TextTiling, and gold spans found in 2,000 tokens beside fixed windows."""

from __future__ import annotations

import gzip
import json
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ctxkit.chunking import SemanticGraphChunker, TopicSegmenter
from ctxkit.documents import Candidate, Chunk, Document, Query, Span, merge_spans
from ctxkit.errors import ConfigError
from ctxkit.evaluation.benchmarks._filling import store_documents
from ctxkit.evaluation.benchmarks._frameworks import ask
from ctxkit.evaluation.benchmarks._vectors import Kept
from ctxkit.evaluation.bootstrap import paired_bootstrap
from ctxkit.evaluation.metrics import span_recall
from ctxkit.evaluation.report import Bar, Report
from ctxkit.protocols import Embedder
from ctxkit.registry import create
from ctxkit.retrieval import Dense, Hybrid, Stretches
from ctxkit.stop_words import ENGLISH_STOP_WORDS
from ctxkit.storage import Store
from ctxkit.tokens import get_counter

__all__ = ["pk", "run", "window_diff"]

ENCODING = "cl100k_base"
ROOM = 2_000
WINDOW = 256
FEW, FEW_SEARCHED = 12, 8  # meetings of a short run
FETCHED = (110, 220)  # preferred and most tokens of a chunk that is searched for


@dataclass(frozen=True, slots=True)
class Meeting:
    """Turns one after the other; topics by their first turn; questions with the spans that answer them."""

    document: Document
    turns: list[Span]
    topics: list[int]
    questions: list[tuple[str, tuple[Span, ...]]]


def run(data: Path, *, full: bool = False, meetings: int | None = None, retrieve: int | None = None) -> Report:
    """Measure both.

    Args:
        full: all 35 meetings, and not the first twelve for topics and the first eight for spans.
        meetings: of the validation split, for segmentation; TextTiling needs some seconds for each.
        retrieve: meetings whose chunks are embedded; all 35 are a million tokens, chunks and windows together. Their
            vectors stay in the cache folder.

    Parameters were chosen on the meetings of even number; rows tell those of odd number apart as unseen.
    """
    loaded = _meetings(data)[: meetings if full or meetings else FEW]
    if retrieve is None:
        retrieve = len(loaded) if full else FEW_SEARCHED
    report = Report("segmentation", f"QMSum, {len(loaded)} meetings for topics, {min(retrieve, len(loaded))} for spans")
    _topics(report, loaded)
    if retrieve:
        _spans(report, loaded[:retrieve], create("embedder", "minilm"))
    return report


def _meetings(data: Path) -> list[Meeting]:
    path = data / "qmsum" / "val.jsonl.gz"
    if not path.is_file():
        raise ConfigError("the data file is not here", subject=str(path), remedy="Set CTXKIT_DATA to the data folder.")
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode("utf-8").splitlines()]
    return [_meeting(number, row) for number, row in enumerate(rows)]


def _meeting(number: int, row: dict[str, Any]) -> Meeting:
    turns: list[Span] = []
    text = ""
    for turn in row["meeting_transcripts"]:
        said = f"{turn['speaker']}: {turn['content']}"
        turns.append(Span(len(text), len(text) + len(said)))
        text += said + "\n\n"

    def spans(item: dict[str, Any]) -> tuple[Span, ...]:
        ranges = [(int(low), min(int(high), len(turns) - 1)) for low, high in item["relevant_text_span"]]
        return merge_spans([Span(turns[low].start, turns[high].end) for low, high in ranges if low <= high])

    topics = {int(low) for topic in row["topic_list"] for low, _ in topic["relevant_text_span"]} - {0}
    questions = [(query["query"], spans(query)) for query in row["specific_query_list"]]
    return Meeting(
        Document.from_text(text, source=f"meeting-{number}.txt"),
        turns,
        sorted(topic for topic in topics if topic < len(turns)),
        [(asked, wanted) for asked, wanted in questions if wanted],
    )


# --------------------------------------------------------------------------------------------------------- topics


def pk(reference: Sequence[int], found: Sequence[int], size: int) -> float:
    """The part of pairs of places, half a mean segment apart, of which the two disagree whether a cut is between them.

    Source: Beeferman, Berger and Lafferty, "Statistical models for text segmentation", Machine Learning 34, 1999.

    Example:
        >>> pk([2], [2], 4), pk([2], [], 4)
        (0.0, 0.3333333333333333)
    """
    reach = max(1, round(size / (len(reference) + 1) / 2))

    def cut(places: Sequence[int], low: int) -> bool:
        return bisect_right(places, low + reach) > bisect_right(places, low)

    pairs = size - reach
    return sum(cut(reference, low) != cut(found, low) for low in range(pairs)) / pairs if pairs > 0 else 0.0


def window_diff(reference: Sequence[int], found: Sequence[int], size: int) -> float:
    """The part of windows, half a mean segment long, in which the two do not have equally many cuts.

    Source: Pevzner and Hearst, "A critique and improvement of an evaluation metric for text segmentation",
        Computational Linguistics 28, 2002.

    Example:
        >>> window_diff([2], [2], 4), window_diff([2], [], 4)
        (0.0, 0.3333333333333333)
    """
    reach = max(1, round(size / (len(reference) + 1) / 2))

    def cuts(places: Sequence[int], low: int) -> int:
        return bisect_right(places, low + reach) - bisect_right(places, low)

    windows = size - reach
    differ = sum(cuts(reference, low) != cuts(found, low) for low in range(windows))
    return differ / windows if windows > 0 else 0.0


def _topics(report: Report, meetings: Sequence[Meeting]) -> None:
    segmenter = TopicSegmenter()
    systems: dict[str, list[list[int]]] = {
        "topics": [_turns(meeting, segmenter.segments(meeting.document)) for meeting in meetings],
        "no cut": [[] for _ in meetings],
        **{
            f"{parts} equal parts": [[len(m.turns) * at // parts for at in range(1, parts)] for m in meetings]
            for parts in (2, 4)
        },
    }
    texts = [meeting.document.text for meeting in meetings]
    tiled = ask("texttiling", texts=texts, stop_words=sorted(ENGLISH_STOP_WORDS))
    if tiled is None:
        report.data += "; TextTiling left out: run `make peers`"
    else:
        systems["texttiling"] = [
            _turns(meeting, [Span(*span) for span in spans]) for meeting, spans in zip(meetings, tiled, strict=True)
        ]
    scores: dict[str, dict[str, list[float]]] = {}
    for name, found in systems.items():
        scores[name] = {
            measure.__name__: [
                measure(meeting.topics, cuts, len(meeting.turns)) for meeting, cuts in zip(meetings, found, strict=True)
            ]
            for measure in (pk, window_diff)
        }
        row: dict[str, Any] = {"measure": "topics", "system": name}
        for measure_name, values in scores[name].items():
            row[measure_name] = round(statistics.fmean(values), 3)
        # Even meetings chose the price of a topic.
        row["pk_unseen"] = round(statistics.fmean(scores[name]["pk"][1::2] or [0.0]), 3)
        if name != "topics":
            for key, values in scores[name].items():
                difference = paired_bootstrap(values, scores["topics"][key])
                row[f"{key}_more"] = f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"
        row["cuts"] = round(statistics.fmean(len(cuts) for cuts in found), 1)
        report.rows.append(row)
        if name in ("texttiling", "no cut", "2 equal parts"):
            low = paired_bootstrap(scores[name]["pk"], scores["topics"]["pk"]).low
            report.bars.append(Bar.at_least(f"pk_below_{name.replace(' ', '_')}_low", low, 0.0))


def _turns(meeting: Meeting, spans: Sequence[Span]) -> list[int]:
    """The turns that spans begin with, but the first."""
    begins = [turn.start for turn in meeting.turns]
    return sorted({bisect_left(begins, span.start) for span in spans} - {0, len(begins)})


# ---------------------------------------------------------------------------------------------------------- spans


def _spans(report: Report, meetings: Sequence[Meeting], embedder: Embedder) -> None:
    counter = get_counter(ENCODING)
    low, high = FETCHED
    graph = SemanticGraphChunker(counter=counter, preferred_tokens=low, max_tokens=high, context_tokens=0)
    keeping = Kept(embedder)
    recalls: dict[str, list[float]] = {}
    unseen: list[bool] = []
    for number, meeting in enumerate(meetings):
        unseen += [number % 2 == 1] * len(meeting.questions)
        fixed = [Chunk.of(meeting.document, span, tokens) for span, tokens in _windows(meeting.document.text)]
        for name, chunks in (("fixed windows", fixed), ("graph chunks", list(graph.chunk(meeting.document)))):
            for system, values in _recalls(meeting, chunks, keeping).items():
                recalls.setdefault(f"{name}, {system}", []).extend(values)
    ours, base = np.array(recalls["graph chunks, hybrid, stretches"]), np.array(recalls["fixed windows, dense"])
    held_out = np.array(unseen)
    for name, values in recalls.items():
        each = np.array(values)
        row = {"measure": "spans", "system": name, "recall": _percent(each), "questions": len(values)}
        if held_out.any():
            row["recall_unseen"] = _percent(each[held_out])
            row["questions_unseen"] = int(held_out.sum())
        row["times_fixed"] = round(_ratio(each, base), 2)
        row["ours_more"] = "{:+.3f} [{:+.3f}, {:+.3f}]".format(*paired_bootstrap(ours, each))
        report.rows.append(row)
    report.bars.append(Bar.at_least("span_recall_times_fixed", _ratio(ours, base), 1.3))
    if held_out.any():
        ratio = _ratio(ours[held_out], base[held_out])
        report.bars.append(Bar.at_least("span_recall_times_fixed_unseen", ratio, 1.3))


def _percent(values: Any) -> float:
    return round(100 * float(values.mean()), 1)


def _ratio(ours: Any, base: Any) -> float:
    return float(ours.mean() / base.mean())


def _recalls(meeting: Meeting, chunks: Sequence[Chunk], embedder: Embedder) -> dict[str, list[float]]:
    """For each question the part of its spans in 2,000 tokens, by how its meeting's chunks are ordered."""
    found: dict[str, list[float]] = {}
    with Store.open("sqlite://") as store:
        store_documents(store, [(meeting.document, chunks)], embedder)
        hybrid = Hybrid(store, embedder, join=False, depth=len(chunks))
        dense = Dense(store, embedder)
        stretches = Stretches()
        for text, wanted in meeting.questions:
            query = Query(text, tenant=store.tenant)
            both = hybrid.retrieve(query, len(chunks))
            ranked = {
                "dense": dense.retrieve(query, len(chunks)),
                "hybrid": both,
                "hybrid, stretches": stretches(query, both),
            }
            for system, candidates in ranked.items():
                recall = span_recall({"": _filled(candidates)}, {"": wanted})
                found.setdefault(system, []).append(recall)
    return found


def _windows(text: str) -> list[tuple[Span, int]]:
    """Windows of 256 tokens, one after the other."""
    counter = get_counter(ENCODING)
    ids = counter.encode(text)
    found: list[tuple[Span, int]] = []
    position = 0
    for at in range(0, len(ids), WINDOW):
        part = ids[at : at + WINDOW]
        end = position + len(counter.decode(part).replace("\ufffd", ""))
        found.append((Span(position, min(end, len(text))), len(part)))
        position = end
    return found


def _filled(candidates: Sequence[Candidate]) -> list[Span]:
    """The best chunks that fit into the room, the last one in part."""
    found: list[Span] = []
    room = ROOM
    for candidate in candidates:
        span, tokens = candidate.chunk.span, candidate.chunk.token_count
        if tokens > room:
            found.append(Span(span.start, span.start + span.length * room // tokens))
            break
        found.append(span)
        room -= tokens
    return found
