"""Reads the chunks of a store ahead for a local model, so that prompts that hold them need not read them again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ctxkit.documents import Candidate, Chunk, Span
from ctxkit.errors import BudgetError, ConfigError
from ctxkit.prompts import Prompt

if TYPE_CHECKING:
    from ctxkit.kvcache.chunk_reuse import ChunkCache
    from ctxkit.models.chunk_layout import ChunkLayout
    from ctxkit.models.local import LocalModel
    from ctxkit.storage import Store

__all__ = ["NEIGHBOURS", "Precomputed", "chunk_cache", "learn_chunks", "stored_chunks"]

NEIGHBOURS = (
    "The harbour town grew slowly through the last century. Its market was held on Saturdays, and farmers from the "
    "valley brought wool, cheese and apples to the square beside the old church. A railway reached it in the "
    "eighteen-nineties, and with it came small workshops, a printing house and a school for girls. Most families "
    "lived from fishing until the fleet was sold; later the cannery and the glass works gave them wages. The council "
    "kept careful records of rents, births and weather, and a local doctor published them with his own remarks. In "
    "summer visitors rented rooms along the promenade, where a brass band played in the evenings. After the flood the "
    "lower streets were rebuilt in brick, the bridge was raised by two metres, and a plaque on the mill still marks "
    "how high the water stood.",
    "Most machines of this kind have three parts: a frame, a drive and a control unit. The frame carries the load and "
    "should be checked once a year for cracks. The drive turns electric current into motion; its bearings need oil, "
    "and the belt is replaced after about four thousand hours. The control unit reads the sensors, compares them with "
    "the values that the operator has set, and corrects the speed ten times a second. If a value leaves its range, a "
    "lamp is lit and the drive stops. Before any repair the main switch must be off and locked. Spare parts are "
    "listed by number in the catalogue, with the tools that are needed for each. New owners often ask how loud the "
    "machine is: at full load it is about as loud as a conversation, and in the night mode it can hardly be heard "
    "from the next room.",
)
"""What a chunk is read after, between the prefix and itself: texts about nothing that anybody asks. A chunk of a real
prompt has others before it; one that is read as the first of all is another thing to the model (see the benchmark)."""


@dataclass(slots=True)
class Precomputed:
    """What was read ahead.

    Attributes:
        chunks: seen; stored: read and stored now; there: stored before.
        tokens: that were read for the stored ones.
        skipped: chunk id and reason of those that cannot be.
    """

    chunks: int = 0
    stored: int = 0
    there: int = 0
    tokens: int = 0
    seconds: float = 0.0
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "chunks": self.chunks,
            "stored": self.stored,
            "there": self.there,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 3),
            "skipped": [{"chunk": chunk, "reason": reason} for chunk, reason in self.skipped],
        }


def learn_chunks(
    chunks: Iterable[Chunk],
    *,
    model: LocalModel,
    cache: ChunkCache,
    assemble: Callable[[Sequence[Candidate]], Prompt],
    neighbours: Sequence[str] = NEIGHBOURS,
    on_chunk: Callable[[Precomputed], None] | None = None,
) -> Precomputed:
    """Read each chunk where it would stand in a prompt of `assemble`, after the prefix and two texts of no matter.

    So the ids are those of real prompts, fences included, for any template. What is stored is skipped, so an
    interrupted run goes on. One prefill of its ids a chunk.

    Args:
        assemble: the prompt of these candidates, all of them, in this order, without a history.
        neighbours: the texts before the chunk; none to read it as the first.

    Errors: `KVCacheError` for a model whose chunks cannot be reused, `ConfigError` for a template that hides them.
    """
    from ctxkit.models.chunk_layout import lay_out

    report = Precomputed()
    started = time.perf_counter()
    before = [_candidate(f"neighbour-{number}", text) for number, text in enumerate(neighbours, 1)]
    for chunk in chunks:
        report.chunks += 1
        try:
            prompt = assemble([*before, Candidate(chunk)])
        except BudgetError as error:
            report.skipped.append((chunk.id, error.message))
            continue
        layout = lay_out(model.counter, prompt)
        if len(layout.chunks) != len(before) + 1:
            reason = _reason(prompt, chunk)
            if reason is None:
                raise ConfigError(
                    "the template changes the texts of documents, so they cannot be read ahead",
                    subject=chunk.id,
                    remedy="Precompute for a template that puts the context in as it is.",
                )
            report.skipped.append((chunk.id, reason))
            continue
        parts = _parts(layout)
        if cache.learn(model.weights, parts.pop("prefix"), **parts):
            report.stored += 1
            report.tokens += len(parts["before"]) + len(parts["text"]) + len(parts["after"])
        else:
            report.there += 1
        report.seconds = time.perf_counter() - started
        if on_chunk is not None:
            on_chunk(report)
    report.seconds = time.perf_counter() - started
    return report


def _parts(layout: ChunkLayout) -> dict[str, Sequence[int]]:
    """The last chunk of a layout with its fences; what stands before it, and the prefix."""
    last = layout.chunks[-1]
    opened = layout.chunks[-2].end if len(layout.chunks) > 1 else layout.prefix
    return {
        "prefix": layout.ids[: layout.prefix],
        "neighbour": layout.ids[layout.prefix : opened],
        "before": layout.ids[opened : last.start],
        "text": layout.ids[last.start : last.end],
        "after": layout.ids[last.end : layout.context_end],
    }


def _reason(prompt: Prompt, chunk: Chunk) -> str | None:
    for item in prompt.dropped:
        if item.section == "context":
            return item.reason
    return "it is blank" if not chunk.text.strip() else None


def _candidate(name: str, text: str) -> Candidate:
    chunk = Chunk(id=name, document_id=name, span=Span(0, len(text)), text=text, token_count=0)
    return Candidate(chunk)


def stored_chunks(store: Store, *, batch: int = 256) -> Iterator[Chunk]:
    """Every chunk of the store, in the order of their keys; a batch of them in memory at a time."""
    keys = store.documents.keys()
    for start in range(0, len(keys), batch):
        yield from store.documents.chunks(keys[start : start + batch]).values()


def chunk_cache(model: Any) -> ChunkCache:
    """Where a model keeps its chunks. Errors: `ConfigError` for a model that keeps none."""
    cache: ChunkCache | None = getattr(model, "chunks", None)
    if cache is None:
        raise ConfigError(
            "the model keeps no chunks",
            subject=str(getattr(model, "name", model)),
            remedy="Take a local model, with kv=FOLDER and kv_chunks=True.",
        )
    return cache
