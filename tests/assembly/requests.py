"""Random requests for the laws of assembly: nasty documents, wrong hints, dialogues with calls, any budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from ctxkit.assembly import assemble
from ctxkit.documents import GAP, Candidate, Chunk, Document, Query, Span, intersect_spans
from ctxkit.history import Hysteresis, TailWindow
from ctxkit.messages import Message, Part, ToolCall
from ctxkit.prompts import Budget, Prompt, Section
from ctxkit.protocols import ChatCounter, Window
from ctxkit.templates import DEFAULT_TEMPLATE, Template
from tests.assembly.counters import counter_of
from tests.strategies import stored_texts, texts

TEMPLATES = [
    (DEFAULT_TEMPLATE, False),
    (Template.parse("{{question}}", name="bare"), False),
    (Template.parse("Read:\n\n{{context}}\nQ: {{question}}", name="one"), False),
    (Template.parse([{"role": "system", "content": "Be brief."}], name="no question"), False),
    (
        Template.parse(
            [
                {"role": "system", "content": "Speak {{tone}}. Documents: {{context}} That was all."},
                {"role": "user", "content": "An example"},
                {"role": "assistant", "content": "Its answer"},
                {"role": "history"},
                {"role": "user", "content": "{{question}}\nAgain: {{question}}"},
            ],
            name="documents first",
            version=3,
        ),
        True,
    ),
    (
        Template.parse(
            [
                {"role": "system", "content": "{{tone}}"},
                {"role": "user", "content": "{{context}}"},
                {"role": "history"},
                {"role": "user", "content": "{{question}}"},
            ],
            name="bare documents",
        ),
        True,
    ),
]

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@dataclass(frozen=True)
class Request:
    """The arguments of one assembly, and the documents its candidates come from."""

    query: Query
    template: Template
    payload: Mapping[str, Any]
    documents: Mapping[str, Document]
    candidates: tuple[Candidate, ...]
    history: tuple[Message, ...]
    budget: Budget
    tools: tuple[Mapping[str, Any], ...]
    window: Window
    called: bool
    """Whether the candidates are handed over by a function, as retrieval does."""
    local: bool
    """Whether a local model's counter counts."""

    @property
    def counter(self) -> ChatCounter:
        return counter_of(self.local)

    def assemble(self, counter: ChatCounter, **changes: Any) -> Prompt:
        request = replace(self, **changes)
        return assemble(
            request.query,
            template=request.template,
            payload=request.payload,
            history=request.history,
            candidates=request.found if request.called else request.candidates,
            budget=request.budget,
            counter=counter,
            window=request.window,
            tools=request.tools,
        )

    def found(self, query: Query) -> Sequence[Candidate]:
        assert query.room is not None
        assert 0 <= query.room <= self.budget.available
        assert replace(query, room=None) == replace(self.query, text=as_sent(self.query.text))
        return self.candidates


def as_sent(text: str) -> str:
    """The text as it is sent: no encoding carries a surrogate."""
    return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)


def ids(names: Callable[[int], str]) -> Callable[[Sequence[Message]], tuple[Message, ...]]:
    return lambda found: tuple(replace(message, id=names(at)) for at, message in enumerate(found))


turns = st.one_of(
    st.tuples(st.builds(Message, st.just("user"), texts)),
    st.tuples(st.builds(Message, st.just("assistant"), texts)),
    st.tuples(
        st.builds(
            lambda thought, text: Message("assistant", (Part("reasoning", thought), Part(text=text))), texts, texts
        )
    ),
    st.builds(
        lambda call, result: (
            Message("user", "Weather?"),
            Message("assistant", "", tool_calls=(ToolCall(call, "weather", '{"city": "Bern"}'),)),
            Message("tool", result, tool_call_id=call),
        ),
        st.sampled_from(["a", "b", "c"]),
        texts,
    ),
)
histories = st.lists(turns, max_size=5).map(lambda found: ids("m{}".format)([one for turn in found for one in turn]))


# Strategies are made once, not in each example: to make and check one takes longer than to draw from it.
_places = st.one_of(st.integers(0, 40), st.integers(0, 400))
_candidates = st.lists(
    st.tuples(
        st.integers(0, 2),  # which document
        _places,
        _places,
        st.integers(0, 400),  # a wrong hint of tokens
        st.one_of(st.none(), st.lists(st.tuples(_places, st.integers(0, 60)), max_size=4)),  # what was kept
        st.sampled_from([GAP, GAP, " ", ""]),
        st.sampled_from([None, 0.0, 0.2, 0.5, 0.9, 1.0, -1.0, float("nan")]),
    ),
    max_size=10,
)
_sections = st.lists(
    st.tuples(
        st.sampled_from(["history", "context", "question"]),
        st.sampled_from([0, 0, 20, 500]),
        st.sampled_from([None, None, 30, 300]),
        st.sampled_from([None, None, 0.0, 0.3, 1.0]),
        st.integers(-1, 1),
    ),
    max_size=3,
)
_sizes = st.one_of(st.integers(1, 400), st.integers(100, 4000))
_documents = st.lists(st.tuples(texts, st.sampled_from(["", "notes/{}.md", '"><x>\n\u202e'])), min_size=1, max_size=3)
_questions = st.tuples(texts.filter(lambda text: bool(text.strip())), st.sampled_from([None, "alice"]))
_templates = st.sampled_from(TEMPLATES)
_windows = st.sampled_from([TailWindow(), TailWindow(max_messages=2), Hysteresis(high_water=60, low=0.5)])
_shares = st.integers(0, 999)
_choices = st.tuples(st.booleans(), st.booleans(), st.booleans())


def _candidate(documents: Sequence[Document], drawn: tuple[Any, ...]) -> Candidate:
    number, one_end, other_end, tokens, pieces, gap, score = drawn
    document = documents[number % len(documents)]
    length = len(document.text)
    start, end = sorted((min(one_end, length), min(other_end, length)))
    chunk = replace(Chunk.of(document, Span(start, end), tokens), metadata={"source": document.source})
    scores = {} if score is None else {"final": score}
    if pieces is None:
        return Candidate(chunk, scores)
    kept = intersect_spans([chunk.span], [Span(at, at + size) for at, size in pieces])
    return Candidate(chunk, scores, kept, gap=gap)


@st.composite
def budgets(draw: st.DrawFn) -> Budget:
    size = draw(_sizes)
    sections = {}
    for name, least, more, share, priority in draw(_sections):
        least = least if name in ("history", "context") else 0
        most = None if more is None else least + more
        sections[name] = Section(min=least, max=most, share=share, priority=priority)
    return Budget(size, reserve_output=(size - 1) * draw(_shares) // 4_000, sections=sections)


_budgets = budgets()


@st.composite
def requests(draw: st.DrawFn) -> Request:
    documents = [
        Document(f"d{at}", text, source=source.format(at)) for at, (text, source) in enumerate(draw(_documents))
    ]
    template, has_payload = draw(_templates)
    question, session = draw(_questions)
    with_tools, called, local = draw(_choices)
    return Request(
        query=Query(question, session=session),
        template=template,
        payload={"tone": draw(stored_texts)} if has_payload else {},
        documents={document.id: document for document in documents},
        candidates=tuple(_candidate(documents, drawn) for drawn in draw(_candidates)),
        history=draw(histories),
        budget=draw(_budgets),
        tools=(WEATHER,) if with_tools else (),
        window=draw(_windows),
        called=called,
        local=local,
    )
