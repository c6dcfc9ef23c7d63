"""A compiled template written as text is read back as the same nodes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.templates.language import Literal, Node, Path, SectionNode, Value, compile_text
from ctxkit.templates.writing import merged, write_nodes

names = st.sampled_from(["a", "b_1", "user", "__class__"])
literals = st.lists(
    st.sampled_from(["x", " ", "\t", "\n", "\r\n", "{", "}", "{{", "}}", '"', "{{a}}", '{{""}}', "--- user ---", "é"]),
    max_size=5,
).map(lambda parts: Literal("".join(parts)))


def paths(depth: int) -> st.SearchStrategy[Path]:
    keys = st.lists(names, max_size=2).map(tuple)
    absolute = st.tuples(names, keys).map(lambda parts: Path(False, (parts[0], *parts[1])))
    return st.one_of(absolute, keys.map(lambda parts: Path(True, parts))) if depth else absolute


def nodes(depth: int = 0) -> st.SearchStrategy[list[Node]]:
    plain = st.one_of(literals, paths(depth).map(Value))
    if depth == 3:
        return st.lists(plain, max_size=3)
    # A condition does not open an item, so what stands in one outside of every section has no relative path.
    sections = st.builds(lambda path, body: SectionNode(path, "#", tuple(body)), paths(depth), nodes(depth + 1))
    conditions = st.builds(
        lambda path, kind, body: SectionNode(path, kind, tuple(body)),
        paths(depth),
        st.sampled_from(["?", "^"]),
        nodes(depth + 1) if depth else st.lists(plain, max_size=3),
    )
    return st.lists(st.one_of(plain, literals, sections, conditions), max_size=5)


@settings(max_examples=200)
@given(nodes())
def test_it_reads_back(found: list[Node]) -> None:
    text = write_nodes(found)
    assert compile_text(text) == merged(found)
    assert write_nodes(compile_text(text)) == text


def test_it_reads_well() -> None:
    for text in (
        "Dear {{name}},\n{{#items}}- {{.}}\n{{/items}}",
        "a\n{{?on}}\n\nb{{/on}} c",
        '{{"{{"}}name}} {{^x}}none{{/x}}',
    ):
        assert write_nodes(compile_text(text)) == text
