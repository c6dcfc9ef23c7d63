"""Law 12: each error carries what failed, on which input, and the remedy.

Read from the source: every place that makes one of our errors gives a remedy, and nothing of ours raises a bare Python
error or relies on `assert`. Then tried: wrong input at the public boundary gives an error of ours.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ctxkit
from ctxkit import errors, registry
from ctxkit.documents import Candidate, Chunk, Document, Query, Span
from ctxkit.errors import CtxkitError
from ctxkit.messages import Message, ToolCall
from ctxkit.prompts import Budget, CompletionOptions, Section
from ctxkit.tokens import BpeCounter, encoding_for_model, get_counter

PACKAGE = Path(ctxkit.__file__).parent
ADAPTERS = Path(__file__).parents[2] / "adapters" / "ctxkit_adapters"
SOURCES = sorted([*PACKAGE.rglob("*.py"), *ADAPTERS.rglob("*.py")])

GIVE_A_REMEDY_THEMSELVES = {"MissingExtraError", "BudgetError", "ContextOverflowError"}
"""Their constructors fill the remedy where the caller gives none; tests/test_errors.py checks that."""

ALLOWED = {
    "AttributeError": "the protocol of __getattr__ asks for it",
    "NotImplementedError": "a conformance class whose maker was not overridden",
    "StopIteration": "the protocol of __next__ asks for it",
    "SystemExit": "the exit code of the command",
    "Exit": "typer's exit code of the command",
    "BadParameter": "click's wrong usage, exit code 2",
    "UsageError": "click's wrong usage, exit code 2",
}
"""Errors that are not ours and may be raised, each for a reason."""

INTERNAL = {
    (
        "dense.py",
        "from_arrays",
        "ValueError",
    ): "a cache file that is not an index: derived.py catches it and builds anew",
    ("postings.py", "from_arrays", "ValueError"): "the same",
    ("graph_index.py", "from_arrays", "ValueError"): "the same",
    ("schema_checking.py", "matches", "TimeoutError"): "no time left is answered as time run out, two lines below",
    ("summaries.py", "from_json", "TypeError"): "a part of the wrong type is answered as a part that is missing",
}
"""Python errors that one module of ours raises and another catches, each for a reason."""


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def called(node: ast.expr | None) -> str:
    """The name of the class that a raised expression is or calls; "" for anything else."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def walk(node: ast.AST, function: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Every node with the name of the function around it."""
    for child in ast.iter_child_nodes(node):
        inside = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        yield child, inside
        yield from walk(child, inside)


def is_python_error(name: str) -> bool:
    import builtins

    kind = getattr(builtins, name, None)
    return isinstance(kind, type) and issubclass(kind, BaseException)


def namesakes(tree: ast.AST) -> set[str]:
    """Names that a module imports from elsewhere, such as Jinja's own TemplateError."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("ctxkit")
        for alias in node.names
    }


def missing_remedies(tree: ast.AST) -> list[int]:
    lines = []
    ours = set(errors.__all__) - GIVE_A_REMEDY_THEMSELVES - namesakes(tree)
    for node, _ in walk(tree):
        if not isinstance(node, ast.Call) or called(node) not in ours:
            continue
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        remedy = given.get("remedy")
        empty = isinstance(remedy, ast.Constant) and not remedy.value
        if None not in given and (remedy is None or empty):
            lines.append(node.lineno)
    return lines


def handled(tree: ast.AST) -> set[str]:
    """The errors that the except clauses of a module name."""
    kinds: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            listed = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            kinds |= {called(kind) for kind in listed}
    return kinds


def bare_raises(tree: ast.AST, path: Path = Path("x.py")) -> list[str]:
    """Raises of Python's own errors, but for a private function's whose error the same module catches."""
    found = []
    inner = handled(tree)
    for node, function in walk(tree):
        if not isinstance(node, ast.Raise) or node.exc is None:
            continue
        name = called(node.exc)
        private = function.startswith("_") and not function.startswith("__")
        excused = (
            name in ALLOWED
            or (path.name, function, name) in INTERNAL
            or (private and name in inner)
            or (name == "AssertionError" and path.is_relative_to(PACKAGE / "testing"))
            or ast.unparse(node.exc) == "AssertionError('unreachable')"
        )
        if is_python_error(name) and not excused:
            found.append(f"{node.lineno}: raise {name} in {function or 'the module'}")
    return found


def asserts(tree: ast.AST) -> list[int]:
    """Asserts, but for `assert x is not None`, which only tells the type checker what is known."""
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert) and not narrows(node.test)]


def narrows(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.IsNot)
        and isinstance(test.comparators[0], ast.Constant)
        and test.comparators[0].value is None
    )


def name_of(path: Path) -> str:
    return str(path.relative_to(path.parents[1] if path.parent == PACKAGE else PACKAGE.parent))


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
class TestSource:
    def test_every_error_is_made_with_a_remedy(self, path: Path) -> None:
        assert missing_remedies(tree_of(path)) == []

    def test_nothing_raises_a_bare_python_error(self, path: Path) -> None:
        assert bare_raises(tree_of(path), path) == []

    def test_no_assert_guards_a_value(self, path: Path) -> None:
        if path.is_relative_to(PACKAGE / "testing"):
            pytest.skip("conformance classes are tests: their asserts are the point")
        assert asserts(tree_of(path)) == []


CAUGHT = """
def {function}():
    raise TypeError("x")

