"""Chunk reuse: what is left of the context's worth, and the time to the first token, chunks in an order never seen."""

from __future__ import annotations

import gzip
import json
import math
import random
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from ctxkit.assembly import assemble
from ctxkit.documents import Candidate, Chunk, Document, Query, Span
from ctxkit.errors import ConfigError
from ctxkit.evaluation.report import Bar, Report
from ctxkit.history import TailWindow
from ctxkit.kvcache.chunk_reuse import ChunkCache
from ctxkit.kvcache.compat import cache_argument, cache_utils
from ctxkit.kvcache.store import GIBIBYTE, BlockStore
from ctxkit.models import LocalModel
from ctxkit.models.chunk_layout import ChunkLayout, lay_out
from ctxkit.models.decoding import prefill_spans
from ctxkit.precomputing import NEIGHBOURS, learn_chunks
from ctxkit.prompts import Budget, Prompt
from ctxkit.settings import require
from ctxkit.templates import DEFAULT_TEMPLATE

__all__ = ["run"]

CHUNKS = 8
SHARE, TIMES = 0.9, 8.0

READ = {
    "alone": ("none", None),
    "after the prefix": ("none", ()),
    "after the prefix and 1 text": ("none", NEIGHBOURS[:1]),
    "after the prefix and 2 texts": ("none", NEIGHBOURS),
}
"""How chunks are read ahead: the codec, and the texts before them; None for nothing at all, not even the prefix."""

SHORT = ("alone", "after the prefix")
"""Of `READ`, without `full`, beside the default."""

DEFAULT = "after the prefix and 2 texts, int8 (default)"

READ_AGAIN = (1, 2, 4)
"""How many chunks, those with most words of the question, are read again where they stand: points of the curve."""

TIMED = 3
"""Questions whose full prefill is timed again, in turn with the reuse."""


@dataclass(frozen=True, slots=True)
class _Case:
    question: str
    answer: str
    order: tuple[int, ...]
    gold: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Seconds:
    wall: float
    processor: float

    @classmethod
    def now(cls) -> _Seconds:
        return cls(time.perf_counter(), time.process_time())

    def since(self, start: _Seconds) -> _Seconds:
        return _Seconds(self.wall - start.wall, self.processor - start.processor)


def run(data: Path, *, full: bool = False) -> Report:
    """Log-likelihood of the gold answer, as a share of what a full prefill of the context gains, with a 95 % interval
    over resampled questions; times by turns. The curve: the share against how much of the prompt is read again.

    Args:
        full: 32 questions a data set and not 8, and on XQuAD chunks read after fewer texts too.
    """
    model = LocalModel("local", device="cpu", dtype="float32")
    count = 32 if full else 8
    report = Report("kvcache chunks", f"{CHUNKS} chunks of about 200 tokens in a new order, {count} questions a set")
    for name, make, read in (("xquad", _xquad, READ if full else SHORT), ("hotpotqa", _hotpotqa, SHORT[1:])):
        texts, cases = make(data, count, model)
        _measure(report, name, model, texts, cases, [DEFAULT, *read])
    return report


def _measure(
    report: Report, name: str, model: LocalModel, texts: list[str], cases: list[_Case], read: Sequence[str]
) -> None:
    chunks = [_chunk(f"{name}-{number}", text) for number, text in enumerate(texts)]
    prompts = [_prompt(model, case.question, [chunks[number] for number in case.order]) for case in cases]
    layouts = [lay_out(model.counter, prompt) for prompt in prompts]
    answers = [model.counter.tokenizer.encode_data(case.answer) for case in cases]
    bare = [list(lay_out(model.counter, _prompt(model, case.question, [])).ids) for case in cases]
    none = [_whole(model, ids, answer)[0] for ids, answer in zip(bare, answers, strict=True)]
    whole = [_whole(model, layout.ids, answer) for layout, answer in zip(layouts, answers, strict=True)]
    full = [score for score, _ in whole]
    report.rows.append(_row(name, "no context", none, none, full, 0.0))
    report.rows.append(_row(name, "full prefill", full, none, full, 1.0))
    relevance = [_by_words(case.question, prompt, texts) for case, prompt in zip(cases, prompts, strict=True)]
    used = {number for case in cases for number in case.order}
    for how in read:
        codec, before = READ.get(how, ("int8", NEIGHBOURS))
        cache = ChunkCache(BlockStore(None, memory_bytes=16 * GIBIBYTE), codec=codec, tenant="bench")
        _learn(model, cache, [chunks[number] for number in sorted(used)], before, layouts[0])
        scores, shares, times, work = [], [], [], []
        for number, (layout, answer, (_, seconds)) in enumerate(zip(layouts, answers, whole, strict=True)):
            if how == read[0] and number < TIMED:  # in turn, since other work on the machine comes and goes
                seconds = _whole(model, layout.ids, answer)[1]
            score, taken = _reused(model, cache, layout, answer)
            scores.append(score)
            use = cache.last
            shares.append((use.tokens - use.reused) / use.tokens)
            work.append(seconds.processor / taken.processor)
            if how == read[0] and number < TIMED:
                times.append(seconds.wall / taken.wall)
        row = _row(name, how, scores, none, full, statistics.fmean(shares), times, work)
        report.rows.append(row)
        if how == read[0]:
            ours = row
            for count in READ_AGAIN:
                report.rows.append(_again(name, count, model, cache, layouts, answers, relevance, none, full))
    row = ours
    report.bars.append(Bar.at_least(f"{name}: share of the context's gain", row["share"], SHARE))
    report.bars.append(Bar.at_least(f"{name}: time to first token, times", row["times"], TIMES))


