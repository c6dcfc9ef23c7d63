"""The extractors: conformance, what the rules find, windows, what happens without the optional packages."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.documents import Span
from ctxkit.errors import ConfigError, MissingExtraError
from ctxkit.graph import JiebaExtractor, LightExtractor, SpacyExtractor
from ctxkit.graph.windows import windows
from ctxkit.protocols import EntityExtractor
from ctxkit.registry import create
from ctxkit.testing import EntityExtractorConformance
from tests.strategies import texts

needs_spacy = pytest.mark.skipif(importlib.util.find_spec("spacy") is None, reason="spaCy is not installed")
needs_jieba = pytest.mark.skipif(importlib.util.find_spec("jieba") is None, reason="jieba is not installed")


def pairs(text: str, extractor: EntityExtractor | None = None) -> list[tuple[str, str]]:
    (found,) = (extractor or LightExtractor()).extract([text])
    return [(entity.text, entity.label) for entity in found]


def names(text: str) -> list[str]:
    return [name for name, label in pairs(text) if label == "NAME"]


# ------------------------------------------------------------------------------------------------------ light


class TestLight(EntityExtractorConformance):
    def make_extractor(self) -> LightExtractor:
        return LightExtractor()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Later Tim Cook left.", ["Tim Cook"]),
        ("With Amy Poehler and Will Arnett.", ["Amy Poehler", "Will Arnett"]),
        ("It will rain. Will Anna come? We met Minister May Brown.", ["Anna", "Minister May Brown"]),
        ("The World Bank lent it.", ["World Bank"]),
        ("He met Mr. Smith and Dr. Jones.", ["Smith", "Jones"]),
        ("by J. K. Rowling and J.R.R. Tolkien", ["J. K. Rowling", "J.R.R. Tolkien"]),
        ("the University of California", ["University of California"]),
        ("in the U.S. and the UK", ["U.S.", "UK"]),
        ("with O'Brien, Jean-Luc Picard and d'Artagnan", ["O'Brien", "Jean-Luc Picard", "Artagnan"]),
        ("he liked Apple's plan", ["Apple"]),
        ("a Boeing 747, see Section 5", ["Boeing 747", "Section 5"]),
        ("an iPhone by eBay", ["iPhone", "eBay"]),
        ("die Straße nach Österreich", ["Straße", "Österreich"]),
        ("поезд в Москва", ["Москва"]),
        ("我是Tim Cook的朋友", ["Tim Cook"]),
        ("これはコンピューターです", ["コンピューター"]),
        ("I think, and I know.", []),
        ("World War I. The war ended.", ["World War I"]),
        ("New York. Los Angeles. First World War.", ["New York", "Los Angeles", "First World War"]),
    ],
)
def test_names(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Dogs bark.", []),
        ("Paris lies there. We like Paris.", ["Paris", "Paris"]),
        ("Paris lies there. Paris lies here.", []),
        ("Paris is big. Ada's book. Today is Monday. New is good.", ["Paris", "Ada"]),
        ("NATO met.", ["NATO"]),
        ("However, it rained.", []),
        ("“Well,” he said.", []),
        ("# Setup\n\n- Install it\n- Run it", []),
        ("the long line that goes on and on and is wrapped here by\nMoscow in the middle of a sentence", ["Moscow"]),
    ],
)
def test_a_capital_at_the_beginning_of_a_sentence_needs_other_evidence(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on 5 May 2024", ("5 May 2024", "DATE")),
        ("on May 5, 2024", ("May 5, 2024", "DATE")),
        ("in 1998,", ("1998", "DATE")),
        ("by 2024-05-01.", ("2024-05-01", "DATE")),
        ("the 1990s", ("1990s", "DATE")),
        ("on Monday", ("Monday", "DATE")),
        ("for 3 years", ("3 years", "DATE")),
        ("1998年3月5日生", ("1998年3月5日", "DATE")),
        ("at 10:30 pm", ("10:30 pm", "TIME")),
        ("paid $3.5 million", ("$3.5 million", "MONEY")),
        ("paid 20 euros", ("20 euros", "MONEY")),
        ("花了5万元", ("5万元", "MONEY")),
        ("up 20%", ("20%", "PERCENT")),
        ("runs 5 km", ("5 km", "QUANTITY")),
        ("uses 64 GB", ("64 GB", "QUANTITY")),
        ("about 3 million", ("3 million", "QUANTITY")),
        ("exactly 1,234", ("1,234", "CARDINAL")),
        ("the 21st", ("21st", "ORDINAL")),
        ("call parse_url", ("parse_url", "CODE")),
        ("call getElementById", ("getElementById", "CODE")),
        ("call os.path.join()", ("os.path.join()", "CODE")),
        ("set MAX_SIZE", ("MAX_SIZE", "CODE")),
        ("run `make test`", ("make test", "CODE")),
        ("with Node.js", ("Node.js", "CODE")),
        ("see https://example.com/a?b=1.", ("https://example.com/a?b=1", "URL")),
        ("mail tim.cook@apple.com", ("tim.cook@apple.com", "EMAIL")),
        ("mail Tim.Cook@apple.com", ("Tim.Cook@apple.com", "EMAIL")),
        ("by @jack", ("jack", "HANDLE")),
        ("called “entropy coding” here", ("entropy coding", "TERM")),
        ('read "The Great Gatsby" twice', ("The Great Gatsby", "WORK_OF_ART")),
        ("读《红楼梦》", ("红楼梦", "WORK_OF_ART")),
    ],
)
def test_one_of_each_label(text: str, expected: tuple[str, str]) -> None:
    assert pairs(text) == [expected]


@pytest.mark.parametrize(
    "text", ["e.g. this, i.e. that, at 3 or 12", "end.next", "a_", "__init__", "x" * 500, "A" * 500]
)
def test_what_looks_like_an_entity_and_is_none(text: str) -> None:
    assert [pair for pair in pairs(text) if pair[0] not in ("end.next",)] == []


_PIECES = "Tim| |Cook|.|_|a|B|@|://|http|\"|“|”|`|《|》|1|5 km|May|The|of|,|-|'s|\n|U.S.|ア|$|a_b|「|」|年|北京|%|:|İ|ß"
pieces = st.sampled_from(_PIECES.split("|"))


@settings(max_examples=200)
@given(texts | st.lists(pieces, max_size=30).map("".join))
def test_light_entities_are_in_the_text_in_order(text: str) -> None:
    (found,) = LightExtractor().extract([text])
    assert all(entity.span.slice(text) == entity.text == entity.text.strip() != "" for entity in found)
    assert all(before.span.end <= after.span.start for before, after in pairwise(found))


# ---------------------------------------------------------------------------------------------------- windows


@settings(max_examples=150)
@given(texts, st.integers(8, 60), st.integers(0, 15))
def test_windows_cover_what_is_not_blank(text: str, size: int, overlap: int) -> None:
    spans = list(windows(text, size, min(overlap, size // 4)))
    assert all(0 < span.length <= size for span in spans)
    position = 0
    for start, end in [*spans, Span(len(text), len(text))]:
        assert start >= position - overlap
        assert not text[position:start].strip() or len(text[position:start].strip()) >= 400
        assert end >= position
        position = end


def test_windows_share_text_unless_a_blank_line_parts_them() -> None:
    sentences = "One two three four five six. " * 20
    assert all(after.start < before.end for before, after in pairwise(windows(sentences, 100, 20)))
    paragraphs = "One two three four five six.\n\n" * 20
    assert all(after.start == before.end for before, after in pairwise(windows(paragraphs, 100, 20)))


def test_blobs_are_not_read() -> None:
    text = f"Before. {'x' * 5000} After."
    assert [span.slice(text).strip() for span in windows(text, 100, 20)] == ["Before.", "After."]


# ------------------------------------------------------------------------------------------------------ spaCy


@pytest.mark.model
@needs_spacy
class TestSpacy(EntityExtractorConformance):
    size = 2_000
    independent = False

    def make_extractor(self) -> SpacyExtractor:
        return SpacyExtractor()


@pytest.mark.model
@needs_spacy
def test_no_entity_is_cut_at_the_edge_of_a_window() -> None:
    text = "Tim Cook met Angela Merkel in New York City. " * 40
    for size, overlap in ((100, 25), (130, 30), (2_000, 200)):
        found = pairs(text, SpacyExtractor(window=size, overlap=overlap))
        assert found == [("Tim Cook", "PERSON"), ("Angela Merkel", "PERSON"), ("New York City", "GPE")] * 40
    unspaced = text.replace(". ", " and then ")
    cut = {name for name, _ in pairs(unspaced, SpacyExtractor(window=100, overlap=25))}
    assert cut <= {"Tim Cook", "Angela Merkel", "New York City"}


@pytest.mark.model
@needs_spacy
def test_only_the_labels_that_are_asked_for() -> None:
    text = "Tim Cook flew to Paris."
    assert pairs(text, SpacyExtractor(labels=("GPE",))) == [("Paris", "GPE")]
    with pytest.raises(ConfigError, match="no label PLANET") as caught:
        list(SpacyExtractor(labels=("PLANET",)).extract([text]))
    assert "PERSON" in caught.value.remedy


@pytest.mark.model
@needs_spacy
def test_the_vocabulary_does_not_grow_with_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    from ctxkit.graph import spacy_extractor

    texts = [f"Tim Cook met word{number}x and other{number}y." for number in range(60)]
    extractor = SpacyExtractor(batch_size=10)
    list(extractor.extract(texts[:1]))
    vocabulary = spacy_extractor.loaded_model(extractor.model).vocab
    monkeypatch.setattr(spacy_extractor, "_LARGEST_VOCABULARY", len(vocabulary))
    bounded = list(extractor.extract(texts))
    assert len(vocabulary) <= spacy_extractor._LARGEST_VOCABULARY + 20 * 10
    monkeypatch.undo()
    assert list(extractor.extract(texts)) == bounded


@pytest.mark.model
@needs_spacy
def test_several_threads_share_one_model() -> None:
    results: list[list[tuple[str, str]]] = []
    threads = [threading.Thread(target=lambda: results.append(pairs("Tim Cook.", SpacyExtractor()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[("Tim Cook", "PERSON")]] * 4


@pytest.mark.parametrize(
    "parameters",
    [
        {"model": 3},
        {"batch_size": 0},
        {"window": 10},
        {"overlap": -1},
        {"overlap": 600},
        {"labels": "PERSON"},
        {"labels": (1,)},
    ],
)
def test_wrong_parameters_of_spacy(parameters: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as caught:
        SpacyExtractor(**parameters)  # type: ignore[arg-type]
    assert caught.value.remedy


@needs_spacy
def test_a_model_that_is_not_installed() -> None:
    with pytest.raises(ConfigError, match="no spaCy model") as caught:
        list(SpacyExtractor(model="xx_no_such_model").extract(["x"]))
    assert "en_core_web_sm" in caught.value.remedy


@pytest.mark.parametrize(("package", "extractor"), [("spacy", SpacyExtractor), ("jieba", JiebaExtractor)])
def test_what_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, package: str, extractor: type[SpacyExtractor | JiebaExtractor]
) -> None:
    from ctxkit.graph import jieba_extractor, spacy_extractor

    monkeypatch.setitem(sys.modules, package, None)
    for loaded in (jieba_extractor._loaded, spacy_extractor._loaded):
        monkeypatch.setattr(sys.modules[loaded.__module__], "_loaded", loaded.__wrapped__)
    with pytest.raises(MissingExtraError, match=r"ctxkit-sdk\[nlp\]"):
        list(extractor().extract(["x"]))


# ------------------------------------------------------------------------------------------------------ jieba


@pytest.mark.model
@needs_jieba
class TestJieba(EntityExtractorConformance):
    size = 20_000

    def make_extractor(self) -> JiebaExtractor:
        return JiebaExtractor()


@pytest.mark.model
@needs_jieba
def test_chinese_names() -> None:
    text = "曹雪芹在北京写了《红楼梦》，Tim Cook来过清华大学和上海交通大学，花了5万元。"
    assert pairs(text, JiebaExtractor()) == [
        ("曹雪芹", "PERSON"),
        ("北京", "GPE"),
        ("红楼梦", "WORK_OF_ART"),
        ("Tim Cook", "NAME"),
        ("清华大学", "ORG"),
        ("上海交通大学", "ORG"),
        ("5万元", "MONEY"),
    ]
    assert [label for _, label in pairs(text, JiebaExtractor(latin=False))] == ["PERSON", "GPE", "NAME", "ORG", "ORG"]


@pytest.mark.model
@needs_jieba
def test_no_word_of_a_long_run_is_cut() -> None:
    found = pairs("李小龙" * 2_000, JiebaExtractor())
    assert found == [("李小龙", "PERSON")] * 2_000


@pytest.mark.model
@needs_jieba
@settings(max_examples=60)
@given(st.lists(pieces | st.sampled_from(["毛泽东", "在", "清华大学", "，", "\ud800"]), max_size=12).map("".join))
def test_jieba_entities_are_in_the_text_in_order(text: str) -> None:
    (found,) = JiebaExtractor().extract([text])
    assert all(entity.span.slice(text) == entity.text for entity in found)
    assert all(before.span.end <= after.span.start for before, after in pairwise(found))


@pytest.mark.model
@needs_jieba
def test_jieba_loads_without_a_word_and_keeps_out_of_the_temporary_folder(tmp_path: Path) -> None:
    code = (
        "import warnings; warnings.simplefilter('error')\n"
        "from ctxkit.graph import JiebaExtractor\n"
        "print(next(JiebaExtractor().extract(['毛泽东在北京'])))"
    )
    environment = {"CTXKIT_CACHE": f"{tmp_path}/cache", "TMPDIR": str(tmp_path), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert done.stderr == ""
    assert "北京" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


@pytest.mark.parametrize("name", ["auto", "chinese", "light", "spacy"])
def test_the_extractors_are_registered(name: str) -> None:
    assert isinstance(create("extractor", name), EntityExtractor)
