"""Streams never show half a character, nor a piece of a stop text, and join to what was said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.models.text_stream import StopFilter, TextStream
from ctxkit.models.tool_calls import CALL_MARKER, parse_tool_calls
from tests.strategies import stored_texts


def decode(ids: list[int]) -> str:
    """A tokenizer of bytes: the hardest there is for half characters."""
    return bytes(ids).decode("utf-8", "replace")


@given(text=stored_texts)
def test_a_stream_of_bytes_joins_to_the_text(text: str) -> None:
    stream = TextStream(decode)
    pieces = [stream.push(byte) for byte in text.encode()]
    assert "".join(pieces) + stream.finish() == text.rstrip("\ufffd")
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text


@given(text=stored_texts, stops=st.lists(st.text(min_size=1, max_size=5), max_size=3), data=st.data())
def test_stops_are_cut_wherever_the_pieces_end(text: str, stops: list[str], data: st.DataObject) -> None:
    if text:
        start = data.draw(st.integers(0, len(text) - 1))
        stops = [*stops, text[start : start + data.draw(st.integers(1, 6))]]
    found = [(position + len(stop), position) for stop in stops if (position := text.find(stop)) >= 0]
    expected = text[: min(found)[1]] if found else text
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    filter_ = StopFilter(stops)
    said = ""
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        said += filter_.push(text[begin:end])
        assert expected.startswith(said), "a piece of a stop was shown"
        assert all(stop not in said for stop in stops)
    said += filter_.finish()
    assert said == expected
    assert filter_.stopped is bool(found)


def test_the_stop_that_is_complete_first_counts() -> None:
    for pieces in (["010"], ["01", "0"], ["0", "1", "0"]):
        filter_ = StopFilter(["010", "1"])
        assert "".join(map(filter_.push, pieces)) + filter_.finish() == "0"


def test_half_a_character_at_the_end_is_left_out() -> None:
    stream = TextStream(decode)
    said = "".join(stream.push(byte) for byte in "ok 👍".encode()[:-1])
    assert said + stream.finish() == "ok "


def test_text_after_a_marker_goes_elsewhere() -> None:
    stream = StopFilter(["STOP"], marker=CALL_MARKER)
    said = [stream.push(piece) for piece in ("Let me see <tool", "_call>{", "} ST", "OP more")]
    assert "".join(said) == "Let me see "
    assert stream.finish() == ""
    assert stream.marked == "<tool_call>{} "
    assert stream.stopped


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('<tool_call>{"name": "f", "arguments": {"x": "é"}}</tool_call>', [("f", '{"x": "é"}')]),
        (
            '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n<tool_call>{"name": "g"}',
            [("f", "{}"), ("g", "{}")],
        ),
        ('<tool_call>[{"name": "f", "arguments": "{}"}, {"name": "g"}]</tool_call>', [("f", "{}"), ("g", "{}")]),
        ("<tool_call>{broken</tool_call>", []),
        ("<tool_call>{}</tool_call>", []),
        ('<tool_call>{"name": "f"}</tool_call> and more', []),
    ],
)
def test_calls_in_text(text: str, calls: list[tuple[str, str]]) -> None:
    assert [(call.name, call.arguments) for call in parse_tool_calls(text)] == calls
