"""The token counters: the same ids as tiktoken, on anything, offline."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.errors import ConfigError
from ctxkit.evaluation.peers import tiktoken_encoding
from ctxkit.testing import TokenCounterConformance
from ctxkit.tokens import ENCODINGS, BpeCounter, encoding_for_model, get_counter
from tests.strategies import texts

encodings = pytest.mark.parametrize("encoding", ENCODINGS)


class TestBpeCounter(TokenCounterConformance):
    def make_counter(self) -> BpeCounter:
        return BpeCounter("o200k_base")


@pytest.mark.peer
@encodings
@given(text=texts)
def test_ids_equal_tiktoken(encoding: str, text: str) -> None:
    counter = get_counter(encoding)
    ids = tiktoken_encoding(encoding).encode_ordinary(text)
    assert counter.encode(text) == ids
    assert counter.count(text) == len(ids)


@pytest.mark.peer
@pytest.mark.data
@encodings
@pytest.mark.parametrize(
    "name",
    [
        "gutenberg/war_and_peace_2600-0.txt.gz",
        "zh_novels/The_Story_of_the_Stone.txt.gz",
        "chunking_eval/corpora/finance.md.gz",
        "chunking_eval/corpora/pubmed.md.gz",
    ],
)
def test_ids_of_real_books_equal_tiktoken(encoding: str, name: str, data: Path) -> None:
    text = gzip.decompress((data / name).read_bytes()).decode("utf-8")
    ids = tiktoken_encoding(encoding).encode_ordinary(text)
    counter = get_counter(encoding)
    assert counter.encode(text) == ids
    assert counter.count(text) == len(ids)
    assert counter.decode(ids) == text


@encodings
@given(text=texts)
def test_decoding_gives_the_text_back(encoding: str, text: str) -> None:
    counter = get_counter(encoding)
    expected = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert counter.decode(counter.encode(text)) == expected


@encodings
@given(before=texts, token=st.sampled_from(["<|endoftext|>", "<|fim_prefix|>", "<|endofprompt|>", "<|im_start|>"]))
def test_control_tokens_in_a_text_are_plain_text(encoding: str, before: str, token: str) -> None:
    counter = get_counter(encoding)
    assert max(counter.encode(before + token), default=0) < min(tiktoken_encoding(encoding)._special_tokens.values())
    assert counter.count(token) > 1


@encodings
@pytest.mark.parametrize("unit", [" ", "a", "\n", "。", "\u0301", "👍"])
def test_a_million_of_the_same_character(encoding: str, unit: str) -> None:
    # tiktoken panics on a million spaces, and is quadratic in the length of a word.
    counter = get_counter(encoding)
    assert 0 < counter.count(unit * 1_000_000) <= 4_000_000


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o", "o200k_base"),
        ("gpt-4o-mini-2024-07-18", "o200k_base"),
        ("gpt-4.1-mini", "o200k_base"),
        ("o3", "o200k_base"),
        ("gpt-5", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-3.5-turbo-0125", "cl100k_base"),
        ("text-embedding-3-small", "cl100k_base"),
    ],
)
def test_the_encoding_of_a_model(model: str, encoding: str) -> None:
    assert encoding_for_model(model) == encoding
    assert get_counter(model).name == encoding


def test_unknown_names_say_what_is_known() -> None:
    for call in (BpeCounter, get_counter, encoding_for_model):
        with pytest.raises(ConfigError, match="cl100k_base"):
            call("no-such-model")
