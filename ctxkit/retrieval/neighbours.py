"""Candidates that say the same: copies are dropped, overlapping and touching chunks of one document become one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ctxkit.documents import Candidate, Chunk, Entity, Span, merge_spans
from ctxkit.errors import ConfigError
from ctxkit.protocols import TokenCounter

__all__ = ["drop_copies", "merge_neighbours"]

_WIDEST_GAP = 64
"""Characters of white space that two chunks may have between them and still be neighbours."""


def merge_neighbours(
    candidates: Sequence[Candidate],
    *,
    max_tokens: int | None = None,
    counter: TokenCounter | None = None,
    text_of: Callable[[str], str] | None = None,
) -> list[Candidate]:
    """Join the chunks of one document that overlap or touch; candidates come back best first.

    The text of a joined chunk is spliced from its parts, so it is still `document.text[start:end]` (law 1). It has the
    best score of its parts in every signal, their entities, the metadata of the best part, and the headings that all
    parts share. Chunks that overlap are always joined, lest a text be sent twice; chunks that only touch are joined
    while the result has at most `max_tokens`. Candidates that nothing joins come back as they are.

    Args:
        max_tokens: of a chunk joined from touching ones; None for no limit, 0 joins only what overlaps.
        counter: counts the joined text; without one its tokens are the sum of its parts', less what they share in
            proportion to its length, rounded up.
        text_of: gives the text of a document by id, "" where it is gone. With it, chunks that have nothing but a
            little white space between them touch, too; many chunkers leave blank lines out. It is asked only for
            documents that have such chunks, and believed only where it agrees with them.

    O(n log n) in the number of candidates, linear in their text.
    """
    if max_tokens is not None and max_tokens < 0:
        raise ConfigError(f"max_tokens is {max_tokens}", remedy="Use 0 or more, or None.")
    by_document: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_document.setdefault(candidate.chunk.document_id, []).append(candidate)
    joined = []
    for group in by_document.values():
        for run in _touching(_overlapping(group), max_tokens, text_of):
            joined.append(run[0] if len(run) == 1 else _join(run, counter, text_of))
    return sorted(joined, key=best_first)


def drop_copies(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Without candidates that would send a text which a better one sends already; white space apart. Order is kept.

    Of copies in one document the first in its text stays, with the rank and scores of the best: which of two equal
    passages is cited must not hang on the millionth part of a score.
    """
    place: dict[str, int] = {}
    kept: list[Candidate] = []
    for candidate in candidates:
        at = place.setdefault(" ".join(candidate.text.split()), len(kept))
        if at == len(kept):
            kept.append(candidate)
            continue
        best = kept[at]
        if candidate.chunk.document_id == best.chunk.document_id and candidate.chunk.span < best.chunk.span:
            kept[at] = replace(candidate, scores=best.scores, via=best.via)
    return kept


def best_first(candidate: Candidate) -> tuple[float, str, int, int]:
    """Sorts by falling score; ties by document and place, so that the order never depends on how it was found."""
    span = candidate.chunk.span
    return (-candidate.score, candidate.chunk.document_id, span.start, span.end)


def _overlapping(group: Sequence[Candidate]) -> list[list[Candidate]]:
    """Runs of candidates of one document whose spans share characters, in order."""
    runs: list[list[Candidate]] = []
    end = -1
    for candidate in sorted(group, key=lambda each: (each.chunk.span, best_first(each))):
        span = candidate.chunk.span
        if runs and (span.start < end or span == runs[-1][-1].chunk.span):
            runs[-1].append(candidate)
            end = max(end, span.end)
        else:
            runs.append([candidate])
            end = span.end
    return runs


def _touching(
    runs: list[list[Candidate]], max_tokens: int | None, text_of: Callable[[str], str] | None
) -> list[list[Candidate]]:
    """Joins runs that touch, while they stay small enough."""
    joined: list[list[Candidate]] = []
    for run in runs:
        if joined:
            last = max(joined[-1], key=lambda each: each.chunk.span.end).chunk
            tokens = _estimate(joined[-1]) + _estimate(run)
            if (max_tokens is None or tokens <= max_tokens) and _touch(last, run[0].chunk, text_of):
                joined[-1] = joined[-1] + run
                continue
        joined.append(run)
    return joined


def _touch(left: Chunk, right: Chunk, text_of: Callable[[str], str] | None) -> bool:
    """Whether nothing stands between two chunks of a document, or nothing but white space."""
    gap = Span(left.span.end, right.span.start)
    if gap.length == 0:
        return True
    if text_of is None or gap.length > _WIDEST_GAP:
        return False
    text = text_of(left.document_id)
    # The document may have changed since its chunks were read: all three pieces must be those of one text.
    return gap.slice(text).isspace() and left.span.slice(text) == left.text and right.span.slice(text) == right.text


def _estimate(run: Sequence[Candidate]) -> int:
    """The tokens of the union: each part's, less the share of its text that the parts before it hold."""
    total, end = 0, run[0].chunk.span.start
    for candidate in run:
        span = candidate.chunk.span
        new = max(0, span.end - max(span.start, end))
        total += -(-candidate.chunk.token_count * new // max(1, span.length))
        end = max(end, span.end)
    return total


def _join(run: Sequence[Candidate], counter: TokenCounter | None, text_of: Callable[[str], str] | None) -> Candidate:
    start, end, pieces = run[0].chunk.span.start, run[0].chunk.span.start, []
    for candidate in run:
        span = candidate.chunk.span
        if text_of is not None and span.start > end:
            pieces.append(Span(end, span.start).slice(text_of(candidate.chunk.document_id)))
            end = span.start
        if span.end > end:
            pieces.append(candidate.chunk.text[end - span.start :])
            end = span.end
    text = "".join(pieces)
    best = min(run, key=best_first)
    chunk = Chunk(
        id=f"{best.chunk.document_id}:{start}-{end}",
        document_id=best.chunk.document_id,
        span=Span(start, end),
        text=text,
        token_count=_estimate(run) if counter is None else counter.count(text),
        heading_path=_shared([candidate.chunk.heading_path for candidate in run]),
        entities=_entities(run),
        metadata=best.chunk.metadata,
    )
    scores = {
        name: max(candidate.scores[name] for candidate in run if name in candidate.scores)
        for name in dict.fromkeys(name for candidate in run for name in candidate.scores)
    }
    kept = None
    if any(candidate.kept is not None for candidate in run):
        kept = merge_spans(span for candidate in run for span in candidate.spans)
    return replace(best, chunk=chunk, scores=scores, kept=kept)


def _shared(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    shared = paths[0]
    for path in paths[1:]:
        length = 0
        while length < min(len(shared), len(path)) and shared[length] == path[length]:
            length += 1
        shared = shared[:length]
    return shared


def _entities(run: Sequence[Candidate]) -> tuple[Entity, ...]:
    found = dict.fromkeys(entity for candidate in run for entity in candidate.chunk.entities)
    return tuple(sorted(found, key=lambda entity: (entity.span, entity.label)))
