"""Assembly: a prompt of 128K tokens from 1,000 candidates, beside LangChain's `trim_messages` on the same texts."""

from __future__ import annotations

import gzip
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ctxkit.assembly import assemble
from ctxkit.chunking import RecursiveChunker
from ctxkit.documents import Candidate, Document, Query
from ctxkit.errors import ConfigError
from ctxkit.evaluation.peers import tiktoken_encoding
from ctxkit.evaluation.report import Bar, Report
from ctxkit.history import TailWindow
from ctxkit.messages import Message
from ctxkit.models import OpenAIChatCounter
from ctxkit.prompts import Budget, Prompt
from ctxkit.settings import require
from ctxkit.templates import DEFAULT_TEMPLATE
from ctxkit.tokens import get_counter

__all__ = ["candidates_from", "run"]

ENCODING = "o200k_base"
MODEL = "gpt-4o"
CHUNK = 256
QUESTION = "What does Pierre hope for, and what becomes of it?"


def run(data: Path, *, candidates: int = 1_000, budget: int = 128_000, rounds: int = 9) -> Report:
    """Time both on the same texts with the same tokenizer, in turns; then how ours grows with the candidates.

    Every run counts from nothing: a fresh counter for us, no memory for LangChain. A row `remembered` says what a
    second prompt over the same texts costs, and `langchain, remembering counter` what LangChain costs with a counter
    that its user makes remember each message (still cold at the start of a run); neither is in a bar.

    Args:
        candidates: how many; each has at most 256 tokens.
        budget: tokens of the prompt.
        rounds: how often each is run; ratios are of neighbouring runs, and the median counts.
    """
    pool = candidates_from(data, 2 * candidates)
    chosen = pool[:candidates]
    report = Report(
        "assembly",
        f"{candidates:,} chunks of at most {CHUNK} tokens from War and Peace, seeded scores; "
        f"a budget of {budget:,} tokens; {ENCODING}",
    )
    _beside_langchain(report, chosen, budget, rounds)
    _growth(report, pool, candidates, budget, rounds)
    return report


def candidates_from(data: Path, count: int) -> list[Candidate]:
    """`count` chunks of a real book in a seeded order, with seeded scores."""
    path = data / "gutenberg" / "war_and_peace_2600-0.txt.gz"
    if not path.is_file():
        raise ConfigError("the data file is not here", subject=str(path), remedy="Set CTXKIT_DATA to the data folder.")
    book = Document.from_text(gzip.decompress(path.read_bytes()).decode("utf-8-sig"), source="war_and_peace.txt")
    chunks = list(RecursiveChunker(max_tokens=CHUNK, counter=get_counter(ENCODING)).chunk(book))
    chance = random.Random(7)
    if len(chunks) < count:
        raise ConfigError(f"the book has {len(chunks):,} chunks", remedy="Ask for fewer candidates.")
    return [Candidate(chunk, {"final": chance.random()}) for chunk in chance.sample(chunks, count)]


def _ours(candidates: Sequence[Candidate], budget: int, counter: OpenAIChatCounter) -> Prompt:
    return assemble(
        Query(QUESTION),
        template=DEFAULT_TEMPLATE,
        payload={},
        history=(),
        candidates=candidates,
        budget=Budget(budget),
        counter=counter,
        window=TailWindow(),
    )


def _trimmer(
    budget: int,
) -> tuple[Callable[[Sequence[Any], Any], list[Any]], Callable[[Sequence[Candidate]], list[Any]]]:
    """LangChain's `trim_messages` that keeps the last ones, and the messages for it: the best candidates last."""
    core = require("langchain_core.messages", extra="peers")

    def trim(messages: Sequence[Any], token_counter: Any) -> list[Any]:
        kept: list[Any] = core.trim_messages(
            messages, max_tokens=budget, strategy="last", token_counter=token_counter, allow_partial=False
        )
        return kept

    def messages_of(candidates: Sequence[Candidate]) -> list[Any]:
        ordered = sorted(candidates, key=lambda candidate: candidate.score)
        return [core.HumanMessage(candidate.text, id=candidate.chunk.id) for candidate in ordered]

    return trim, messages_of


