"""A document's graph as one HTML page that needs nothing else: no script, no font, no address is loaded.

The text of a document is hostile until it is escaped; every text passes through `_safe`, and the page's own policy
forbids everything but its style.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from ctxkit.documents import Chunk, Entity
from ctxkit.graph.layout import Drawn, choose
from ctxkit.graph.picture import Picture

__all__ = ["CHUNKS", "ENTITIES", "page_of"]

ENTITIES = 40
"""Entities that are drawn, at most: those that most chunks name."""

CHUNKS = 400
"""Chunks whose text is shown, at most."""

ROWS = 24
"""Entities of the table of chunks."""

_COLOURS = 8  # as many as the style has; further labels share the last, which is grey


def page_of(picture: Picture) -> str:
    """The page. The same picture gives the same page.

    Example:
        >>> from ctxkit.documents import Document
        >>> from ctxkit.graph.picture import picture_of
        >>> page_of(picture_of(Document("d", "<b>", title="A & B"), {})).count("A &amp; B")
        2
    """
    colours = _colours(picture)
    title = picture.document.title or picture.document.source or picture.document.id
    drawn = choose(picture, ENTITIES)
    parts = [
        f"<title>{_safe(title)}</title><style>{_STYLE}</style></head><body>",
        f"<header><h1><bdi>{_safe(title)}</bdi></h1><p>{_summary(picture)}</p>{_legend(picture, colours)}</header>",
        *_graph(picture, drawn, colours),
        *_rows(picture, drawn, colours),
        *_text(picture, colours),
        "</body></html>\n",
    ]
    return _HEAD + "\n".join(parts)


def _safe(text: str) -> str:
    return escape(text, quote=True)


def _plural(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _summary(picture: Picture) -> str:
    near = sum(edge.kind == "near" for edge in picture.edges)
    counted = [
        _plural(len(picture.chunks), "chunk", "chunks"),
        _plural(sum(chunk.token_count for chunk in picture.chunks), "token", "tokens"),
        _plural(sum(1 for node in picture.nodes if node.chunks), "entity", "entities"),
        _plural(near, "tie", "ties"),
        _plural(len(picture.edges) - near, "alias", "aliases"),
    ]
    source = f"<bdi>{_safe(picture.document.source)}</bdi> · " if picture.document.source else ""
    return source + " · ".join(counted)


def _colours(picture: Picture) -> dict[str, int]:
    """The place of each label's colour, the commonest label first."""
    mentions: dict[str, int] = {}
    for node in picture.nodes:
        mentions[node.label] = mentions.get(node.label, 0) + node.mentions
    ordered = sorted(mentions, key=lambda label: (-mentions[label], label))
    return {label: min(index, _COLOURS - 1) for index, label in enumerate(ordered)}


def _legend(picture: Picture, colours: dict[str, int]) -> str:
    items = "".join(f'<li><i class="k{colour}"></i><bdi>{_safe(label)}</bdi></li>' for label, colour in colours.items())
    return f'<ul class="legend">{items}</ul>' if items else ""


def _graph(picture: Picture, drawn: Drawn, colours: dict[str, int]) -> Iterator[str]:
    if not drawn.nodes:
        yield (
            "<p>This document's chunks name no entity. Ingest it with an extractor, or with a chunker that finds "
            "entities.</p>"
        )
        return
    named = sum(1 for node in picture.nodes if node.chunks)
    left_out = (
        f" The {len(drawn.nodes)} of {named:,} that most chunks name are drawn." if len(drawn.nodes) < named else ""
    )
    yield "<section><h2>What is named together</h2>"
    yield (
        "<p>The larger, the more chunks name it. The clearer a line, the more often two are close beyond chance; "
        f"a dashed line joins two names of one thing.{left_out}</p>"
    )
    yield f'<svg class="graph" viewBox="0 0 {drawn.width} {drawn.height}" role="img"><g>'
    for edge in drawn.edges:
        (x1, y1), (x2, y2) = drawn.places[edge.source], drawn.places[edge.target]
        left, right = (picture.nodes[node].display for node in (edge.source, edge.target))
        said = f"{left} – {right}: " + ("one thing" if edge.kind == "alias" else f"{edge.weight:.2f}, {edge.chunks}×")
        style = 'class="alias"' if edge.kind == "alias" else f'stroke-opacity="{0.2 + 0.6 * edge.weight:.2f}"'
        width = min(5.0, 0.8 + edge.chunks**0.5 * 0.6)
        yield (
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke-width="{width:.1f}" {style}>'
            f"<title>{_safe(said)}</title></line>"
        )
    yield "</g>"
    first = _first_chunks(picture)
    for node in drawn.nodes:
        entity, (x, y) = picture.nodes[node], drawn.places[node]
        said = f"{entity.display} ({entity.label}): in {_plural(entity.chunks, 'chunk', 'chunks')}, "
        said += f"{_plural(entity.mentions, 'mention', 'mentions')}"
        yield (
            f'<a href="#c{first[node]}"><g class="k{colours[entity.label]}"><title>{_safe(said)}</title>'
            f'<circle cx="{x}" cy="{y}" r="{drawn.radius[node]}"/>'
            f'<text x="{x}" y="{y + drawn.radius[node] + 11}">{_safe(_short(entity.display))}</text></g></a>'
        )
    yield "</svg></section>"


