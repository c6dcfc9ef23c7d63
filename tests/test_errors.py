"""The tree of errors: as its docstring draws it, as docs/errors.md lists it, and what each error says."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from pathlib import Path

import pytest

from ctxkit import errors
from ctxkit.errors import BudgetError, ContextOverflowError, CtxkitError, MissingExtraError

ROOT = Path(__file__).parents[1]
CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, CtxkitError) and kind.__module__ == errors.__name__
}


def drawn_tree() -> dict[str, str | None]:
    """Each class of the docstring's drawing, with the class it hangs from."""
    parents: dict[str, str | None] = {"CtxkitError": None}
    above = {0: "CtxkitError"}
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"^    ((?:│   |    )*)[├└]── (\w+)", line):
            depth = len(found.group(1)) // 4 + 1
            parents[found.group(2)] = above[depth - 1]
            above[depth] = found.group(2)
    return parents


def example(kind: type[CtxkitError]) -> CtxkitError:
    if kind is MissingExtraError:
        return MissingExtraError("faiss", extra="local", subject="Dense")
    return kind("it broke", subject="the input", remedy="Do this.")


def test_the_drawing_is_the_tree() -> None:
    real = {
        name: next((base.__name__ for base in kind.__mro__[1:] if base.__name__ in CLASSES), None)
        for name, kind in CLASSES.items()
    }
    assert drawn_tree() == real


def test_every_class_is_exported() -> None:
    assert sorted(CLASSES) == sorted(errors.__all__)


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_class_is_documented(name: str) -> None:
    assert CLASSES[name].__doc__
    page = (ROOT / "docs" / "errors.md").read_text("utf-8")
    assert re.search(rf"^\| `{name}` \|", page, re.MULTILINE), f"docs/errors.md has no row for {name}"


def test_the_page_names_no_error_that_is_gone() -> None:
    page = (ROOT / "docs" / "errors.md").read_text("utf-8")
    assert set(re.findall(r"`(\w+Error)`", page)) <= {*CLASSES, "TypeError"}


@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
class TestEveryError:
    def test_it_says_what_failed_on_what_and_what_to_do(self, kind: type[CtxkitError]) -> None:
        error = example(kind)
        assert str(error).startswith(f"{error.subject}: {error.message}")
        assert str(error).endswith(error.remedy)
        assert "\n" not in str(error)

    def test_it_travels_between_processes(self, kind: type[CtxkitError]) -> None:
        error = example(kind)
        for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(twin) is kind
            assert str(twin) == str(error)
            assert vars(twin) == vars(error)

    def test_it_is_caught_as_ours(self, kind: type[CtxkitError]) -> None:
        with pytest.raises(CtxkitError):
            raise example(kind)


class TestWords:
    def test_a_message_alone(self) -> None:
        assert str(CtxkitError("it broke")) == "it broke"

    def test_no_double_full_stop_before_the_remedy(self) -> None:
        assert str(CtxkitError("it broke.", remedy="Do this.")) == "it broke. Do this."


class TestMissingExtra:
    def test_it_names_package_extra_and_command(self) -> None:
        error = MissingExtraError("faiss", extra="local")
        assert (error.package, error.extra) == ("faiss", "local")
        assert "pip install 'ctxkit-sdk[local]'" in str(error)
        assert isinstance(error, errors.ConfigError)


class TestBudgetError:
    def test_it_names_each_part_and_the_excess(self) -> None:
        error = BudgetError(parts={"system": 1200, "question": 30}, available=1000)
        assert error.excess == 230
        for piece in ("system 1,200", "question 30", "1,230 tokens", "only 1,000", "230 too many"):
            assert piece in str(error)
        assert error.remedy

    def test_parts_are_its_own(self) -> None:
        parts = {"system": 5}
        error = BudgetError(parts=parts, available=1)
        parts["system"] = 0
        assert error.parts == {"system": 5}

    def test_a_window_cannot_be_raised_by_the_budget(self) -> None:
        assert "Raise max_tokens" in BudgetError().remedy
        overflow = ContextOverflowError(parts={"prompt": 10}, available=4)
        assert overflow.remedy == "Lower the budget to the model's window, or use a model with a larger one."
        assert ContextOverflowError(remedy="Wait.").remedy == "Wait."

    def test_parts_survive_pickling(self) -> None:
        twin = pickle.loads(pickle.dumps(ContextOverflowError(parts={"prompt": 10}, available=4)))
        assert isinstance(twin, BudgetError)
        assert (twin.parts, twin.available, twin.excess) == ({"prompt": 10}, 4, 6)
