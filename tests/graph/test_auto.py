"""The extractor that reads each text by its language: which language, in which order, with what is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

import pytest

from ctxkit.documents import Entity, Span
from ctxkit.graph import AutoExtractor, LightExtractor
from ctxkit.graph.auto import language_of
from ctxkit.testing import EntityExtractorConformance

needs_spacy = pytest.mark.skipif(importlib.util.find_spec("spacy") is None, reason="spaCy is not installed")
needs_jieba = pytest.mark.skipif(importlib.util.find_spec("jieba") is None, reason="jieba is not installed")


class Recorder:
    """An extractor that says which texts it got."""

    def __init__(self) -> None:
        self.got: list[str] = []

    def extract(self, texts: Iterable[str]) -> Iterable[list[Entity]]:
        for text in texts:
            self.got.append(text)
            yield [Entity("x", "X", Span(0, 1))]


@pytest.mark.model
@needs_spacy
@needs_jieba
class TestAuto(EntityExtractorConformance):
    size = 500
    independent = False

    def make_extractor(self) -> AutoExtractor:
        return AutoExtractor()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "en"),
        ("Tim Cook.", "en"),
        ("Ada Lovelace met Charles Babbage in London. She met him again.", "en"),
        ("The key is not in the box.", "en"),
        ("Der Schlüssel ist nicht in der Kiste.", "de"),
        ("La clé n'est pas dans la boîte.", "fr"),
        ("La llave no está en el cajón de los libros.", "es"),
        ("钥匙不在盒子里。", "zh"),
        ("我们用 Kubernetes 部署服务。", "zh"),
        ("An English text that mentions 北京 once.", "en"),
        ("鍵は箱の中にありません。", "ja"),
        ("열쇠는 상자에 없습니다.", "ko"),
        ("Ключа нет в коробке.", "ru"),
    ],
)
def test_languages(text: str, expected: str) -> None:
    assert language_of(text) == expected


def test_each_text_goes_to_its_language_in_order() -> None:
    extractor = AutoExtractor()
    english, chinese = Recorder(), Recorder()
    object.__setattr__(extractor, "_extractors", {"en": english, "zh": chinese})
    sent = [
        "One of the texts.",
        "第一个句子。",
        "Der Tim Cook ist nicht da.",
        "Two of the texts.",
        "Three of the texts.",
    ]
    found = list(extractor.extract(sent))
    assert (english.got, chinese.got) == ([sent[0], sent[3], sent[4]], [sent[1]])
    assert [entities[0].label for entities in found] == ["X", "X", "NAME", "X", "X"]


def test_without_anything_installed_the_rules_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = AutoExtractor().fingerprint
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    bare = AutoExtractor()
    (found,) = bare.extract(["Later Tim Cook left 北京."])
    assert [(entity.text, entity.label) for entity in found] == [("Tim Cook", "NAME")]
    assert bare.fingerprint == f":{LightExtractor().fingerprint}" != whole
