"""`ctxkit graph show|stats`."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING

import typer

from ctxkit.checking import did_you_mean
from ctxkit.cli.opening import open_store
from ctxkit.cli.output import JsonOption, StoreOption, TenantOption, emit, say, table, write
from ctxkit.errors import ConfigError, NotFoundError

if TYPE_CHECKING:
    from ctxkit.documents import Document
    from ctxkit.storage import Store

__all__ = ["app"]

app = typer.Typer(help="The graph of what documents name.", no_args_is_help=True)


def _document(store: Store, wanted: str) -> Document:
    """The document of this id, or else of this source."""
    try:
        return store.documents.get(wanted)
    except NotFoundError:
        found = [info.id for info in store.documents.list(wanted) if info.source == wanted]
    if not found:
        near = _near(wanted, [info.source for info in store.documents.list()])
        raise NotFoundError(
            "there is no document of this id or source",
            subject=wanted,
            remedy=f"{near}Ingest it: ctxkit ingest PATH.",
        )
    if len(found) > 1:
        raise ConfigError(
            f"{len(found)} documents have this source",
            subject=wanted,
            remedy=f"Name one by its id: {', '.join(found[:5])}.",
        )
    return store.documents.get(found[0])


def _near(wanted: str, sources: list[str]) -> str:
    """Sources that end in the same file name come first: a path is often given from another folder."""
    name = PurePath(wanted).name.casefold()
    same = [source for source in sources if name and PurePath(source).name.casefold() == name]
    return did_you_mean(wanted, same) or (f"Did you mean {same[0]!r}? " if same else did_you_mean(wanted, sources))


@app.command()
def show(
    doc: str = typer.Argument(..., help="A document's id or its source."),
    output: str | None = typer.Option(None, "--output", "-o", help="Write the page here. [default: standard output]"),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Draw a document's chunks, the cuts between them, and the graph of its entities, as one HTML page.

    Example: ctxkit graph show docs/guide.md --output guide.html
    """
    from pathlib import Path

    from ctxkit.graph.picture import picture_of

    with open_store(store, tenant) as opened:
        document = _document(opened, doc)
        keys = opened.documents.matching_keys({"document_id": document.id})
        picture = picture_of(document, opened.documents.chunks([] if keys is None else keys))
    if as_json:
        emit(picture.to_json())
        return
    from ctxkit.graph.drawing import page_of

    page = page_of(picture)
    if output is None:
        write(page)
        return
    Path(output).write_text(page, encoding="utf-8")
    named = sum(1 for node in picture.nodes if node.chunks)
    say(f"{output}: {len(picture.chunks)} chunks, {named} entities, {len(page):,} characters")


@app.command()
def stats(
    top: int = typer.Option(10, min=0, help="How many of the most frequent entities to list."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Say how large the graph is, and what it names most.

    Example: ctxkit graph stats --top 20
    """
    from ctxkit.graph import EntityGraph

    with open_store(store, tenant) as opened:
        parts = opened.graph.load()
    graph = EntityGraph.from_counts(parts)
    frequency = graph.frequency.tolist()
    best = sorted(range(len(graph)), key=lambda index: (-frequency[index], index))[:top]
    labels = Counter(node.label for node in graph.nodes)
    found = {
        "documents": len(parts),
        "chunks": len(graph.keys),
        "entities": len(graph),
        "mentions": int(graph.mentions.sum()),
        "links": graph.links.nnz // 2,
        "aliases": graph.aliases.nnz // 2,
        "labels": dict(sorted(labels.items(), key=lambda item: (-item[1], item[0]))),
        "top": [
            {"name": graph.nodes[index].name, "label": graph.nodes[index].label, "chunks": frequency[index]}
            for index in best
        ],
    }
    if as_json:
        emit(found)
        return
    say("  ".join(f"{name} {found[name]:,}" for name in ("documents", "chunks", "entities", "links", "aliases")))
    if best:
        say(table(found["top"]))  # type: ignore[arg-type]
