"""Whether the model still knows the answer: its log-likelihood after the compressed context, and after the full one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ctxkit.compression import EntropyCompressor, SentenceCompressor
from ctxkit.documents import Candidate, Query
from ctxkit.evaluation.benchmarks._compression_filters import FILTERS, filtered
from ctxkit.evaluation.benchmarks._compression_sets import Question
from ctxkit.evaluation.benchmarks._compression_words import PEERS, Remembering, prune_with_peer
from ctxkit.evaluation.bootstrap import paired_bootstrap
from ctxkit.models import LocalModel
from ctxkit.protocols import Embedder, Stage
from ctxkit.settings import require
from ctxkit.tokens import get_counter

__all__ = ["answer_rows", "log_likelihood"]

RATIO = 3


def log_likelihood(model: LocalModel, context: str, question: str, answer: str) -> float:
    """Mean log-likelihood of the answer's tokens, in nats, after the context and the question; one forward pass."""
    torch: Any = require("torch", extra="local")
    encode = model.counter.tokenizer.encode_data
    asked = encode(f"{context}\n\nQuestion: {question}\nAnswer:")
    said = encode(f" {answer}")
    with torch.inference_mode():
        ids = torch.tensor([[*asked, *said]], device=model.weights.device)
        logits = model.weights(input_ids=ids, logits_to_keep=len(said) + 1).logits[0, :-1].float()
        chances = logits.log_softmax(-1)[torch.arange(len(said)), torch.tensor(said, device=logits.device)]
    return float(chances.mean())


def answer_rows(
    sets: Mapping[str, Sequence[Question]],
    *,
    model: LocalModel,
    folder: Path,
    embedder: Embedder,
    ratio: int = RATIO,
    ratios: Sequence[int] = (RATIO,),
    cache: Path | None = None,
    peers: Sequence[str] = PEERS,
) -> list[dict[str, Any]]:
    """For each set and system the mean log-likelihood, and its difference to the full context's with its interval.

    `ours minus it`: `ctxkit sentences` minus this system, question by question, with the interval of the mean.

    Args:
        ratios: those that peers were asked for; `ratio` must be one of them.
        cache: keeps what models computed between runs.
    """
    found = []
    for name, questions in sets.items():
        asked = [question for question in questions if question.answer]
        values = {
            system: np.array(
                [_known(model, text, one, cache) for text, one in zip(texts, asked, strict=True)], dtype=np.float64
            )
            for system, texts in _contexts(asked, model, folder, embedder, ratio, ratios, cache, peers).items()
        }
        for system, mine in values.items():
            full = paired_bootstrap(mine, values["full"])
            ours = paired_bootstrap(values["ctxkit sentences"], mine)
            found.append(
                {
                    "set": name,
                    "system": system,
                    "questions": len(asked),
                    "log-likelihood": round(float(mine.mean()), 3),
                    "minus full": round(full.mean, 3),
                    "interval": _interval(full),
                    "ours minus it": round(ours.mean, 3),
                    "its interval": _interval(ours),
                }
            )
    return found


def _interval(difference: Any) -> str:
    return f"{difference.low:+.3f} to {difference.high:+.3f}"


def _contexts(
    asked: Sequence[Question],
    model: LocalModel,
    folder: Path,
    embedder: Embedder,
    ratio: int,
    ratios: Sequence[int],
    cache: Path | None,
    peers: Sequence[str],
) -> dict[str, list[str]]:
    """What each system leaves of each question's context, in its order."""
    reader = Remembering(model, cache and cache / "scores")
    stages: dict[str, Callable[[int], Stage]] = {
        "ctxkit sentences": lambda target: SentenceCompressor(target=target, embedder=embedder),
        "ctxkit words": lambda target: EntropyCompressor(model=reader, target=target),
    }
    contexts: dict[str, list[str]] = {"full": [_joined(one.candidates) for one in asked]}
    for system, make in stages.items():
        contexts[system] = [
            _joined(make(max(1, int(one.tokens / ratio)))(Query(one.text), one.candidates)) for one in asked
        ]
    contexts["truncation"] = [_first(_joined(one.candidates), max(1, int(one.tokens / ratio))) for one in asked]
    for system, texts in _filtered(asked, ratio, embedder):
        contexts[system] = texts
    for peer in peers:
        told = prune_with_peer(peer, asked, ratios, folder=folder, cache=cache)
        if told is not None:
            contexts[peer] = [results[list(ratios).index(ratio)].get("text", "") for results in told]
    return contexts


def _joined(candidates: Sequence[Candidate]) -> str:
    return "\n\n".join(candidate.text for candidate in candidates)


def _first(text: str, target: int) -> str:
    """The longest beginning of at most `target` tokens, cut at a word."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if get_counter().count(text[:middle]) <= target else (low, middle - 1)
    return text[:low].rpartition(" ")[0] or text[:low]


def _filtered(asked: Sequence[Question], ratio: int, embedder: Embedder) -> Iterator[tuple[str, list[str]]]:
    """LangChain's and LlamaIndex's filters, where `make peers` has made their environment."""
    for system, results in (filtered(asked, (ratio,), embedder) or {}).items():
        texts = []
        for question, (spans,) in zip(asked, results, strict=True):
            left = [
                " ".join(span.slice(one.chunk.text, offset=one.chunk.span.start).strip() for span in sorted(mine))
                for one in question.candidates
                if (mine := spans.get(one.chunk.id))
            ]
            texts.append("\n\n".join(left))
        yield FILTERS[system], texts


def _known(model: LocalModel, text: str, question: Question, cache: Path | None) -> float:
    if cache is None:
        return log_likelihood(model, text, question.text, question.answer)
    key = hashlib.sha256(json.dumps([model.name, text, question.text, question.answer]).encode()).hexdigest()
    place = cache / "answers" / f"{key}.json"
    if not place.is_file():
        place.parent.mkdir(parents=True, exist_ok=True)
        value = log_likelihood(model, text, question.text, question.answer)
        place.write_text(json.dumps(value), encoding="utf-8")
    return float(json.loads(place.read_text("utf-8")))
