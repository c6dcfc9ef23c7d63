"""Jinja templates without logic: read by Jinja's own parser, converted exactly, or refused with a reason.

What has a form of ours: variables and their fields, `if` with `not`, `and`, `or`, `elif` and `else`, `for` over a list
with `else`, texts, comments, `raw` blocks, whitespace control. Nothing is ever rendered or evaluated here.

What stays different, on purpose: a variable that is missing is an error instead of nothing, a boolean that is written
out is `true` and not `True`, and a loop takes a list alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ctxkit.errors import TemplateSyntaxError
from ctxkit.settings import require
from ctxkit.templates.language import MAX_DEPTH, Kind, Literal, Node, Path, SectionNode, Value

if TYPE_CHECKING:
    from jinja2 import nodes

__all__ = ["Converted", "convert_jinja"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
_MAX_NODES = 20_000
_REASONS: Mapping[str, str] = {
    "Add": "arithmetic",
    "Sub": "arithmetic",
    "Mul": "arithmetic",
    "Div": "arithmetic",
    "FloorDiv": "arithmetic",
    "Mod": "arithmetic",
    "Pow": "arithmetic",
    "Neg": "arithmetic",
    "Pos": "arithmetic",
    "Compare": "a comparison",
    "Call": "a call",
    "List": "a list, tuple or dict written out",
    "Tuple": "a list, tuple or dict written out",
    "Dict": "a list, tuple or dict written out",
    "Slice": "an index or slice",
    "Assign": "set",
    "AssignBlock": "set",
    "With": "with",
    "Macro": "a macro",
    "CallBlock": "a macro",
    "FilterBlock": "a filter",
    "Block": "inheritance",
    "Extends": "inheritance",
    "Include": "an include or import",
    "Import": "an include or import",
    "FromImport": "an include or import",
}


@dataclass(slots=True)
class Converted:
    """What a Jinja template is in ctxkit's language.

    Args:
        nodes: its text, compiled.
        slots: declarations for variables whose use alone does not say enough: what a loop takes is a list.
        schema: the properties of a JSON Schema that keeps loops inside of objects to lists; None where there are none.
    """

    nodes: tuple[Node, ...]
    slots: dict[str, str] = field(default_factory=dict)
    schema: dict[str, Any] | None = None


def convert_jinja(source: str, *, where: str = "template", rename: Mapping[str, str] | None = None) -> Converted:
    """Convert a Jinja template. Linear in its length, but for conditions with `and` and `or`, which are written out.

    Raises:
        TemplateSyntaxError: it is no Jinja, or it has logic; the message begins with the reason, the subject has the
            line.
        MissingExtraError: jinja2 is not installed.
    """
    jinja2 = require("jinja2", extra="jinja")
    try:
        tree = jinja2.Environment().parse(source)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateSyntaxError(
            f"no Jinja: {str(error.message)[:200]}",
            subject=f"{where}, line {error.lineno}",
            remedy="Correct it, or write it in ctxkit's language.",
        ) from error
    except RecursionError:
        raise TemplateSyntaxError("no Jinja: it nests too deep", subject=where, remedy="Flatten it.") from None
    converter = _Converter(where, rename or {})
    try:
        found = converter.body(tree.body, ())
    except RecursionError:
        raise TemplateSyntaxError("it nests too deep", subject=where, remedy="Flatten it.") from None
    if both := sorted(converter.loops & converter.values):
        raise TemplateSyntaxError(
            f"a list that is written out: {both[0]}",
            subject=where,
            remedy="Jinja would write it as Python does; loop over it.",
        )
    schema = converter.schema["properties"] if converter.nested_loops else None
    # What stands only where a constant condition never leads is gone, and is not declared.
    return Converted(tuple(found), dict.fromkeys(sorted(converter.loops & _names(found)), "list"), schema)


def _names(found: Sequence[Node]) -> set[str]:
    """The variables that nodes use."""
    names: set[str] = set()
    for node in found:
        if isinstance(node, Value | SectionNode) and not node.path.relative:
            names.add(node.path.keys[0])
        if isinstance(node, SectionNode):
            names |= _names(node.body)
    return names


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop around: the name of its item, and the schema of its items."""

    name: str
    schema: dict[str, Any]


_Scope = tuple[_Loop, ...]


