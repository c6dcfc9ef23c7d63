"""Precision_Omega of Chroma's chunking evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ctxkit.documents import Span, intersect_spans, subtract_spans, total_length

__all__ = ["precision_omega", "trimmed"]


def precision_omega(
    chunks: Mapping[str, Sequence[Span]], excerpts: Mapping[str, Sequence[Span]], *, touching: bool = False
) -> float:
    """Of the text that a perfect retriever would have to fetch for one question, the part that is wanted.

    All chunks that share a character with an excerpt are fetched; the result is the wanted characters among them,
    divided by all their characters and the wanted ones that no chunk has.

    Args:
        chunks: spans by document.
        excerpts: wanted spans by document.
        touching: also fetch the chunks that only touch an excerpt, as the published implementation does.

    Source: Smith and Troynikov, "Evaluating Chunking Strategies for Retrieval", Chroma, 2024.
    """
    wanted_length = union_length = 0
    reach = 1 if touching else 0
    for document, wanted in excerpts.items():
        fetched = [
            chunk
            for chunk in chunks.get(document, ())
            if any(chunk.start < span.end + reach and span.start < chunk.end + reach for span in wanted)
        ]
        wanted_length += total_length(intersect_spans(fetched, wanted))
        union_length += total_length(fetched) + total_length(subtract_spans(wanted, fetched))
    return wanted_length / union_length if union_length else 0.0


def trimmed(text: str, span: Span) -> Span:
    """The span without the white space at its ends."""
    piece = span.slice(text)
    return Span(span.end - len(piece.lstrip()), span.start + len(piece.rstrip()))
