"""Sentences, graphemes, protected blocks and index terms."""

from __future__ import annotations

import sys

import pytest
import regex
from hypothesis import example, given

from ctxkit import text as module
from ctxkit.documents import Span
from ctxkit.text import (
    Graphemes,
    code_fences,
    is_grapheme_boundary,
    protected_spans,
    sentence_breaks,
    sentence_spans,
    table_rows,
    words,
)
from tests.strategies import texts


def sentences(text: str) -> list[str]:
    return [span.slice(text) for span in sentence_spans(text)]


def slices(text: str, spans: list[Span]) -> list[str]:
    return [span.slice(text) for span in spans]


# ---------------------------------------------------------------------------------------------- graphemes


@given(text=texts)
@example(text="\r\n\r")
@example(text="🇩🇪🇫🇷🇩")
@example(text="x🇩\u0301🇪🇫")
@example(text="\u0600\U0001f1e9\U0001f1ea")
@example(text="क\u094dत\u200d")
@example(text="\u1100\u1161\u11a8각")
@example(text="a\u0301b\u0301 c\u0301")
def test_boundaries_are_those_of_the_standard(text: str) -> None:
    expected = {0, *(found.end() for found in regex.finditer(r"\X", text))}
    graphemes = Graphemes(text)
    assert {at for at in range(len(text) + 1) if graphemes.around(at) is None} == expected
    for position in range(len(text) + 1):
        assert graphemes.floor(position) == max(at for at in expected if at <= position)
        assert graphemes.ceil(position) == min(at for at in expected if at >= position)


def test_plain_characters_never_share_a_grapheme() -> None:
    plain = regex.compile(r"[\p{GCB=Other}\p{GCB=Control}\p{GCB=LF}\p{GCB=CR}\p{GCB=LV}\p{GCB=LVT}]")
    scan = module.re.compile(f"[{module._PLAIN}]")
    for code in range(sys.maxunicode + 1):
        if scan.match(chr(code)):
            assert plain.match(chr(code)), hex(code)


def test_boundaries_by_example() -> None:
    family = "👨‍👩‍👧‍👦"
    assert Graphemes(f"a{family}b").around(3) == Span(1, 1 + len(family))
    assert not is_grapheme_boundary("e\u0301", 1)
    assert is_grapheme_boundary("ab", 1)
    assert Graphemes("").around(0) is None


# ------------------------------------------------------------------------------------------- protected blocks


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n```\nb\n```\nc", ["```\nb\n```"]),
        ("```py\nx\n```   \nc", ["```py\nx\n```"]),
        ("```\nnever closed\n\n", ["```\nnever closed\n\n"]),
        ("~~~\n```\n~~~\n", ["~~~\n```\n~~~"]),
        ("````\n```\n````", ["````\n```\n````"]),
        ("```\nx\n``` not a close\n```", ["```\nx\n``` not a close\n```"]),
        ("``` `inline` ```\ntext", []),
        ("    ```\nindented code", []),
        ("text ```\nnot a fence", []),
        ("   ```\nx\n  ```", ["```\nx\n  ```"]),
        ("```\r\nx\r\n```\r\ny", ["```\r\nx\r\n```"]),
    ],
)
def test_code_fences(text: str, expected: list[str]) -> None:
    assert slices(text, code_fences(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x\n| a | b |\n|---|---|\n  | 1 | 2 |  \ny", ["| a | b |", "|---|---|", "| 1 | 2 |"]),
        ("a | b\n--- | ---\n1 | 2\n\nnot | this", ["a | b", "--- | ---", "1 | 2"]),
        ("either | or", []),
        ("a\n--- | ---\n", []),
        ("no pipes", []),
    ],
)
def test_table_rows(text: str, expected: list[str]) -> None:
    assert slices(text, table_rows(text)) == expected


def test_rows_in_a_fence_are_code() -> None:
    text = "| a |\n```\n| b |\n```\n| c |"
    assert slices(text, protected_spans(text)) == ["| a |", "```\n| b |\n```", "| c |"]


@given(text=texts)
def test_protected_spans_are_sorted_and_disjoint(text: str) -> None:
    position = 0
    for span in protected_spans(text):
        assert position <= span.start < span.end <= len(text)
        position = span.end


# ------------------------------------------------------------------------------------------------ sentences


@given(text=texts)
def test_sentences_cover_the_text_without_a_gap(text: str) -> None:
    spans = sentence_spans(text)
    assert "".join(slices(text, spans)) == text
    assert all(span.length for span in spans)
    if text.strip():
        assert not any(span.slice(text).isspace() for span in spans)
    else:
        assert len(spans) == bool(text)


@given(text=texts)
def test_a_sentence_cuts_no_fence_and_no_row(text: str) -> None:
    edges = {edge for span in sentence_spans(text) for edge in span}
    for block in protected_spans(text):
        assert not any(block.start < edge < block.end for edge in edges)


