"""The sentence compressor on a set of candidates: what one sentence brings along, who is dropped, what is noted."""

from __future__ import annotations

from dataclasses import replace

from ctxkit.compression import SentenceCompressor
from ctxkit.documents import Candidate, Chunk, Document, Query, Span
from ctxkit.testing.stages import make_candidates
from tests.compression.notes import COUNTER, KEYS, RAIN, tokens


def wiki(*pages: tuple[str, str]) -> list[Candidate]:
    """Candidates that each are a whole document with a title."""
    found = []
    for title, text in pages:
        document = Document.from_text(text, source=f"{title}.md", title=title)
        chunk = Chunk.of(document, Span(0, len(text)), COUNTER.count(text))
        found.append(Candidate(replace(chunk, metadata={"source": document.source, "title": title})))
    return found


PAGES = wiki(
    ("Blue Harbour", "Blue Harbour is a film of 1961. It was directed by Ada Quill. It was shot in winter."),
    ("Red Harbour", "Red Harbour is a film of 1975. It was directed by Tom Reed. The film won two prizes."),
    ("Ada Quill", "Ada Quill was a painter from Norway. She kept bees. She spoke four languages."),
    ("Tom Reed", "Tom Reed was a painter from Spain. He kept goats. He spoke two languages."),
)


def test_a_title_in_a_good_sentence_brings_the_document_that_it_names() -> None:
    """The second step of the question: nothing in it names Ada Quill, the first document does."""
    result = SentenceCompressor(target=34)(Query("What country was the director of Blue Harbour from?"), PAGES)
    text = " ".join(one.text for one in result)
    assert "directed by Ada Quill" in text
    assert "painter from Norway" in text
    assert "painter from Spain" not in text


def test_a_sentence_that_points_back_brings_what_it_points_to() -> None:
    text = (
        "The lake is deep. Nils Holm built the old mill. He painted it green in 1911. Bananas are yellow. "
        "The harbour opens at nine. Nobody reads the notice on the door."
    )
    (result,) = SentenceCompressor(target=26)(Query("Who painted it green, in 1911?"), make_candidates([text]))
    assert "Nils Holm built the old mill. He painted it green in 1911." in result.text


def test_a_candidate_with_nothing_to_say_goes_and_one_that_is_all_answer_stays_whole() -> None:
    answer = "The signing key is rotated monthly. The old signing key is kept a week. A signing key is never mailed."
    given_ = make_candidates([RAIN, answer, "Bananas are yellow. The lake is deep. The harbour is closed."])
    result = SentenceCompressor(target=COUNTER.count(answer) + 2)(Query("signing key"), given_)
    assert [(one.chunk, one.kept) for one in result] == [(given_[1].chunk, None)]


def test_a_floor_drops_what_is_far_and_says_so_when_that_is_everything() -> None:
    given_ = make_candidates([KEYS, RAIN])
    stage = SentenceCompressor(floor=0.5)
    (result,) = stage(Query("When is the signing key rotated every month?"), given_)
    assert "rotated every month" in result.text
    assert "Bananas" not in result.text
    query = Query("volcano eruption statistics")
    assert stage(query, given_) == []
    assert "nothing is sent" in stage.notes(query, given_, [])["floor"]
    assert SentenceCompressor(target=20)(query, given_) != [], "without a floor nothing is emptied"


def test_the_notes_count_what_went_in_and_came_out() -> None:
    given_ = make_candidates([KEYS, RAIN])
    stage, query = SentenceCompressor(ratio=2, overhead=3), Query("signing key")
    result = stage(query, given_)
    notes = stage.notes(query, given_, result)
    assert notes["tokens_in"] == tokens(given_) + 6
    assert notes["tokens_out"] == tokens(result) + 3 * len(result) <= notes["target"] == notes["tokens_in"] // 2


def test_a_ratio_does_not_go_below_the_minimum() -> None:
    given_ = make_candidates([KEYS, RAIN])
    result = SentenceCompressor(ratio=20, minimum=30)(Query("signing key"), given_)
    assert 20 < tokens(result) <= 30
    assert SentenceCompressor(ratio=20, minimum=10_000)(Query("signing key"), given_) == given_
