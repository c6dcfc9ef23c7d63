"""Aliases: spellings of one name meet, different things stay apart, and no order matters."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.documents import Entity, Span
from ctxkit.errors import ConfigError
from ctxkit.graph import LightExtractor, Node, Resolution, normalise, query_names, resolve
from ctxkit.graph.acronyms import Definition, definitions
from ctxkit.graph.names import singulars
from tests.strategies import texts
from tests.timing import at_most, doubling

# ------------------------------------------------------------------------------------------------------ names


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("Tim  Cook\n", "tim cook"),
        ("APPLE", "apple"),
        ("Apple's", "apple"),
        ("Apple’s", "apple"),
        ("James'", "james"),
        ("the Beatles", "beatles"),
        ("The The", "the the"),
        ("The Who", "the who"),
        ("An Apple", "apple"),
        ("Los Angeles", "los angeles"),
        ("La Paz", "la paz"),
        ("A Coruña", "coruña"),
        ("“Apple”,", "apple"),
        ("U.S.", "us"),
        ("U.S.A", "usa"),
        ("J. K. Rowling", "jk rowling"),
        ("J.K. Rowling", "jk rowling"),
        ("Ａｐｐｌｅ", "apple"),
        ("ﬁle_name", "filename"),
        ("Straße", "strasse"),
        ("get_user-name", "getusername"),
        ("getUserName", "getusername"),
        ("os.path.join()", "os.path.join"),
        ("C++", "c++"),
        ("C#", "c#"),
        ("GPT-4", "gpt4"),
        ("2024-05-01", "2024-05-01"),
        ("1-2", "1-2"),
        ("北京", "北京"),
        ("《红楼梦》", "红楼梦"),
        ("---", "---"),
        ("’s", "s"),
        (" ", ""),
        ("", ""),
    ],
)
def test_names_are_written_one_way(name: str, key: str) -> None:
    assert normalise(name) == key


@settings(max_examples=200)
@given(texts)
def test_normalise_is_idempotent_and_loses_no_name(name: str) -> None:
    key = normalise(name)
    assert normalise(key) == key
    assert bool(key) == bool(name[:200].strip())
    assert key == key.strip()
    assert len(key) <= 200


@settings(max_examples=100)
@given(st.text("abcXYZ'’ -_.", max_size=20))
def test_case_does_not_count(name: str) -> None:
    assert normalise(name.upper()) == normalise(name.lower()) == normalise(f"  {name} ")


def test_long_names_cost_little() -> None:
    names = [unit * 1_000_000 for unit in ("the ", "'s", "a-", "U.", "ﷺ", "_", "'s.")]
    with at_most(1):
        for name in names:
            normalise(name)


def test_simple_plurals() -> None:
    found = {name: list(singulars(name)) for name in ("cars", "companies", "boxes", "bus", "boss", "axis", "s", "as")}
    assert found == {
        "cars": ["car"],
        "companies": ["companie", "company"],
        "boxes": ["boxe", "box"],
        **{name: [] for name in ("bus", "boss", "axis", "s", "as")},
    }


# ------------------------------------------------------------------------------------------------ definitions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The World Health Organization (WHO) met.", [("WHO", "World Health Organization")]),
        ("WHO (World Health Organization) met.", [("WHO", "World Health Organization")]),
        ("the Food and Drug Administration (FDA)", [("FDA", "Food and Drug Administration")]),
        ("We use natural language processing (NLP).", [("NLP", "natural language processing")]),
        ("large language models (LLMs)", [("LLM", "large language models")]),
        ("World Wide Web (“WWW”)", [("WWW", "World Wide Web")]),
        ("It met. The European Union (EU, since 1993) grew.", [("EU", "European Union")]),
        ("世界卫生组织（WHO）", []),
        ("in Paris (France)", []),
        ("the boss (CEO)", []),
        ("f(x) = (a) (AB", []),
        ("an old thing (IBM) here", []),
        ("", []),
    ],
)
def test_abbreviations_that_a_text_defines(text: str, expected: list[tuple[str, str]]) -> None:
    assert list(definitions(text)) == [Definition(*pair) for pair in expected]


@settings(max_examples=100)
@given(texts | st.lists(st.sampled_from(["World", "Health", "WHO", "(", ")", " ", "（", "İİ", "and"])).map(" ".join))
def test_definitions_are_written_in_the_text(text: str) -> None:
    for short, long in definitions(text):
        assert short in text
        assert long in text
        assert len(long) > len(short) >= 2


# --------------------------------------------------------------------------------------------------- resolving


def mentions(*pairs: tuple[str, str]) -> tuple[list[Entity], str]:
    """Mentions one after the other, and the text that they stand in."""
    found: list[Entity] = []
    text = ""
    for name, label in pairs:
        found.append(Entity(name, label, Span(len(text), len(text) + len(name))))
        text += f"{name} . "
    return found, text


def nodes(*pairs: tuple[str, str]) -> list[tuple[str, str]]:
    return [tuple(node) for node in resolve(*mentions(*pairs)).nodes]


def read(text: str) -> Resolution:
    (found,) = LightExtractor().extract([text])
    return resolve(found, text)


PERSON, ORG, GPE, NAME = "PERSON", "ORG", "GPE", "NAME"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([("Apple", ORG), ("APPLE", ORG), ("Apple's", ORG), ("the Apple", ORG)], {("apple", ORG)}),
        ([("Tim Cook", PERSON), ("Cook", PERSON), ("Tim", PERSON)], {("tim cook", PERSON)}),
        (
            [("Tim Cook", PERSON), ("Ann Cook", PERSON), ("Cook", PERSON), ("Ann", PERSON)],
            {("tim cook", PERSON), ("ann cook", PERSON), ("cook", PERSON)},
        ),
        ([("Tim D. Cook", PERSON), ("D. Cook", PERSON), ("Cook", PERSON)], {("tim d cook", PERSON)}),
        ([("Ludwig van Beethoven", PERSON), ("Beethoven", PERSON)], {("ludwig van beethoven", PERSON)}),
        ([("Tim Cook", NAME), ("Cook", NAME)], {("tim cook", NAME)}),
        ([("Tim Cook", NAME), ("Tim", NAME)], {("tim cook", NAME), ("tim", NAME)}),
        ([("Tim Cook", PERSON), ("Cook", NAME)], {("tim cook", PERSON)}),
        ([("South Africa", NAME), ("Africa", NAME)], {("south africa", NAME), ("africa", NAME)}),
        ([("Bank of America", NAME), ("America", NAME)], {("bank of america", NAME), ("america", NAME)}),
        ([("Los Angeles", GPE), ("Angeles", GPE)], {("los angeles", GPE), ("angeles", GPE)}),
        ([("New York", GPE), ("York", GPE)], {("new york", GPE), ("york", GPE)}),
        ([("Washington", PERSON), ("Washington", GPE)], {("washington", PERSON), ("washington", GPE)}),
        ([("Washington", NAME), ("Washington", GPE)], {("washington", GPE)}),
        (
            [("Washington", NAME), ("Washington", GPE), ("Washington", PERSON)],
            {("washington", NAME), ("washington", GPE), ("washington", PERSON)},
        ),
        ([("Apple Inc.", ORG), ("Apple", ORG)], {("apple inc", ORG)}),
        ([("transformer", "TERM"), ("transformers", "TERM")], {("transformer", "TERM")}),
        ([("Companies", NAME), ("Company", NAME)], {("company", NAME)}),
        ([("Los Angeles", GPE)], {("los angeles", GPE)}),
        ([("get_user_name", "CODE"), ("getUserName", "CODE"), ("get-user-name", "CODE")], {("getusername", "CODE")}),
        ([("Cooks", PERSON), ("Cook", PERSON), ("Tim Cook", PERSON)], {("tim cook", PERSON)}),
    ],
)
def test_what_is_one_thing(given: list[tuple[str, str]], expected: set[tuple[str, str]]) -> None:
    assert set(nodes(*given)) == expected


def test_an_abbreviation_joins_what_the_text_defines_it_as() -> None:
    found = read("Later the World Health Organization (WHO) met. It was at WHO that they saw WHO's plan.")
    assert set(found.nodes) == {Node("world health organization", NAME)}
    assert found.aliases == ((Node("who", NAME), Node("world health organization", NAME)),)
    assert found.displays == {Node("world health organization", NAME): "World Health Organization"}


def test_a_long_form_that_no_extractor_found() -> None:
    found = read("We use natural language processing (NLP). NLP works.")
    assert set(found.nodes) == {Node("natural language processing", NAME)}
    assert found.displays == {Node("natural language processing", NAME): "natural language processing"}


def test_an_abbreviation_that_is_defined_twice_joins_neither() -> None:
    text = "The Analog Device Board (ADB) and the Asian Development Bank (ADB). ADB."
    assert Node("adb", NAME) in read(text).nodes


def test_a_translation_in_brackets() -> None:
    text = "世界卫生组织（WHO）在。"
    found = resolve([Entity("世界卫生组织", ORG, Span(0, 6)), Entity("WHO", NAME, Span(7, 10))], text)
    assert set(found.nodes) == {Node("世界卫生组织", ORG)}


def test_aliases_are_kept_for_the_graph() -> None:
    found = resolve(*mentions(("Tim Cook", PERSON), ("Cook", PERSON), ("Apple", NAME), ("APPLE", ORG)))
    assert found.aliases == (
        (Node("apple", NAME), Node("apple", ORG)),
        (Node("cook", PERSON), Node("tim cook", PERSON)),
    )
    assert found.displays == {Node("apple", ORG): "APPLE", Node("tim cook", PERSON): "Tim Cook"}


def test_nothing_of_nothing() -> None:
    assert resolve([], "text (TX)") == Resolution((), (), {})


def test_a_blank_mention_is_an_error() -> None:
    with pytest.raises(ConfigError, match="blank") as caught:
        resolve([Entity(" ", NAME, Span(0, 1))], " ")
    assert caught.value.remedy


_words = st.sampled_from(
    [
        "Tim",
        "Cook",
        "Cooks",
        "Ann",
        "the",
        "Apple",
        "Inc",
        "Los",
        "WHO",
        "World",
        "Health",
        "Organization",
        "of",
        "'s",
        "-",
    ]
)
_mentions = st.lists(
    st.tuples(st.lists(_words, min_size=1, max_size=4).map(" ".join), st.sampled_from([NAME, PERSON, ORG, GPE])),
    max_size=14,
)
_tails = st.sampled_from(["", "World Health Organization (WHO)", "the Apple Inc Cook (AIC) and Ann Inc Cook (AIC)"])


@settings(max_examples=100)
@given(_mentions, _tails, st.randoms(use_true_random=False))
def test_every_mention_has_one_node_whatever_the_order(
    pairs: list[tuple[str, str]], tail: str, shuffler: random.Random
) -> None:
    found, text = mentions(*pairs)
    text += tail
    first = resolve(found, text)
    assert len(first.nodes) == len(found)
    assert all(node.name and node.label for node in first.nodes)
    assert set(first.displays) == set(first.nodes)

    merged = dict(first.aliases)
    assert len(merged) == len(first.aliases)
    assert not {there for _, there in first.aliases} & merged.keys()  # canonical: no chains, no circles
    for mention, node in zip(found, first.nodes, strict=True):
        own = Node(normalise(mention.text), mention.label)
        assert merged.get(own, own) == node

    order = list(range(len(found)))
    shuffler.shuffle(order)
    again = resolve([found[index] for index in order], text)
    assert [again.nodes[order.index(index)] for index in range(len(found))] == list(first.nodes)
    assert (again.aliases, again.displays) == (first.aliases, first.displays)


@settings(max_examples=100)
@given(_mentions)
def test_what_is_resolved_stays(pairs: list[tuple[str, str]]) -> None:
    found, text = mentions(*pairs)
    canonical = set(resolve(found, text).nodes)
    again, second = mentions(*sorted(tuple(node) for node in canonical))
    assert set(resolve(again, second).nodes) == canonical


@settings(max_examples=100)
@given(texts)
def test_any_text(text: str) -> None:
    (found,) = LightExtractor().extract([text])
    resolution = resolve(found, text)
    assert len(resolution.nodes) == len(found)
    assert all(node.name for node in resolution.nodes)


def test_five_thousand_mentions_and_one_name_ten_thousand_times() -> None:
    def different(size: int) -> Callable[[], object]:
        return work([(f"Person{number % 900} of Smith{number}", PERSON) for number in range(size)])

    def same(size: int) -> Callable[[], object]:
        return work([("Tim Cook", PERSON), ("Cook", PERSON)] * size)

    def work(names: list[tuple[str, str]]) -> Callable[[], object]:
        found, text = mentions(*names)
        text += " (ABC)" * len(found)
        assert len(resolve(found, text).nodes) == len(found)
        return lambda: resolve(found, text)

    doubling(different, 2_500)
    doubling(same, 2_500)


# --------------------------------------------------------------------------------------------------- questions


@pytest.mark.parametrize(
    ("question", "linked", "not_linked"),
    [
        ("who founded apple?", {"apple"}, {"who", "who founded apple"}),
        ("What did the WHO say?", {"who"}, set()),
        ("is the bank of america in the us?", {"bank of america"}, {"us"}),
        ("tim cook's phone", {"tim cook", "cook"}, set()),
        ("where do transformers live", {"transformer", "transformers"}, set()),
        ("call getUserName()", {"getusername"}, set()),
        ("谁创立了苹果公司？", {"苹果公司", "苹果"}, set()),
        ("", set(), {""}),
    ],
)
def test_the_names_that_a_question_may_hold(question: str, linked: set[str], not_linked: set[str]) -> None:
    found = query_names(question, LightExtractor())
    assert linked <= set(found)
    assert not not_linked & set(found)
    assert list(found) == sorted(found, key=lambda name: (-len(name), name))


@settings(max_examples=100)
@given(texts)
def test_every_name_of_a_question_is_a_key(text: str) -> None:
    found = query_names(text)
    assert len(set(found)) == len(found)
    assert all(name and normalise(name) == name for name in found)


def test_a_question_of_ten_megabytes_costs_little() -> None:
    with at_most(3):
        query_names("apple " * 1_700_000)
        query_names("苹果公司" * 2_500_000)
