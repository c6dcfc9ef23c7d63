"""`ctxkit kv plan` for a folder, a file, numbers, and what is none of these."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctxkit.cli.kv_plan import parse_bytes
from ctxkit.errors import ConfigError

NUMBERS = "layers=30,kv_heads=3,head_dim=64"


def test_numbers_are_enough(ctxkit: Any) -> None:
    done = ctxkit("kv", "plan", NUMBERS, "--context", "4096", "--memory", "1GB", "--dtype", "float16", "--json")
    assert done.code == 0
    found = done.json
    assert {"model", "context", "batch", "weights", "prefill_peak", "memory", "rows", "fits"} <= set(found)
    assert [row["codec"] for row in found["rows"]] == ["none", "int8", "int4-hq", "int4"]
    assert found["rows"][0]["idle"] == (4096 + 4) * 23_040
    assert found["rows"][3]["largest_batch"] > 3 * found["rows"][0]["largest_batch"]


def test_a_file_and_its_folder_say_the_same(ctxkit: Any, tmp_path: Path) -> None:
    config = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 256, "vocab_size": 1000}
    (tmp_path / "config.json").write_text(json.dumps(config))
    folder = ctxkit("kv", "plan", str(tmp_path), "--memory", "1GB", "--json").json
    file = ctxkit("kv", "plan", str(tmp_path / "config.json"), "--memory", "1GB", "--json").json
    assert folder["rows"] == file["rows"]
    table = ctxkit("kv", "plan", str(tmp_path), "--codec", "int4", "--memory", "10kB")
    assert table.code == 1 and "does not fit" in table.out and "int8" not in table.out


def test_the_exit_code_says_whether_it_fits(ctxkit: Any) -> None:
    for memory, code in (("1GB", 0), ("1kB", 1)):
        done = ctxkit("kv", "plan", NUMBERS, "--memory", memory, "--json")
        assert (done.code, done.json["fits"], done.err) == (code, code == 0, "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("layers=3",), "head_dim is missing"),
        (("layers=a,kv_heads=1,head_dim=64",), "a number"),
        ((NUMBERS + ",colour=3",), "colour"),
        ((NUMBERS, "--memory", "much"), "no amount of memory"),
        ((NUMBERS, "--codec", "zip"), "no codec of this name"),
        ((NUMBERS, "--dtype", "int3"), "Use one of float32"),
        ((NUMBERS + ",positions=100",), "beyond the model's 100 positions"),
    ],
)
def test_wrong_wishes_are_wrong_usage(ctxkit: Any, arguments: tuple[str, ...], says: str) -> None:
    done = ctxkit("kv", "plan", *arguments)
    assert done.code == 2
    assert says in done.err and done.err.count("\n") == 1


def test_codecs_are_those_that_can_pack_the_heads_each_once(ctxkit: Any) -> None:
    odd = ctxkit("kv", "plan", "layers=2,kv_heads=1,head_dim=63", "--json").json
    assert [row["codec"] for row in odd["rows"]] == ["none", "int8"]
    twice = ctxkit("kv", "plan", NUMBERS, "--codec", "int8", "--codec", "int8", "--json").json
    assert [row["codec"] for row in twice["rows"]] == ["int8"]


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "[]", "\udcff"])
def test_a_configuration_that_is_none_is_refused(ctxkit: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text, errors="surrogateescape")
    done = ctxkit("kv", "plan", str(tmp_path))
    assert done.code == 1 and "Give a config.json of a model" in done.err


@pytest.mark.parametrize(("text", "count"), [("8GB", 8 * 10**9), ("512MiB", 2**29), ("1.5g", 15 * 10**8), ("7", 7)])
def test_amounts_of_memory(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "GB", "-1", "1 PB", "1e9", "9" * 400])
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_bytes(text)