def _again(
    name: str,
    count: int,
    model: LocalModel,
    cache: ChunkCache,
    layouts: Sequence[ChunkLayout],
    answers: Sequence[Sequence[int]],
    relevance: Sequence[Sequence[int]],
    none: list[float],
    full: list[float],
) -> dict[str, Any]:
    """A point of the curve: so many chunks are read in place, on top of what stands before them."""
    scores, shares = [], []
    for layout, answer, order in zip(layouts, answers, relevance, strict=True):
        kept = [span for number, span in enumerate(layout.chunks) if number not in order[:count]]
        scores.append(_reused(model, cache, replace(layout, chunks=tuple(kept)), answer)[0])
        shares.append((cache.last.tokens - cache.last.reused) / cache.last.tokens)
    return _row(name, f"default, {count} read again", scores, none, full, statistics.fmean(shares))


def _by_words(question: str, prompt: Prompt, texts: Sequence[str]) -> list[int]:
    """The chunks by their place, those first that have most of the question's words, rare ones counting more."""
    sets = [_words(text) for text in texts]
    found = {word: sum(word in words for words in sets) for word in _words(question)}
    worth = {word: math.log(len(sets) / count) for word, count in found.items() if count}
    chunks = [_words(part.text) for part in prompt.segments if part.section == "context" and part.text and part.sources]
    scores = [sum(value for word, value in worth.items() if word in words) for words in chunks]
    return sorted(range(len(chunks)), key=lambda place: -scores[place])


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


def _row(
    name: str,
    how: str,
    scores: list[float],
    none: list[float],
    full: list[float],
    read: float,
    times: Sequence[float] = (),
    work: Sequence[float] = (1.0,),
) -> dict[str, Any]:
    share, low, high = _share(scores, none, full)
    return {
        "data": name,
        "chunks read": how,
        "log-likelihood": round(statistics.fmean(scores), 3),
        "share": round(share, 3),
        "share, 95 %": f"{low:.2f} to {high:.2f}",
        "read again": round(read, 3),
        "times": round(statistics.median(times), 2) if times else "",
        "times, processor": round(statistics.median(work), 2),
    }


def _share(scores: list[float], none: list[float], full: list[float]) -> tuple[float, float, float]:
    """The share of the gain, and its interval over questions that are drawn again: scores stay with their question."""
    chance = random.Random(0)

    def of(chosen: Sequence[int]) -> float:
        gain = sum(full[number] - none[number] for number in chosen)
        return sum(scores[number] - none[number] for number in chosen) / gain

    everyone = range(len(scores))
    drawn = sorted(of(chance.choices(everyone, k=len(scores))) for _ in range(2000))
    return of(everyone), drawn[50], drawn[-51]


def _learn(
    model: LocalModel, cache: ChunkCache, chunks: Sequence[Chunk], before: Sequence[str] | None, layout: ChunkLayout
) -> None:
    torch: Any = require("torch", extra="local")
    if before is None:  # alone: as if nothing stood before it
        for chunk in chunks:
            own = lay_out(model.counter, _prompt(model, "?", [chunk]))
            span = own.chunks[0]
            held = cache_utils().DynamicCache()
            ids = torch.tensor([own.ids[own.prefix : own.context_end]])
            with torch.inference_mode():
                model.weights(input_ids=ids, use_cache=True, logits_to_keep=1, **{cache_argument(model.weights): held})
            cache.keep(
                model.weights,
                layout.ids[: layout.prefix],
                [(layer.keys, layer.values) for layer in held.layers],
                before=own.ids[own.prefix : span.start],
                text=own.ids[span.start : span.end],
                after=own.ids[span.end : own.context_end],
                base=0,
            )
        return

    def prompt_of(candidates: Sequence[Candidate]) -> Prompt:
        return _prompt(model, "?", [candidate.chunk for candidate in candidates])

    learn_chunks(chunks, model=model, cache=cache, assemble=prompt_of, neighbours=before)


def _prompt(model: LocalModel, question: str, chunks: Sequence[Chunk]) -> Prompt:
    return assemble(
        Query(question),
        template=DEFAULT_TEMPLATE,
        payload={},
        history=(),
        candidates=[Candidate(chunk) for chunk in chunks],
        budget=Budget(4096, reserve_output=256),
        counter=model.counter,
        window=TailWindow(),
    )


def _chunk(name: str, text: str) -> Chunk:
    document = Document(id=name, text=text, source=f"{name}.txt")
    return Chunk(
        id=name,
        document_id=document.id,
        span=Span(0, len(text)),
        text=text,
        token_count=0,
        metadata={"source": document.source},
    )


