"""Sentences that are larger than the target: cut at lines, clauses, words, and met to nine tenths."""

from __future__ import annotations

import base64
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.compression import SentenceCompressor
from ctxkit.compression.cutting import Cutter
from ctxkit.documents import Candidate, Query
from ctxkit.testing.stages import make_candidates
from ctxkit.text import Graphemes, is_grapheme_boundary
from ctxkit.tokens import get_counter
from tests.strategies import texts

COUNTER = get_counter()

CODE = "```python\ndef rotate(key, days):\n" + "".join(f"    step_{n} = compute({n})\n" for n in range(60)) + "```\n"
ONE_UNIT = {
    "code": CODE,
    "JSON": json.dumps(
        [{"id": n, "name": f"shelf {n}", "open": n % 2 == 0} for n in range(120)], separators=(",", ":")
    ),
    "base64": base64.b64encode(bytes(range(256)) * 12).decode(),
    "Chinese without marks": "签名密钥每个月更换一次旧密钥保留一个星期食堂中午开门今天下雨了没有人喜欢" * 20,
    "Chinese clauses": "签名密钥每个月更换一次，旧密钥保留一个星期，食堂中午开门，今天下雨了，" * 20,
    "a row": "| " + " | ".join(f"cell {n}" for n in range(300)) + " |\n",
    "one sentence": "the key is kept and " * 150,
    "emoji": "👨‍👩‍👧‍👦🏳️‍🌈👍🏽🇩🇪🇫🇷" * 30,
    "one word": "x" * 3000,
}


def tokens(candidates: list[Candidate]) -> int:
    return sum(COUNTER.count(candidate.text) for candidate in candidates)


def widest(text: str) -> int:
    """Tokens of the grapheme that has most."""
    graphemes, at, most = Graphemes(text), 0, 1
    while at < len(text):
        end = graphemes.ceil(at + 1)
        most, at = max(most, COUNTER.count(text[at:end])), end
    return most


def longest(text: str) -> int:
    """Tokens of the two words, of up to 40 characters each, that have most."""
    words = sorted((COUNTER.count(word) for word in re.findall(r"\s*\S{1,40}", text)), reverse=True)
    return 2 + sum(words[:2])


@pytest.mark.parametrize("kind", list(ONE_UNIT))
@pytest.mark.parametrize("target", [20, 50, 200])
def test_one_unit_alone_meets_the_target(kind: str, target: int) -> None:
    text = ONE_UNIT[kind]
    given_ = make_candidates([text])
    result = SentenceCompressor(target=target)(Query("How many days is the key kept?"), given_)
    assert 0.9 * target <= tokens(result) <= target
    for one in result:
        for span in one.spans:
            for end in (span.start - 7, span.end - 7):
                assert is_grapheme_boundary(text, end)


@given(
    st.lists(texts, min_size=1, max_size=3), st.integers(1, 150), st.sampled_from(["word key", "句子", "", "1 chunk"])
)
def test_any_text_and_any_target(items: list[str], target: int, question: str) -> None:
    given_ = make_candidates(items)
    result = SentenceCompressor(target=target)(Query(question), given_)
    total = tokens(given_)
    if total <= target:
        assert result == given_
        return
    used = tokens(result)
    if result == given_:  # not one grapheme has so few tokens
        return
    assert 0 < used <= target
    # Two words, as a number and its unit or a negation and what it denies, are not torn; nor is a grapheme.
    assert used >= 0.9 * target - max(*map(longest, items), *map(widest, items)), (used, target, total)


def test_code_keeps_its_first_lines_and_those_that_are_asked_for() -> None:
    (result,) = SentenceCompressor(target=60)(Query("What does step_42 compute?"), make_candidates([CODE]))
    assert result.text.startswith("```python\n")
    assert "    step_42 = compute(42)\n" in result.text


def test_a_clause_that_is_asked_for_stays_and_others_go() -> None:
    text = (
        "The harbour opens at nine, the lake is deep and cold in winter, the signing key is rotated every month by "
        "Ada, bananas are yellow when they are ripe, and nobody reads the notice on the door of the canteen."
    )
    (result,) = SentenceCompressor(target=20)(Query("When is the signing key rotated?"), make_candidates([text]))
    assert "the signing key is rotated every month by Ada" in result.text
    assert "canteen" not in result.text


def test_a_negation_and_a_number_stay_with_their_words() -> None:
    cutter = Cutter("Is the gate key valid?", COUNTER)
    text = (
        "whatever anybody says about it here the gate key is not valid for 5.25 million days so do not ask again " * 2
    )
    for room in range(3, 40):
        found = [span.slice(text) for span in cutter.part(text, room)]
        joined = " ".join(found)
        assert not joined.startswith(("valid", " valid")), joined
        assert not joined.rstrip().endswith(("5", "5.")), joined


@given(texts.filter(bool), st.integers(1, 60))
def test_parts_are_spans_of_whole_graphemes_in_order(text: str, room: int) -> None:
    end = 0
    for span in Cutter("word 句子", COUNTER).part(text, room):
        assert end <= span.start < span.end <= len(text)
        assert is_grapheme_boundary(text, span.start)
        assert is_grapheme_boundary(text, span.end)
        end = span.end
