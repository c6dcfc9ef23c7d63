"""Time grows with the question, with the line and with the candidates, and not with the product of two."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ctxkit.compression import Cascade, SentenceCompressor
from ctxkit.compression.cutting import Cutter
from ctxkit.compression.relevance import lexical_scores
from ctxkit.documents import Query
from ctxkit.testing.stages import make_candidates
from ctxkit.tokens import get_counter
from tests.timing import doubling


def vocabulary(size: int) -> list[str]:
    return [f"w{number}x" for number in range(size)]


def tiny(size: int) -> Callable[[], object]:
    given = make_candidates([f"Shelf {n} holds boxes." for n in range(size)])
    stage = SentenceCompressor(target=50)
    return lambda: stage(Query("shelf 7?"), given)


def one_line(size: int) -> Callable[[], object]:
    given = make_candidates([" ".join(vocabulary(size))])
    stage = SentenceCompressor(target=50)
    return lambda: stage(Query("where is w77x?"), given)


def long_question(size: int) -> Callable[[], object]:
    words = vocabulary(size)
    text = " ".join(f"{first} {second} was said." for first, second in zip(words, reversed(words), strict=True))
    given, question = make_candidates([text.title()]), Query(" ".join(words))
    stage = SentenceCompressor(target=50)
    return lambda: stage(question, given)


def runs(size: int) -> Callable[[], object]:
    texts = [mark * size for mark in (" ", ",", "):", "\n ", "- ", '":', "不", "a,", "1.")]
    cutter = Cutter("what is a?", get_counter())
    return lambda: [cutter.part(text, size) for text in texts]


def cascade(size: int) -> Callable[[], object]:
    words = vocabulary(size)
    given, question = make_candidates([f"{word} was said." for word in words]), Query(" ".join(words))
    stage = Cascade(fine=SentenceCompressor(), target=50)
    return lambda: stage(question, given)


@pytest.mark.parametrize(
    ("prepare", "size"), [(tiny, 600), (one_line, 20_000), (long_question, 3_000), (cascade, 700), (runs, 1_000)]
)
def test_time_grows_with_the_input(prepare: Callable[[int], Callable[[], object]], size: int) -> None:
    doubling(prepare, size)


def test_a_long_question_still_finds_its_rare_words() -> None:
    words = vocabulary(2_000)
    said = " ".join(words) + "."
    texts = [said, "Nothing of it.", f"{said} A zebra stood there.", said]
    scores = lexical_scores(" ".join([*words, "zebra"]), texts)
    assert scores[1] == 0.0 < scores[0] < scores[2]
    question = Query(" ".join([*(f"v{n}y" for n in range(2_000)), "zebra"]))
    (left,) = SentenceCompressor(target=9)(
        question, make_candidates(["Rain fell on the hills. A zebra stood there. The lake is deep."])
    )
    assert "zebra" in left.text
