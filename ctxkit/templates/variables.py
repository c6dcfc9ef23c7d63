"""Which variables a template has, derived from how it uses them, and checked against what it declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from ctxkit.errors import TemplateSyntaxError
from ctxkit.templates.language import Node, Path, SectionNode, Value
from ctxkit.templates.slots import WELL_KNOWN, Slot, SlotType

__all__ = ["derive_variables"]

_Use = Literal["value", "section", "condition", "field"]
_DERIVED: Mapping[_Use, SlotType] = {
    "value": "string",
    "section": "section",
    "condition": "any",
    "field": "object",
}
_ALLOWED: Mapping[_Use, frozenset[SlotType]] = {
    "value": frozenset({"string", "number", "integer", "boolean", "list", "object"}),
    "section": frozenset({"boolean", "list", "object", "section"}),
    "condition": frozenset({"string", "number", "integer", "boolean", "list", "object", "section", "any"}),
    "field": frozenset({"object"}),
}
_SEEN_AS: Mapping[_Use, str] = {
    "value": "as a value",
    "section": "as a section",
    "condition": "as a condition",
    "field": "with fields",
}


def derive_variables(
    messages: Sequence[Sequence[Node]], declared: Mapping[str, Slot], *, types: Mapping[str, SlotType], where: str
) -> dict[str, Slot]:
    """The variables in order of first use; `types` are those of a schema, for slots that say none.

    Raises `TemplateSyntaxError` where uses and declarations do not fit.
    """
    uses: dict[str, set[_Use]] = {}
    for nodes in messages:
        _collect(nodes, uses, where, inside=False)
    for name in declared:
        if name not in uses and name != "history":
            raise TemplateSyntaxError(
                f"the slot {name[:60]!r} is declared and never used", subject=where, remedy="Use it or remove it."
            )
    hinted = {name: Slot(type=kind) for name, kind in types.items()}
    return {name: _slot(name, found, declared.get(name, hinted.get(name)), where) for name, found in uses.items()}


def _collect(nodes: Iterable[Node], uses: dict[str, set[_Use]], where: str, *, inside: bool) -> None:
    for node in nodes:
        if not isinstance(node, Value | SectionNode):
            continue
        path = node.path
        if not path.relative:
            name = path.keys[0]
            if name in WELL_KNOWN:
                _check_well_known(path, node, uses, where, inside=inside)
            use: _Use = "field" if len(path.keys) > 1 else _use(node)
            uses.setdefault(name, set()).add(use)
        if isinstance(node, SectionNode):
            _collect(node.body, uses, where, inside=True)


def _use(node: Value | SectionNode) -> _Use:
    if isinstance(node, Value):
        return "value"
    return "section" if node.kind == "#" else "condition"


def _check_well_known(path: Path, node: Node, uses: Mapping[str, object], where: str, *, inside: bool) -> None:
    name = path.keys[0]
    if name == "history":
        problem, remedy = (
            "the history is messages, not text",
            "Mark its place with a message of role 'history', or a line '--- history ---'.",
        )
    elif inside or len(path.keys) > 1 or isinstance(node, SectionNode):
        problem, remedy = f"{name!r} is filled by assembly", f"Write {{{{{name}}}}}, outside of every section."
    elif name == "context" and name in uses:
        problem, remedy = "the context stands at more than one place", "Keep one of them."
    else:
        return
    raise TemplateSyntaxError(problem, subject=where, remedy=remedy)


def _slot(name: str, uses: set[_Use], declared: Slot | None, where: str) -> Slot:
    if declared is not None:
        for use in sorted(uses):
            if declared.type not in _ALLOWED[use]:
                raise TemplateSyntaxError(
                    f"the slot {name!r} is declared as {declared.type} and used {_SEEN_AS[use]}",
                    subject=where,
                    remedy=f"Used so, it can be: {', '.join(sorted(_ALLOWED[use]))}.",
                )
        return declared
    possible = frozenset.intersection(*(_ALLOWED[use] for use in uses))
    asked = uses - {"condition"} or uses
    if "value" in asked and len(asked) > 1:
        raise TemplateSyntaxError(
            f"{name!r} is used as a value and otherwise too",
            subject=where,
            remedy=f"Declare its type in the head: {', '.join(sorted(possible)) or 'none fits'}.",
        )
    return Slot(type="object" if "field" in asked else _DERIVED[next(iter(asked))])
