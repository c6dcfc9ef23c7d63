"""Sentences chosen one by one: what each adds to those before it decides, and nothing else is touched."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.compression import SentenceCompressor
from ctxkit.compression.records import Record, make_record, name_hashes
from ctxkit.compression.together import Links, order_together
from ctxkit.documents import Candidate, Query
from ctxkit.testing.stages import make_candidates
from ctxkit.tokens import get_counter


def _linked(texts: list[str], cover: list[list[float]], asked: str = "") -> tuple[list[Record], Links]:
    records = [make_record(one, get_counter()) for one in make_candidates(texts)]
    sizes = [len(record) for record in records]
    none = np.zeros(0, dtype=np.int64)
    groups = np.repeat(np.arange(len(records)), sizes)
    leads = np.concatenate([[True] + [False] * (size - 1) for size in sizes])
    titles = np.full(len(records), -1)
    return records, Links(groups, leads, np.array(cover), titles, none, none, frozenset(name_hashes(asked)))


def _order(records: list[Record], links: Links, values: list[float], room: int = 1_000) -> list[int]:
    worth = np.array(values)
    tokens = np.concatenate([record.tokens for record in records])
    return order_together(np.argsort(-worth, kind="stable"), worth, tokens, records, links, room).tolist()


def test_what_adds_words_of_the_question_goes_before_what_repeats_them() -> None:
    texts = ["The pump has a seal.", "A pump has its seal.", "The valve was tested."]
    records, links = _linked(texts, [[0.5, 0.0], [0.5, 0.0], [0.0, 0.5]])
    assert _order(records, links, [0.9, 0.8, 0.5]) == [0, 2, 1]
    same = links._replace(cover=np.zeros((3, 2)))
    assert _order(records, same, [0.9, 0.8, 0.5]) == [0, 1, 2]


def test_a_shared_rare_name_ties_two_documents_unless_the_question_has_it() -> None:
    texts = ["It was built by Marchetti.", "There is a garden there.", "In 1911 Marchetti was born."]
    cover = [[0.0]] * 3
    records, links = _linked(texts, cover)
    assert _order(records, links, [0.9, 0.5, 0.4]) == [0, 2, 1]
    records, links = _linked(texts, cover, asked="Who was Marchetti?")
    assert _order(records, links, [0.9, 0.5, 0.4]) == [0, 1, 2]


def test_a_mentioned_title_ties_two_documents() -> None:
    records, links = _linked(["It was built there.", "There is a garden.", "He was born then."], [[0.0]] * 3)
    tied = links._replace(titles=np.array([-1, 0, 1]), sources=np.array([0]), targets=np.array([1]))
    assert _order(records, links, [0.9, 0.5, 0.4]) == [0, 1, 2]
    assert _order(records, tied, [0.9, 0.5, 0.4]) == [0, 2, 1]


def test_a_sentence_beside_a_taken_one_goes_before_one_that_stands_alone() -> None:
    records, links = _linked(["One is here. Two is here. Three is here.", "Four is here."], [[0.0]] * 4)
    links = links._replace(leads=np.zeros(4, dtype=np.bool_))
    assert _order(records, links, [0.5, 0.4, 0.9, 0.45]) == [2, 1, 0, 3]


def test_what_has_no_room_counts_as_not_taken() -> None:
    texts = ["The pump has a seal.", "A pump has its seal.", "The valve was tested."]
    records, links = _linked(texts, [[0.5, 0.0], [0.5, 0.0], [0.0, 0.5]])
    assert _order(records, links, [0.9, 0.8, 0.5], room=1) == [0, 1, 2]


@given(values=st.lists(st.floats(0, 1), min_size=6, max_size=6), room=st.integers(1, 60))
def test_all_sentences_stay_and_the_best_is_first(values: list[float], room: int) -> None:
    records, links = _linked(["One here. Two here.", "Three here.", "One here. Four! Five."], [[0.1], [0.2]] * 3)
    order = _order(records, links, values, room)
    assert sorted(order) == list(range(6))
    assert values[order[0]] == max(values)


def _titled(texts: dict[str, str]) -> list[Candidate]:
    found = make_candidates(list(texts.values()))
    return [
        replace(one, chunk=replace(one.chunk, metadata={"title": title}))
        for title, one in zip(texts, found, strict=True)
    ]


@pytest.mark.parametrize("turned", [False, True])
def test_the_second_step_is_found(turned: bool) -> None:
    """The question names the film alone; the director's sentence shares no word with it but is what answers."""
    candidates = _titled(
        {
            "Harbour Lights": "Harbour Lights is a film directed by Oda Renn. It was shown in Oslo.",
            "Harbour (film)": "Harbour is a film about lights. The director is not known.",
            "Oda Renn": "Oda Renn is a director born in Bergen. Her films are few.",
            "Lights": "Lights is a song. It was a hit for weeks.",
        }
    )
    if turned:
        candidates.reverse()
    stage = SentenceCompressor(target=32)
    left = stage(Query("Where was the director of the film Harbour Lights born?"), candidates)
    text = " ".join(one.text for one in left)
    assert "directed by Oda Renn" in text
    assert "born in Bergen" in text
