"""What a cut inside a sentence must never do: tear a number, a word or an id, or lose a negation."""

from __future__ import annotations

import re

import pytest

from ctxkit.compression import SentenceCompressor
from ctxkit.documents import Candidate, Chunk, Document, Query, Span
from ctxkit.models import OpenAIChatCounter

COUNTER = OpenAIChatCounter("gpt-4o")


def kept(text: str, question: str, target: int) -> str:
    """What is kept of a text, or "" where all of it came back, which is said in the trace."""
    document = Document("d", text)
    chunk = Chunk.of(document, Span(0, len(text)), COUNTER.count(text))
    (found,) = SentenceCompressor(target=target, counter=COUNTER)(Query(question), [Candidate(chunk)])
    return "" if found.kept is None or found.text == text else found.text


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("The db port is 5432 and the cache is 12345678.", "db port?"),
        ("The price is €1,234,567.89 in total.", "what is the price?"),
        ("The dose is 1.25 mg per day, never 12.5 mg.", "what dose?"),
        ("The part abc-9981-XJ was replaced on 2024-03-17 by def-1234567-Q.", "which part?"),
        ("See PMID 12929205 and the 2020 report, version 10.12.3, for 37 % of 1,000,000 cases.", "which report?"),
    ],
)
def test_no_number_word_or_id_is_torn(text: str, question: str) -> None:
    whole = set(re.findall(r"[\w.,€%-]*\w", text))
    for target in range(1, COUNTER.count(text) + 1):
        for piece in re.findall(r"[\w.,€%-]*\w", kept(text, question, target).replace("[…]", " ")):
            assert piece in whole, f"{piece!r} at {target}"


@pytest.mark.parametrize(
    ("text", "question", "stated"),
    [
        ("Do not use port 5432.", "which port?", "use port"),
        (
            "Ann lives in Rome. It must not be copied to laptops because the law forbids it. Bob lives in Oslo.",
            "may it be copied to laptops?",
            "copied",
        ),
        ("Basic economy flights cannot be modified, and a refund is never given after departure.", "refund?", "given"),
        ("基本经济舱的航班不可以修改，起飞以后也不给退款。", "可以修改吗？", "修改"),
    ],
)
def test_what_is_negated_is_not_kept_without_its_negation(text: str, question: str, stated: str) -> None:
    for target in range(1, COUNTER.count(text) + 1):
        found = kept(text, question, target)
        if stated in found:
            assert re.search(r"\b(?:not|never|cannot)\b[^.\[]*" + stated, found) or re.search(
                "不[^。]*" + stated, found
            ), f"{found!r} at {target}"