@given(text=texts)
def test_white_space_belongs_to_the_sentence_before(text: str) -> None:
    for span in sentence_spans(text)[1:]:
        assert not text[span.start].isspace()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He came. He saw! Did he? Yes.", ["He came. ", "He saw! ", "Did he? ", "Yes."]),
        ("Dr. Smith paid 5.3 million on Jan. 3. He left.", ["Dr. Smith paid 5.3 million on Jan. 3. ", "He left."]),
        ("J. R. Smith met Mr. Lee at 5 p.m. in St. Louis.", ["J. R. Smith met Mr. Lee at 5 p.m. in St. Louis."]),
        (
            "See Fig. 3. Then e.g. this, i.e. that etc. and more.",
            ["See Fig. 3. ", "Then e.g. this, i.e. that etc. and more."],
        ),
        ("As in Craig v. Boren. So it was.", ["As in Craig v. Boren. ", "So it was."]),
        ("The U.S. Senate and the U.N. Secretary met.", ["The U.S. Senate and the U.N. Secretary met."]),
        (
            "He left the U.S. The ship sank. J.R.R. Tolkien.",
            ["He left the U.S. ", "The ship sank. ", "J.R.R. Tolkien."],
        ),
        (
            "See 429 U.S. 190 (1976). It is U.S. (and U.K.) law.",
            ["See 429 U.S. 190 (1976). ", "It is U.S. (and U.K.) law."],
        ),
        (
            "Made by Warner Bros. Records at 8 p.m. ET. She left.",
            ["Made by Warner Bros. Records at 8 p.m. ET. ", "She left."],
        ),
        (
            "At 9 a.m. Monkeys eat. In the U.S.A. “So what?”",
            ["At 9 a.m. ", "Monkeys eat. ", "In the U.S.A. ", "“So what?”"],
        ),
        ("From Oslo, Washington, D.C.\n\nMore.", ["From Oslo, Washington, D.C.\n\n", "More."]),
        (
            "Domarto (fl. c. 1445, d. 1455). See p. 33. He sang.",
            ["Domarto (fl. c. 1445, d. 1455). ", "See p. 33. ", "He sang."],
        ),
        ("So did I. He too.", ["So did I. ", "He too."]),
        ("Version 1.2.3 is out. Get it at example.com now.", ["Version 1.2.3 is out. ", "Get it at example.com now."]),
        ("“Who?” he asked... and left. “Me.” She ran.", ["“Who?” he asked... and left. ", "“Me.” ", "She ran."]),
        ("all in small letters. the next one. end", ["all in small letters. ", "the next one. ", "end"]),
        ("这是一个句子。这是另一个句子！真的吗？", ["这是一个句子。", "这是另一个句子！", "真的吗？"]),
        ("他说：“走吧。”然后走了。", ["他说：“走吧。”", "然后走了。"]),
        ("你好!我是谁?", ["你好!", "我是谁?"]),
        ("一。\n二。", ["一。\n", "二。"]),
        ("Paragraph one\n\nparagraph two", ["Paragraph one\n\n", "paragraph two"]),
        ("Title\nText", ["Title\n", "Text"]),
        ("- one\n- two\n  - three", ["- one\n", "- two\n  ", "- three"]),
        ("1. First item\n2. Second item", ["1. First item\n", "2. Second item"]),
        ("# Head\nBody. More.", ["# Head\n", "Body. ", "More."]),
        ("Text:\n```\na. B\n\nc\n```\nAfter. End.", ["Text:\n", "```\na. B\n\nc\n```\n", "After. ", "End."]),
        ("| a. B | c |\n| d | e |\nf", ["| a. B | c |\n", "| d | e |\n", "f"]),
        ("مرحبا بالعالم؟ نعم۔ لا", ["مرحبا بالعالم؟ ", "نعم۔ ", "لا"]),
        ("  leading. Then", ["  leading. ", "Then"]),
        ("", []),
        ("\n \n", ["\n \n"]),
    ],
)
def test_sentences_by_example(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def test_wrapped_prose_is_not_cut_at_its_line_ends() -> None:
    text = (
        "“Well, Prince, so Genoa and Lucca are now just family estates of the\n"
        "Buonapartes. But I warn you, if you don’t tell me that this means war,\n"
        "if you still try to defend the infamies, I will have nothing more to do\n"
        "with you.”\n\nSo she said."
    )
    assert sentences(text) == [
        "“Well, Prince, so Genoa and Lucca are now just family estates of the\nBuonapartes. ",
        "But I warn you, if you don’t tell me that this means war,\nif you still try to defend the infamies, "
        "I will have nothing more to do\nwith you.”\n\n",
        "So she said.",
    ]


@given(text=texts)
def test_breaks_of_a_part_lie_in_it(text: str) -> None:
    third = len(text) // 3
    breaks = list(sentence_breaks(text, third, 2 * third))
    assert breaks == sorted(set(breaks))
    assert all(third < at <= 2 * third for at in breaks)


# -------------------------------------------------------------------------------------------------- index terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The cat's 3 mats", ["the", "cat", "3", "mats"]),
        ("don’t DON'T", ["don't", "don't"]),
        ("max_tokens=256; COVID-19", ["max", "tokens", "256", "covid", "19"]),
        ("我爱你", ["我爱", "爱你"]),
        ("我", ["我"]),
        ("使用Python编程", ["使用", "python", "编程"]),
        ("日本語のテキスト", ["日本", "本語", "語の", "のテ", "テキ", "キス", "スト"]),
        ("안녕하세요 세계", ["안녕", "녕하", "하세", "세요", "세계"]),
        ("ﬁne Ｆｕｌｌ ①", ["fine", "full", "1"]),
        ("cafe\u0301 café", ["café", "café"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("👍 -- …", []),
        ("", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@given(text=texts)
def test_words_are_clean_and_stable(text: str) -> None:
    terms = words(text)
    assert all(term and not any(character.isspace() for character in term) for term in terms)
    assert words(text) == terms
    assert words(text + " ") == terms


@given(text=texts)
def test_both_ways_of_splitting_words_agree(text: str) -> None:
    # A Thai letter sends the whole text the slow way.
    assert words(text + " ก") == [*words(text), "ก"]
