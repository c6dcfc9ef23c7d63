"""`ctxkit assemble` and `ctxkit ask`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import typer

from ctxkit.answers import Answer
from ctxkit.checking import check_whole
from ctxkit.cli.kv import KvCodecOption, KvOption, kv_folder
from ctxkit.cli.opening import open_engine
from ctxkit.cli.output import (
    EmbedderOption,
    FilterOption,
    JsonOption,
    NeighboursOption,
    NowOption,
    RecallOption,
    StoreOption,
    TenantOption,
    emit,
    parse_filters,
    parse_moment,
    parse_payload,
    say,
    write,
)
from ctxkit.cli.stages import make_stages, moment_for
from ctxkit.errors import ConfigError, ProviderError
from ctxkit.prompts import Budget, CompletionDelta, CompletionOptions, Section

__all__ = ["add_to"]

SessionOption = typer.Option(None, "--session", help="The session whose history is sent.")
TemplateOption = typer.Option(None, "--template", help="A template, such as answer@production. [default: a plain one]")
PayloadOption = typer.Option(
    None, "--payload", help="The template's variables: a JSON object, @FILE, or a stored one: KEY, KEY@VERSION."
)
RecordOption = typer.Option(False, "--record", help="Store the prompt, so that ctxkit replay gives it back.")
BudgetOption = typer.Option(None, "--budget", help="Tokens of prompt and answer. [default: the model's window]")
ReserveOption = typer.Option(None, "--reserve", help="Tokens kept for the answer. [default: a quarter, at most 1,024]")
SectionOption = typer.Option(
    [], "--section", help="Limits such as history:max=2000,share=0.3 (min, max, share, priority)."
)
CandidatesOption = typer.Option(20, "-k", "--candidates", help="How many chunks to retrieve.")
HalfLifeOption = typer.Option(None, "--half-life", help="Prefer newer documents: days in which the weight halves.")
DiversityOption = typer.Option(None, "--diversity", help="Avoid repeats: 0 (relevance only) to 1 (variety only).")
CompressOption = typer.Option(False, "--compress", help="Keep only the sentences that bear on the question.")
PositionOption = typer.Option(False, "--position", help="Put the best documents first and last.")


def assemble(
    query: str = typer.Argument(..., help="The question."),
    model: str | None = typer.Option(None, "--model", help="Whose tokens count. [default: openai:gpt-4o]"),
    budget: int | None = BudgetOption,
    reserve: int | None = ReserveOption,
    section: list[str] = SectionOption,
    session: str | None = SessionOption,
    recall: bool = RecallOption,
    template: str | None = TemplateOption,
    payload: str | None = PayloadOption,
    candidates: int = CandidatesOption,
    filters: list[str] = FilterOption,
    half_life: float | None = HalfLifeOption,
    diversity: float | None = DiversityOption,
    neighbours: bool = NeighboursOption,
    compress: bool = CompressOption,
    position: bool = PositionOption,
    now: str | None = NowOption,
    record: bool = RecordOption,
    explain: bool = typer.Option(False, "--explain", help="Print where every token comes from."),
    embedder: str = EmbedderOption,
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Assemble the prompt for a question inside a token budget, and print it.

    Example: ctxkit assemble "how do I rotate the key" --budget 4000 --explain
    """
    _check_recall(recall, session)
    with open_engine(store, tenant, keys=True, embedder=embedder, candidates=candidates) as engine:
        engine.stages = make_stages(
            engine,
            model=model,
            half_life=half_life,
            diversity=diversity,
            neighbours=neighbours,
            compress=compress,
            position=position,
        )
        prompt = engine.assemble(
            query,
            session=session,
            template=template,
            payload=parse_payload(payload),
            budget=_budget(budget, reserve, section, model),
            model=model,
            filters=parse_filters(filters),
            now=moment_for(parse_moment(now), half_life, recall=recall),
            recall=recall,
            record=record,
        )
    if as_json:
        emit(prompt_json(prompt))
    elif explain:
        say(prompt.explain())
    else:
        for message in prompt.messages:
            say(f"=== {message['role']}")
            say(str(message["content"]))
        recorded = f"; recorded as {prompt.fingerprint[:16]}" if record else ""
        say(f"=== {prompt.token_count:,} of {prompt.budget.available:,} tokens{recorded}")


