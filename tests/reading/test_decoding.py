"""Encodings are found, and nothing unstorable comes through."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.errors import ReadingError
from ctxkit.reading import decode
from tests.strategies import texts

CHINESE = "数据库密钥轮换：每个月更换一次签名密钥。"
JAPANESE = "日本語のテキストです。これは二番目の文で、カタカナもあります。"
KOREAN = "안녕하세요. 데이터베이스 키를 매달 교체합니다."
RUSSIAN = "Съешь же ещё этих мягких французских булок, да выпей чаю."
WESTERN = [
    "café",
    "naïve résumé",
    "Le café est fermé à Noël, où êtes-vous allés ?",
    "Größe äöü: die Straße ist naß.",
    "El niño comió piñata mañana en España. ¿Qué?",
    "price: £30 – “quoted” text",
    "Rødgrød med fløde på en ø.",
    "Não há solução, disse a avó.",
]


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-8", CHINESE),
        ("utf-8-sig", "plain"),
        ("utf-16", "Hello 世界 😀"),
        ("utf-16-le", "Hello wide world"),
        ("utf-16-be", "Hello wide world"),
        ("utf-32", "Hello 世界"),
        ("gb18030", CHINESE),
        ("gbk", "# 标题\r\n\r\n正文内容在这里，请看。\r\n"),
        ("gb2312", "你好"),
        ("big5", "資料庫密鑰輪換：每個月更換一次簽名密鑰。這是另一個句子！"),
        ("shift_jis", JAPANESE),
        ("euc_jp", JAPANESE),
        ("iso2022_jp", JAPANESE),
        ("euc_kr", KOREAN),
        ("cp1251", RUSSIAN),
        ("cp1250", "Příliš žluťoučký kůň úpěl ďábelské ódy."),
        ("cp1250", "Zażółć gęślą jaźń, proszę bardzo."),
        *[("cp1252", text) for text in WESTERN],
        ("latin-1", "Le café est fermé à Noël"),
    ],
)
def test_encodings_are_found(encoding: str, text: str) -> None:
    found = decode(text.encode(encoding))
    assert found.text == text
    assert found.replaced == 0


@pytest.mark.parametrize("encoding", ["gb18030", "shift_jis", "euc_kr", "cp1252"])
def test_long_files_are_decoded_to_the_end(encoding: str) -> None:
    text = {"gb18030": CHINESE, "shift_jis": JAPANESE, "euc_kr": KOREAN, "cp1252": WESTERN[2]}[encoding] * 20_000
    assert decode(text.encode(encoding)).text == text


def test_a_few_broken_bytes_do_not_change_the_encoding() -> None:
    data = (CHINESE * 5).encode() + b"\xff" + CHINESE.encode()[:-1]
    found = decode(data)
    assert found.encoding == "utf-8"
    assert found.text.startswith(CHINESE)
    assert found.replaced == found.text.count("\ufffd") == 2


def test_a_replacement_character_of_the_file_is_not_counted() -> None:
    assert decode("a\ufffdb".encode()).replaced == 0


def test_a_declared_encoding_counts_when_it_is_not_utf8() -> None:
    assert decode("# -*- coding: koi8-r -*-\nтекст".encode("koi8-r")).text.endswith("текст")
    assert decode("# -*- coding: koi8-r -*-\nтекст".encode()).text.endswith("текст")


@pytest.mark.parametrize("name", ["rot13", "base64", "idna", "unicode_escape", "nonsense", "utf-7"])
def test_a_declared_codec_that_is_no_charset_is_passed_over(name: str) -> None:
    assert "café" in decode(f"coding: {name} café".encode("cp1252")).text


def test_what_no_encoding_makes_text_of() -> None:
    with pytest.raises(ReadingError, match="UTF-8"):
        decode(bytes([0x81, 0x8D, 0xFF, 0x00, 0x9D, 0x01, 0xFE] * 50), subject="x")


@given(texts)
def test_utf8_is_taken_as_it_is(text: str) -> None:
    clean = text.encode("utf-8", "replace").replace(b"\x00", b"?").decode()
    if "\x1b$" in clean or clean.startswith("\ufeff"):
        return
    assert decode(clean.encode()).text == clean


@given(texts, st.sampled_from(["utf-16-le", "utf-16-be", "utf-8"]))
def test_a_byte_order_mark_decides(text: str, encoding: str) -> None:
    mark = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE, "utf-8": codecs.BOM_UTF8}[encoding]
    clean = text.encode("utf-8", "replace").replace(b"\x00", b"?").decode()
    assert decode(mark + clean.encode(encoding)) == (clean, encoding, 0)


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    try:
        text, subject = decode(data, subject="x").text, "x"
    except ReadingError as error:
        text, subject = "", error.subject
    assert subject == "x"
    text.encode("utf-8")
    assert "\x00" not in text
