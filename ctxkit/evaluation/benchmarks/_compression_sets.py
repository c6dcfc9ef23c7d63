"""Questions whose answers have a place in long texts: what compression must keep, in one shape."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ctxkit.chunking import RecursiveChunker
from ctxkit.documents import Candidate, Chunk, Document, Span, intersect_spans, total_length
from ctxkit.errors import ConfigError
from ctxkit.evaluation.datasets import chunking_eval as excerpts_of
from ctxkit.text import sentence_spans
from ctxkit.tokens import get_counter

__all__ = ["SETS", "Question", "kept", "load"]

PARAGRAPHS = 8
"""Of XQuAD that a question is asked of: its own, at each place in turn, and those that follow it in the set."""
CHUNK = 300
NEIGHBOURHOOD = 20
LONGEST = 16_000


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the candidates it is asked of, and the gold spans by chunk id.

    Args:
        whole: whether a gold span counts only when all of it is kept; else by the share of its characters.
        answer: the words of the answer, where they stand in the text; else empty.
        tokens: of all candidates, by o200k_base.
    """

    text: str
    answer: str
    candidates: tuple[Candidate, ...]
    gold: Mapping[str, tuple[Span, ...]]
    tokens: int
    whole: bool = True


def kept(question: Question, spans: Mapping[str, Sequence[Span]]) -> tuple[int, float]:
    """How many gold spans there are, and how many of them the kept spans (by chunk id) hold."""
    count, found = 0, 0.0
    for chunk, gold in question.gold.items():
        for span in gold:
            share = total_length(intersect_spans([span], spans.get(chunk, ()))) / max(1, span.length)
            count += 1
            found += float(share == 1.0) if question.whole else share
    return count, found


def load(data: Path, name: str, *, limit: int | None = None) -> list[Question]:
    """The first `limit` questions of a set. Raises `ConfigError` where the set or its files are not there."""
    if name not in SETS:
        raise ConfigError("there is no such set", subject=name, remedy=f"Known: {', '.join(SETS)}.")
    found: list[Question] = []
    for question in SETS[name](data):
        if limit is not None and len(found) >= limit:
            break
        found.append(question)
    return found


def hotpotqa(data: Path) -> Iterator[Question]:
    return _facts(data, "hotpotqa")


def wiki(data: Path) -> Iterator[Question]:
    return _facts(data, "2wiki")


def musique(data: Path) -> Iterator[Question]:
    """Gold: of each hop, the first sentence of its paragraph that has the hop's answer."""
    for row in _lines(data / "multihop" / "musique.jsonl.gz"):
        candidates = [
            _candidate(f"musique/{item['idx']}", item["title"], item["paragraph_text"]) for item in row["paragraphs"]
        ]
        gold: dict[str, tuple[Span, ...]] = {}
        for hop in row["question_decomposition"]:
            place = next(n for n, item in enumerate(row["paragraphs"]) if item["idx"] == hop["paragraph_support_idx"])
            chunk = candidates[place].chunk
            sentence = next((s for s in sentence_spans(chunk.text) if hop["answer"] in s.slice(chunk.text)), None)
            if sentence is not None:
                gold[chunk.id] = (*gold.get(chunk.id, ()), _bare(chunk.text, sentence))
        if gold:
            yield _question(row["question"], row["answer"], candidates, gold)


def xquad(data: Path, language: str) -> Iterator[Question]:
    """Gold: the answer, where it stands. Articles take turns, so that the first questions are of all of them."""
    path = data / "xquad" / f"xquad.{language}.json.gz"
    content = json.loads(gzip.decompress(_existing(path).read_bytes()))
    paragraphs = [paragraph for article in content["data"] for paragraph in article["paragraphs"]]
    made = [_candidate(f"xquad/{number}", "", paragraph["context"]) for number, paragraph in enumerate(paragraphs)]
    longest = max(len(paragraph["qas"]) for paragraph in paragraphs)
    count = 0
    for turn in range(longest):
        for number, paragraph in enumerate(paragraphs):
            if turn >= len(paragraph["qas"]):
                continue
            asked = paragraph["qas"][turn]
            before = count % PARAGRAPHS
            candidates = [made[(number - before + step) % len(made)] for step in range(PARAGRAPHS)]
            answer = asked["answers"][0]
            span = Span(answer["answer_start"], answer["answer_start"] + len(answer["text"]))
            count += 1
            yield _question(asked["question"], answer["text"], candidates, {made[number].chunk.id: (span,)})


def qmsum(data: Path) -> Iterator[Question]:
    """Meetings, a line a turn; gold: the turns that answer. One question of each meeting, then another of each.

    A meeting's questions follow its course, so the first of each would all ask of beginnings: the nth meeting begins
    with its nth question.
    """
    meetings = []
    for number, row in enumerate(_lines(data / "qmsum" / "val.jsonl.gz")):
        lines = [f"{turn['speaker']}: {turn['content']}\n" for turn in row["meeting_transcripts"]]
        starts = [0]
        for line in lines:
            starts.append(starts[-1] + len(line))
        candidates = _chunks(Document.from_text("".join(lines), source=f"qmsum/{number}"))
        meetings.append((row["specific_query_list"], starts, candidates))
    for turn in range(max(len(queries) for queries, _, _ in meetings)):
        for number, (queries, starts, candidates) in enumerate(meetings):
            if turn >= len(queries):
                continue
            asked = queries[(turn + number) % len(queries)]
            gold = [
                Span(starts[int(first)], starts[min(int(last) + 1, len(starts) - 1)])
                for first, last in asked["relevant_text_span"]
                if int(first) < len(starts) - 1
            ]
            if gold:
                yield _question(asked["query"], "", candidates, _by_chunk(candidates, gold), whole=False)