def ask(
    query: str = typer.Argument(..., help="The question."),
    model: str = typer.Option("local", "--model", help="local, local:PATH, openai:NAME or anthropic:NAME."),
    budget: int | None = BudgetOption,
    reserve: int | None = ReserveOption,
    section: list[str] = SectionOption,
    session: str | None = SessionOption,
    recall: bool = RecallOption,
    template: str | None = TemplateOption,
    payload: str | None = PayloadOption,
    candidates: int = CandidatesOption,
    filters: list[str] = FilterOption,
    half_life: float | None = HalfLifeOption,
    diversity: float | None = DiversityOption,
    neighbours: bool = NeighboursOption,
    compress: bool = CompressOption,
    position: bool = PositionOption,
    now: str | None = NowOption,
    max_tokens: int = typer.Option(256, "--max-tokens", help="Of the answer."),
    temperature: float = typer.Option(0.0, help="0 always gives the likeliest answer."),
    seed: int | None = typer.Option(None, help="The same seed gives the same answer."),
    kv: str | None = KvOption,
    kv_codec: str = KvCodecOption,
    kv_chunks: bool = typer.Option(
        False, "--kv-chunks", help="Use the chunks that ingest --precompute-kv read ahead: faster, and approximate."
    ),
    stop: list[str] = typer.Option([], help="A text that ends the answer; repeat for more."),
    timeout: float = typer.Option(120.0, help="Seconds for the answer."),
    record: bool = RecordOption,
    explain: bool = typer.Option(False, "--explain", help="Also print where every token of the prompt comes from."),
    embedder: str = EmbedderOption,
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Answer a question from the store's documents, with citations.

    Example: ctxkit ask "how do I rotate the key" --model local
    """
    _check_recall(recall, session)
    options = CompletionOptions(
        max_tokens=max_tokens, temperature=temperature, seed=seed, stop=tuple(stop), timeout=timeout
    )
    folder = kv_folder(kv)
    if kv_chunks and folder is None:
        raise ConfigError("there is no store of chunks", remedy="Make one: ctxkit ingest --precompute-kv local PATH.")
    with open_engine(
        store,
        tenant,
        keys=True,
        embedder=embedder,
        candidates=candidates,
        kv=folder,
        kv_codec=kv_codec,
        kv_chunks=kv_chunks,
    ) as engine:
        engine.stages = make_stages(
            engine,
            model=model,
            half_life=half_life,
            diversity=diversity,
            neighbours=neighbours,
            compress=compress,
            position=position,
        )
        arguments: dict[str, Any] = {
            "model": model,
            "session": session,
            "options": options,
            "template": template,
            "payload": parse_payload(payload),
            "budget": _budget(budget, reserve, section, model),
            "filters": parse_filters(filters),
            "now": moment_for(parse_moment(now), half_life, recall=recall),
            "recall": recall,
            "record": record,
        }
        answer = engine.ask(query, **arguments) if as_json else _streamed(engine.stream(query, **arguments))
    if as_json:
        emit(answer_json(answer))
        return
    say()
    for citation in answer.citations:
        start, end = citation.source.span
        say(f"[{citation.number}] {citation.source.source}:{start}-{end}  {' '.join(citation.text.split())[:90]}")
    usage, timings = answer.completion.usage, answer.completion.timings
    say(
        f"\n{answer.completion.model}: {usage.prompt_tokens:,} prompt + {usage.completion_tokens:,} answer tokens of "
        f"{answer.prompt.budget.max_tokens:,}; first token {timings.first_token:.2f} s, total {timings.total:.2f} s"
    )
    if record:
        say(f"recorded as {answer.prompt.fingerprint[:16]}")
    if explain:
        say()
        say(answer.prompt.explain())


def _check_recall(recall: bool, session: str | None) -> None:
    if recall and session is None:
        raise ConfigError("--recall needs a session", remedy="Give --session NAME, or leave --recall out.")


def _streamed(steps: Iterator[CompletionDelta | Answer]) -> Answer:
    """Print the answer while it comes; returns the whole of it."""
    answer: Answer | None = None
    for step in steps:
        if isinstance(step, Answer):
            answer = step
        else:
            write(step.text)
    write("\n")
    if answer is None:
        raise ProviderError("the stream ended without an answer", remedy="Ask again.")
    return answer


def _budget(tokens: int | None, reserve: int | None, sections: list[str], model: str | None) -> Budget | None:
    if tokens is None and reserve is None and not sections:
        return None
    if tokens is None:
        from ctxkit.engine_parts import DEFAULT_COUNTER
        from ctxkit.models import get_window

        tokens = get_window(model or DEFAULT_COUNTER)
    check_whole(tokens, "--budget", minimum=1)
    kept = min(1024, tokens // 4) if reserve is None else reserve
    if not 0 <= kept < tokens:
        raise ConfigError(
            f"--reserve is {kept} and the budget {tokens}", remedy="Give --reserve 0 or more, and less than the budget."
        )
    return Budget(tokens, reserve_output=kept, sections=dict(map(_section, sections)))


def _section(value: str) -> tuple[str, Section]:
    name, _, limits = value.partition(":")
    remedy = "Write --section NAME:min=N,max=N,share=0.3,priority=N."
    numbers: dict[str, Any] = {}
    for limit in filter(None, limits.split(",")):
        key, _, number = limit.partition("=")
        if key not in ("min", "max", "share", "priority"):
            raise ConfigError(f"a section has no limit {key!r}", subject=value, remedy=remedy)
        try:
            numbers[key] = float(number) if key == "share" else int(number)
        except ValueError as error:
            raise ConfigError(f"{number!r} is not a number", subject=value, remedy=remedy) from error
    if not name or not numbers:
        raise ConfigError("a section needs a name and limits", subject=value, remedy=remedy)
    return name, Section(**numbers)


def prompt_json(prompt: Any) -> dict[str, Any]:
    """The documented keys of `ctxkit assemble --json`."""
    return {
        "messages": prompt.messages,
        "segments": [
            {
                "section": segment.section,
                "role": segment.role,
                "token_count": segment.token_count,
                "trust": segment.trust,
                "message": segment.message_id,
                "sources": _sources(segment.sources),
            }
            for segment in prompt.segments
        ],
        "token_count": prompt.token_count,
        "max_tokens": prompt.budget.max_tokens,
        "reserve_output": prompt.budget.reserve_output,
        "stable_prefix_tokens": prompt.stable_prefix_tokens,
        "fingerprint": prompt.fingerprint,
        "counter": prompt.counter,
        "exact": prompt.exact,
        "dropped": [
            {
                "section": item.section,
                "item": item.item,
                "token_count": item.token_count,
                "reason": item.reason,
                "sources": _sources(item.sources),
            }
            for item in prompt.dropped
        ],
    }


def answer_json(answer: Any) -> dict[str, Any]:
    """The documented keys of `ctxkit ask --json`."""
    completion = answer.completion
    return {
        "answer": answer.text,
        "citations": [
            {
                "number": citation.number,
                "source": citation.source.source,
                "start": citation.source.span.start,
                "end": citation.source.span.end,
                "text": citation.text,
                "cited": citation.cited,
            }
            for citation in answer.citations
        ],
        "usage": asdict(completion.usage),
        "timings": {name: round(seconds, 4) for name, seconds in asdict(completion.timings).items()},
        "model": completion.model,
        "finish_reason": completion.finish_reason,
        "token_count": answer.prompt.token_count,
        "max_tokens": answer.prompt.budget.max_tokens,
        "fingerprint": answer.prompt.fingerprint,
    }


def _sources(sources: Any) -> list[dict[str, Any]]:
    return [
        {"document": source.document_id, "source": source.source, "start": source.span.start, "end": source.span.end}
        for source in sources
    ]


def add_to(app: typer.Typer) -> None:
    app.command()(assemble)
    app.command()(ask)
