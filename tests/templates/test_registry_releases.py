"""Templates by name: includes that stay what they were, rollback, archive, differences, and the async twins."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.documents import content_hash
from ctxkit.errors import ConfigError, ConflictError, NotFoundError, ProtectedError, TemplateError
from ctxkit.storage import Store
from ctxkit.templates import Template, TemplateRegistry
from ctxkit.templates.differences import differences


@pytest.fixture
def registry() -> Iterator[TemplateRegistry]:
    with Store.open("sqlite://") as store:
        yield TemplateRegistry(store)


def said(template: Template, **payload: Any) -> str:
    return "".join(message.text for message in template.render(payload))


class TestIncludes:
    def test_they_are_frozen_when_they_are_pushed(self, registry: TemplateRegistry) -> None:
        registry.push("rules", "Be kind.")
        registry.label("rules", "production", 1)
        first = registry.push("answer", "{{> rules@production}} {{question}}")
        registry.push("rules", "Be strict.")
        registry.label("rules", "production", 2)
        assert "Be kind." in said(registry.get("answer"))
        assert registry.get("answer").hash == first.hash, "a label that moves changes no version"
        second = registry.push("answer", "{{> rules@production}} {{question}}")
        assert (second.version, second.is_new) == (2, True), "the same text, another content inside"
        assert "Be strict." in said(registry.get("answer"))
        assert [one.reference for one in registry.get("answer@1").includes] == ["rules@1"]

    def test_what_is_included_is_in_use(self, registry: TemplateRegistry) -> None:
        registry.push("rules", "Be kind.")
        registry.push("answer", "{{> rules@1}}")
        with pytest.raises(ProtectedError, match="answer@1"):
            registry.archive("rules@1")
        assert registry.archive("answer@1") and registry.archive("rules@1")
        assert "Be kind." in said(registry.get("answer@1")), "archived is not gone"

    def test_a_template_that_includes_itself_or_nothing_is_refused(self, registry: TemplateRegistry) -> None:
        registry.push("answer", "one")
        registry.push("outer", "{{> answer@1}}")
        for source in ("{{> answer@1}}", "{{> outer@1}}"):
            with pytest.raises(TemplateError) as caught:
                registry.push("answer", source)
            assert caught.value.remedy
        with pytest.raises((NotFoundError, TemplateError)):
            registry.push("answer", "{{> nothing}}")
        assert len(registry.versions("answer")) == 1


class TestReleases:
    def test_a_release_from_push_to_rollback(self, registry: TemplateRegistry) -> None:
        first = registry.push("answer", "One {{question}}", message="Begin", by="ann")
        second = registry.push("answer", "Two {{question}}", by="bob")
        assert (first.is_new, registry.push("answer", "One {{question}}").is_new) == (True, False)
        registry.label("answer", "production", first.version)
        registry.label("answer", "production", second.version, expected=first.version, by="bob")
        assert registry.protect("answer", "production", by="ann")
        with pytest.raises(ProtectedError, match="protected"):
            registry.rollback("answer", "production")
        move = registry.rollback("answer", "production", expected=2, force=True, message="Two was worse")
        assert (move.previous, move.version, move.forced) == (2, 1, True)
        with pytest.raises(ConflictError):
            registry.rollback("answer", "production", force=True)
        assert registry.unprotect("answer", "production")
        assert [each.action for each in registry.history("answer", "production")] == ["move", "move", "rollback"]
        assert [each.action for each in registry.events("answer")] == ["protect", "unprotect"]
        assert registry.version("answer@production").by == "ann"

    def test_the_newest_is_the_newest_that_is_not_archived(self, registry: TemplateRegistry) -> None:
        for text in ("one", "two"):
            registry.push("answer", text)
        registry.archive("answer@2", message="A mistake")
        assert registry.get("answer").version == registry.get("answer@latest").version == 1
        assert registry.get("answer@2").version == 2
        registry.archive("answer@1")
        with pytest.raises(NotFoundError, match="not archived"):
            registry.get("answer")
        registry.archive("answer")
        with pytest.raises(ProtectedError):
            registry.push("answer", "three")
        assert registry.list() == []
        assert [info.name for info in registry.list(archived=True)] == ["answer"]
        assert registry.unarchive("answer") and registry.unarchive("answer@1")
        assert registry.get("answer").version == 1

    @pytest.mark.parametrize("reference", ["answer@production", "answer@sha256:00000000", "answer@latest", "", "a b"])
    def test_only_a_name_or_a_number_is_archived(self, registry: TemplateRegistry, reference: str) -> None:
        registry.push("answer", "one")
        with pytest.raises(ConfigError):
            registry.archive(reference)

    def test_search_knows_variables(self, registry: TemplateRegistry) -> None:
        registry.push("answer", "{{#Items}}{{.}}{{/Items}} {{user.name}} Hello {{question}}")
        assert [match.places for match in registry.search("items")] == [("slot", "text")]
        assert [match.places for match in registry.search("USER", places=["slot"])] == [("slot",)]
        assert registry.search("hello", places=["slot", "name"]) == []

    def test_the_async_twins(self, registry: TemplateRegistry) -> None:
        async def work() -> None:
            first = await registry.apush("answer", "one", by="ann")
            await registry.apush("answer", "two")
            await registry.alabel("answer", "production", first.version)
            await registry.alabel("answer", "production", 2, expected=1)
            assert (await registry.arollback("answer", "production")).version == 1
            assert await registry.aprotect("answer", "production")
            assert await registry.aunprotect("answer", "production")
            assert (await registry.aget("answer@production")).version == 1
            assert len(await registry.aversions("answer")) == 2
            assert await registry.aarchive("answer@2")
            assert await registry.aunarchive("answer@2")
            assert [info.name for info in await registry.alist()] == ["answer"]
            assert [match.version for match in await registry.asearch("one")] == [1]
            assert "+two" in await registry.adiff("answer@1", "answer@2")
            assert await registry.adifferences("answer@1", "answer@2") == registry.differences("answer@1", "answer@2")
            assert (await registry.aversion("answer@2")).version == 2
            assert [move.version for move in await registry.ahistory("answer", "production")] == [1, 2, 1]
            assert await registry.aevents("answer") == registry.events("answer")

        asyncio.run(work())

    def test_every_call_has_one(self) -> None:
        calls = {name for name, value in vars(TemplateRegistry).items() if callable(value) and name[0] != "_"}
        assert {name for name in calls if f"a{name}" not in calls and name[1:] not in calls} == set()


class TestDifferences:
    def test_by_message_slot_schema_and_setting(self, registry: TemplateRegistry) -> None:
        registry.push("a", [{"role": "system", "content": "S"}, {"role": "user", "content": "{{x}}"}])
        source = Template.parse(
            [
                {"role": "system", "content": "S"},
                {"role": "history", "content": ""},
                {"role": "user", "content": "{{x}}!"},
            ],
            slots={"x": "trusted string"},
            model={"temperature": 0},
        )
        registry.push("a", source)
        found = registry.differences("a@1", "a@2")
        assert [(each["change"], each["index"]) for each in found["messages"]] == [("changed", 1), ("added", 2)]
        assert found["model"] == [{"path": [], "after": {"temperature": 0}}]
        assert "slots" in found
        back = registry.differences("a@2", "a@1")
        assert back["model"] == [{"path": [], "before": {"temperature": 0}}]
        assert registry.differences("a@1", "a@1") == {}

    contents = st.fixed_dictionaries(
        {
            "messages": st.lists(
                st.fixed_dictionaries(
                    {"role": st.sampled_from(["system", "user"]), "content": st.sampled_from(["a", "b", "c"])}
                ),
                max_size=4,
            )
        },
        optional={
            "model": st.recursive(
                st.sampled_from([None, True, 1, 1.0, 0, "1", -0.0, 0.0]),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2),
            ),
            "description": st.sampled_from(["", "d"]),
        },
    )

    @settings(max_examples=settings().max_examples // 2)
    @given(contents, contents)
    def test_there_are_none_exactly_where_the_hash_is_the_same(self, older: Any, newer: Any) -> None:
        found = differences(older, newer)
        assert (not found) == (content_hash(older) == content_hash(newer))
        assert differences(older, older) == {}
        texts = list(older["messages"])
        for change in sorted(found.get("messages", ()), key=lambda each: (each["change"] != "removed", -each["index"])):
            if change["change"] == "removed":
                assert texts.pop(change["index"]) == change["before"]
        for change in sorted(found.get("messages", ()), key=lambda each: each["index"]):
            if change["change"] == "added":
                texts.insert(change["index"], change["after"])
        for change in found.get("messages", ()):
            if change["change"] == "changed":
                assert texts[change["index"]] == change["before"]
                texts[change["index"]] = change["after"]
        assert texts == newer["messages"], "the changes lead from the one to the other"