def _whole(model: LocalModel, ids: Sequence[int], answer: Sequence[int]) -> tuple[float, _Seconds]:
    """The answer's log-likelihood a token after a full prefill, and the seconds to the first token."""
    cache = cache_utils().DynamicCache()
    started = _Seconds.now()
    logits = _read(model, cache, ids, 0)
    seconds = _Seconds.now().since(started)
    return _score(model, cache, logits, answer), seconds


def _reused(
    model: LocalModel, chunks: ChunkCache, layout: ChunkLayout, answer: Sequence[int]
) -> tuple[float, _Seconds]:
    """The same with chunks from the store."""
    started = _Seconds.now()
    cache, count = chunks.take(model.weights, layout.ids, layout.prefix, layout.chunks)
    if cache is None or chunks.last.found != len(layout.chunks):
        raise ConfigError(f"not all chunks were found ({chunks.last.reason})", remedy="Please report it.")
    logits = _read(model, cache, layout.ids, count)
    seconds = _Seconds.now().since(started)
    return _score(model, cache, logits, answer), seconds


def _read(model: LocalModel, cache: Any, ids: Sequence[int], start: int) -> Any:
    torch: Any = require("torch", extra="local")
    options = {cache_argument(model.weights): cache, "use_cache": True, "logits_to_keep": 1}
    with torch.inference_mode():
        for at, end in prefill_spans(start, len(ids)):
            logits = model.weights(input_ids=torch.tensor([list(ids[at:end])]), **options).logits[0, -1]
        int(logits.argmax())
    return logits


def _score(model: LocalModel, cache: Any, logits: Any, answer: Sequence[int]) -> float:
    torch: Any = require("torch", extra="local")
    options = {cache_argument(model.weights): cache, "use_cache": True}
    with torch.inference_mode():
        following = model.weights(input_ids=torch.tensor([list(answer)]), **options).logits[0]
        every = torch.cat([logits[None], following[:-1]]).log_softmax(-1)
    return float(every[range(len(answer)), list(answer)].mean())


# The data.


def _xquad(data: Path, count: int, model: LocalModel) -> tuple[list[str], list[_Case]]:
    """Paragraphs of 130 to 260 tokens; to each question seven of others."""
    found = json.loads(_unpacked(data / "xquad" / "xquad.en.json.gz"))
    rows = [row for article in found["data"] for row in article["paragraphs"]]
    chance = random.Random(3)
    chance.shuffle(rows)
    rows = [row for row in rows if 130 <= model.counter.count(row["context"]) <= 260][: max(count, CHUNKS)]
    cases = []
    for number, row in enumerate(rows[:count]):
        asked = chance.choice(row["qas"])
        order = [number, *chance.sample([other for other in range(len(rows)) if other != number], CHUNKS - 1)]
        chance.shuffle(order)
        cases.append(_Case(asked["question"], asked["answers"][0]["text"], tuple(order), (number,)))
    return [row["context"] for row in rows], cases


def _hotpotqa(data: Path, count: int, model: LocalModel) -> tuple[list[str], list[_Case]]:
    """A question's own ten paragraphs in a new order, joined to chunks of about 200 tokens; and others' to make eight.

    Questions that are answered by yes or no are left out: their likelihood says little of the context.
    """
    lines = map(json.loads, _unpacked(data / "multihop" / "hotpotqa.jsonl.gz").splitlines())
    rows = [row for row in lines if row["answer"].lower() not in ("yes", "no")][:count]
    chance = random.Random(4)
    texts: list[str] = []
    own: list[tuple[list[int], list[int]]] = []
    for row in rows:
        needed = {title for title, _ in row["supporting_facts"]}
        paragraphs = list(row["context"])
        chance.shuffle(paragraphs)
        cuts, size = [0], 0
        for number, (title, sentences) in enumerate(paragraphs, 1):
            size += model.counter.count(title + "".join(sentences))
            if size >= 140 or number == len(paragraphs):
                cuts.append(number)
                size = 0
        mine, gold = [], []
        for start, end in pairwise(cuts):
            texts.append("\n\n".join(f"{title}\n{''.join(sentences)}" for title, sentences in paragraphs[start:end]))
            mine.append(len(texts) - 1)
            if any(title in needed for title, _ in paragraphs[start:end]):
                gold.append(len(texts) - 1)
        own.append((mine, gold))
    cases = []
    for row, (mine, gold) in zip(rows, own, strict=True):
        order = [*gold, *(number for number in mine if number not in gold)][:CHUNKS]
        others = [number for number in range(len(texts)) if number not in order]
        order += chance.sample(others, CHUNKS - len(order))
        chance.shuffle(order)
        cases.append(_Case(row["question"], row["answer"], tuple(order), tuple(gold)))
    return texts, cases


def _unpacked(file: Path) -> str:
    if not file.is_file():
        raise ConfigError("the data file is not here", subject=str(file), remedy="Set CTXKIT_DATA to its folder.")
    return gzip.decompress(file.read_bytes()).decode("utf-8")
