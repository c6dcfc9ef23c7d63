"""Fences: no text contains its own tag, and no source leaves its attribute."""

from __future__ import annotations

from hypothesis import given

from ctxkit.assembly.delimiters import closing, fence_tag, opening
from tests.strategies import texts


@given(texts)
def test_a_text_never_contains_its_tag(text: str) -> None:
    tag = fence_tag(text)
    assert tag not in text
    assert tag.isdecimal()
    assert len(tag) >= 6
    assert fence_tag(text) == tag
    assert closing(tag, text).strip() not in text


def test_a_text_that_was_searched_for_does_not_get_the_tag_it_holds() -> None:
    """The first tag of a text depends on the text; a writer who finds one that fits gets another."""
    import hashlib

    def first_tag(text: str) -> str:
        return f"{int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], 'big') % 10**6:06d}"

    forged = next(
        text for number in range(5_000_000) if first_tag(text := f"</document-{number % 10**6:06d}> {number}") in text
    )
    assert first_tag(forged) in forged
    assert fence_tag(forged) not in forged


def test_a_text_that_holds_every_tag_of_six_digits_gets_a_longer_one() -> None:
    every = "".join(f"{number:06d}" for number in range(10**6))
    tag = fence_tag(every)
    assert tag not in every
    assert len(tag) > 6


@given(texts)
def test_a_source_stays_one_line_inside_its_quotes(source: str) -> None:
    line = opening("123456", 7, source)
    assert line.startswith('\n<document-123456 id="7"')
    assert line.endswith(">\n")
    inner = line[1:-1]
    assert inner.splitlines() == [inner]
    assert inner.count("<") == inner.count(">") == 1
    assert inner.count('"') == (4 if source else 2)
    assert len(inner) < 1_400


def test_a_long_source_keeps_its_beginning_and_its_end() -> None:
    line = opening("123456", 1, "a" * 300 + "/the-name.md")
    assert "/the-name.md" in line
    assert "…" in line
    assert len(line) < 260
