"""Pruning by words: answers kept at each ratio beside LLMLingua and Selective Context with the same model, and a curve.

Peers give back text without places in the source, so what is kept is the answer's own words: its characters, in a row,
white space apart.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from ctxkit.compression import EntropyCompressor, TokenScorer, TokenScores
from ctxkit.documents import Query
from ctxkit.errors import ConfigError
from ctxkit.evaluation.benchmarks._compression_sets import Question, kept
from ctxkit.evaluation.peers import peer_python, tiktoken_cache
from ctxkit.tokens import get_counter

__all__ = ["ABLATION", "PEERS", "SHARES", "Remembering", "answered", "curve", "prune_with_peer", "rows", "told_lines"]

PEERS = ("llmlingua", "longllmlingua", "selective_context")
SHARES = (0.3, 0.4, 0.5, 0.6, 0.68, 0.8, 0.9, 1.0)
ABLATION: Mapping[str, Sequence[str]] = {
    "self-information": ["self_information"],
    "entropy": ["entropy"],
    "self-information + entropy": ["self_information", "entropy"],
    "attention": ["attention"],
    "sentence": ["sentence"],
    "self-information + sentence": ["self_information", "sentence"],
    "entropy + sentence": ["entropy", "sentence"],
    "self-information + entropy + sentence": ["self_information", "entropy", "sentence"],
    "self-information + attention + sentence": ["self_information", "attention", "sentence"],
    "all but the kind": ["self_information", "entropy", "attention", "sentence"],
}
_WORKER = Path(__file__).with_name("_compressors_worker.py")


class Remembering:
    """A model that reads each text once for each question, whatever ratio is asked for; and the seconds it took.

    Args:
        folder: keeps what was read between runs; None forgets.
    """

    def __init__(self, model: TokenScorer, folder: Path | None = None) -> None:
        self._model = model
        self._folder = folder
        self._known: dict[str, tuple[TokenScores, float]] = {}
        self.seconds = 0.0
        """Of the pass over the texts that were asked for last."""

    def score_tokens(
        self, texts: Sequence[str], *, before: str = "", after: str = "", entropy: bool = True
    ) -> Iterator[TokenScores]:
        # Always the whole pass: ablations leave out what they do not look at.
        asked = before.strip()
        keys = [hashlib.sha256(f"{asked}\x00{text}".encode("utf-8", "surrogatepass")).hexdigest() for text in texts]
        new = [number for number, key in enumerate(keys) if not self._remembers(key)]
        told = self._model.score_tokens([texts[one] for one in new], before=before, after=f"\n\n{asked}")
        started = time.process_time()
        for number, scores in zip(new, told, strict=True):
            self._keep(keys[number], scores, time.process_time() - started)
            started = time.process_time()
        self.seconds = sum(self._known[key][1] for key in keys)
        return iter([self._known[key][0] for key in keys])

    def _remembers(self, key: str) -> bool:
        path = self._folder and self._folder / f"{key}.npz"
        if key not in self._known and path and path.is_file():
            with np.load(path) as held:
                scores = TokenScores(held["spans"], held["surprisal"], held["entropy"], held["attention"])
                self._known[key] = scores, float(held["seconds"])
        return key in self._known

    def _keep(self, key: str, scores: TokenScores, seconds: float) -> None:
        self._known[key] = scores, seconds
        if self._folder:
            self._folder.mkdir(parents=True, exist_ok=True)
            np.savez(
                self._folder / f"{key}.npz",
                spans=scores.spans,
                surprisal=scores.surprisal,
                entropy=scores.entropy.astype(np.float32),
                attention=scores.attention,
                seconds=seconds,
            )


def answered(question: Question, texts: Sequence[str]) -> bool | None:
    """Whether the answer stands in one of the texts, white space apart; None where it never stood there."""
    answer = "".join(question.answer.split())
    if not answer or not any(answer in "".join(one.text.split()) for one in question.candidates):
        return None
    return any(answer in "".join(text.split()) for text in texts)


def rows(
    sets: Mapping[str, Sequence[Question]],
    ratios: Sequence[int],
    *,
    model: TokenScorer,
    folder: Path,
    cache: Path | None = None,
    ablation: bool = False,
    peers: Sequence[str] = PEERS,
) -> list[dict[str, Any]]:
    """A row for each system and set: `answer@R`, `tokens@R` (of the target), our `gold@R`, and `seconds` for one ratio.

    Args:
        model: reads for ours; `folder` is where the peers find the same model.
        cache: keeps what models computed between runs.
        ablation: also our signals one by one.
    """
    reader = Remembering(model, cache and cache / "scores")
    found = []
    for name, questions in sets.items():
        systems: dict[str, Sequence[str] | None] = {"ctxkit words": None}
        if ablation:
            systems |= {f"words: {label}": signals for label, signals in ABLATION.items()}
        for label, signals in systems.items():
            found.append({"set": name, "system": label} | _ours(questions, ratios, reader, signals))
        for peer in peers:
            row = _theirs(questions, ratios, peer, folder, cache)
            if row is not None:
                found.append({"set": name, "system": peer} | row)
    return found


def curve(
    sets: Mapping[str, Sequence[Question]], *, model: TokenScorer, cache: Path | None = None, alone: bool = True
) -> list[dict[str, Any]]:
    """Answers kept at each share of tokens kept; `alone` prunes the paragraph with the answer and nothing else."""
    reader = Remembering(model, cache and cache / "scores")
    found = []
    for name, questions in sets.items():
        asked = [_alone(question) for question in questions] if alone else list(questions)
        asked = [question for question in asked if answered(question, []) is not None]
        row: dict[str, Any] = {"set": name, "questions": len(asked)}
        for share in SHARES:
            hits = []
            for question in asked:
                stage = EntropyCompressor(model=reader, target=max(1, int(question.tokens * share)))
                result = stage(Query(question.text), question.candidates)
                hits.append(bool(answered(question, [one.text for one in result])))
            row[f"answer@{share:.0%}"] = round(100 * float(np.mean(hits)), 1) if hits else None
        found.append(row)
    return found


def _alone(question: Question) -> Question:
    """The question asked of the candidate with the gold and the answer alone."""
    answer = question.answer
    holding = [one for one in question.candidates if one.chunk.id in question.gold and answer in one.text][:1]
    gold = {one.chunk.id: question.gold[one.chunk.id] for one in holding}
    return replace(question, candidates=tuple(holding), gold=gold, tokens=sum(one.chunk.token_count for one in holding))


def _ours(
    questions: Sequence[Question], ratios: Sequence[int], reader: Remembering, signals: Sequence[str] | None
) -> dict[str, Any]:
    row: dict[str, Any] = {"questions": len(questions)}
    seconds: list[float] = []
    for ratio in ratios:
        hits, gold, used = [], [0.0, 0.0], []
        for question in questions:
            target = max(1, int(question.tokens / ratio))
            options = {} if signals is None else {"signals": signals}
            stage = EntropyCompressor(model=reader, target=target, **options)  # type: ignore[arg-type]
            reader.seconds = 0.0  # some ratios are reached without reading
            started = time.process_time()
            result = stage(Query(question.text), question.candidates)
            seconds.append(time.process_time() - started + reader.seconds)
            hits.append(answered(question, [one.text for one in result]))
            count, held = kept(question, {one.chunk.id: one.spans for one in result})
            gold = [gold[0] + count, gold[1] + held]
            used.append(sum(get_counter().count(one.text) for one in result) / target)
        row |= _cells(ratio, hits, used) | {f"gold@{ratio}": round(100 * gold[1] / max(1, gold[0]), 1)}
    return row | {"seconds": round(float(np.median(seconds)), 2)}


def _theirs(
    questions: Sequence[Question], ratios: Sequence[int], peer: str, folder: Path, cache: Path | None
) -> dict[str, Any] | None:
    told = prune_with_peer(peer, questions, ratios, folder=folder, cache=cache)
    if told is None:
        return None
    row: dict[str, Any] = {"questions": len(questions)}
    seconds = [results[0]["seconds"] for results in told]
    for place, ratio in enumerate(ratios):
        texts = [results[place].get("text", "") for results in told]
        hits = [answered(question, [text]) for question, text in zip(questions, texts, strict=True)]
        used = [
            get_counter().count(text) / max(1, int(question.tokens / ratio))
            for question, text in zip(questions, texts, strict=True)
        ]
        row |= _cells(ratio, hits, used)
    errors = sum("error" in one for results in told for one in results)
    return row | {"seconds": round(float(np.median(seconds)), 2)} | ({"errors": errors} if errors else {})


def prune_with_peer(
    peer: str, questions: Sequence[Question], ratios: Sequence[int], *, folder: Path, cache: Path | None = None
) -> list[list[dict[str, Any]]] | None:
    """For each question and ratio the peer's `text` and `seconds`; None where `make peers` has not made its place."""
    python = peer_python("compressors")
    if python is None:
        return None
    items = [
        {
            "question": question.text,
            "texts": [one.chunk.text for one in question.candidates],
            "targets": [max(1, int(question.tokens / ratio)) for ratio in ratios],
        }
        for question in questions
    ]
    places = [_place(cache, peer, item) for item in items]
    missing = [number for number, place in enumerate(places) if place is None or not place.is_file()]
    fresh: dict[int, Any] = {}
    if missing:
        request = {"folder": str(folder), "system": peer, "items": [items[one] for one in missing]}
        for number, line in zip(missing, told_lines(python, _WORKER, request), strict=True):
            fresh[number] = json.loads(line)
            if place := places[number]:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(line, encoding="utf-8")
    return [
        fresh[number] if place is None or number in fresh else json.loads(place.read_text("utf-8"))
        for number, place in enumerate(places)
    ]


