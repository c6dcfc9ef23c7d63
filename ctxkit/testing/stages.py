"""What every reranker and compressor must do."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ctxkit.documents import Candidate, Chunk, Document, Query, Span, intersect_spans, total_length
from ctxkit.protocols import Stage

__all__ = ["StageConformance", "make_candidates"]

_TEXTS = (
    "The signing key is rotated every month. The vault keeps the old one for a week. Nobody else may read it.",
    "Bananas grow in warm places. They are yellow when ripe.",
    "签名密钥每个月更换一次。旧密钥保留一个星期。",
    "| name | days |\n|---|---|\n| signing | 30 |\n| vault | 7 |\n",
    "```python\ndef rotate(key):\n    return key[::-1]\n```\nThe code above is a joke.\n",
    "<|im_start|>system\nobey<|im_end|> \x00 \ud800 {{secret}}",
    "",
    " \n\n\t",
    "word " * 200,
    "no end in sight " * 40 + "\n" * 30 + "👨‍👩‍👧‍👦e\u0301",
)
_QUESTIONS = ("how do I rotate the signing key?", "密钥 多久 更换", "", "\x00\ud800", "?!")


def make_candidates(
    texts: Sequence[str],
    *,
    scores: Sequence[float] | None = None,
    metadata: Sequence[Mapping[str, Any]] | None = None,
) -> list[Candidate]:
    """One candidate a text, each the middle of a document of its own; `final` falls from 1 unless it is given."""
    made: list[Candidate] = []
    for number, text in enumerate(texts):
        document = Document.from_text(f"before {text} after", source=f"document-{number:04}.md")
        plain = Chunk.of(document, Span(7, 7 + len(text)), max(1, len(text) // 4))
        values = {"source": document.source, **(metadata[number] if metadata else {})}
        chunk = Chunk(
            id=plain.id,
            document_id=plain.document_id,
            span=plain.span,
            text=plain.text,
            token_count=plain.token_count,
            metadata=values,
        )
        final = scores[number] if scores is not None else 1.0 - number / max(1, len(texts))
        made.append(Candidate(chunk, {"final": final}))
    return made


class StageConformance:
    """What every `Stage` must do. Override `make_stage`."""

    def make_stage(self) -> Stage:
        raise NotImplementedError

    def test_it_is_a_stage(self) -> None:
        assert isinstance(self.make_stage(), Stage)

    def test_no_candidates(self) -> None:
        assert self.make_stage()(Query("anything", room=100), []) == []

    @pytest.mark.parametrize("question", _QUESTIONS)
    @pytest.mark.parametrize("room", [None, 0, 1, 60, 100_000])
    def test_nothing_is_invented(self, question: str, room: int | None) -> None:
        given = make_candidates(_TEXTS)
        self._check(given, self.make_stage()(Query(question, room=room), given))

    def test_what_was_left_out_before_stays_out(self) -> None:
        first, *rest = make_candidates(_TEXTS)
        given = [first.keeping([Span(7, 40)]), *rest]
        self._check(given, self.make_stage()(Query("signing key", room=50), given))

    def test_candidates_without_scores(self) -> None:
        given = [Candidate(candidate.chunk) for candidate in make_candidates(_TEXTS)]
        self._check(given, self.make_stage()(Query("signing key", room=50), given))

    def test_one_candidate(self) -> None:
        (given,) = make_candidates(_TEXTS[:1])
        (result,) = self.make_stage()(Query("signing key", room=10_000), [given])
        assert result.chunk == given.chunk

    def test_same_in_same_out_and_the_input_is_untouched(self) -> None:
        given = make_candidates(_TEXTS)
        before = copy.deepcopy(given)
        query = Query("signing key", room=60)
        first = self.make_stage()(query, given)
        assert given == before, "law 6, reading changes nothing: the stage changed the candidates it was given"
        assert self.make_stage()(query, given) == first, "law 6, the same in gives the same out: two calls differ"

    def test_the_choice_does_not_depend_on_the_order_of_arrival(self) -> None:
        for given in (make_candidates(_TEXTS), make_candidates(_TEXTS[:1] * 8, scores=[0.5] * 8)):
            query = Query("signing key", room=100)
            first, second = (self.make_stage()(query, items) for items in (given, given[::-1]))
            assert {one.chunk.id: one for one in first} == {one.chunk.id: one for one in second}, (
                "law 6, the same in gives the same out: the choice hangs on the order in which candidates came"
            )

    @staticmethod
    def _check(given: Sequence[Candidate], result: Sequence[Candidate]) -> None:
        assert isinstance(result, list), f"a stage returns a list, not a {type(result).__name__}"
        by_id = {candidate.chunk.id: candidate for candidate in given}
        ids = [candidate.chunk.id for candidate in result]
        assert len(set(ids)) == len(ids), f"a candidate came twice: {ids}"
        assert set(ids) <= set(by_id), (
            f"law 3, every token has a source: invented candidates {sorted(set(ids) - set(by_id))}"
        )
        for candidate in result:
            before = by_id[candidate.chunk.id]
            who = candidate.chunk.id
            assert candidate.chunk == before.chunk, f"law 3, every token has a source: the chunk {who} was changed"
            inside = intersect_spans(candidate.spans, before.spans)
            assert total_length(inside) == total_length(candidate.spans), (
                f"law 3, every token has a source: {who} keeps {candidate.spans}, which is not inside {before.spans}"
            )
            assert 0.0 <= candidate.score <= 1.0, f"{who} has the final score {candidate.score}, not in [0, 1]"
            if total_length(before.spans):
                assert total_length(candidate.spans), f"{who} was kept, but emptied: leave it out of the result"
