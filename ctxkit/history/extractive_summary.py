"""`ExtractiveSummariser`: the sentences that say most, word for word; no model, no chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ctxkit.checking import check_able, check_whole
from ctxkit.history.coverage import Coverage, worths
from ctxkit.history.terms import rarity, terms_of
from ctxkit.messages import Message
from ctxkit.protocols import TokenCounter
from ctxkit.text import sentence_spans
from ctxkit.tokens import get_counter

__all__ = ["ExtractiveSummariser"]

_LONGEST = 2_000
"""Characters of a sentence; what is longer is no prose, and is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractiveSummariser:
    """Chooses sentences by the terms that they add, names and numbers most, in the order in which they were said.

    Args:
        max_tokens: of the summary.
        counter: what counts tokens.

    Source: Lin and Bilmes, "Multi-document Summarization via Budgeted Maximization of Submodular Functions", NAACL
    2010.

    Example:
        >>> said = [Message("user", "Hello there. I fly to Rome on May 3."), Message("assistant", "Ah. Fine.")]
        >>> ExtractiveSummariser(max_tokens=12).summarise(said, "")
        'user: I fly to Rome on May 3.'
    """

    max_tokens: int = 400
    counter: TokenCounter = field(default_factory=get_counter)

    def __post_init__(self) -> None:
        check_whole(self.max_tokens, "max_tokens", minimum=1)
        check_able(self.counter, "count", "counter", remedy="Give a token counter.")

    @property
    def name(self) -> str:
        return f"extractive-{self.max_tokens}-{self.counter.name}"

    def summarise(self, messages: Sequence[Message], previous: str) -> str:
        """Lines of `role: sentence` of at most `max_tokens` together; of the previous summary's lines the best stay."""
        lines = [line for line in previous.split("\n") if line.strip()]
        for message in messages:
            for span in sentence_spans(message.visible):
                sentence = " ".join(message.visible[span.start : span.end].split())
                if 0 < len(sentence) <= _LONGEST:
                    lines.append(f"{message.role}: {sentence}")
        terms = [terms_of(line.partition(": ")[2]) for line in lines]
        rare = rarity(terms)
        users = [line.startswith("user: ") for line in lines]
        coverage = Coverage(terms, worths(terms, users, rare), [0] * len(lines), len(lines))
        costs = [self.counter.count(line + "\n") for line in lines]
        left, chosen = self.max_tokens, []
        waiting = set(range(len(lines)))
        while waiting:
            waiting = {at for at in waiting if costs[at] <= left and coverage.gain(at) > 0}
            if not waiting:
                break
            best = max(waiting, key=lambda at: (coverage.gain(at) / costs[at] ** 0.7, at))
            waiting.remove(best)
            coverage.add(best)
            chosen.append(best)
            left -= costs[best]
        return "\n".join(lines[at] for at in sorted(chosen))
