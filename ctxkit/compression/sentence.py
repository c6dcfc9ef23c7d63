"""Keeps the sentences that matter to the question, as spans of the document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ctxkit.checking import check_kind, check_number, check_whole
from ctxkit.compression.aims import check_aims
from ctxkit.compression.choosing import Choice, GapCosts
from ctxkit.compression.counting import counting
from ctxkit.compression.cutting import Cutter
from ctxkit.compression.dialogue import spread
from ctxkit.compression.filling import Filling, Leaning, Place
from ctxkit.compression.overlaps import Claims, claims_of, share_values
from ctxkit.compression.records import Record, embed_records, make_record
from ctxkit.compression.relevance import relevance
from ctxkit.compression.sentence_store import SentenceStore
from ctxkit.compression.together import order_together
from ctxkit.documents import Candidate, Query
from ctxkit.protocols import Embedder, TokenCounter
from ctxkit.stage_inputs import check_candidates

__all__ = ["SentenceCompressor"]

_THRIFT = 0.45
"""How far a sentence's length counts against it: 1 would be gain a token, which prefers crumbs."""


@dataclass(frozen=True, kw_only=True)
class SentenceCompressor:
    """Chooses among the sentences of all candidates those that matter to the question, until the target is full.

    What a sentence is worth is the chance that it is needed, by a logistic regression on its words (BM25), its meaning
    (the cosine to the question, and to the question moved towards the best sentences), its names, the title it stands
    under, and bridges: whether a good sentence elsewhere mentions this one's title, and how much of the question the
    two cover together. Sentences are taken by this chance over a root of their length, the first ten one by one, by
    what each adds to those before it (`order_together`). Nothing is rewritten: a
    candidate comes back with `kept`, the document spans of its sentences, and its text marks each gap. Table rows bring
    their table's header; where there is room, headings come with what stands under them, and what "He" or "This" points
    back to with the sentence that begins so, unless the document's title is what the text is about. What fits already
    is not touched. The order of the candidates stays. What chunks of one document share is sent once: the better one
    keeps a sentence that several have, and of sentences that overlap in part the one worth more is kept.

    A candidate with nothing to say is left out, one that is all answer stays whole; a sentence that was there before is
    taken when all others are. A sentence that takes more than half of the target and does not fit is cut, and so is the
    next one where less than nine tenths of the target would be used: at lines (code), clauses, then words. No number,
    word or identifier is torn, and nothing is kept without the negation before it in its clause. If not even a word
    fits, everything comes back uncompressed: it is for assembly to say what a prompt has no room for. A larger target
    does not promise a superset. O(n log n) in the sentences.

    Args:
        target: the tokens to come down to; with `query.room` and `ratio`, the least of them counts.
        ratio: how many times smaller the result shall be; above 1.
        counter: what counts tokens; by default o200k_base. Give the target model's where you have it.
        embedder: adds meaning to words; without one, words alone decide.
        drop: let sentences compete at any target. False gives each candidate its best sentence where all of these fit
            in half of the target.
        overhead: tokens that each candidate costs beside its text, such as its delimiters in the prompt.
        batch_size: sentences embedded at once.
        floor: nearness to the question, in [0, 1], below which a sentence is never sent: the larger of the cosine and
            of the share of the question's words that it has. With a floor, and only then, the result may be empty.
        minimum: tokens that `ratio` does not go below.
        sentences: what an ingest has prepared; whatever it has not is prepared now.

    Raises:
        ConfigError: a parameter is out of range.

    Source: extractive compression as the strong baseline: Jha et al., "Characterizing Prompt Compression Methods for
    Long Context Inference", 2024 (arXiv 2407.08892).

    Example:
        >>> SentenceCompressor(ratio=2)(Query("What is measured?"), [])
        []
    """

    target: int | None = None
    ratio: float | None = None
    counter: TokenCounter | None = None
    embedder: Embedder | None = None
    drop: bool = True
    overhead: int = 0
    batch_size: int = 64
    floor: float = 0.0
    minimum: int = 0
    sentences: SentenceStore | None = None

    def __post_init__(self) -> None:
        check_aims(target=self.target, ratio=self.ratio, counter=self.counter, embedder=self.embedder)
        check_kind(self.drop, bool, "drop", remedy="Give True or False.")
        check_whole(self.overhead, "overhead", minimum=0)
        check_whole(self.batch_size, "batch_size", minimum=1)
        check_number(self.floor, "floor", minimum=0.0, maximum=1.0, remedy="Give 0 to 1; 0 is no floor.")
        check_whole(self.minimum, "minimum", minimum=0)
        if self.sentences is not None:
            check_kind(self.sentences, SentenceStore, "sentences", remedy="Give a SentenceStore, or None.")

    def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
        check_candidates(query, candidates)
        counter = counting(self.counter)
        # In one order whatever order they came in: sums of floats depend on it.
        order = sorted(range(len(candidates)), key=lambda at: _identity(candidates[at]))
        items = [candidates[at] for at in order]
        known = self._known(items, counter)
        total = sum(self._whole(item, record, counter) for item, record in zip(items, known, strict=True))
        target = self._target(query, total)
        fits = target is None or total <= target
        if not items or (fits and not self.floor):
            return list(candidates)
        records = self._records(items, known, counter)
        gaps, claims = GapCosts(counter), claims_of(items)
        choices = [
            Choice(item, record.units, record.tokens.tolist(), gaps, shared)
            for item, record, shared in zip(items, records, claims, strict=True)
        ]
        room = total if target is None else target
        ranking, reached = self._ranking(query, items, records, claims, room)
        leaning = [Leaning(item, record) for item, record in zip(items, records, strict=True)]
        if not (fits and len(ranking) == sum(len(record) for record in records)):
            Filling(
                choices,
                ranking,
                room,
                counter,
                overhead=self.overhead,
                leaning=leaning,
                seats=not self.drop,
                cutter=Cutter(query.text, counter),
            ).run()
            if not any(len(choice) for choice in choices):
                return [] if self.floor and not reached else list(candidates)
            kept = {
                at: choice.compressed()
                for at, choice in zip(order, choices, strict=True)
                if len(choice) or not choice.units
            }
            return [kept[at] for at in range(len(candidates)) if at in kept]
        return list(candidates)

    def notes(self, query: Query, before: Sequence[Candidate], after: Sequence[Candidate]) -> dict[str, Any]:
        """For the trace: tokens in and out, what was aimed at; and where nothing fits or is near enough, that."""
        counter = counting(self.counter)
        total, left = (sum(counter.count(item.text) + self.overhead for item in items) for items in (before, after))
        found: dict[str, Any] = {"tokens_in": total, "tokens_out": left, "target": self._target(query, total)}
        if found["target"] is not None and left > found["target"]:
            found["whole"] = f"not even a word fits into {found['target']:,} tokens: nothing is left out"
        if before and not after:
            found["floor"] = f"no sentence is as near to the question as {self.floor:g}: nothing is sent"
        return found

    def _target(self, query: Query, total: int) -> int | None:
        by_ratio = None if self.ratio is None else max(self.minimum, int(total / self.ratio))
        return min((target for target in (self.target, query.room, by_ratio) if target is not None), default=None)

    def _known(self, items: Sequence[Candidate], counter: TokenCounter) -> list[Record | None]:
        if self.sentences is None:
            return [None] * len(items)
        return self.sentences.find(items, counter, self.embedder)

    def _whole(self, item: Candidate, record: Record | None, counter: TokenCounter) -> int:
        return (counter.count(item.text) if record is None else record.total) + self.overhead

    def _records(
        self, items: Sequence[Candidate], known: Sequence[Record | None], counter: TokenCounter
    ) -> list[Record]:
        """Of each candidate, what is known of its sentences; what is not is found out now."""
        records = [
            make_record(item, counter) if record is None else record for item, record in zip(items, known, strict=True)
        ]
        if self.embedder is not None:
            bare = [at for at, record in enumerate(records) if record.vectors is None]
            vectors = embed_records([records[at] for at in bare], self.embedder, batch_size=self.batch_size)
            for at, found in zip(bare, vectors, strict=True):
                records[at] = replace(records[at], vectors=found)
        return records

    def _ranking(
        self,
        query: Query,
        items: Sequence[Candidate],
        records: Sequence[Record],
        claims: Sequence[Claims | None],
        room: int,
    ) -> tuple[list[Place], bool]:
        """Every sentence that may be chosen by itself, best first, and whether any reaches the floor."""
        if not any(len(record) for record in records):
            return [], True
        chance, nearness, links = relevance(query.text, items, records, self.embedder)
        sizes = [len(record) for record in records]
        groups = np.repeat(np.arange(len(records)), sizes)
        units = np.concatenate([np.arange(size) for size in sizes])
        tokens = np.concatenate([record.tokens for record in records])
        open_ = np.concatenate([record.alone for record in records])
        chance = np.where(np.concatenate([record.blank for record in records]), 0.0, chance)  # white space says nothing
        near = nearness >= self.floor
        best = sorted(range(len(items)), key=lambda at: (-items[at].score, items[at].chunk.id))
        places = np.empty(len(items), dtype=np.int64)
        places[best] = np.arange(len(items))
        chance, in_dialogue = spread(chance, items, records)
        value = np.round(chance / np.power(tokens + 1.0, np.where(in_dialogue, 0.0, _THRIFT)), 9)
        value = share_values(value, [record.units for record in records], claims)
        order = np.lexsort((units, places[groups], -value))
        order = order[(open_ & near)[order]]
        if links is not None and not in_dialogue.any():
            order = order_together(order, value, tokens, records, links, room)
        ranking = zip(groups[order].tolist(), units[order].tolist(), tokens[order].tolist(), strict=True)
        return list(ranking), bool(near.any())


def _identity(candidate: Candidate) -> tuple[object, ...]:
    """What tells candidates apart: two versions of a document may have chunks of one id."""
    return (candidate.chunk.id, candidate.spans, candidate.chunk.text)