def _short(name: str, most: int = 22) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _first_chunks(picture: Picture) -> dict[int, int]:
    first: dict[int, int] = {}
    for index, mentions in enumerate(picture.found):
        for _, node in mentions:
            first.setdefault(node, index)
    return first


def _rows(picture: Picture, drawn: Drawn, colours: dict[str, int]) -> Iterator[str]:
    """Entities as rows, chunks as columns: a line over several columns is a thread that cuts go through."""
    count = len(picture.chunks)
    if not drawn.nodes or count < 2:
        return
    where: dict[int, list[int]] = {node: [] for node in drawn.nodes[:ROWS]}
    for index, mentions in enumerate(picture.found):
        for node in {node for _, node in mentions} & where.keys():
            where[node].append(index)
    order = sorted(where, key=lambda node: (where[node][0], -len(where[node]), node))
    left, height, step = 170, 20 * len(order) + 26, 770 / count
    yield "<section><h2>Where each is named</h2>"
    yield (
        f"<p>A column for each chunk, a dot where it names the entity. {_plural(count - 1, 'cut', 'cuts')}; "
        "the lines that one crosses are the ties that it breaks.</p>"
    )
    yield f'<svg class="rows" viewBox="0 0 960 {height}" role="img">'
    if step >= 5:
        cuts = "".join(f"M{left + step * index:.1f} 4V{height - 20}" for index in range(1, count))
        yield f'<path class="cut" d="{cuts}"/>'
    for row, node in enumerate(order):
        entity, y, found = picture.nodes[node], 16 + 20 * row, where[node]
        at = [f"{left + step * (index + 0.5):.1f}" for index in found]
        dots = "".join(f"M{x} {y}h0" for x in at)
        yield (
            f'<g class="k{colours[entity.label]}"><title>{_safe(entity.display)}</title>'
            f'<text x="{left - 12}" y="{y + 4}">{_safe(_short(entity.display))}</text>'
            f'<path class="span" d="M{at[0]} {y}H{at[-1]}"/>'
            f'<path class="dots" stroke-width="{max(3.0, min(9.0, step)):.1f}" d="{dots}"/></g>'
        )
    ticks = sorted({round(part * (count - 1) / 8) for part in range(9)})
    for index in ticks:
        yield f'<text class="tick" x="{left + step * (index + 0.5):.1f}" y="{height - 6}">{index + 1}</text>'
    yield "</svg></section>"


def _text(picture: Picture, colours: dict[str, int]) -> Iterator[str]:
    yield "<section><h2>The chunks</h2>"
    for index, chunk in enumerate(picture.chunks[:CHUNKS]):
        if index:
            yield _cut(picture, index, colours)
        headings = " › ".join(chunk.heading_path)
        where = (
            f"{index + 1} · {_plural(chunk.token_count, 'token', 'tokens')} · {chunk.span.start:,}–{chunk.span.end:,}"
        )
        yield f'<article id="c{index}"><h3>{where} <bdi>{_safe(headings)}</bdi></h3>'
        if chunk.context:
            yield f'<p class="context"><bdi>{_safe(chunk.context)}</bdi></p>'
        yield f'<div class="text" dir="auto">{_marked(picture, chunk, picture.found[index], colours)}</div></article>'
    if len(picture.chunks) > CHUNKS:
        yield f"<p>The first {CHUNKS:,} of {len(picture.chunks):,} chunks are shown.</p>"
    yield "</section>"


def _cut(picture: Picture, index: int, colours: dict[str, int]) -> str:
    shared = sorted(picture.cuts[index - 1], key=lambda node: (-picture.nodes[node].mentions, node))
    names = ", ".join(
        f'<b class="k{colours[picture.nodes[node].label]}"><bdi>{_safe(picture.nodes[node].display)}</bdi></b>'
        for node in shared[:8]
    )
    more = f" and {len(shared) - 8} more" if len(shared) > 8 else ""
    said = f"on both sides: {names}{more}" if shared else "nothing is named on both sides"
    return f'<div class="between"><span>{said}</span></div>'


