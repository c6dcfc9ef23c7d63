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


@st.composite
def candidate_lists(draw: st.DrawFn, documents: Sequence[Document], *, most: int = 10) -> tuple[Candidate, ...]:
    found = []
    for _ in range(draw(st.integers(0, most))):
        document = draw(st.sampled_from(documents))
        ends = draw(st.tuples(st.integers(0, len(document.text)), st.integers(0, len(document.text))))
        span = Span(min(ends), max(ends))
        chunk = Chunk.of(document, span, draw(st.integers(0, 400)))
        chunk = replace(chunk, metadata={"source": document.source})
        kept, gap = None, GAP
        if draw(st.booleans()):
            pieces = draw(st.lists(st.tuples(st.integers(0, len(document.text)), st.integers(0, 60)), max_size=4))
            kept = intersect_spans([span], [Span(start, start + length) for start, length in pieces])
            gap = draw(st.sampled_from([GAP, GAP, " ", ""]))
        score = draw(st.sampled_from([None, 0.0, 0.2, 0.5, 0.9, 1.0, -1.0, float("nan")]))
        found.append(Candidate(chunk, {} if score is None else {"final": score}, kept, gap=gap))
    return tuple(found)


@st.composite
def budgets(draw: st.DrawFn) -> Budget:
    size = draw(st.one_of(st.integers(1, 400), st.integers(100, 4000)))
    sections = {}
    for name in draw(st.lists(st.sampled_from(["history", "context", "question"]), max_size=3)):
        least = draw(st.sampled_from([0, 0, 20, 500]))
        sections[name] = Section(
            min=least if name in ("history", "context") else 0,
            max=draw(st.sampled_from([None, None, least + 30, least + 300])),
            share=draw(st.sampled_from([None, None, 0.0, 0.3, 1.0])),
            priority=draw(st.integers(-1, 1)),
        )
    return Budget(size, reserve_output=draw(st.integers(0, size - 1)) // 4, sections=sections)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    documents = [
        Document(f"d{at}", text, source=draw(st.sampled_from(["", f"notes/{at}.md", '"><x>\n\u202e'])))
        for at, text in enumerate(draw(st.lists(texts, min_size=1, max_size=3)))
    ]
    template, has_payload = draw(st.sampled_from(TEMPLATES))
    return Request(
        query=Query(
            draw(texts.filter(lambda text: bool(text.strip()))), session=draw(st.sampled_from([None, "alice"]))
        ),
        template=template,
        payload={"tone": draw(stored_texts)} if has_payload else {},
        documents={document.id: document for document in documents},
        candidates=draw(candidate_lists(documents)),
        history=draw(histories),
        budget=draw(budgets()),
        tools=(WEATHER,) if draw(st.booleans()) else (),
        window=draw(st.sampled_from([TailWindow(), TailWindow(max_messages=2), Hysteresis(high_water=60, low=0.5)])),
        called=draw(st.booleans()),
        local=draw(st.booleans()),
    )
