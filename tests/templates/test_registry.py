"""References, and templates under names in a real store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ctxkit.errors import ConfigError, ConflictError, NotFoundError, TemplateSyntaxError
from ctxkit.storage import Store
from ctxkit.templates import DEFAULT_TEMPLATE, Reference, Template, TemplateRegistry, parse_reference

HASH = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("answer", Reference("answer")),
        ("answer@latest", Reference("answer")),
        ("answer@3", Reference("answer", version=3)),
        ("team/answer-v2.x@production", Reference("team/answer-v2.x", label="production")),
        (f"answer@sha256:{HASH}", Reference("answer", hash=HASH)),
        ("answer@sha256:01234567", Reference("answer", hash="01234567")),
    ],
)
def test_references(text: str, reference: Reference) -> None:
    assert parse_reference(text) == reference
    assert parse_reference(str(reference)) == reference


NO_REFERENCES = [
    "@3",
    "answer@",
    "answer@0",
    "answer@-1",
    "answer@sha256:",
    "answer@sha256:XYZ",
    "a b",
    "a@b@c",
    "é",
    "../x",
    "answer@3\n",
    "a\x00",
]


@pytest.mark.parametrize("text", ["", "answer@" + "x" * 65, "n" * 129, *NO_REFERENCES])
def test_what_is_no_reference(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_reference(text)
    assert caught.value.remedy


@pytest.fixture
def registry() -> Iterator[TemplateRegistry]:
    with Store.open("sqlite://") as store:
        yield TemplateRegistry(store)


def test_versions_and_the_ways_to_name_one(registry: TemplateRegistry) -> None:
    first = registry.push("answer", "Hello {{name}}", message="first")
    second = registry.push("answer", [{"role": "user", "content": "Hi {{name}}"}])
    assert (first.version, second.version) == (1, 2)
    assert registry.get("answer").reference == "answer@2"
    assert registry.get("answer@1").messages[0].content == "Hello {{name}}"
    assert registry.get(f"answer@sha256:{first.hash}").version == 1
    assert registry.get(f"answer@sha256:{first.hash[:10]}").version == 1
    assert registry.get(Reference("answer", version=2)).version == 2
    assert [version.message for version in registry.versions("answer")] == ["first", ""]
    assert [(info.name, info.versions) for info in registry.list()] == [("answer", 2)]


def test_the_hash_of_a_template_is_the_hash_of_its_version(registry: TemplateRegistry) -> None:
    for name, source in (("a", "x"), ("default", DEFAULT_TEMPLATE), ("c", "{{x}}")):
        version = registry.push(name, source)
        stored = registry.get(name)
        assert version.hash == stored.hash == registry.get(f"{name}@1").hash
        assert stored.hash == (source if isinstance(source, Template) else Template.parse(source)).hash


def test_identical_content_makes_no_version(registry: TemplateRegistry) -> None:
    first = registry.push("answer", "Hello {{name}}")
    assert registry.push("answer", [{"role": "user", "content": "Hello {{name}}"}]).version == first.version
    assert registry.push("answer", "--- user ---\nHello {{name}}\n").version == first.version
    assert len(registry.versions("answer")) == 1


def test_labels_move_by_compare_and_swap(registry: TemplateRegistry) -> None:
    registry.push("answer", "one")
    registry.push("answer", "two")
    registry.label("answer", "production", 1, expected=None)
    assert registry.get("answer@production").version == 1
    with pytest.raises(ConflictError):
        registry.label("answer", "production", 2, expected=None)
    with pytest.raises(ConflictError):
        registry.label("answer", "production", 2, expected=2)
    registry.label("answer", "production", 2, expected=1)
    assert registry.get("answer@production").version == 2
    registry.label("answer", "production", 1)
    assert registry.get("answer@production").version == 1


@pytest.mark.parametrize("label", ["latest", "3", "", "a b", "sha256:x", "x" * 65])
def test_what_is_no_label(registry: TemplateRegistry, label: str) -> None:
    registry.push("answer", "one")
    with pytest.raises(ConfigError) as caught:
        registry.label("answer", label, 1)
    assert caught.value.remedy


def test_nothing_is_stored_of_a_malformed_template(registry: TemplateRegistry) -> None:
    with pytest.raises(TemplateSyntaxError, match="answer 1:1"):
        registry.push("answer", "{{")
    with pytest.raises(ConfigError):
        registry.push("bad name", "x")
    assert registry.list() == []


@pytest.mark.parametrize("reference", ["other", "answer@9", "answer@canary", "answer@sha256:00000000"])
def test_what_is_not_there(registry: TemplateRegistry, reference: str) -> None:
    registry.push("answer", "one")
    with pytest.raises(NotFoundError) as caught:
        registry.get(reference)
    assert caught.value.remedy


def test_diff(registry: TemplateRegistry) -> None:
    registry.push("answer", "Hello {{name}}\nBye")
    registry.push("answer", "Hi {{name}}\nBye")
    assert registry.diff("answer@1", "answer@2").splitlines()[:2] == ["--- answer@1", "+++ answer@2"]
    changed = [line for line in registry.diff("answer@1", "answer").splitlines()[3:] if line[0] in "+-"]
    assert changed == ["-Hello {{name}}", "+Hi {{name}}"]
    assert registry.diff("answer@1", "answer@1") == ""


def test_tenants_have_their_own_templates() -> None:
    with Store.open("sqlite://") as store:
        TemplateRegistry(store).push("answer", "one")
        with pytest.raises(NotFoundError):
            TemplateRegistry(store.for_tenant("other")).get("answer")