def chunking_eval(data: Path) -> Iterator[Question]:
    """Chroma's questions, each asked of the twenty chunks around its excerpts; corpora take turns."""
    content = excerpts_of(data)
    chunked = {document.id: _chunks(document) for document in content.documents}
    by_corpus: dict[str, list[str]] = {}
    for identifier, relevant in content.relevant.items():
        by_corpus.setdefault(next(iter(relevant)), []).append(identifier)
    for turn in range(max(map(len, by_corpus.values()))):
        for corpus, identifiers in by_corpus.items():
            if turn >= len(identifiers):
                continue
            gold = content.excerpts[identifiers[turn]][corpus]
            candidates = _around(chunked[corpus], gold)
            text = content.queries[identifiers[turn]]
            yield _question(text, "", candidates, _by_chunk(candidates, gold), whole=False)


def leval(data: Path) -> Iterator[Question]:
    """Clauses of the contracts of at most 16,000 tokens; gold: the clause that is asked for, found in the contract."""
    contracts = []
    for number, row in enumerate(_lines(data / "leval" / "legal_contract_qa.jsonl.gz")):
        document = Document.from_text(row["input"], source=f"leval/{number}")
        pairs = [
            (asked, Span(at, at + len(clause)))
            for asked, clause in zip(row["instructions"], row["outputs"], strict=True)
            if (at := document.text.find(clause)) >= 0 and clause
        ]
        if len(document.text) < 5 * LONGEST and pairs:
            candidates = _chunks(document)
            if sum(candidate.chunk.token_count for candidate in candidates) <= LONGEST:
                contracts.append((pairs, candidates))
    for turn in range(max(len(pairs) for pairs, _ in contracts)):
        for pairs, candidates in contracts:
            if turn < len(pairs):
                asked, span = pairs[turn]
                yield _question(asked, "", candidates, _by_chunk(candidates, [span]), whole=False)


SETS: Mapping[str, Callable[[Path], Iterator[Question]]] = {
    "hotpotqa": hotpotqa,
    "2wiki": wiki,
    "musique": musique,
    "xquad_en": lambda data: xquad(data, "en"),
    "xquad_zh": lambda data: xquad(data, "zh"),
    "qmsum": qmsum,
    "chunking_eval": chunking_eval,
    "leval": leval,
}
"""Each yields its questions in an order of which any beginning is a fair sample."""


def _facts(data: Path, name: str) -> Iterator[Question]:
    """Gold: the supporting sentences, as the set names them."""
    for row in _lines(data / "multihop" / f"{name}.jsonl.gz"):
        support = {(title, position) for title, position in row.get("supporting_facts") or ()}
        candidates: list[Candidate] = []
        gold: dict[str, tuple[Span, ...]] = {}
        glue = "" if name == "hotpotqa" else " "  # HotpotQA's sentences bring their own spaces
        for title, sentences in row.get("context") or ():
            candidates.append(_candidate(f"{name}/{title}", title, glue.join(sentences)))
            spans: list[Span] = []
            position = 0
            for number, sentence in enumerate(sentences):
                if (title, number) in support and sentence.strip():
                    start = position + len(sentence) - len(sentence.lstrip())
                    spans.append(Span(start, position + len(sentence.rstrip())))
                position += len(sentence) + len(glue)
            if spans:
                gold[candidates[-1].chunk.id] = tuple(spans)
        if gold:
            yield _question(row["question"], row["answer"], candidates, gold)


def _question(
    text: str, answer: str, candidates: Sequence[Candidate], gold: Mapping[str, tuple[Span, ...]], *, whole: bool = True
) -> Question:
    tokens = sum(candidate.chunk.token_count for candidate in candidates)
    spoken = "" if answer.lower() in ("yes", "no") else answer
    return Question(text, spoken, tuple(candidates), gold, tokens, whole)


def _candidate(source: str, title: str, text: str) -> Candidate:
    document = Document.from_text(text, source=source, title=title)
    chunk = Chunk.of(document, Span(0, len(text)), get_counter().count(text))
    return Candidate(_as_stored(chunk, document))


def _as_stored(chunk: Chunk, document: Document) -> Chunk:
    """With the metadata that a store gives it."""
    return replace(chunk, metadata={"source": document.source, "title": document.title})


def _chunks(document: Document) -> list[Candidate]:
    return [Candidate(_as_stored(chunk, document)) for chunk in RecursiveChunker(max_tokens=CHUNK).chunk(document)]


def _around(candidates: Sequence[Candidate], gold: Sequence[Span]) -> list[Candidate]:
    """The chunks with gold in them, and their nearest neighbours, twenty in all."""
    holding = [n for n, one in enumerate(candidates) if any(one.chunk.span.overlaps(span) for span in gold)]
    nearest = sorted(range(len(candidates)), key=lambda n: min(abs(n - other) for other in holding))
    return [candidates[n] for n in sorted(nearest[:NEIGHBOURHOOD])]


def _by_chunk(candidates: Sequence[Candidate], gold: Sequence[Span]) -> dict[str, tuple[Span, ...]]:
    """Each gold span cut at the borders of the chunks."""
    found: dict[str, tuple[Span, ...]] = {}
    for candidate in candidates:
        inside = intersect_spans(gold, [candidate.chunk.span])
        if inside:
            found[candidate.chunk.id] = inside
    return found


def _bare(text: str, span: Span) -> Span:
    """The span without white space at its ends."""
    piece = span.slice(text)
    start = span.start + len(piece) - len(piece.lstrip())
    return Span(start, start + len(piece.strip()))


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise ConfigError("the data file is not here", subject=str(path), remedy="Set CTXKIT_DATA to the data folder.")
    return path


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in gzip.decompress(_existing(path).read_bytes()).decode("utf-8").splitlines():
        yield json.loads(line)
