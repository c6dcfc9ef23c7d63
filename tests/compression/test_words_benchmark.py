"""The benchmark of pruning by words, with a tiny model and no peers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxkit.evaluation.benchmarks._compression_answers import log_likelihood
from ctxkit.evaluation.benchmarks._compression_sets import Question, load
from ctxkit.evaluation.benchmarks._compression_words import answered, curve, prune_with_peer, rows
from ctxkit.models import LocalModel
from ctxkit.testing.stages import make_candidates

pytestmark = pytest.mark.data


def test_rows_and_the_curve(data: Path, tiny_folder: Path, tmp_path: Path) -> None:
    asked = {"xquad_en": load(data, "xquad_en", limit=1)}
    model = LocalModel(tiny_folder)
    first = rows(asked, (2, 10), model=model, folder=tiny_folder, cache=tmp_path, peers=())
    again = rows(asked, (2, 10), model=model, folder=tiny_folder, cache=tmp_path, peers=())
    (row,) = first
    assert row["system"] == "ctxkit words" and row["questions"] == 1
    assert 90 <= row["tokens@2"] <= 100 and 90 <= row["tokens@10"] <= 100
    assert {**row, "seconds": 0} == {**again[0], "seconds": 0}, "what was read is remembered"
    (shares,) = curve(asked, model=model, cache=tmp_path)
    assert shares["answer@100%"] == 100.0


def test_an_answer_is_found_white_space_apart() -> None:
    def ask(answer: str) -> Question:
        return Question("where?", answer, tuple(make_candidates(["in the old town of Oslo", "旧 城"])), {}, 10)

    assert answered(ask("old town"), ["the old  town"]) and answered(ask("旧城"), ["旧城"])
    assert answered(ask("old town"), ["the old", "town"]) is False
    assert answered(ask(""), ["x"]) is None and answered(ask("Bergen"), ["Bergen"]) is None


def test_likelihood_is_of_the_answer_alone(tiny_folder: Path) -> None:
    model = LocalModel(tiny_folder)
    values = [log_likelihood(model, context, "who asks?", "the user") for context in ("the user asks", "")]
    assert all(value < 0 for value in values) and values[0] != values[1]


def test_without_the_peers_there_is_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CTXKIT_PEERS", str(tmp_path))
    assert prune_with_peer("llmlingua", [], (2,), folder=tmp_path) is None
