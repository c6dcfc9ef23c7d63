"""`ctxkit ingest` and `ctxkit search`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import typer

from ctxkit.cli.kv import DEFAULT_FOLDER, kv_folder
from ctxkit.cli.output import (
    EmbedderOption,
    FilterOption,
    JsonOption,
    NeighboursOption,
    NowOption,
    StoreOption,
    TenantOption,
    emit,
    error_line,
    parse_filters,
    parse_moment,
    progress,
    say,
    table,
)
from ctxkit.errors import ConfigError

__all__ = ["add_to"]

PrecomputeKvOption = typer.Option(
    None, "--kv", help="Where the chunks are kept. [default: $CTXKIT_KV, else .ctxkit/kv, which is made]"
)


def precompute_folder(value: str | None) -> Path:
    """The folder of keys and values, which need not be there yet. Errors: `ConfigError` where it is switched off."""
    folder = kv_folder(value)
    if folder is None and (value or os.environ.get("CTXKIT_KV")):
        raise ConfigError("the store of keys and values is off", remedy="Give --kv FOLDER.")
    return folder or DEFAULT_FOLDER


def ingest(
    paths: list[str] = typer.Argument(..., help="Files and folders; - reads standard input."),
    chunker: str = typer.Option("graph", help="The name of a registered chunker."),
    max_tokens: int = typer.Option(256, help="The most tokens of a chunk."),
    overlap: int = typer.Option(0, help="The tokens that neighbours share; the graph chunker takes none."),
    embedder: str = EmbedderOption,
    extractor: str = typer.Option(
        "light", help="Finds the entities of the graph: none, or the name of a registered extractor."
    ),
    prune: bool = typer.Option(False, help="Also delete documents under the paths whose files are gone."),
    precompute_kv: str | None = typer.Option(
        None,
        "--precompute-kv",
        metavar="MODEL",
        help="Afterwards read every chunk ahead for this local model, so that ask --kv-chunks need not: local, "
        "local:PATH.",
    ),
    template: str | None = typer.Option(None, "--template", help="Of the prompts to precompute for. [default: plain]"),
    kv: str | None = PrecomputeKvOption,
    name: str = typer.Option("stdin.txt", help="The source name of standard input; its ending decides the format."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Read files and folders into the store.

    Example: ctxkit ingest docs/ README.md
    """
    import sys

    from ctxkit.composing import chunker_of
    from ctxkit.engine import ContextEngine
    from ctxkit.reading import read_bytes

    if precompute_kv is None and (kv is not None or template is not None):
        raise ConfigError("--kv and --template are for precomputing", remedy="Add --precompute-kv MODEL, as local.")
    folder = precompute_folder(kv) if precompute_kv is not None else None
    cutter = chunker_of(chunker, extractor, overlap=overlap, max_tokens=max_tokens)
    with (
        ContextEngine.open(
            store,
            tenant=tenant,
            embedder=embedder,
            extractor=extractor,
            chunker=cutter,
            kv=folder,
            kv_chunks=folder is not None,
        ) as engine,
        progress("Reading", quiet=as_json) as step,
    ):

        def show(source: str, report: Any) -> None:
            step(f"{report.documents} documents, {report.chunks} chunks  {source}")

        if "-" in paths and len(paths) > 1:
            raise ConfigError("- cannot stand beside other paths", remedy="Ingest standard input alone.")
        if paths == ["-"]:
            report = engine.ingest_documents([read_bytes(sys.stdin.buffer.read(), source=name)], on_document=show)
        else:
            report = engine.ingest(paths, prune=prune, on_document=show)
        ahead = None
        if precompute_kv is not None:
            ahead = engine.precompute(
                precompute_kv, template=template, on_chunk=lambda done: step(f"{done.chunks} chunks read ahead")
            )
    if as_json:
        emit({**report.to_json(), **({"precomputed": ahead.to_json()} if ahead else {})})
    else:
        noun = "document" if report.documents == 1 else "documents"
        say(
            f"{report.documents} {noun}: {report.added} added, {report.updated} updated, "
            f"{report.unchanged} unchanged, {report.deleted} deleted; "
            f"{report.chunks} chunks written in {report.seconds:.1f} s"
        )
        for source, reason in report.skipped:
            say(f"  skipped {source}: {reason}")
        if ahead is not None:
            say(
                f"{ahead.chunks} chunks for {precompute_kv}: {ahead.stored} read ahead ({ahead.tokens:,} tokens) in "
                f"{ahead.seconds:.1f} s, {ahead.there} there already; in {folder}"
            )
            for chunk, reason in ahead.skipped:
                say(f"  skipped chunk {chunk}: {reason}")
        for source, error in report.failed:
            error_line(f"{source}: {error}" if source not in error else error)
    if report.failed:
        raise typer.Exit(1)


def search(
    query: str = typer.Argument(..., help="What to look for."),
    k: int = typer.Option(10, "-k", help="How many chunks."),
    filters: list[str] = FilterOption,
    half_life: float | None = typer.Option(None, help="Prefer newer documents: days in which the weight halves."),
    diversity: float | None = typer.Option(None, help="Avoid repeats: 0 (relevance only) to 1 (variety only)."),
    neighbours: bool = NeighboursOption,
    now: str | None = NowOption,
    explain: bool = typer.Option(False, "--explain", help="Also say through which names the graph reached a chunk."),
    embedder: str = EmbedderOption,
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Find the chunks that bear on a query, best first.

    Example: ctxkit search "how do I rotate the key" -k 5
    """
    from ctxkit.cli.stages import make_stages, moment_for
    from ctxkit.engine import ContextEngine

    with ContextEngine.open(store, tenant=tenant, create=False, embedder=embedder) as engine:
        engine.stages = make_stages(engine, half_life=half_life, diversity=diversity, neighbours=neighbours)
        moment = moment_for(parse_moment(now), half_life)
        found = engine.search(query, k, filters=parse_filters(filters), now=moment)
        describe = getattr(engine.retriever, "describe", None)
        facts = describe() if explain and callable(describe) else {}
    rows = [
        {
            "document": candidate.chunk.document_id,
            "source": candidate.chunk.metadata.get("source", ""),
            "start": candidate.chunk.span.start,
            "end": candidate.chunk.span.end,
            "text": candidate.text,
            "score": round(candidate.score, 6),
            "scores": {signal: round(score, 6) for signal, score in candidate.scores.items()},
            "via": list(candidate.via),
        }
        for candidate in found
    ]
    if as_json:
        emit(rows)
        return
    shown = [
        {
            "score": row["score"],
            "source": f"{row['source']}:{row['start']}-{row['end']}",
            "text": str(row["text"])[:100],
        }
        | ({"via": ", ".join(candidate.via)} if explain else {})
        for candidate, row in zip(found, rows, strict=True)
    ]
    say(table(shown))
    for name, fact in facts.items():
        say(f"{name}: {fact}")


def add_to(app: typer.Typer) -> None:
    app.command()(ingest)
    app.command()(search)
