"""The parts of an engine: made when they are first needed, refused at once where their name is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxkit import ContextEngine
from ctxkit.engine_parts import EngineParts
from ctxkit.errors import ConfigError
from ctxkit.registry import register
from ctxkit.storage import Store
from ctxkit.testing import HashEmbedder

NAMES = ("chunker", "embedder", "extractor", "kv_codec")


@pytest.mark.parametrize("part", NAMES)
def test_an_unknown_name_is_refused_before_a_store_is_made(tmp_path: Path, part: str) -> None:
    with pytest.raises(ConfigError, match="of this name") as refused:
        ContextEngine.open(f"sqlite:///{tmp_path / 'new.db'}", **{part: "nope"})
    assert refused.value.subject == "nope" and "Known: " in refused.value.remedy
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("part", NAMES)
def test_an_engine_of_an_open_store_refuses_it_too(part: str) -> None:
    with Store.open("sqlite://") as store, pytest.raises(ConfigError, match="nope"):
        EngineParts(store, **{part: "nope"})  # type: ignore[arg-type]


def test_a_name_of_this_process_is_known_and_nothing_is_made_of_it_yet() -> None:
    made: list[str] = []

    def make() -> HashEmbedder:
        made.append("embedder")
        return HashEmbedder()

    register("embedder", "test-engine-parts", make)
    with ContextEngine.open("sqlite://", embedder="test_engine_parts") as engine:
        assert not made
        assert isinstance(engine.embedder, HashEmbedder) and engine.embedder is engine.embedder
        assert made == ["embedder"]


@pytest.mark.parametrize(("part", "name"), [("embedder", "auto"), ("embedder", "none"), ("extractor", "none")])
def test_names_that_always_exist(part: str, name: str) -> None:
    ContextEngine.open("sqlite://", **{part: name}).close()
