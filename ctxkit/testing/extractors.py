"""What every entity extractor must do."""

from __future__ import annotations

import base64
import itertools
import json
import random
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise

from ctxkit.documents import Entity
from ctxkit.protocols import EntityExtractor

__all__ = ["EntityExtractorConformance"]

_TEXTS = (
    "Tim Cook spoke in Paris.",
    "",
    "  \n",
    "x",
    "巴黎在法国。",
    "Tim Cook, Tim Cook",
    "On 5 May 2024 Ada Lovelace paid $3 million to Apple Inc. in New\nYork, 毛泽东 in 北京.",
    "\x00 Paris \x00\ud800\udfff Berlin <|endoftext|>",
    "e\u0301a\u0300 👨‍👩‍👧‍👦🇩🇪 Ámsterdam \u202eLondon\u202c",
    "\u3000\u00a0\u2028 Rome \r\n\r\nMilan\r",
    "# Zürich\n\n| Bern | Basel |\n|---|---|\n\n```python\nparse_url(x)\n",
)
_LONGEST_AHEAD = 10_000
_SLOWER = 10.0
_UNIT = "Ada Lovelace met Charles Babbage in London. "


def _hostile(size: int) -> dict[str, str]:
    """Texts of about `size` characters that break extractors."""
    record = json.dumps({"firstName": "Ada", "city": "London", "born": "1815-12-10", "n": 1.5}, separators=(",", ":"))
    return {
        "one entity again and again": ("Tim Cook " * size)[:size],
        "different entities in one paragraph": " ".join(
            f"Person{number} Smith{number}," for number in range(size // 20)
        ),
        "base64": base64.b64encode(random.Random(0).randbytes(size)).decode()[:size],
        "minified JSON": f"[{','.join([record] * (size // len(record)))}]",
        "one giant word": "Aa" * (size // 2),
        "no spaces": "巴黎在法国" * (size // 5),
        "only newlines": "\n" * size,
        "only brackets and quotes": "“(\"'《" * (size // 5),
    }


class EntityExtractorConformance:
    """What every `EntityExtractor` must do. Override `make_extractor`.

    Attributes:
        size: the characters of the hostile texts; less for a slow extractor.
        independent: False for a model whose batches let a text's neighbours change its entities.
        named: a text in which the extractor finds something.
    """

    size: int = 100_000
    independent: bool = True
    named: str = _UNIT

    def make_extractor(self) -> EntityExtractor:
        raise NotImplementedError

    def _found(self, *texts: str) -> list[Sequence[Entity]]:
        found = list(self.make_extractor().extract(iter(texts)))
        assert len(found) == len(texts), f"{len(texts)} texts have the entities of {len(found)}"
        return found

    def test_it_is_an_extractor(self) -> None:
        extractor = self.make_extractor()
        assert isinstance(extractor, EntityExtractor), f"{type(extractor).__name__} has no extract(texts)"

    def test_it_finds_something(self) -> None:
        (found,) = self._found(self.named)
        assert found, f"nothing is found in {self.named!r}: set `named` to a text in which something is"

    def test_offsets_point_at_the_text(self) -> None:
        for text, entities in zip(_TEXTS, self._found(*_TEXTS), strict=True):
            _check(text, entities)

    def test_no_texts_and_blank_texts_have_no_entities(self) -> None:
        assert self._found() == []
        blank = ("", " ", "\n" * 40, "\r\n\t\u3000\u2028")
        for text, entities in zip(blank, self._found(*blank), strict=True):
            assert not entities, f"the blank text {text!r} has the entities {entities}"

    def test_hostile_texts(self) -> None:
        for name, text in _hostile(self.size).items():
            (entities,) = self._found(text)
            _check(text, entities, name)

    def test_the_same_text_has_the_same_entities(self) -> None:
        first = [tuple(entities) for entities in self._found(*_TEXTS)]
        again = [tuple(entities) for entities in self._found(*_TEXTS)]
        assert first == again, "law 6, the same in gives the same out: a second run differs"
        one = self.make_extractor()
        twice = [[tuple(entities) for entities in one.extract(_TEXTS)] for _ in range(2)]
        assert twice == [first, first], "law 6, the same in gives the same out: an extractor that is used again differs"

    def test_neighbours_change_nothing(self) -> None:
        if not self.independent:
            return
        for text, entities in zip(_TEXTS, self._found(*_TEXTS), strict=True):
            (alone,) = self._found(text)
            assert tuple(alone) == tuple(entities), f"{text!r} has {alone} alone, and {entities} among other texts"

    def test_it_streams(self) -> None:
        read = 0

        def endless() -> Iterator[str]:
            nonlocal read
            while read < _LONGEST_AHEAD:
                read += 1
                yield self.named if read % 2 else ""
            raise AssertionError(f"{read} texts were read before three were answered: extract() must be lazy")

        first, blank, third = itertools.islice(self.make_extractor().extract(endless()), 3)
        assert list(first) == list(third), f"{self.named!r} has {first}, then {third}"
        assert not blank

    def test_time_grows_with_the_text(self) -> None:
        size = max(200, self.size // 4)
        for name, unit in (("prose", self.named + " "), ("one giant line of names", "Tim Cook "), ("newlines", "\n")):
            once, four = ((unit * (length // len(unit) + 1))[:length] for length in (size, 4 * size))
            small, large = self._seconds(once), self._seconds(four)
            assert large <= _SLOWER * max(small, 0.005), (
                f"law 8, time grows with the input: four times the text ({name}) took {large / small:.1f} times as long"
            )

    def _seconds(self, text: str) -> float:
        extractor = self.make_extractor()
        best = float("inf")
        for _ in range(2):
            started = time.process_time()
            for _entities in extractor.extract([text]):
                pass
            best = min(best, time.process_time() - started)
        return best


def _check(text: str, entities: Sequence[Entity], name: str = "") -> None:
    where = name or repr(text[:60])
    for entity in entities:
        assert isinstance(entity, Entity), f"{entity!r} is no Entity"
        there = entity.span.slice(text)
        assert there == entity.text, f"{entity.text[:60]!r} is said to be at {entity.span}; there is {there[:60]!r}"
        assert entity.text.strip(), f"a blank entity at {entity.span} of {where}"
        assert entity.label, f"{entity.text[:60]!r} has no label"
    for before, after in pairwise(entities):
        assert before.span.end <= after.span.start, f"{before} and {after} overlap or are out of order in {where}"