class _Converter:
    def __init__(self, where: str, rename: Mapping[str, str]) -> None:
        self._where = where
        self._rename = rename
        self._count = 0
        self._original: dict[str, str] = {}
        self.loops: set[str] = set()
        self.values: set[str] = set()
        self.nested_loops = False
        self.schema: dict[str, Any] = {"properties": {}}

    def body(self, statements: Sequence[nodes.Node], scope: _Scope) -> list[Node]:
        found: list[Node] = []
        for statement in statements:
            kind = type(statement).__name__
            if kind == "Output":
                for part in statement.nodes:  # type: ignore[attr-defined]
                    found += self._output(part, scope)
            elif kind == "If":
                found += self._if(statement, scope)
            elif kind == "For":
                found += self._for(statement, scope)
            else:
                raise self._refusal(statement)
        return self._counted(found)

    def _output(self, expression: Any, scope: _Scope) -> list[Node]:
        match type(expression).__name__:
            case "TemplateData":
                return [Literal(expression.data)]
            case "Const":
                return [Literal(str(expression.value))]
            case "Name" | "Getattr" | "Getitem":
                path = self._path(expression, scope)
                if not path.relative and len(path.keys) == 1:
                    self.values.add(path.keys[0])
                return [Value(path)]
            case "Concat":
                return [node for part in expression.nodes for node in self._output(part, scope)]
            case "CondExpr":
                other = [] if expression.expr2 is None else self._output(expression.expr2, scope)
                return self._condition(expression.test, self._output(expression.expr1, scope), other, scope)
        raise self._refusal(expression)

    def _if(self, statement: Any, scope: _Scope) -> list[Node]:
        otherwise = self.body(statement.else_, scope)
        for branch in reversed(statement.elif_):
            otherwise = self._condition(branch.test, self.body(branch.body, scope), otherwise, scope)
        return self._condition(statement.test, self.body(statement.body, scope), otherwise, scope)

    def _condition(self, test: Any, then: list[Node], otherwise: list[Node], scope: _Scope) -> list[Node]:
        match type(test).__name__:
            case "Const":
                return then if test.value else otherwise
            case "Not":
                return self._condition(test.node, otherwise, then, scope)
            case "And":
                inner = self._condition(test.right, then, otherwise, scope)
                return self._condition(test.left, inner, otherwise, scope)
            case "Or":
                inner = self._condition(test.right, then, otherwise, scope)
                return self._condition(test.left, then, inner, scope)
            case "Name" | "Getattr" | "Getitem":
                path = self._path(test, scope)
                branches: list[tuple[Kind, list[Node]]] = [("?", then), ("^", otherwise)]
                return self._counted([SectionNode(path, kind, tuple(body)) for kind, body in branches if body])
        raise self._refusal(test)

    def _for(self, statement: Any, scope: _Scope) -> list[Node]:
        if type(statement.target).__name__ != "Name":
            raise self._refusal(statement, "a loop that unpacks its items")
        if statement.test is not None or statement.recursive:
            raise self._refusal(statement, "a loop with a condition, or a recursive one")
        if type(statement.iter).__name__ not in ("Name", "Getattr", "Getitem"):
            raise self._refusal(statement.iter)
        path = self._path(statement.iter, scope)
        if path.relative or len(path.keys) > 1:
            self.nested_loops = True
        else:
            self.loops.add(path.keys[0])
        array = self._schema_of(path, scope)
        array["type"] = "array"
        inner = _Loop(statement.target.name, array.setdefault("items", {}))
        found: list[Node] = [SectionNode(path, "#", tuple(self.body(statement.body, (*scope, inner))))]
        if statement.else_:
            found.append(SectionNode(path, "^", tuple(self.body(statement.else_, scope))))
        return found

    def _path(self, expression: Any, scope: _Scope) -> Path:
        keys: list[str] = []
        while type(expression).__name__ != "Name":
            keys.append(self._key(expression))
            expression = expression.node
        keys.reverse()
        name = expression.name
        around = [loop.name for loop in scope]
        if around and name == around[-1]:
            return Path(True, tuple(keys))
        if name in around:
            raise self._refusal(expression, f"the item of an outer loop: {name}")
        if name == "self" or (name == "loop" and around):
            raise self._refusal(expression, f"the variable {name}")
        original, name = name, self._rename.get(name, name)
        if self._original.setdefault(name, original) != original:
            raise self._refusal(expression, f"two variables renamed to one: {name[:60]}")
        if not _NAME.match(name):
            raise self._refusal(expression, f"a name that is no ASCII identifier: {name[:60]!r}")
        return Path(False, (name, *keys))

    def _key(self, expression: Any) -> str:
        kind = type(expression).__name__
        if kind == "Getattr":
            key = str(expression.attr)
            if hasattr(dict, key):
                raise self._refusal(expression, f"a method instead of a field: .{key}")
        elif kind == "Getitem" and type(expression.arg).__name__ == "Const" and isinstance(expression.arg.value, str):
            key = expression.arg.value
        elif kind == "Getitem":
            raise self._refusal(expression, "an index or slice")
        else:
            raise self._refusal(expression)
        if not _NAME.match(key):
            raise self._refusal(expression, f"a name that is no ASCII identifier: {key[:60]!r}")
        return key

    def _schema_of(self, path: Path, scope: _Scope) -> dict[str, Any]:
        schema = scope[-1].schema if path.relative else self.schema
        for key in path.keys:
            schema = schema.setdefault("properties", {}).setdefault(key, {})
        return schema

    def _counted(self, found: list[Node]) -> list[Node]:
        """Conditions with `and` and `or` repeat their branches: keep that within bounds."""
        self._count += sum(map(_size, found))
        if self._count > _MAX_NODES or any(_depth(node) > MAX_DEPTH for node in found):
            raise TemplateSyntaxError(
                "its conditions come to too much text", subject=self._where, remedy="Compute them in the application."
            )
        return found

    def _refusal(self, node: Any, reason: str = "") -> TemplateSyntaxError:
        kind = type(node).__name__
        if not reason:
            reason = _REASONS.get(kind, f"a statement or expression: {kind}")
            if kind in ("Filter", "Test"):
                reason = f"a {kind.lower()}: {node.name}"
        return TemplateSyntaxError(
            f"{reason} has no form here" if ":" not in reason else reason,
            subject=f"{self._where}, line {getattr(node, 'lineno', 1)}",
            remedy="Compute it in the application, and pass it as a value.",
        )


def _size(node: Node) -> int:
    return 1 + sum(map(_size, node.body)) if isinstance(node, SectionNode) else 1


def _depth(node: Node) -> int:
    return 1 + max(map(_depth, node.body), default=0) if isinstance(node, SectionNode) else 0
