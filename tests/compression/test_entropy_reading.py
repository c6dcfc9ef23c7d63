"""Which words are chosen when a model reads and when none does, and what is never left over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from ctxkit.chunking import RecursiveChunker
from ctxkit.compression import EntropyCompressor, TokenScores
from ctxkit.documents import Candidate, Document, Query, intersect_spans
from ctxkit.errors import ConfigError
from ctxkit.testing.stages import make_candidates
from ctxkit.text import sentence_spans
from tests.compression.test_entropy import COUNTER, KEYS, RAIN, ZH, tokens


@pytest.mark.parametrize("share", [0.08, 0.1])
def test_names_of_other_candidates_do_not_crowd_out_the_best_sentence(share: float) -> None:
    names = [
        f"Otto Brandt {'and ' * (at % 5)}Ilse Lang, Max Stone, Eva Rich and Jan Vos wrote letters in Oslo and Rome."
        for at in range(12)
    ]
    said = "Old letters are stored in a dry box under the stairs."
    given_ = make_candidates([*names[:6], said, *names[6:]])
    left = EntropyCompressor(target=int(share * tokens(given_)))(Query("Where are old letters stored?"), given_)
    assert any(said in candidate.text for candidate in left)


@pytest.mark.parametrize("target", range(6, 30))
def test_no_negation_is_left_alone(target: int) -> None:
    text = (
        "The U.S. Senate met on Jan. 5, 1971. Members of the House, including Rep. J.R. Ewing, left the U.S. They came "
        "back. In the 1970s the United Nations was led by Kurt Waldheim, who was born c. 1918 in Austria. He served "
        "until Dec. 31, 1981, at 8 p.m. ET. The U.N. Secretary General does not command an army. Warner Bros. Records "
        "published the songs of the decade. The European Union did not exist yet. Javier Pérez came after him."
    )
    chunks = RecursiveChunker(max_tokens=80).chunk(Document.from_text(text, source="un.md"))
    query, given_ = Query("Who led the U.N. in the 70's?"), [Candidate(chunk) for chunk in chunks]
    left = EntropyCompressor(target=target)(query, given_)
    assert tokens(left) <= target
    for sentence in sentence_spans(text):
        spans = [span for candidate in left for span in intersect_spans([sentence], candidate.spans)]
        assert [span.slice(text).strip() for span in spans] != ["not"]


@pytest.mark.parametrize(
    ("text", "question", "said"),
    [
        (
            "The signing key rotates.\n\n| key | value |\n|---|---|\n| signing | not set |\n| other | 5 |\n",
            "Is the signing key set?",
            "| signing | not set |",
        ),
        (
            "Was the permit of the harbour granted? No. It rained on the boats all that week.",
            "Was the permit granted?",
            "No.",
        ),
        (
            "The weather was mild that year. Permit refused. It rained on the boats.",
            "Was the permit refused?",
            "refused",
        ),
    ],
)
def test_a_row_or_a_whole_sentence_that_denies_stays(text: str, question: str, said: str) -> None:
    whole = COUNTER.count(text)
    for target in range(12, whole):
        left = EntropyCompressor(target=target)(Query(question), make_candidates([text]))
        if said in left[0].text:
            break
    assert target < 0.8 * whole


class _Counting:
    """A reader that says how many texts it has read."""

    def __init__(self) -> None:
        self.texts = 0

    def score_tokens(self, texts: Sequence[str], **_: Any) -> Iterator[TokenScores]:
        for text in texts:
            self.texts += 1
            spans = np.array([(at, at + 1) for at in range(len(text))])
            yield TokenScores(spans, np.zeros(len(text)), np.zeros((0, len(text))), np.arange(len(text)) * 1.0)


@pytest.mark.parametrize(
    ("signals", "share", "read"),
    [
        (None, 0.7, 2),
        (None, 0.2, 2),
        (None, 0.1, 0),
        (["kind", "sentence"], 0.7, 0),
        (["attention"], 0.1, 2),
        (["self_information", "kind"], 0.1, 2),
    ],
)
def test_a_model_reads_only_where_a_signal_asks_for_it(signals: list[str] | None, share: float, read: int) -> None:
    reader, given_ = _Counting(), make_candidates([KEYS, RAIN])
    stage = EntropyCompressor(model=reader, target=int(share * tokens(given_)), signals=signals)
    query = Query("When is the signing key rotated?")
    left = stage(query, given_)
    assert reader.texts == read
    told = set(stage.notes(query, given_, left)["signals"])
    assert told == set(signals or ["sentence", "kind", *(["attention"] if read else [])])


@pytest.mark.parametrize("share", [0.2, 0.3, 0.5, 0.7, 0.9])
def test_without_a_model_sentences_and_kinds_of_words_decide(share: float) -> None:
    query, given_ = Query("When is the signing key rotated?"), make_candidates([KEYS, RAIN, ZH])
    target = int(share * tokens(given_))
    left = EntropyCompressor(target=target)(query, given_)
    assert 0.9 * target <= tokens(left) <= target
    assert left == EntropyCompressor(target=target, model=_Counting(), signals=["sentence", "kind"])(query, given_)
    assert share < 0.3 or "every 30 days" in left[0].text


@pytest.mark.parametrize("signal", ["attention", "entropy", "self_information"])
def test_a_signal_that_needs_a_model_says_so(signal: str) -> None:
    with pytest.raises(ConfigError, match=f"{signal} is what a model tells"):
        EntropyCompressor(ratio=2, signals=["kind", signal])
