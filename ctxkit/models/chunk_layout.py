"""Where the chunks of a prompt stand among its ids."""

from __future__ import annotations

from dataclasses import dataclass

from ctxkit.kvcache.chunk_reuse import ChunkSpan
from ctxkit.models.template_counting import ChatTemplateCounter
from ctxkit.prompts import Prompt

__all__ = ["ChunkLayout", "lay_out"]


@dataclass(frozen=True, slots=True)
class ChunkLayout:
    """The ids of a prompt, and the chunks in it.

    Args:
        ids: what the model is fed.
        prefix: the ids before the first chunk's fence: the same for every prompt of a template without a history.
        chunks: where the texts of the chunks stand, in order.
        context_end: the ids up to the end of the last chunk's closing fence.
    """

    ids: tuple[int, ...]
    prefix: int
    chunks: tuple[ChunkSpan, ...]
    context_end: int


def lay_out(counter: ChatTemplateCounter, prompt: Prompt) -> ChunkLayout:
    """Find the context's segments among the pieces that the prompt is encoded in. Linear in the prompt.

    A template that changes or reorders texts hides them; then they are not found, and are read.
    """
    segments = [segment for segment in prompt.segments if segment.section == "context" and segment.text]
    ids: list[int] = []
    chunks: list[ChunkSpan] = []
    first: int | None = None
    at = end = 0
    for text, piece in counter.encode_pieces(prompt.turns, prompt.tools):
        if text is not None and at < len(segments) and text == segments[at].text:
            first = len(ids) if first is None else first
            if segments[at].sources and piece:
                chunks.append(ChunkSpan(len(ids), len(ids) + len(piece)))
            at += 1
            end = len(ids) + len(piece)
        ids += piece
    return ChunkLayout(tuple(ids), first or 0, tuple(chunks), end)
