"""The entropy compressor: words of all candidates under one token target, as a causal model reads them."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctxkit.checking import check_able, check_kind, check_whole
from ctxkit.compression.aims import check_aims
from ctxkit.compression.counting import counting
from ctxkit.compression.entropy_scores import NOT_READ, TokenScorer, TokenScores
from ctxkit.compression.entropy_signals import SIGNALS, WORTH_READING, Reading, word_values
from ctxkit.compression.guards import is_bare_negation, name_spans, protected_spans
from ctxkit.compression.records import embed_records, make_record
from ctxkit.compression.relevance import relevance
from ctxkit.compression.words import Word, is_filler, is_unspaced, split_words
from ctxkit.documents import Candidate, Query, Span, merge_spans
from ctxkit.errors import ConfigError, ModelError
from ctxkit.protected import protected_spans as protected_blocks
from ctxkit.protocols import Embedder, TokenCounter
from ctxkit.stage_inputs import check_candidates
from ctxkit.text import is_grapheme_boundary

__all__ = ["EntropyCompressor"]

_ROUNDS = 8
_THRIFT = 0.3
_BLANKS = " \t\u3000"
_LINE = re.compile(r"[^\r\n]++")
_UNREAD = ("sentence", "kind")
_READ = ("attention", *_UNREAD)
_ASKS_MODEL = frozenset({"self_information", "entropy", "attention"})


@dataclass(frozen=True, kw_only=True)
class EntropyCompressor:
    """Leaves out the words that matter least to the question, as a local causal model tells, until the target is met.

    The model reads each candidate once, after the question and with the question read again after it. From this pass
    come a word's self-information, the entropy of the attention from it, and the attention that the question pays to
    it; the sentence that it stands in has its own relevance to the question, and decides first. Without a model, and
    where less than 15 % of the tokens may stay, the default looks at sentences and kinds of words alone. What is
    left is spans of the document: whole words, whole graphemes (Chinese words where jieba is installed), nothing
    rewritten, no marks at the gaps.

    Guards hold sentence by sentence: no word of a sentence is kept before its numbers, units, dates, negations, names
    (the question's and its own, each whole), identifiers and code. Table rows are kept or left out
    whole. What fits already is not touched; a candidate that no word is left of is not in the result; where no word
    fits, everything comes back uncompressed.

    Reading costs a forward pass over all candidates: with a model of 135 million parameters on one core, seconds. It
    pays as the last step after sentences were chosen, or for a model that is much larger than the one that reads.

    Args:
        model: what reads; `LocalModel("local")` or any `TokenScorer`; None for signals that need none.
        target: the tokens to come down to; with `query.room` and `ratio`, the least of them counts.
        ratio: how many times smaller the result shall be; above 1.
        counter: what counts tokens; by default o200k_base. Give the target model's where you have it.
        embedder: adds meaning to words in what a sentence is worth, as in `SentenceCompressor`.
        signals: some of `self_information`, `entropy`, `attention` (which need a model), `sentence`, `kind`; see
            `entropy_signals.word_values`. None is what paid: sentence and kind, and attention where there is a model
            and 15 % or more may stay; self-information and entropy beside them kept fewer answers.
        entities: names that are guarded beside those of the question and of the text.
        overhead: tokens that each candidate costs beside its text.

    Raises:
        ConfigError: a parameter is out of range.

    Source: self-information: Li et al., "Compressing Context to Enhance Inference Efficiency of Large Language Models",
    2023 (arXiv 2310.06201); conditioned on the question: Jiang et al., "LongLLMLingua", 2023 (arXiv 2310.06839); the
    question's attention: Li et al., "SnapKV", 2024 (arXiv 2404.14469).

    Example:
        from ctxkit.models import LocalModel

        stage = EntropyCompressor(model=LocalModel("local"), ratio=2)
        stage(query, candidates)
    """

    model: TokenScorer | None = None
    target: int | None = None
    ratio: float | None = None
    counter: TokenCounter | None = None
    embedder: Embedder | None = None
    signals: Sequence[str] | None = None
    entities: Sequence[str] = ()
    overhead: int = 0

    def __post_init__(self) -> None:
        if self.model is not None:
            check_able(self.model, "score_tokens", "model", remedy='Give LocalModel("local"), a reader, or None.')
        check_aims(target=self.target, ratio=self.ratio, counter=self.counter, embedder=self.embedder)
        _check_names(self.entities, "entities", remedy="Give a list of names.")
        if self.signals is not None:
            remedy = f"Give some of {', '.join(SIGNALS)}."
            _check_names(self.signals, "signals", remedy=remedy, known=SIGNALS)
            if not self.signals:
                raise ConfigError("signals is empty", remedy=remedy)
            if self.model is None and (asking := [name for name in self.signals if name in _ASKS_MODEL]):
                raise ConfigError(
                    f"{asking[0]} is what a model tells, and there is none",
                    remedy='Give model=LocalModel("local"), or signals=("sentence", "kind").',
                )
        check_whole(self.overhead, "overhead", minimum=0)

    def __call__(self, query: Query, candidates: Sequence[Candidate]) -> list[Candidate]:
        check_candidates(query, candidates)
        counter = counting(self.counter)
        whole = [counter.count(candidate.text) + self.overhead for candidate in candidates]
        target = self._target(query, sum(whole))
        if target is None or sum(whole) <= target or target < 1:
            return list(candidates)
        # Read in an order of their own, so that the order of arrival decides nothing.
        order = sorted(range(len(candidates)), key=lambda one: (candidates[one].chunk.id, candidates[one].spans))
        texts = [_Text(candidates[one]) for one in order]
        values = self._values(query.text, texts, counter, share=target / sum(whole))
        pruned = [_Pruned(text, counter, self.overhead) for text in texts]
        _fill(pruned, values, target)
        telling = [text.without_lone_negations() for text in pruned]
        if any(telling):
            for text, words in zip(pruned, telling, strict=True):
                text.taken = words
        kept = {one: text.result() for one, text in zip(order, pruned, strict=True) if text.taken}
        return [kept[one] for one in range(len(candidates)) if one in kept] if kept else list(candidates)

    def notes(self, query: Query, before: Sequence[Candidate], after: Sequence[Candidate]) -> dict[str, Any]:
        """For the trace: tokens in and out, what was aimed at, and what decided."""
        counter = counting(self.counter)
        total, left = (sum(counter.count(item.text) + self.overhead for item in items) for items in (before, after))
        target = self._target(query, total)
        found: dict[str, Any] = {"tokens_in": total, "tokens_out": left, "target": target}
        if target is not None and 1 <= target < total:
            found["signals"] = list(self._signals(target / total))
        return found

    def _signals(self, share: float) -> Sequence[str]:
        if self.signals is not None:
            return self.signals
        return _READ if self.model is not None and share >= WORTH_READING else _UNREAD

    def _target(self, query: Query, total: int) -> int | None:
        targets = [self.target, query.room, None if self.ratio is None else int(total / self.ratio)]
        return min((target for target in targets if target is not None), default=None)

    def _values(self, question: str, texts: Sequence[_Text], counter: TokenCounter, *, share: float) -> list[_Values]:
        signals = self._signals(share)
        told = self._read(question, [text.joined for text in texts], signals)
        records = [make_record(text.candidate, counter) for text in texts]
        if self.embedder is not None:
            vectors = embed_records(records, self.embedder)
            records = [replace(record, vectors=found) for record, found in zip(records, vectors, strict=True)]
        worth = relevance(question, [text.candidate for text in texts], records, self.embedder).chance
        # As for whole sentences: a long one pays a little for its length.
        worth = worth / np.power(np.concatenate([np.zeros(0), *(record.tokens for record in records)]) + 1.0, _THRIFT)
        first = np.cumsum([0, *(len(record) for record in records)])
        readings = []
        for place, (text, scores, record) in enumerate(zip(texts, told, records, strict=True)):
            most = max(1, int(share * len(text.joined)))
            text.split(question, self.entities, [unit.span.end for unit in record.units], most=most)
            readings.append(
                Reading(text.words, text.sentences, worth[first[place] : first[place + 1]], scores, text.kinds)
            )
        found = word_values(readings, signals, min(max(share, 0.01), 0.99))
        return [
            _Values(np.array([counter.count(word.span.slice(text.joined)) for word in text.words]), values)
            for text, values in zip(texts, found, strict=True)
        ]

    def _read(self, question: str, texts: Sequence[str], signals: Sequence[str]) -> list[TokenScores]:
        """What the model tells of each text's tokens; nothing where no signal asks for it."""
        if self.model is None or not _ASKS_MODEL.intersection(signals):
            return [NOT_READ] * len(texts)
        asked = question.strip()
        told = list(
            self.model.score_tokens(
                texts,
                before=f"{question}\n\n" if asked else "\n",
                after=f"\n\n{question}" if asked and "attention" in signals else "",
                entropy="entropy" in signals,
            )
        )
        if len(told) != len(texts):
            raise ModelError(
                f"{len(texts)} texts gave the scores of {len(told)}",
                subject=type(self.model).__name__,
                remedy="score_tokens() yields the scores of each text, in order.",
            )
        return told


def _check_names(names: Sequence[str], name: str, *, remedy: str, known: Container[str] | None = None) -> None:
    check_kind(names, (list, tuple), name, remedy=remedy)
    if not all(isinstance(one, str) and (known is None or one in known) for one in names):
        raise ConfigError(f"{name} is {list(names)!r:.60}", remedy=remedy)


@dataclass(frozen=True, slots=True)
class _Values:
    """By word: its cost in tokens, and its value."""

    costs: NDArray[np.int64]
    values: NDArray[np.float64]


class _Text:
    """What a candidate still keeps, as one text to be read, and where its characters stand in the document."""

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.pieces: list[tuple[int, Span]] = []  # the offset in the joined text, and the span in the document
        texts: list[str] = []
        position = 0
        for span in candidate.spans:
            self.pieces.append((position, span))
            texts.append(span.slice(candidate.chunk.text, offset=candidate.chunk.span.start))
            position += span.length + 1
        self.joined = "\n".join(texts)
        self.words: list[Word] = []
        self.places: list[Span] = []
        self.sentences: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.kinds: NDArray[np.float64] = np.zeros(0)

    def split(self, question: str, entities: Sequence[str], sentences: Sequence[int], *, most: int) -> None:
        """Find the words, and of each the sentence, of which `sentences` are the ends in the document.

        A block of more than `most` characters is cut into its lines.
        """
        numbers: list[int] = []
        kinds: list[float] = []
        for offset, span in self.pieces:
            text = self.joined[offset : offset + span.length]
            names = _cut(text, name_spans(text), most)
            ends = [name.end for name in names]
            guarded = [*_cut(text, protected_spans(text, question, entities=entities), most), *names]
            blocks = _cut(text, protected_blocks(text), most)
            for word in split_words(text, guarded=merge_spans(guarded), blocks=blocks):
                nearest = bisect_right(ends, word.span.start)
                if nearest < len(names) and names[nearest].start < word.span.end:
                    kinds.append(1.0)
                else:
                    kinds.append(0.0 if not word.guarded and is_filler(word.span.slice(text)) else 0.5)
                self.words.append(Word(word.span.shift(offset), guarded=word.guarded, breaks=word.breaks))
                self.places.append(word.span.shift(span.start))
                numbers.append(bisect_left(sentences, self.places[-1].end))
        self.sentences = np.array(numbers, dtype=np.int64)
        self.kinds = np.array(kinds)


def _cut(text: str, spans: Sequence[Span], most: int) -> list[Span]:
    """The spans, a long one by its lines; what is longer still is left to its words."""
    found: list[Span] = []
    for span in spans:
        lines = [span] if span.length <= most else [one.shift(span.start) for one in _lines(span.slice(text))]
        found += [line for line in lines if line.length <= most]
    return found


def _lines(text: str) -> list[Span]:
    return [Span(line.start(), line.end()) for line in _LINE.finditer(text)]


class _Pruned:
    """The words of one candidate that are taken."""

    def __init__(self, text: _Text, counter: TokenCounter, overhead: int) -> None:
        self.text = text
        self.taken: set[int] = set()
        self._counter = counter
        self._overhead = overhead

    def without_lone_negations(self) -> set[int]:
        """What is taken, without a "not" that is left alone of its sentence: it would deny what stands before it."""
        sentences = self.text.sentences.tolist()
        spoken = [word.span.slice(self.text.joined) for word in self.text.words]
        bare = {word for word in self.taken if is_bare_negation(spoken[word])}
        left_out = {one for one in range(len(spoken)) if one not in self.taken and any(map(str.isalnum, spoken[one]))}
        alone = {sentences[one] for one in left_out} - {sentences[one] for one in self.taken - bare}
        return {word for word in self.taken if word not in bare or sentences[word] not in alone}

    def count(self) -> int:
        """The tokens of what is taken, as it would be sent."""
        return self._counter.count(self.result().text) + self._overhead if self.taken else 0

    def result(self) -> Candidate:
        """The candidate with the words that are taken, and the line breaks between them."""
        words, places = self.text.words, self.text.places
        text = self.text.joined
        spans: list[Span] = []
        broken: Span | None = None
        last = -1
        for number, (word, place) in enumerate(zip(words, places, strict=True)):
            if word.breaks:
                broken = place
            elif number in self.taken:
                if broken is not None and (spans or words[0].breaks):
                    spans.append(broken)
                elif last >= 0 and _would_join(text, words[last].span.end, word.span.start):
                    spans.append(places[number - 1])  # such as the comma between two names
                broken = None
                spans.append(place)
                last = number
        if spans and words[-1].span.slice(text).isspace():
            spans.append(places[-1])  # so that what follows in the document does not touch
        candidate = self.text.candidate
        kept = merge_spans(spans)
        if kept == candidate.spans:
            return candidate
        if len(self.text.pieces) > 1 and not is_unspaced(self.text.joined):
            return candidate.keeping(self._without_blanks(kept), gap=" ")
        return candidate.keeping(kept, gap="")

    def _without_blanks(self, kept: Sequence[Span]) -> list[Span]:
        """The spans without the blanks before them, for which a space stands already."""
        chunk = self.text.candidate.chunk
        found = []
        for span in kept:
            text = span.slice(chunk.text, offset=chunk.span.start)
            blanks = len(text) - len(text.lstrip(_BLANKS))
            whole = blanks < span.length and is_grapheme_boundary(text, blanks)
            found.append(Span(span.start + (blanks if whole else 0), span.end))
        return found


def _would_join(text: str, end: int, start: int) -> bool:
    """Whether the words before `end` and from `start` on would read as one word if they stood side by side."""
    sides = text[end - 1] + text[start]
    return end < start and all(side.isalnum() or side == "_" for side in sides) and not is_unspaced(sides)


def _fill(pruned: Sequence[_Pruned], values: Sequence[_Values], target: int) -> None:
    """Take words by value, the guarded ones of a sentence before its others, until the target is full.

    Costs are added up word by word; then the texts are counted as they will be sent, what is over goes back, and words
    that cost more side by side than by themselves are expected to go on doing so.
    """
    ranking = _ranking(pruned, values)
    used = 0
    factor = 1.0
    blocked: set[tuple[int, int]] = set()
    done: list[tuple[int, int]] = []
    for _ in range(_ROUNDS):
        expected: float = used
        for number, word in ranking:
            text = pruned[number]
            sentence = (number, int(text.text.sentences[word]))
            cost = factor * int(values[number].costs[word])
            guarded = text.text.words[word].guarded
            if word in text.taken or (sentence in blocked and not guarded):
                continue
            if expected + cost <= target:
                text.taken.add(word)
                done.append((number, word))
                expected += cost
            elif guarded:
                blocked.add(sentence)  # without it the others would say something else
        counts = {number: text.count() for number, text in enumerate(pruned)}
        if expected > used:
            factor *= max(1.0, (sum(counts.values()) - used) / (expected - used))
        while (excess := sum(counts.values()) - target) > 0 and done:
            freed = 0.0
            touched = set()
            while done and freed < excess:
                number, word = done.pop()
                pruned[number].taken.discard(word)
                freed += max(1.0, factor * int(values[number].costs[word]))
                touched.add(number)
            counts.update({number: pruned[number].count() for number in touched})
        before, used = used, sum(counts.values())
        if used == before:
            return
        blocked.clear()


def _ranking(pruned: Sequence[_Pruned], values: Sequence[_Values]) -> list[tuple[int, int]]:
    """All words but line breaks and blanks, the best first; guarded words rank with the best of their sentence."""
    keyed: list[tuple[float, int, float, str, int, int]] = []
    for number, (one, mine) in enumerate(zip(pruned, values, strict=True)):
        text = one.text
        best: dict[int, float] = {}
        for sentence, value in zip(text.sentences.tolist(), mine.values.tolist(), strict=True):
            best[sentence] = max(value, best.get(sentence, value))
        for word, (value, sentence) in enumerate(zip(mine.values.tolist(), text.sentences.tolist(), strict=True)):
            unit = text.words[word]
            if unit.breaks or unit.span.slice(text.joined).isspace():
                continue
            rank = best[sentence] if unit.guarded else value
            keyed.append((-rank, 0 if unit.guarded else 1, -value, text.candidate.chunk.id, number, word))
    keyed.sort()
    return [(number, word) for *_, number, word in keyed]
