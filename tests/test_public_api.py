"""The public surface: what `ctxkit` exports is what docs/api.md lists, and each name is where it says."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import ctxkit
import ctxkit.protocols
import ctxkit.testing

ROOT = Path(__file__).parents[1]
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(ctxkit.__path__, "ctxkit.")
    if ".migrations" not in module.name and not module.name.rsplit(".", 1)[-1].startswith("_")
)


def documented(section: str) -> list[str]:
    """The names in the first column of the table under a heading of docs/api.md."""
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    body = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert body is not None, f"docs/api.md has no section {section!r}"
    return re.findall(r"^\| `([\w.]+)` \|", body.group(1), re.MULTILINE)


def test_all_is_what_the_page_lists() -> None:
    assert sorted(documented("ctxkit")) == sorted(ctxkit.__all__)


def test_all_is_sorted_without_repeats_and_is_the_namespace() -> None:
    assert sorted(set(ctxkit.__all__)) == sorted(ctxkit.__all__)
    assert dir(ctxkit) == sorted(ctxkit.__all__)


@pytest.mark.parametrize("name", ctxkit.__all__)
def test_every_name_resolves(name: str) -> None:
    value = getattr(ctxkit, name)
    if inspect.isclass(value):
        assert value.__name__ == name
        assert value.__module__.startswith("ctxkit.")
        assert value.__doc__


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(ctxkit.__file__).read_text("utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        (node.module, alias.name) for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert {name for _, name in seen} == {name for name in ctxkit.__all__ if name != "__version__"}
    for module, name in seen:
        assert getattr(importlib.import_module(module or ""), name) is getattr(ctxkit, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Contextengine'"):
        ctxkit.Contextengine  # noqa: B018


def test_star_import_brings_the_public_names_alone() -> None:
    names = "import ctxkit; from ctxkit import *; print(*sorted(set(dir()) - {'ctxkit'}))"
    out = subprocess.run([sys.executable, "-c", names], capture_output=True, text=True, check=True).stdout.split()
    assert {name for name in out if not name.startswith("__")} == set(ctxkit.__all__) - {"__version__"}


def test_the_version_is_the_distributions() -> None:
    assert ctxkit.__version__ == version("ctxkit-sdk")


def test_protocols_and_conformance_classes_are_listed() -> None:
    assert sorted(documented("ctxkit.protocols")) == sorted(ctxkit.protocols.__all__)
    assert sorted(documented("ctxkit.testing")) == sorted(ctxkit.testing.__all__)


@pytest.mark.parametrize("protocol", ctxkit.protocols.__all__)
def test_every_protocol_has_a_conformance_class(protocol: str) -> None:
    conformance = getattr(ctxkit.testing, f"{protocol}Conformance")
    assert any(name.startswith("test_") for name in dir(conformance))
    assert conformance.__doc__


@pytest.mark.parametrize("name", MODULES)
def test_all_of_a_module_is_true(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} has no docstring"
    public = getattr(module, "__all__", None)
    if public is None:
        return
    assert len(set(public)) == len(public)
    for each in public:
        assert hasattr(module, each), f"{name}.__all__ names {each}, which is not there"