def _marked(picture: Picture, chunk: Chunk, mentions: Sequence[tuple[Entity, int]], colours: dict[str, int]) -> str:
    pieces: list[str] = []
    position = chunk.span.start
    for entity, node in mentions:
        if entity.span.start < position or entity.span.end > chunk.span.end:
            continue  # inside another one, which is marked
        found = picture.nodes[node]
        pieces.append(_safe(chunk.text[position - chunk.span.start : entity.span.start - chunk.span.start]))
        said = f"{found.display} ({found.label})"
        inner = _safe(chunk.text[entity.span.start - chunk.span.start : entity.span.end - chunk.span.start])
        pieces.append(f'<mark class="k{colours[found.label]}" title="{_safe(said)}">{inner}</mark>')
        position = entity.span.end
    pieces.append(_safe(chunk.text[position - chunk.span.start :]))
    return "".join(pieces)


_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
"""

_LIGHT = ("#2a78d6", "#d9542b", "#178f66", "#7a5bd0", "#b7820a", "#c2407c", "#2f7f8f", "#77736b")
_DARK = ("#5b9df0", "#ee7f58", "#43bf90", "#a78df0", "#d9a634", "#e377a8", "#5cb3c4", "#a09c94")
_KINDS = "".join(f".k{index}{{--k:var(--k{index})}}" for index in range(_COLOURS))


def _variables(colours: Sequence[str], **others: str) -> str:
    named = {f"k{index}": colour for index, colour in enumerate(colours)} | others
    return "".join(f"--{name}:{value};" for name, value in named.items())


_STYLE = (
    f":root{{{_variables(_LIGHT, page='#fbfaf8', ink='#22201c', soft='#6d6a63', line='#dedad2', card='#fff')}"
    "color-scheme:light dark}"
    f"@media(prefers-color-scheme:dark){{:root{{"
    f"{_variables(_DARK, page='#171614', ink='#eceae5', soft='#9d998f', line='#37342f', card='#201e1b')}}}}}"
    + _KINDS
    + """
*{box-sizing:border-box}
body{margin:0 auto;max-width:1000px;padding:24px 20px 80px;background:var(--page);color:var(--ink);
font:15px/1.55 system-ui,sans-serif}
h1{font-size:24px;line-height:1.25;margin:0}
h2{font-size:17px;margin:36px 0 2px}
header p,section>p{color:var(--soft);margin:4px 0 10px;overflow-wrap:anywhere}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;list-style:none;margin:0;padding:0;font-size:13px}
.legend i{display:inline-block;width:10px;height:10px;border-radius:50%;background:var(--k);margin-right:6px}
svg{display:block;width:100%;height:auto;background:var(--card);border:1px solid var(--line);border-radius:8px}
svg text{font:12px system-ui,sans-serif;fill:var(--ink)}
.graph text{text-anchor:middle;paint-order:stroke;stroke:var(--card);stroke-width:3px;stroke-linejoin:round}
.graph line{stroke:var(--soft)}
.graph .alias{stroke-dasharray:4 4;stroke-opacity:.9}
.graph circle{fill:var(--k);stroke:var(--card);stroke-width:1.5}
.graph a:hover circle,.graph a:focus circle{stroke:var(--ink)}
.rows text{text-anchor:end}.rows .tick{text-anchor:middle;fill:var(--soft);font-size:11px}
.rows path{fill:none}.cut{stroke:var(--line);stroke-width:1}
.span{stroke:var(--k);stroke-opacity:.3;stroke-width:2}.dots{stroke:var(--k);stroke-linecap:round}
article{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 14px 12px}
article:target{border-color:var(--k0);box-shadow:0 0 0 1px var(--k0)}
h3{font-size:12px;font-weight:500;color:var(--soft);margin:0 0 6px}
.context{font-size:13px;color:var(--soft);font-style:italic;margin:0 0 6px}
.text{white-space:pre-wrap;overflow-wrap:anywhere}
mark{color:inherit;background:color-mix(in srgb,var(--k) 16%,transparent);border-bottom:2px solid var(--k);
border-radius:3px 3px 0 0;padding:0 1px}
.between{display:flex;align-items:center;gap:10px;margin:9px 0;font-size:12.5px;color:var(--soft)}
.between::before,.between::after{content:"";flex:1;border-top:1px dashed var(--soft);opacity:.5}
.between span{max-width:75%;text-align:center}
.between b{font-weight:600;color:var(--k)}
"""
)
