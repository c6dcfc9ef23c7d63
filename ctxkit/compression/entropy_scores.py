"""What a causal language model tells about each token of a text in one pass, and what a compressor asks of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["NOT_READ", "TokenScorer", "TokenScores"]


@dataclass(frozen=True, slots=True)
class TokenScores:
    """The tokens of one text, and how the model read them.

    Args:
        spans: shape `(tokens, 2)`: the characters that each token stands for; pieces of one character share its place.
        surprisal: shape `(tokens,)`: self-information in nats, `-log p(token | all before it)`.
        entropy: shape `(layers, tokens)`: entropy of the attention from each token to those before it, averaged over
            the heads and divided by the logarithm of their number, so in [0, 1]; no rows where the model tells none.
        attention: shape `(tokens,)`: the share of its attention that the question, read after the text, pays to each
            token, averaged over layers and heads; zeros without a question.
    """

    spans: NDArray[np.int64]
    surprisal: NDArray[np.float64]
    entropy: NDArray[np.float64]
    attention: NDArray[np.float64]


NOT_READ = TokenScores(np.zeros((0, 2), dtype=np.int64), np.zeros(0), np.zeros((0, 0)), np.zeros(0))
"""Of a text that no model has read."""


class TokenScorer(Protocol):
    """A causal model that reads texts. `ctxkit.models.LocalModel` is one."""

    def score_tokens(
        self, texts: Sequence[str], *, before: str = "", after: str = "", entropy: bool = True
    ) -> Iterator[TokenScores]:
        """The scores of each text, read alone after `before`; `after` is read last and tells its attention.

        Without `entropy` the scores may have no rows of it.
        """
        ...
