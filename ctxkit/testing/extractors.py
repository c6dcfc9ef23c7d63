"""What every entity extractor must do."""

from __future__ import annotations

from ctxkit.protocols import EntityExtractor

__all__ = ["EntityExtractorConformance"]


class EntityExtractorConformance:
    """What every `EntityExtractor` must do. Override `make_extractor`."""

    def make_extractor(self) -> EntityExtractor:
        raise NotImplementedError

    def test_it_is_an_extractor(self) -> None:
        assert isinstance(self.make_extractor(), EntityExtractor)

    def test_offsets_point_at_the_text(self) -> None:
        texts = ["Tim Cook spoke in Paris.", "", "  \n", "巴黎在法国。", "Tim Cook, Tim Cook"]
        found = list(self.make_extractor().extract(texts))
        assert len(found) == len(texts)
        for text, entities in zip(texts, found, strict=True):
            for entity in entities:
                there = entity.span.slice(text)
                assert there == entity.text, f"{entity.text!r} is said to be at {entity.span}; there is {there!r}"
                assert entity.text, f"an empty entity at {entity.span} of {text!r}"
                assert entity.label, f"{entity.text!r} has no label"

    def test_it_streams_in_order_and_repeats_itself(self) -> None:
        texts = ["Ada Lovelace met Charles Babbage in London."] * 3
        first, second, third = self.make_extractor().extract(iter(texts))
        assert list(first) == list(second) == list(third)
