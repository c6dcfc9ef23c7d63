"""Texts as words: nothing lost, nothing broken, guards in one piece."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.compression import words as module
from ctxkit.compression.guards import protected_spans
from ctxkit.compression.words import is_filler, is_unspaced, split_words
from ctxkit.documents import Span
from ctxkit.text import Graphemes
from tests.strategies import texts


def pieces(text: str, *guarded: Span) -> list[str]:
    return [word.span.slice(text) for word in split_words(text, guarded=guarded)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The key's old, isn't it?", ["The", " key's", " old,", " isn't", " it?"]),
        ("a  b\tc ", ["a", "  b", "\tc", " "]),
        ("one\r\n\r\n  two\n", ["one", "\r\n\r\n  ", "two", "\n"]),
        ("签名密钥每月更换。", ["签名", "密钥", "每月", "更换", "。"]),
        ("用 Python 编程，好", ["用", " Python", " 编程", "，", "好"]),
        ("키를 돌린다", ["키를", " 돌린다"]),
        ("e\u0301 か\u3099き 👨‍👩‍👧‍👦!", ["e\u0301", " か\u3099", "き", " 👨‍👩‍👧‍👦!"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


def test_without_jieba_chinese_goes_by_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_jieba", lambda: None)
    assert pieces("签名密钥 key") == ["签", "名", "密", "钥", " key"]


def test_what_is_guarded_is_one_word() -> None:
    text = "about 5 km from the old town"
    words = split_words(text, guarded=[Span(6, 10)])
    assert [word.span.slice(text) for word in words] == ["about", " 5 km", " from", " the", " old", " town"]
    assert [word.guarded for word in words] == [False, True, False, False, False, False]
    blocks = split_words("| a | b |\nrest", blocks=[Span(0, 9)])
    assert [word.guarded for word in blocks] == [False] * 3, "a block is one word, and no guard"
    assert [word.span for word in blocks] == [Span(0, 9), Span(9, 10), Span(10, 14)]


@given(texts, st.lists(st.tuples(st.integers(0, 200), st.integers(1, 30)), max_size=3))
def test_words_cover_the_text_and_break_no_grapheme(text: str, ranges: list[tuple[int, int]]) -> None:
    position, guarded = 0, protected_spans(text, "word")
    if not guarded:
        for start, length in sorted(ranges):
            if start >= position and start + length <= len(text):
                guarded.append(Span(start, start + length))
                position = start + length
    words = split_words(text, guarded=guarded)
    assert "".join(word.span.slice(text) for word in words) == text
    assert all(word.span.length for word in words)
    graphemes = Graphemes(text)
    assert all(graphemes.around(word.span.end) is None for word in words)
    for span in guarded:
        (holder,) = [word for word in words if word.span.overlaps(span)]
        assert holder.guarded and holder.span.contains(span)


def test_what_counts_as_unspaced() -> None:
    assert is_unspaced("今天用 Python") and is_unspaced("ไทย") and not is_unspaced("안녕 세계") and not is_unspaced("")


def test_what_only_holds_a_sentence_together() -> None:
    for word in (" the", "(which", "of,", " —", "的", "，"):
        assert is_filler(word), word
    for word in ("vault", " it.", "。", "party", "密钥", "not."):
        assert not is_filler(word), word
