"""What each word is worth to the question, from how a model read it and from the sentence it stands in.

Every signal becomes a rank in [0, 1] among all words of all candidates, so that signals of any scale add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ctxkit.compression.entropy_scores import TokenScores
from ctxkit.compression.words import Word

__all__ = ["SIGNALS", "WORTH_READING", "Reading", "word_values"]

Values = NDArray[np.float64]

SIGNALS: Mapping[str, float] = {
    "self_information": 1.0,
    "entropy": 1.0,
    "attention": 8.0,
    "sentence": 16.0,
    "kind": 12.0,
}
"""The signals and their weights, chosen by the answers kept at 68 %: a sentence is worth at most 16 more than another,
a name 6 more than a plain word and 12 more than a filler, and the question's attention can turn that round."""

_BESIDE = 0.9
"""Of the question's attention to a word, what its neighbours in the sentence get: an answer is a phrase."""


WORTH_READING = 0.15
"""Share of the tokens kept from which on a model is worth asking: below, it makes answers no more likely."""

_IN_PLAY, _IN_PLAY_BELOW = 1.6, 1.25
"""Of the best sentences, how many times what may stay is looked at for words; and where reading is not worth it.

Where a tenth of eight paragraphs may stay, the names of all would else go before what the best sentences say."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One candidate as the model read it.

    Args:
        words: of its text, in order.
        sentences: for each word, the number of its sentence in this candidate.
        worth: of each sentence to the question.
        scores: of the text's tokens.
        kinds: for each word 1 if it is a name, 0 if it is a filler, a half otherwise.
    """

    words: Sequence[Word]
    sentences: NDArray[np.int64]
    worth: Values
    scores: TokenScores
    kinds: Values


def word_values(readings: Sequence[Reading], signals: Sequence[str], share: float) -> list[Values]:
    """The value of every word of every reading, higher is better. O(n log n) in the words.

    - `self_information`: the mean surprise of the word's tokens, the question and all before it being known.
    - `entropy`: the share of layers in which the attention from the word is narrower than the layer's threshold, which
      is the quantile of `share`: a narrow gaze (low entropy) tells of a word that refers to something.
    - `attention`: how much of its attention the question, read last, pays to the word, or to one next to it.
    - `sentence`: the rank of the word's sentence among all sentences; and the words of the best sentences, which
      together are a little more than may be kept, before those of all others.
    - `kind`: names before other words, and those before fillers, which count as other words in the best sentence of
      their candidate, so that it stays readable.

    Args:
        share: of the words that are to be kept, in (0, 1).
    """
    counts = [len(reading.words) for reading in readings]
    total: Values = np.zeros(sum(counts))
    if not len(total):
        return [np.zeros(0) for _ in readings]
    first = np.cumsum([0, *(len(reading.worth) for reading in readings)])
    sentences = np.concatenate(
        [reading.sentences + start for reading, start in zip(readings, first[:-1], strict=True)]
    ).astype(np.int64)
    if "self_information" in signals:
        total += SIGNALS["self_information"] * _ranks(
            np.concatenate([_means(reading, reading.scores.surprisal) for reading in readings])
        )
    if "entropy" in signals and all(len(reading.scores.entropy) for reading in readings if len(reading.words)):
        total += SIGNALS["entropy"] * _votes(readings, share)
    if "attention" in signals:
        total += SIGNALS["attention"] * _ranks(
            np.concatenate([_spread(reading, _sums(reading, reading.scores.attention)) for reading in readings])
        )
    if "sentence" in signals:
        worth = np.concatenate([reading.worth for reading in readings])
        total += SIGNALS["sentence"] * _ranks(worth)[sentences]
        total += sum(SIGNALS.values()) * _in_play(worth, sentences, share)[sentences]
    if "kind" in signals:
        total += SIGNALS["kind"] * np.concatenate([_kinds(reading) for reading in readings])
    # Rounded, so that equal words stay equal whatever order they were added up in.
    return np.split(np.round(total, 9), np.cumsum(counts)[:-1])


def _in_play(worth: Values, sentences: NDArray[np.int64], share: float) -> Values:
    """For each sentence whether it is among the best ones, which together have enough words."""
    sizes = np.bincount(sentences, minlength=len(worth))
    order = np.argsort(-np.round(worth, 6), kind="stable")
    before = np.cumsum(sizes[order]) - sizes[order]
    enough = (_IN_PLAY if share >= WORTH_READING else _IN_PLAY_BELOW) * share * len(sentences)
    found = np.zeros(len(worth))
    found[order] = before < enough
    return found


def _kinds(reading: Reading) -> Values:
    if not len(reading.words):
        return np.zeros(0)
    best = reading.sentences == int(np.argmax(np.round(reading.worth, 6))) if len(reading.worth) else False
    return np.asarray(np.where(best, np.maximum(reading.kinds, 0.5), reading.kinds))


def _places(reading: Reading) -> NDArray[np.int64]:
    """For each token the number of the word that it ends in."""
    ends = [word.span.end for word in reading.words]
    return np.searchsorted(ends, reading.scores.spans[:, 1], side="left").clip(max=max(0, len(ends) - 1))


def _sums(reading: Reading, values: Values) -> Values:
    if not len(values):
        return np.zeros(len(reading.words))
    return np.bincount(_places(reading), values, len(reading.words)).astype(np.float64)


def _spread(reading: Reading, values: Values) -> Values:
    """The values, a word that stands beside a better one of its sentence getting most of that one's."""
    together = reading.sentences[1:] == reading.sentences[:-1]
    found = values.copy()
    found[1:] = np.maximum(found[1:], np.where(together, _BESIDE * values[:-1], 0.0))
    found[:-1] = np.maximum(found[:-1], np.where(together, _BESIDE * values[1:], 0.0))
    return found


def _means(reading: Reading, values: Values) -> Values:
    sizes = np.bincount(_places(reading), minlength=len(reading.words)) if len(values) else 1
    return _sums(reading, values) / np.maximum(1, sizes)


def _ranks(values: Values) -> Values:
    """The share of values that are lower, ties in the middle of theirs: in [0, 1], whatever the order of the values."""
    _, place, counts = np.unique(np.round(values, 6), return_inverse=True, return_counts=True)
    below = np.cumsum(counts) - counts
    return np.asarray((below + (counts - 1) / 2)[place] / max(1, len(values) - 1))


def _votes(readings: Sequence[Reading], share: float) -> Values:
    """For each word the share of layers whose threshold its entropy is under."""
    layers = np.concatenate(
        [
            np.stack([_means(reading, layer) for layer in reading.scores.entropy])
            for reading in readings
            if reading.words
        ],
        axis=1,
    )
    thresholds = np.quantile(layers, share, axis=1)
    return np.asarray((layers <= thresholds[:, None]).mean(axis=0))