def other():
    try:
        {function}()
    except {error}:
        pass
"""


class TestTheCheckItself:
    """The three checks find what they look for."""

    @pytest.mark.parametrize(
        ("line", "found"),
        [
            ("raise ConfigError('x')", 1),
            ("raise ConfigError('x', subject='y')", 1),
            ("raise errors.ConfigError('x', remedy='')", 1),
            ("error = StorageError('x')", 1),
            ("raise ConfigError('x', remedy='Do.')", 0),
            ("from jinja2.exceptions import TemplateError\nraise TemplateError('x')", 0),
            ("from ctxkit.errors import TemplateError\nraise TemplateError('x')", 1),
            ("raise ConfigError('x', **more)", 0),
            ("raise BudgetError(parts={}, available=1)", 0),
        ],
    )
    def test_remedies(self, line: str, found: int) -> None:
        assert len(missing_remedies(ast.parse(line))) == found

    @pytest.mark.parametrize(
        ("line", "found"),
        [
            ("raise ValueError('x')", 1),
            ("raise KeyError", 1),
            ("def f():\n    raise RuntimeError('x') from None", 1),
            ("def f():\n    try:\n        g()\n    except E:\n        raise", 0),
            (CAUGHT.format(function="_f", error="TypeError"), 0),
            (CAUGHT.format(function="_f", error="KeyError"), 1),
            (CAUGHT.format(function="f", error="TypeError"), 1),
            ("def __getattr__(n):\n    raise AttributeError(n)", 0),
            ("raise ConfigError('x', remedy='Do.')", 0),
            ("raise AssertionError('unreachable')", 0),
            ("raise AssertionError('too small')", 1),
        ],
    )
    def test_bare_raises(self, line: str, found: int) -> None:
        assert len(bare_raises(ast.parse(line))) == found

    def test_asserts(self) -> None:
        assert asserts(ast.parse("def f(x):\n    assert x > 0\n")) == [2]
        assert asserts(ast.parse("def f(x):\n    assert x is not None\n")) == []

    def test_every_excuse_is_still_needed(self) -> None:
        raised = {
            (path.name, function, called(node.exc))
            for path in SOURCES
            for node, function in walk(tree_of(path))
            if isinstance(node, ast.Raise)
        }
        assert set(INTERNAL) <= raised

    def test_it_reads_the_whole_package(self) -> None:
        assert {"documents.py", "errors.py", "tokens.py", "prompts.py"} <= {path.name for path in SOURCES}


NAIVE = datetime(2025, 1, 1)
CHUNK = Chunk("c", "d", Span(0, 3), "abc", 1)

WRONG: dict[str, Callable[[], Any]] = {
    "a budget of nothing": lambda: Budget(0),
    "a reserve as large as the window": lambda: Budget(10, reserve_output=10),
    "a negative minimum": lambda: Section(min=-1),
    "a share above one": lambda: Section(share=1.1),
    "an answer of no tokens": lambda: CompletionOptions(max_tokens=0),
    "a negative temperature": lambda: CompletionOptions(temperature=-1),
    "no time at all": lambda: CompletionOptions(timeout=0),
    "a document at a time without a zone": lambda: Document("d", "", created_at=NAIVE),
    "a query at a time without a zone": lambda: Query("q", now=NAIVE),
    "a message at a time without a zone": lambda: Message("user", created_at=NAIVE),
    "a chunk that is not its span": lambda: Chunk("c", "d", Span(0, 2), "abc", 1),
    "kept spans outside the chunk": lambda: Candidate(CHUNK, kept=(Span(2, 4),)),
    "an unknown role": lambda: Message("robot"),  # type: ignore[arg-type]
    "a user who calls tools": lambda: Message("user", tool_calls=(ToolCall("1", "f"),)),
    "a tool result of no call": lambda: Message("tool", "x"),
    "an unknown encoding": lambda: BpeCounter("p50k"),
    "a counter of an unknown model": lambda: get_counter("llama-9"),
    "an encoding of an unknown model": lambda: encoding_for_model("llama-9"),
    "an unknown kind of stage": lambda: registry.names("chunkers"),
    "an unknown stage": lambda: registry.load("chunker", "no such chunker"),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_wrong_input_says_what_to_do(wrong: Callable[[], Any]) -> None:
    with pytest.raises(CtxkitError) as caught:
        wrong()
    assert caught.value.message
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


numbers = st.one_of(st.integers(-5, 50), st.just(10**30))


@given(numbers, numbers)
def test_any_pair_of_numbers_is_a_budget_or_an_error_of_ours(window: int, reserve: int) -> None:
    try:
        budget = Budget(window, reserve_output=reserve)
    except CtxkitError as error:
        held, remedy = False, error.remedy
    else:
        held, remedy = 0 < budget.available <= window, ""
    assert held or remedy


@given(st.integers(-3, 12), st.integers(-3, 12), st.lists(st.tuples(st.integers(-3, 12), st.integers(-3, 12))))
def test_any_spans_make_a_candidate_or_an_error_of_ours(start: int, end: int, pairs: list[tuple[int, int]]) -> None:
    try:
        candidate = Candidate(Chunk("c", "d", Span(start, end), "abc", 1), kept=tuple(Span(a, b) for a, b in pairs))
    except CtxkitError as error:
        held, remedy = False, error.remedy
    else:
        held, remedy = isinstance(candidate.text, str), ""
    assert held or remedy
