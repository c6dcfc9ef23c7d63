"""`ctxkit chunk`."""

from __future__ import annotations

import sys
from dataclasses import replace

import typer

from ctxkit.cli.output import JsonOption, emit, say
from ctxkit.cli.reading import read_document

__all__ = ["add_to"]


def chunk(
    file: str = typer.Argument(..., help="A file; - reads standard input."),
    chunker: str = typer.Option("graph", help="The name of a registered chunker."),
    max_tokens: int = typer.Option(256, help="The most tokens of a chunk."),
    overlap: int = typer.Option(0, help="The tokens that neighbours share; not every chunker takes it."),
    extractor: str = typer.Option(
        "light", help="Finds entities where the chunker does: none, or the name of a registered extractor."
    ),
    encoding: str = typer.Option("o200k_base", help="What counts the tokens."),
    name: str = typer.Option("stdin.txt", help="The source name of standard input; its ending decides the format."),
    as_json: bool = JsonOption,
) -> None:
    """Cut a file into chunks and print them; nothing is stored. Standard input is cut while it arrives.

    Example: ctxkit chunk README.md --max-tokens 256 --json
    """
    from ctxkit.chunking import StreamableChunker, StreamingChunker
    from ctxkit.composing import chunker_of
    from ctxkit.reading import read_stream
    from ctxkit.registry import check_name
    from ctxkit.tokens import get_counter

    if extractor != "none":
        check_name("extractor", extractor)  # a chunker that has none would not look at it
    cutter = chunker_of(chunker, extractor, overlap=overlap, max_tokens=max_tokens, counter=get_counter(encoding))
    if file == "-":
        head, text = read_stream(sys.stdin.buffer, source=name)
        if isinstance(cutter, StreamableChunker):
            pieces = StreamingChunker(chunker=cutter).stream(text, head)
        else:
            pieces = cutter.chunk(replace(head, text="".join(text)))
    else:
        pieces = cutter.chunk(read_document(file))
    count = tokens = 0
    for piece in pieces:
        count += 1
        tokens += piece.token_count
        if as_json:
            emit(
                {
                    "start": piece.span.start,
                    "end": piece.span.end,
                    "token_count": piece.token_count,
                    "text": piece.text,
                    "entities": [
                        {"text": entity.text, "label": entity.label, "start": entity.span.start, "end": entity.span.end}
                        for entity in piece.entities
                    ],
                    "heading_path": list(piece.heading_path),
                    "context": piece.context,
                }
            )
            continue
        heading = f"  {' > '.join(piece.heading_path)}" if piece.heading_path else ""
        say(f"--- {piece.span.start}-{piece.span.end}  {piece.token_count} tokens{heading}")
        if piece.context:
            say(f"    {piece.context}")
        say(piece.text)
    if not as_json:
        say(f"--- {count} {'chunk' if count == 1 else 'chunks'}, {tokens:,} tokens")


def add_to(app: typer.Typer) -> None:
    app.command()(chunk)