def told_lines(python: Path, worker: Path, request: Mapping[str, Any]) -> Iterator[str]:
    """The lines that a worker writes, as it writes them. Raises `ConfigError` where it fails."""
    with tiktoken_cache() as ranks, tempfile.TemporaryFile("w+") as said:
        environment = {**os.environ, "TIKTOKEN_CACHE_DIR": str(ranks), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        running = subprocess.Popen(
            [str(python), str(worker)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env=environment,
        )
        stdin, stdout = cast("IO[str]", running.stdin), cast("IO[str]", running.stdout)
        with running, stdin, stdout:
            stdin.write(json.dumps(request))
            stdin.close()
            yield from stdout
        if running.wait():
            said.seek(0)
            raise ConfigError("a peer failed", subject=said.read().strip()[-500:], remedy="Run `make peers` again.")


def _place(cache: Path | None, peer: str, item: Mapping[str, Any]) -> Path | None:
    if cache is None:
        return None
    key = hashlib.sha256(json.dumps([peer, item]).encode()).hexdigest()
    return cache / "peers" / f"{key}.json"


def _cells(ratio: int, hits: Sequence[bool | None], used: Sequence[float]) -> dict[str, Any]:
    known = [hit for hit in hits if hit is not None]
    return {
        f"answer@{ratio}": round(100 * float(np.mean(known)), 1) if known else None,
        f"tokens@{ratio}": round(100 * float(np.mean(used)), 1),
    }
