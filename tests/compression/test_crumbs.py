"""What is kept says something: no `| web | […]`, no key without its value, no row that is lost for its header."""

from __future__ import annotations

import json
import re

import pytest

from ctxkit.compression import SentenceCompressor
from ctxkit.documents import GAP, Query
from ctxkit.testing.stages import make_candidates
from ctxkit.text import sentence_spans, words
from ctxkit.tokens import get_counter

COUNTER = get_counter()
HANDBOOK = (
    "# Handbook\nThe office opens at nine. Lunch is served at noon. Cake is on Fridays, and everybody brings one.\n\n"
    "## Keys\nThe signing key rotates every thirty days. It is kept in the vault. Nobody may copy it.\n\n"
    "| service | port | owner |\n|---|---|---|\n| web | 443 | Ann |\n| db | 5432 | Cem |\n| mail | 25 | Bob |\n\n"
    "## Travel\nBook trains at least three days before you leave. Receipts go to finance.\n"
)
CHINESE = (
    "办公室九点开门。午餐在中午供应。签名密钥每三十天轮换一次，保存在楼梯下面的保险库里。"
    "数据库的端口是5432，邮件服务器的端口是25。收据交给财务部。"
)
CHAT = (
    "Ann: morning all. The deploy went out at nine. No alarms so far.\n"
    "Bob: great. I moved the database last night. The db port changed to 5433, do not use 5432 any more.\n"
    "Ann: thanks. Who is on call tomorrow? I am away.\n"
)


def kept(text: str, question: str, target: int) -> str:
    (left,) = SentenceCompressor(target=target)(Query(question), make_candidates([text]))
    return left.text


@pytest.mark.parametrize(
    ("text", "question"),
    [
        (HANDBOOK, "what is the db port?"),
        (HANDBOOK, "how often does the signing key rotate?"),
        (CHINESE, "签名密钥多久轮换一次？"),
        (CHAT, "what is the db port now?"),
        (CHAT, "who is on call?"),
    ],
)
def test_a_part_of_a_sentence_has_three_words_where_nine_tenths_are_used_without(text: str, question: str) -> None:
    whole = {span.slice(text).strip() for span in sentence_spans(text)}
    for target in range(6, COUNTER.count(text), 3):
        pieces = [piece.strip() for piece in kept(text, question, target).split("[…]")]
        assert all(pieces[1:-1]), f"white space alone, at {target}"
        crumbs = [piece for piece in pieces if piece and piece not in whole and len(words(piece)) < 3]
        without = COUNTER.count(kept(text, question, target)) - sum(COUNTER.count(crumb + GAP) for crumb in crumbs)
        assert not crumbs or without < 0.9 * target, f"{crumbs} at {target}"


def test_a_row_comes_without_a_header_that_has_no_room() -> None:
    for target in range(15, 60, 5):
        assert "| db | 5432 | Cem" in kept(HANDBOOK, "what is the db port?", target), target
    assert "| service | port |" in kept(HANDBOOK, "what is the db port?", 30)


def test_a_key_keeps_its_value_and_the_keys_are_those_of_one_object() -> None:
    services = [("web", 443), ("db", 5432), ("mail", 25), ("cache", 6379)]
    text = json.dumps(
        [{"id": n, "service": name, "port": port, "note": "x"} for n, (name, port) in enumerate(services)]
    )
    for target in range(15, 60):
        assert re.search(r'"service": "db", "port": 5432\b', kept(text, "what is the db port?", target)), target


def test_a_text_of_white_space_alone_comes_down_to_the_target() -> None:
    text = "  \n" * 2_000
    assert COUNTER.count(kept(text, "x", 10)) <= 10 < COUNTER.count(text)
