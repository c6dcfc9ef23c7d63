"""The public collections of prompts, and payloads for the templates in them."""

from __future__ import annotations

import csv
import io
import json
import random
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ctxkit.errors import ConfigError
from ctxkit.settings import require
from ctxkit.templates import Template
from ctxkit.templates.language import Node, SectionNode, Value

__all__ = ["collections", "payload"]

_WORDS = ("alpha", "beta", "{{gamma}}", "{% if %}", "delta ray", "<b>&amp;", "größer", "句子", "\n", "--- user ---")


def collections(data: Path) -> dict[str, list[str]]:
    """The texts of each collection: promptsource's Jinja templates, fabric's patterns, role prompts, judge prompts."""
    folder = data / "prompt_templates"
    if not folder.is_dir():
        raise ConfigError("the data is not here", subject=str(folder), remedy="Set CTXKIT_DATA to the data folder.")
    chinese = json.loads((folder / "prompts-zh.json").read_text("utf-8"))
    judges = (folder / "fastchat_judge_prompts.jsonl").read_text("utf-8").splitlines()
    english = csv.DictReader(io.StringIO((folder / "prompts.csv").read_text("utf-8")))
    return {
        "promptsource": promptsource(folder / "promptsource_templates.tgz"),
        "fabric": list(_members(folder / "fabric_patterns.tgz", ".md")),
        "role prompts": [row["prompt"] for row in english],
        "role prompts, Chinese": [row["prompt"] for row in chinese],
        "judge prompts": [json.loads(line)["prompt_template"] for line in judges],
    }


def promptsource(path: Path) -> list[str]:
    """The Jinja texts of promptsource's YAML files; their own YAML tags are read as plain mappings."""
    yaml = require("yaml", extra="yaml")

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        pass

    Loader.add_multi_constructor("!", lambda loader, _, node: loader.construct_mapping(node, deep=True))
    found = []
    for text in _members(path, ".yaml"):
        found += [entry["jinja"] for entry in yaml.load(text, Loader=Loader)["templates"].values()]
    return found


def _members(path: Path, suffix: str) -> Iterable[str]:
    with tarfile.open(path) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            if member.isfile() and member.name.endswith(suffix) and (file := archive.extractfile(member)):
                yield file.read().decode("utf-8")


def payload(template: Template, seed: int) -> dict[str, Any]:
    """A payload that fills a template: texts, lists of what their sections use, booleans, some of them empty."""
    chance = random.Random(seed)
    shape: dict[str, Any] = {}
    for message in template.messages:
        _collect(message.nodes, shape, [])
    return {name: _value(shape.get(name, {}), slot.type, chance) for name, slot in template.variables.items()}


def _collect(nodes: Iterable[Node], root: dict[str, Any], items: list[dict[str, Any]]) -> None:
    """What is used of each value: `fields` of an object, `item` of a list, neither of a text."""
    for node in nodes:
        if not isinstance(node, Value | SectionNode):
            continue
        keys = list(node.path.keys)
        at = items[-1] if node.path.relative else root.setdefault(keys.pop(0), {})
        for key in keys:
            at = at.setdefault("fields", {}).setdefault(key, {})
        if isinstance(node, SectionNode):
            inner = [*items, at.setdefault("item", {})] if node.kind == "#" else items
            _collect(node.body, root, inner)


def _value(shape: Mapping[str, Any], kind: str, chance: random.Random) -> Any:
    if "item" in shape:
        return [_value(shape["item"], "", chance) for _ in range(chance.randint(0, 3))]
    if "fields" in shape:
        return {key: _value(inner, "", chance) for key, inner in shape["fields"].items()}
    if kind in ("section", "boolean"):
        return chance.random() < 0.5
    return " ".join(chance.choices(_WORDS, k=chance.randint(0, 40)))
