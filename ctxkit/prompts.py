"""The nouns of the model's side: budgets, segments, prompts and completions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ctxkit.checking import check_kind, check_number, check_whole
from ctxkit.documents import GAP, Source, Span
from ctxkit.errors import ConfigError
from ctxkit.messages import Message, Role, ToolCall
from ctxkit.trace import Dropped, Trace, label

__all__ = [
    "Budget",
    "Completion",
    "CompletionDelta",
    "CompletionOptions",
    "Prompt",
    "Section",
    "Segment",
    "Timings",
    "Trust",
    "Usage",
]

Trust = Literal["trusted", "untrusted", "history"]


@dataclass(frozen=True, slots=True)
class Section:
    """The limits of one section of a prompt.

    Args:
        min: tokens that are set aside for the section before sections compete; unused ones are given back.
        max: tokens that it never exceeds, None for no cap.
        share: the part of the room in [0, 1] that it never exceeds, None for no cap.
        priority: sections of higher priority are served first; equal ones share the room evenly, and what one of them
            does not use is the other's.
    """

    min: int = 0
    max: int | None = None
    share: float | None = None
    priority: int = 0

    def __post_init__(self) -> None:
        check_whole(self.min, "min", minimum=0)
        if self.max is not None:
            check_whole(self.max, "max", minimum=0)
        if self.share is not None:
            check_number(self.share, "share", minimum=0, maximum=1, remedy="A share is a number from 0 to 1.")
        check_kind(self.priority, int, "priority", remedy="Give a whole number.")
        if self.max is not None and self.max < self.min:
            raise ConfigError(f"min {self.min} and max {self.max} do not fit together", remedy="Need 0 <= min <= max.")

    def cap(self, room: int) -> int:
        """The most tokens the section may have when `room` tokens are free for content."""
        limits = [room]
        if self.max is not None:
            limits.append(self.max)
        if self.share is not None:
            limits.append(int(room * self.share))
        return max(0, min(limits))


@dataclass(frozen=True, slots=True)
class Budget:
    """How many tokens a prompt may have.

    Args:
        max_tokens: the model's window: prompt and answer together.
        reserve_output: tokens kept free for the answer.
        sections: limits by section (`history`, `context`, or a template's own).

    Example:
        >>> Budget(8_000, reserve_output=512).available
        7488
    """

    max_tokens: int
    reserve_output: int = 0
    sections: Mapping[str, Section] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_whole(self.max_tokens, "max_tokens", minimum=1)
        check_whole(self.reserve_output, "reserve_output", minimum=0)
        check_kind(self.sections, Mapping, "sections", remedy='Give a mapping such as {"history": Section(max=2_000)}.')
        for name, section in self.sections.items():
            check_kind(section, Section, f"the section {name}", remedy="Give a Section.")
        if self.reserve_output >= self.max_tokens:
            raise ConfigError(
                f"reserve_output is {self.reserve_output} and max_tokens {self.max_tokens}",
                remedy="The answer's reserve must be at least 0 and smaller than the window.",
            )

    @property
    def available(self) -> int:
        """The tokens the prompt may have: `max_tokens - reserve_output`."""
        return self.max_tokens - self.reserve_output

    def section(self, name: str) -> Section:
        return self.sections.get(name, Section())


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a prompt with one source (law 3).

    Args:
        section: `system`, `history`, `context`, `question`, or a template's own name.
        message: the index of the message in the prompt that holds the segment.
        text: exactly what the message contains; the texts of a message's segments concatenate to its content.
        token_count: its tokens by the target model's counter.
        trust: `trusted` (the template), `untrusted` (documents, payload values), `history`.
        template: `name@version` where the text comes from a template, else None.
        message_id: the message of the dialogue it comes from, else None.
        sources: the document spans it holds, in order; `text` is their texts, with `gap` between two of them.
        gap: `GAP`, or of text pruned by words a space or nothing.
    """

    section: str
    role: Role
    text: str
    token_count: int
    trust: Trust
    message: int = 0
    template: str | None = None
    message_id: str | None = None
    sources: tuple[Source, ...] = ()
    gap: str = GAP

    @property
    def is_fence(self) -> bool:
        """Whether the segment is one of the fences that assembly writes around documents."""
        return self.section == "context" and self.trust == "trusted" and self.template is None and not self.sources

    @property
    def quotes(self) -> tuple[tuple[Source, str], ...]:
        """Each source with the part of `text` that it holds."""
        found: list[tuple[Source, str]] = []
        offset = 0
        for source in self.sources:
            found.append((source, self.text[offset : offset + source.span.length]))
            offset += source.span.length + len(self.gap)
        return tuple(found)

    def locate(self, start: int, end: int) -> tuple[Source, ...]:
        """The document spans behind the characters `[start, end)` of `text`; gaps have none.

        Example:
            >>> one, two = Source("d", "a.md", Span(10, 13)), Source("d", "a.md", Span(20, 23))
            >>> segment = Segment("context", "user", "abc" + GAP + "xyz", 4, "untrusted", sources=(one, two))
            >>> [source.span for source in segment.locate(1, 10)]
            [Span(start=11, end=13), Span(start=20, end=22)]
        """
        found: list[Source] = []
        offset = 0
        for source in self.sources:
            first, last = max(start, offset), min(end, offset + source.span.length)
            if first < last:
                found.append(source._replace(span=Span(first, last).shift(source.span.start - offset)))
            offset += source.span.length + len(self.gap)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model gets, and where every token of it comes from.

    `turns` is the prompt for a model: its messages with one part per segment, so that a local model can encode it
    segment by segment. `messages` is the same in the form of the OpenAI chat API.

    Args:
        token_count: of the whole, as the target model counts it; never over `budget.available` (law 2).
        stable_prefix_tokens: how many tokens from the start the next turn will repeat byte for byte (law 7).
        fingerprint: SHA-256 over the hashes of template, payload, history and context (law 6).
        hashes: those hashes by name.
        counter: the name of the counter that counted it.
        exact: False where the counter is an estimate that never undercounts.
    """

    turns: tuple[Message, ...]
    segments: tuple[Segment, ...]
    token_count: int
    budget: Budget
    stable_prefix_tokens: int
    fingerprint: str
    hashes: Mapping[str, str]
    counter: str
    exact: bool = True
    tools: tuple[Mapping[str, Any], ...] = ()
    trace: Trace = field(default_factory=Trace, compare=False)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages as OpenAI-style dicts."""
        return [turn.to_openai() for turn in self.turns]

    @property
    def dropped(self) -> tuple[Dropped, ...]:
        """Everything that some stage left out, with the reason."""
        return self.trace.dropped

    @property
    def sources(self) -> tuple[Source, ...]:
        """The document spans in the prompt, in order, without repeats: the citations an answer can have."""
        return tuple(dict.fromkeys(source for segment in self.segments for source in segment.sources))

    def explain(self) -> str:
        """A table for people: section, tokens, source; then what was dropped and why."""
        rows = [("section", "role", "tokens", "trust", "source")]
        fences = [segment for segment in self.segments if segment.is_fence]
        for segment in self.segments:
            if not segment.is_fence:
                rows.append(
                    (segment.section, segment.role, f"{segment.token_count:,}", segment.trust, _origin(segment))
                )
        if fences:
            tokens = sum(segment.token_count for segment in fences)
            rows.append(("context", fences[0].role, f"{tokens:,}", "trusted", "the fences around the documents"))
        segment_tokens = sum(segment.token_count for segment in self.segments)
        rows.append(("(roles, tools)", "", f"{self.token_count - segment_tokens:,}", "", "the model's chat format"))
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = [
            "  ".join(
                cell.rjust(widths[index]) if index == 2 else cell.ljust(widths[index]) if index < 4 else cell
                for index, cell in enumerate(row)
            ).rstrip()
            for row in rows
        ]
        lines.insert(1, "-" * max(map(len, lines)))
        accuracy = "exact" if self.exact else "an estimate that does not undercount"
        lines.append(
            f"\n{self.token_count:,} of {self.budget.available:,} tokens "
            f"({self.budget.max_tokens:,} window - {self.budget.reserve_output:,} for the answer), "
            f"counted by {self.counter} ({accuracy}); "
            f"stable prefix {self.stable_prefix_tokens:,} tokens; fingerprint {self.fingerprint[:16]}"
        )
        if self.dropped:
            lines.append(f"\ndropped ({len(self.dropped)}):")
            lines += [
                f"  {item.section}  {item.token_count:,} tokens  {item.name}: {item.reason}" for item in self.dropped
            ]
        if self.trace.records:
            lines.append("\nstages:")
            for record in self.trace.records:
                lines.append(
                    f"  {record.stage}: {record.items_in} -> {record.items_out}, {record.seconds * 1000:.1f} ms"
                )
                lines += [f"    {name}: {note}" for name, note in record.notes.items() if isinstance(note, str)]
                lines += [
                    f"    {source} via {', '.join(names)}" for source, names in record.notes.get("via", {}).items()
                ]
        return "\n".join(lines)


def _origin(segment: Segment) -> str:
    if segment.sources:
        return label(segment.sources)
    if segment.message_id is not None:
        return f"message {segment.message_id}"
    return f"template {segment.template}" if segment.template else "the request"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionOptions:
    """How to answer.

    Args:
        max_tokens: of the answer.
        temperature: 0 decodes greedily.
        seed: the same seed gives the same answer, where the model can promise it.
        stop: texts that end the answer; the answer does not contain them.
        timeout: seconds for the whole answer.
    """

    max_tokens: int = 512
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    timeout: float = 120.0

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            raise ConfigError("stop is a str", subject=self.stop, remedy='Give a tuple, such as ("END",).')
        check_whole(self.max_tokens, "max_tokens", minimum=1)
        check_number(self.temperature, "temperature", minimum=0)
        check_number(self.top_p, "top_p", minimum=0, maximum=1)
        check_number(self.timeout, "timeout", minimum=0)
        if self.seed is not None:
            check_kind(self.seed, int, "seed", remedy="Give a whole number.")
        for name in ("top_p", "timeout"):
            if not getattr(self, name):
                raise ConfigError(f"{name} is {getattr(self, name)}", remedy="It must be above 0.")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the model counted them; `cached_tokens` of the prompt were not computed again."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds. `first_token` counts from the request; `load` is the model's loading, 0 when it was loaded."""

    load: float = 0.0
    prefill: float = 0.0
    first_token: float = 0.0
    decode: float = 0.0
    total: float = 0.0


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model answered. `finish_reason` is `stop`, `length`, `tool_calls` or `content_filter`; cost is in USD."""

    text: str
    model: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    timings: Timings = field(default_factory=Timings)
    finish_reason: str = "stop"
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class CompletionDelta:
    """One step of a streamed answer: new text; the last one carries the whole `completion`."""

    text: str = ""
    completion: Completion | None = None
