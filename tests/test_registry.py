"""Stages by name: the built-in ones come through the entry points that a third party uses."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from ctxkit import registry
from ctxkit.errors import ConfigError

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
BUILT_IN = [
    (group.removeprefix("ctxkit."), name)
    for group, points in PROJECT["entry-points"].items()
    if group.startswith("ctxkit.")
    for name in points
]


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_registered", {})
    yield
    registry._entry_points.cache_clear()


@dataclass(frozen=True, kw_only=True)
class Shouting:
    volume: int = 11

    def __post_init__(self) -> None:
        if self.volume < 0:
            raise ConfigError(f"volume is {self.volume}", remedy="Give a volume of at least 0.")


class TestBuiltIn:
    @pytest.mark.parametrize(("kind", "name"), BUILT_IN, ids=[f"{kind}-{name}" for kind, name in BUILT_IN])
    def test_it_is_found_and_loads(self, kind: str, name: str) -> None:
        assert kind in registry.KINDS
        assert name in registry.names(kind)
        assert callable(registry.load(kind, name))

    @pytest.mark.parametrize(("kind", "name"), [each for each in BUILT_IN if {"-", "_"} & set(each[1])])
    def test_a_hyphen_and_an_underscore_are_one(self, kind: str, name: str) -> None:
        either = {registry.load(kind, name.replace(old, new)) for old, new in ("-_", "_-", "--")}
        assert either == {registry.load(kind, name)}

    def test_a_chunker_is_made_with_its_parameters(self) -> None:
        chunker = registry.create("chunker", "recursive", max_tokens=64)
        assert type(chunker).__name__ == "RecursiveChunker"
        assert chunker.max_tokens == 64


class TestThirdParty:
    def test_an_entry_point_of_another_distribution(self, monkeypatch: pytest.MonkeyPatch) -> None:
        point = EntryPoint("shouting", f"{__name__}:Shouting", "ctxkit.stage")

        def found(*, group: str) -> list[EntryPoint]:
            return [point] if group == "ctxkit.stage" else []

        monkeypatch.setattr(registry, "entry_points", found)
        registry._entry_points.cache_clear()
        assert registry.names("stage") == ["shouting"]
        assert type(registry.create("stage", "shouting", volume=3)).__name__ == "Shouting"

    def test_registered_in_this_process(self) -> None:
        registry.register("stage", "shouting", Shouting)
        assert "shouting" in registry.names("stage")
        assert registry.create("stage", "shouting") == Shouting(volume=11)

    def test_this_process_wins_over_an_entry_point(self) -> None:
        registry.register("chunker", "recursive", Shouting)
        assert registry.load("chunker", "recursive") is Shouting
        assert registry.names("chunker").count("recursive") == 1


class TestWrong:
    @pytest.mark.parametrize("call", [registry.names, lambda kind: registry.load(kind, "x")])
    def test_kind(self, call: Any) -> None:
        with pytest.raises(ConfigError, match="unknown kind 'chunkers'") as caught:
            call("chunkers")
        assert "chunker" in caught.value.remedy
        with pytest.raises(ConfigError):
            registry.register("chunkers", "x", Shouting)

    def test_an_unknown_name_lists_the_known_ones(self) -> None:
        registry.register("stage", "shouting", Shouting)
        with pytest.raises(ConfigError) as caught:
            registry.load("stage", "whispering")
        assert caught.value.subject == "whispering"
        assert "shouting" in caught.value.remedy

    def test_an_unknown_parameter_lists_the_known_ones(self) -> None:
        registry.register("stage", "shouting", Shouting)
        with pytest.raises(ConfigError, match="loudness") as caught:
            registry.create("stage", "shouting", loudness=3)
        assert "volume" in caught.value.remedy
        assert caught.value.subject == "stage shouting"

    def test_a_wrong_value_is_the_stages_own_error(self) -> None:
        registry.register("stage", "shouting", Shouting)
        with pytest.raises(ConfigError, match="volume is -1"):
            registry.create("stage", "shouting", volume=-1)

    def test_a_type_error_inside_a_stage_is_not_taken_for_a_wrong_parameter(self) -> None:
        def broken() -> object:
            return len(5)  # type: ignore[arg-type]

        registry.register("stage", "broken", broken)
        with pytest.raises(TypeError, match="has no len"):
            registry.create("stage", "broken")