def _beside_langchain(report: Report, candidates: Sequence[Candidate], budget: int, rounds: int) -> None:
    encode = tiktoken_encoding(ENCODING).encode_ordinary
    role = len(encode("user"))
    trim, messages_of = _trimmer(budget)
    messages = messages_of(candidates)

    def of_list(found: Sequence[Any]) -> int:
        return 3 + sum(3 + role + len(encode(message.content)) for message in found)

    def of_message(message: Any) -> int:
        return 3 + role + len(encode(message.content))

    def remembering() -> Callable[[Sequence[Any]], int]:
        counts: dict[str, int] = {}

        def of_known(found: Sequence[Any]) -> int:
            total = 3
            for message in found:
                if message.id not in counts:
                    counts[message.id] = 3 + role + len(encode(message.content))
                total += counts[message.id]
            return total

        return of_known

    # LangChain looks at the annotation of the parameter to tell a counter of lists from one of single messages.
    of_message.__annotations__["message"] = require("langchain_core.messages", extra="peers").BaseMessage
    warm = OpenAIChatCounter(MODEL)
    _ours(candidates, budget, warm)
    work: dict[str, Callable[[], Any]] = {
        "langchain, counter of lists": lambda: trim(messages, of_list),
        "langchain, counter of messages": lambda: trim(messages, of_message),
        "langchain, remembering counter": lambda: trim(messages, remembering()),
        "ctxkit": lambda: _ours(candidates, budget, OpenAIChatCounter(MODEL)),
        "ctxkit, remembered": lambda: _ours(candidates, budget, warm),
    }
    seconds: dict[str, list[float]] = {name: [] for name in work}
    results: dict[str, Any] = {}
    for _ in range(max(1, rounds)):
        for name, task in work.items():
            started = time.perf_counter()
            results[name] = task()
            seconds[name].append(time.perf_counter() - started)
    scores = {candidate.chunk.id: candidate.score for candidate in candidates}
    best = sum(scores.values())
    ratios = {name: _ratio(seconds[name], seconds["ctxkit"]) for name in work}
    for name, result in results.items():
        tokens, kept = _outcome(result, candidates)
        report.rows.append(
            {
                "measure": "speed",
                "system": name,
                "candidates": len(candidates),
                "seconds": round(statistics.median(seconds[name]), 4),
                "times_ctxkit": round(ratios[name], 2),
                "tokens": tokens,
                "fill": round(tokens / budget, 4),
                "over": max(0, tokens - budget),
                "kept": len(kept),
                "value_kept": round(sum(scores[item] for item in kept) / best, 4),
            }
        )
    ours = next(row for row in report.rows if row["system"] == "ctxkit")
    fastest = min(ratios["langchain, counter of lists"], ratios["langchain, counter of messages"])
    report.bars += [
        Bar.at_least("times_faster_than_trim_messages", fastest, 5.0),
        Bar.at_most("tokens_over", ours["over"], 0),
        Bar.at_least("fill", ours["fill"], 0.97),
    ]


def _ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    return statistics.median(their / our for their, our in zip(theirs, ours, strict=True))


def _outcome(result: Any, candidates: Sequence[Candidate]) -> tuple[int, set[str]]:
    """The exact tokens of a result, counted from nothing, and the candidates that are in it."""
    counter = OpenAIChatCounter(MODEL)
    if isinstance(result, Prompt):
        dropped = {item.item for item in result.dropped}
        whole = [Message(turn.role, turn.text) for turn in result.turns]
        kept = {candidate.chunk.id for candidate in candidates} - dropped
        return counter.count_prompt(whole), kept
    return counter.count_prompt([Message("user", message.content) for message in result]), {
        str(message.id) for message in result
    }


def _growth(report: Report, pool: Sequence[Candidate], size: int, budget: int, rounds: int) -> None:
    """The processor time for half, once and twice the candidates, with a budget that grows with them: the least of
    the rounds, which is the one that least was in the way of."""
    sizes = (size // 2, size, 2 * size)
    seconds: dict[int, list[float]] = {count: [] for count in sizes}
    for _ in range(max(1, rounds)):
        for count in sizes:
            started = time.process_time()
            _ours(pool[:count], budget * count // size, OpenAIChatCounter(MODEL))
            seconds[count].append(time.process_time() - started)
    for smaller, larger in ((sizes[0], sizes[1]), (sizes[1], sizes[2])):
        ratio = min(seconds[larger]) / min(seconds[smaller])
        report.rows.append(
            {
                "measure": "growth",
                "system": "ctxkit",
                "candidates": larger,
                "processor_seconds": round(min(seconds[larger]), 4),
                "times_half": round(ratio, 2),
            }
        )
        report.bars.append(Bar.at_most(f"growth_{smaller}_to_{larger}", ratio, 2.5))
