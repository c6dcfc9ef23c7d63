"""Law 3: every character of the context maps to its document, every message of the history to its id."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from ctxkit.documents import GAP, Span, intersect_spans, total_length
from ctxkit.prompts import Budget, Prompt, Segment
from ctxkit.protocols import ChatCounter
from tests.assembly.requests import Request, as_sent, requests

FENCED = re.compile(
    r'<document-(?P<tag>\d{6,}) id="(?P<number>\d+)"(?: source="[^"<>\n]*")?>\n(?:\[…\] )?(?P<text>.*?)'
    r"(?: \[…\])?\n?</document-(?P=tag)>\n?",
    re.DOTALL,
)


def _contexts(prompt: Prompt) -> list[Segment]:
    return [segment for segment in prompt.segments if segment.sources]


@given(requests(), st.integers(0, 4_000))
def test_the_segments_are_the_messages(request_: Request, extra: int) -> None:
    counter = request_.counter
    prompt = request_.assemble(counter, budget=_enough(request_, counter, extra))
    for index, turn in enumerate(prompt.turns):
        own = [segment for segment in prompt.segments if segment.message == index]
        assert own
        assert "".join(segment.text for segment in own) == turn.visible
        assert {segment.role for segment in own} == {turn.role}
    assert [segment.message for segment in prompt.segments] == sorted(segment.message for segment in prompt.segments)


@given(requests(), st.integers(0, 4_000))
def test_context_is_document_text(request_: Request, extra: int) -> None:
    counter = request_.counter
    prompt = request_.assemble(counter, budget=_enough(request_, counter, extra))
    for segment in _contexts(prompt):
        assert (segment.section, segment.trust) == ("context", "untrusted")
        (document_id,) = {source.document_id for source in segment.sources}
        document = request_.documents[document_id]
        assert segment.text == segment.gap.join(source.span.slice(as_sent(document.text)) for source in segment.sources)
        assert {source.source for source in segment.sources} == {document.source}
        # Only what the stages kept is sent.
        kept = [
            span
            for candidate in request_.candidates
            if candidate.chunk.document_id == document_id
            for span in candidate.spans
        ]
        spans = [source.span for source in segment.sources]
        assert intersect_spans(spans, kept) == tuple(spans)
    for document in request_.documents.values():  # no character is sent twice
        sent = [
            source.span
            for segment in _contexts(prompt)
            for source in segment.sources
            if source.document_id == document.id
        ]
        assert total_length(sent) == sum(span.length for span in sent)


@given(requests(), st.data())
def test_any_piece_of_context_can_be_located(request_: Request, data: st.DataObject) -> None:
    counter = request_.counter
    prompt = request_.assemble(counter, budget=Budget(20_000))
    for segment in _contexts(prompt):
        ends = data.draw(st.tuples(st.integers(0, len(segment.text)), st.integers(0, len(segment.text))))
        start, end = min(ends), max(ends)
        located = segment.locate(start, end)
        text = as_sent(request_.documents[segment.sources[0].document_id].text)
        found = "".join(source.span.slice(text) for source in located)
        assert found == _without_gaps(segment, start, end)
        assert segment.locate(0, len(segment.text)) == segment.sources


def _without_gaps(segment: Segment, start: int, end: int) -> str:
    """The characters `[start, end)` of the text that are not of a gap, by walking over every character."""
    owned: list[bool] = []
    for index, source in enumerate(segment.sources):
        owned += [False] * (len(segment.gap) if index else 0) + [True] * source.span.length
    return "".join(character for at, character in enumerate(segment.text) if start <= at < end and owned[at])


@given(requests(), st.integers(0, 4_000))
def test_every_segment_names_where_it_is_from(request_: Request, extra: int) -> None:
    counter = request_.counter
    prompt = request_.assemble(counter, budget=_enough(request_, counter, extra))
    past = {message.id: message for message in request_.history}
    for segment in prompt.segments:
        if segment.section == "history":
            assert segment.trust == "history"
            assert segment.message_id is not None
            assert segment.role == past[segment.message_id].role
            assert (
                segment.text in (as_sent(past[segment.message_id].visible), "[empty message]")
                or ":" in segment.message_id
            )
        elif segment.section == "question":
            assert segment.text == as_sent(request_.query.text)
            assert segment.trust == "untrusted"
        elif segment.sources or segment.is_fence:
            assert segment.template is None
        elif segment.section in request_.payload:
            assert segment.text == as_sent(request_.payload[segment.section])
            assert segment.trust == "untrusted"
        else:
            assert segment.template == request_.template.reference
            assert segment.trust == "trusted"


@given(requests())
def test_no_document_can_end_its_fence(request_: Request) -> None:
    """Read back by its fences, the context gives each document's text whole, numbered from 1."""
    counter = request_.counter
    prompt = request_.assemble(counter, budget=Budget(20_000))
    context = "".join(segment.text for segment in prompt.segments if segment.section == "context")
    contexts = _contexts(prompt)
    position = 0
    for number, segment in enumerate(contexts, 1):
        match = FENCED.match(context, position)
        assert match is not None
        assert int(match["number"]) == number
        assert match["tag"] not in segment.text
        whole = match.group()
        opening = whole[: whole.index("\n") + 1]
        body = whole[len(opening) : whole.rindex("</document-")]
        assert body.startswith((segment.text, GAP.lstrip() + segment.text))
        assert body.removeprefix("" if body.startswith(segment.text) else GAP.lstrip())[len(segment.text) :] in (
            "",
            "\n",
            GAP.rstrip() + "\n",
        )
        position = match.end()
    assert position == len(context)


def _enough(request: Request, counter: ChatCounter, extra: int) -> Budget:
    """A budget in which the mandatory parts fit, and `extra` tokens more."""
    bare = request.assemble(counter, budget=Budget(10_000_000), history=(), candidates=())
    return Budget(bare.token_count + extra)


def test_a_span_that_was_cut_maps_to_what_is_left() -> None:
    from ctxkit.documents import Source

    sources = (Source("d", "s", Span(0, 5)), Source("d", "s", Span(9, 12)))
    segment = Segment("context", "user", "hello" + GAP + "abc", 5, "untrusted", sources=sources)
    assert segment.locate(5, 5 + len(GAP)) == ()
    assert [source.span for source in segment.locate(4, 99)] == [Span(4, 5), Span(9, 12)]
