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
from ctxkit.documents import Document, Span, merge_spans
from ctxkit.errors import ConfigError
from ctxkit.evaluation.benchmarks._frameworks import ask
from ctxkit.evaluation.benchmarks._vectors import vectors_of
from ctxkit.evaluation.bootstrap import paired_bootstrap
from ctxkit.evaluation.metrics import span_recall
from ctxkit.evaluation.report import Bar, Report
from ctxkit.protocols import Embedder
from ctxkit.registry import create
from ctxkit.stop_words import ENGLISH_STOP_WORDS
from ctxkit.storage import index_text
from ctxkit.tokens import get_counter

__all__ = ["pk", "run", "window_diff"]

ENCODING = "cl100k_base"
ROOM = 2_000
WINDOW = 256
FETCHED = (110, 220)  # preferred and most tokens of a chunk that is searched for
NEIGHBOURS = 4  # chunks on either side that a chunk's score is averaged with


@dataclass(frozen=True, slots=True)
class Meeting:
    """Turns one after the other; topics by their first turn; questions with the spans that answer them."""

    document: Document
    turns: list[Span]
    topics: list[int]
    questions: list[tuple[str, tuple[Span, ...]]]


def run(data: Path, *, meetings: int = 35, retrieve: int = 6) -> Report:
    """Measure both.

    Args:
        meetings: of the validation split, for segmentation.
        retrieve: meetings whose chunks are embedded; all 35 are 0.8 million tokens.
    """
    loaded = _meetings(data)[:meetings]
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
    systems = {
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
    graph = SemanticGraphChunker(counter=counter, preferred_tokens=low, max_tokens=high)
    recalls: dict[str, list[float]] = {}
    for meeting in meetings:
        text = meeting.document.text
        chunks = list(graph.chunk(meeting.document))
        cut = [(chunk.span, chunk.token_count) for chunk in chunks]
        fixed = _windows(text)
        asked = vectors_of(embedder, [question for question, _ in meeting.questions])
        plain = asked @ vectors_of(embedder, [span.slice(text) for span, _ in fixed]).T
        said = vectors_of(embedder, [index_text("", (), chunk.text, chunk.context) for chunk in chunks])
        near = _smoothed(asked @ said.T)
        for number, (_, wanted) in enumerate(meeting.questions):
            for name, pieces, scores in (("fixed windows", fixed, plain), ("graph", cut, near)):
                found = _filled(pieces, scores[number])
                recalls.setdefault(name, []).append(span_recall({"": found}, {"": wanted}))
    for name, values in recalls.items():
        mean = round(100 * statistics.fmean(values), 1)
        report.rows.append({"measure": "spans", "system": name, "recall": mean, "questions": len(values)})
    ratio = statistics.fmean(recalls["graph"]) / statistics.fmean(recalls["fixed windows"])
    report.bars.append(Bar.at_least("span_recall_times_fixed", ratio, 1.3))


def _smoothed(scores: Any) -> Any:
    """Each chunk's mean with its neighbours: an answer in a meeting is a stretch of it."""
    kernel = np.ones(2 * NEIGHBOURS + 1)
    parts = np.convolve(np.ones(scores.shape[1]), kernel, "same")
    return np.stack([np.convolve(row, kernel, "same") / parts for row in scores])


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


def _filled(pieces: Sequence[tuple[Span, int]], scores: Any) -> list[Span]:
    """The best pieces that fit into the room, the last one in part."""
    found: list[Span] = []
    room = ROOM
    for at in np.argsort(-np.asarray(scores), kind="stable"):
        span, tokens = pieces[int(at)]
        if tokens > room:
            found.append(Span(span.start, span.start + span.length * room // tokens))
            break
        found.append(span)
        room -= tokens
    return found
