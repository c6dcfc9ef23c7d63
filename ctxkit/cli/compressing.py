"""`ctxkit compress`."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace

import typer

from ctxkit.cli.output import EmbedderOption, JsonOption, emit, say
from ctxkit.cli.reading import read_document, text_wanted
from ctxkit.errors import ConfigError

__all__ = ["add_to"]


def compress(
    file: str = typer.Argument(..., help="A file; - reads standard input."),
    query: str = typer.Option(..., "--query", "-q", help="The question that decides what matters."),
    target: int | None = typer.Option(None, help="The tokens to come down to."),
    ratio: float | None = typer.Option(None, help="How many times smaller, instead of a target. [default: 3]"),
    floor: float = typer.Option(0.0, help="Nearness to the question, 0 to 1, below which nothing is kept."),
    show: bool = typer.Option(False, "--show", help="Print all of the text: what is kept, and what is dropped."),
    embedder: str = EmbedderOption,
    encoding: str = typer.Option("o200k_base", help="What counts the tokens."),
    name: str = typer.Option("stdin.txt", help="The source name of standard input; its ending decides the format."),
    as_json: bool = JsonOption,
) -> None:
    """Keep the sentences of a file that matter to a question; nothing is rewritten, nothing is stored.

    The spans are character offsets into the text that was read from the file.

    Example: ctxkit compress README.md --query "how is it tested?" --target 200
    """
    from ctxkit.composing import default_embedder, part_of
    from ctxkit.compression import SentenceCompressor
    from ctxkit.documents import Candidate, Chunk, Query, Span, subtract_spans
    from ctxkit.protocols import Embedder
    from ctxkit.reading import read_stream
    from ctxkit.tokens import get_counter

    if target is not None and ratio is not None:
        raise ConfigError("both a target and a ratio are given", remedy="Give --target or --ratio.")
    counter = get_counter(encoding)
    model: Embedder | None = part_of("embedder", default_embedder() if embedder == "auto" else embedder)
    stage = SentenceCompressor(
        target=target,
        ratio=3.0 if target is None and ratio is None else ratio,
        floor=floor,
        embedder=model,
        counter=counter,
    )
    if file == "-":
        with text_wanted():
            head, pieces = read_stream(sys.stdin.buffer, source=name)
            document = replace(head, text="".join(pieces))
    else:
        document = read_document(file)
    whole = Span(0, len(document.text))
    chunk = Chunk.of(document, whole, counter.count(document.text))
    started = time.perf_counter()
    left = stage(Query(query), [Candidate(chunk)])
    seconds = time.perf_counter() - started
    text = "".join(one.text for one in left)
    spans = [span for one in left for span in one.spans]
    tokens = counter.count(text)
    aim = target if target is not None else int(chunk.token_count / (ratio or 3.0))
    if as_json:
        emit(
            {
                "text": text,
                "spans": [{"start": span.start, "end": span.end} for span in spans],
                "tokens_in": chunk.token_count,
                "tokens_out": tokens,
                "seconds": round(seconds, 4),
            }
        )
    elif show:
        dropped = set(subtract_spans([whole], spans))
        for span in sorted([*spans, *dropped]):
            typer.echo(_shown(span.slice(document.text), kept=span not in dropped), nl=False, color=_colour())
        say()
    else:
        say(text)
    if not as_json:
        typer.echo(f"{chunk.token_count:,} tokens in, {tokens:,} out, {seconds:.2f} s", err=True)
    if not left and not text:
        typer.echo(f"no sentence is as near to the question as {floor:g}: nothing is kept", err=True)
    if tokens > aim:
        typer.echo(f"not even a word fits into {aim:,} tokens: the text is left whole", err=True)


def _colour() -> bool:
    return not os.environ.get("NO_COLOR") and (sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR")))


def _shown(text: str, *, kept: bool) -> str:
    """Kept text green, dropped text dim and red; without colours, dropped text between `[-` and `-]`."""
    clean = text.encode("utf-8", "replace").decode("utf-8")
    if _colour():
        return typer.style(clean, fg="green") if kept else typer.style(clean, fg="red", dim=True)
    return clean if kept else f"[-{clean}-]"


def add_to(app: typer.Typer) -> None:
    app.command()(compress)
