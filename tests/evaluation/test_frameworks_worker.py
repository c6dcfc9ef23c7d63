"""Where the pieces of a peer's chunker stand in the text, though some of them have changed it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.evaluation.benchmarks._frameworks_worker import located
from tests.strategies import stored_texts


@pytest.mark.parametrize(
    ("text", "pieces", "spans"),
    [
        ("One. Two.\n\nThree.", ["One. Two.\n\n", "Three."], [(0, 11), (11, 17)]),  # contiguous pieces stay so
        ("One.\n\nTwo. Three.", ["One. Two.", "Three."], [(0, 10), (11, 17)]),  # joined by another white space
        ("so so so", ["so", "so", "so"], [(0, 2), (3, 5), (6, 8)]),  # copies in order
        ("Größe 漢字", ["Größe \ufffd", "\ufffd字"], [(0, 6), (7, 8)]),  # cut inside a character
        ("One. Two.", ["One.", "never said", " ", "Two."], [(0, 4), (5, 9)]),
    ],
)
def test_pieces_are_found(text: str, pieces: list[str], spans: list[tuple[int, int]]) -> None:
    assert located(text, pieces) == spans


@given(stored_texts, st.integers(1, 7))
def test_pieces_of_a_text_are_found_where_they_were_cut(text: str, size: int) -> None:
    text = text.replace("\ufffd", "")
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    cut = [(at, at + len(piece)) for at, piece in zip(range(0, len(text), size), pieces, strict=True) if piece.strip()]
    assert located(text, pieces) == cut
