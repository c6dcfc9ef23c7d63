"""A folder and a registry: both ways, three-way, nothing is lost."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit import ContextEngine
from ctxkit.errors import ConfigError
from ctxkit.templates import Template
from ctxkit.templates.folder import TemplateFolder
from ctxkit.templates.sync import STATE_FILE, TemplateSync
from tests.templates.syncing import actions, newest, snapshot


@pytest.fixture
def registry():
    with ContextEngine.open("sqlite://", embedder=None) as engine:
        yield engine.templates


def test_what_is_on_one_side_goes_to_the_other(registry, tmp_path):
    registry.push("greet", "Hello {{name}}")
    (tmp_path / "support").mkdir()
    (tmp_path / "support/answer.prompt").write_text("--- system ---\nBe {{tone}}.\n")
    sync = TemplateSync(registry, tmp_path)
    assert actions(sync.run(message="first", by="ann")) == {"greet": "pull", "support/answer": "push"}
    assert Template.parse((tmp_path / "greet.prompt").read_text(), name="greet").hash == newest(registry, "greet").hash
    assert registry.version("support/answer").by == "ann"
    before = snapshot(tmp_path)
    assert set(actions(sync.run()).values()) == {"same"}
    assert snapshot(tmp_path) == before


def test_the_side_that_moved_is_followed(registry, tmp_path):
    registry.push("a", "one")
    registry.push("b", "one")
    sync = TemplateSync(registry, tmp_path)
    sync.run()
    registry.push("a", "two")
    (tmp_path / "b.prompt").write_text("two")
    items = {item.name: item for item in sync.plan()}
    assert (items["a"].action, items["b"].action) == ("pull", "push")
    assert "+two" in items["b"].diff
    assert "-one" in items["b"].diff
    assert registry.version("b").version == 1  # a plan changes nothing
    sync.run()
    assert "two" in (tmp_path / "a.prompt").read_text()
    assert newest(registry, "b").messages[0].content == "two"


def test_a_conflict_is_shown_and_never_overwritten(registry, tmp_path):
    registry.push("a", "one")
    sync = TemplateSync(registry, tmp_path)
    sync.run()
    registry.push("a", "theirs")
    (tmp_path / "a.prompt").write_text("ours")
    for _ in range(2):
        (item,) = sync.run()
        assert item.action == "conflict"
        assert "-theirs" in item.diff
        assert "+ours" in item.diff
        assert (tmp_path / "a.prompt").read_text() == "ours"
        assert registry.version("a").version == 2
    with pytest.raises(ConfigError, match="neither side"):
        sync.run(prefer={"A": "folder"})
    (item,) = sync.run(prefer={"a": "folder"})
    assert item.action == "push"
    assert newest(registry, "a").messages[0].content == "ours"
    assert [version.version for version in registry.versions("a")] == [1, 2, 3]


def test_without_a_base_what_differs_is_a_conflict_and_what_is_equal_is_not(registry, tmp_path):
    registry.push("a", "one")
    registry.push("b", "one")
    (tmp_path / "a.prompt").write_text("another")
    (tmp_path / "b.prompt").write_text("--- user ---\none")
    assert actions(TemplateSync(registry, tmp_path).run()) == {"a": "conflict", "b": "same"}
    (item,) = [item for item in TemplateSync(registry, tmp_path).run(prefer={"a": "registry"}) if item.name == "a"]
    assert item.action == "pull"


def test_a_registry_that_never_had_a_template_does_not_remove_its_file(registry, tmp_path):
    (tmp_path / "a.prompt").write_text("one")
    TemplateSync(registry, tmp_path).run()
    with ContextEngine.open("sqlite://", embedder=None) as engine:  # the base in the folder speaks of the first
        other = engine.templates
        assert actions(TemplateSync(other, tmp_path).run()) == {"a": "push"}
        assert actions(TemplateSync(other, tmp_path).run()) == {"a": "same"}
    assert (tmp_path / "a.prompt").read_text() == "one"


def test_an_include_by_the_label_that_a_run_puts_on(registry, tmp_path):
    (tmp_path / "a.prompt").write_text("{{> rules@production}} Go.")
    (tmp_path / "rules.prompt").write_text("Be brief.")
    sync = TemplateSync(registry, tmp_path)
    assert actions(sync.run()) == {"a": "error", "rules": "push"}, "nothing has this label"
    (tmp_path / "rules.prompt").write_text("Be kind.")
    assert actions(sync.run(label="production")) == {"a": "push", "rules": "push"}
    assert registry.get("a").includes[0].reference == "rules@2"
    (tmp_path / "b.prompt").write_text("{{> rules@7}} Go.")
    assert actions(sync.plan())["b"] == "error"


def test_deleting_follows_too_but_not_over_a_change(registry, tmp_path):
    for name in "abcd":
        registry.push(name, "one")
    sync = TemplateSync(registry, tmp_path)
    sync.run()
    (tmp_path / "a.prompt").unlink()
    registry.archive("b")
    (tmp_path / "c.prompt").unlink()
    registry.push("c", "two")
    registry.archive("d")
    (tmp_path / "d.prompt").write_text("two")
    assert actions(sync.run()) == {"a": "archive", "b": "remove", "c": "conflict", "d": "conflict"}
    assert [info.name for info in registry.list()] == ["c"]
    assert not (tmp_path / "b.prompt").exists()
    assert (tmp_path / "d.prompt").read_text() == "two"
    # What is archived can come back.
    assert actions(sync.run(prefer={"c": "registry", "d": "folder"})) == {"c": "pull", "d": "push"}
    assert newest(registry, "d").messages[0].content == "two"


def test_a_template_that_is_archived_for_its_file_still_answers_to_its_label(registry, tmp_path):
    registry.push("a", "one")
    registry.label("a", "production", 1)
    sync = TemplateSync(registry, tmp_path)
    sync.run()
    (tmp_path / "a.prompt").unlink()
    (item,) = sync.run()
    assert item.action == "archive"
    assert registry.list() == []
    assert newest(registry, "a@production").messages[0].content == "one"


def test_included_files_go_first(registry, tmp_path):
    (tmp_path / "a.prompt").write_text("--- user ---\n{{> rules}} {{question}}")
    (tmp_path / "rules.prompt").write_text("Be brief.")
    sync = TemplateSync(registry, tmp_path)
    assert actions(sync.run()) == {"a": "push", "rules": "push"}
    assert [include.reference for include in newest(registry, "a").includes] == ["rules@1"]
    (tmp_path / "x.prompt").write_text("{{> y}}")
    (tmp_path / "y.prompt").write_text("{{> x}}")
    found = {item.name: item for item in sync.run()}
    assert found["x"].action == found["y"].action == "error"
    assert found["a"].action == "same"


def test_directions(registry, tmp_path):
    registry.push("theirs", "one")
    (tmp_path / "ours.prompt").write_text("one")
    pushed = {item.name: item for item in TemplateSync(registry, tmp_path, direction="push").run()}
    assert pushed["theirs"].skipped
    assert not (tmp_path / "theirs.prompt").exists()
    assert newest(registry, "ours").version == 1
    pulled = {item.name: item for item in TemplateSync(registry, tmp_path, direction="pull").run()}
    assert (tmp_path / "theirs.prompt").exists()
    assert not pulled["theirs"].skipped
    with pytest.raises(ConfigError, match="direction"):
        TemplateSync(registry, tmp_path, direction="sideways")  # type: ignore[arg-type]


def test_a_file_that_goes_back_to_an_old_version_stays(registry, tmp_path):
    sync = TemplateSync(registry, tmp_path)
    for text in ("one", "two", "one"):
        (tmp_path / "a.prompt").write_text(text)
        (item,) = sync.run()
    assert (item.action, item.version) == ("push", 1)
    assert "version 2 stays the newest" in item.reason
    assert actions(sync.run()) == {"a": "same"}
    assert (tmp_path / "a.prompt").read_text() == "one"
    registry.push("a", "three")
    assert actions(sync.run()) == {"a": "pull"}


def test_an_archived_version_is_not_the_newest(registry, tmp_path):
    registry.push("a", "one")
    registry.push("a", "two")
    registry.archive("a@2")
    sync = TemplateSync(registry, tmp_path)
    assert actions(sync.run()) == {"a": "pull"}
    assert Template.parse((tmp_path / "a.prompt").read_text(), name="a").messages[0].content == "one"
    (tmp_path / "a.prompt").write_text("three")
    assert [item.version for item in sync.run()] == [3]


contents = st.lists(
    st.tuples(
        st.sampled_from(["system", "user", "assistant"]),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{}\x00"), max_size=40)
        | st.sampled_from(["--- user ---", "\\--- user ---", "a\r\nb", "\ufeff", "---\nname: 3\n---\n", "\n\n", " "]),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=150)
@given(contents, st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20))
def test_the_round_trip_loses_nothing(tmp_path_factory, messages, description):
    folder = TemplateFolder(tmp_path_factory.mktemp("round"))
    try:
        template = Template.parse(
            [{"role": role, "content": content} for role, content in messages], name="a", description=description
        )
    except Exception:
        return
    folder.write("a", template.source)
    assert Template.parse(folder.read("a"), name="a").hash == template.hash


edits = st.lists(
    st.tuples(
        st.sampled_from(["file", "push", "delete", "archive", "run"]), st.sampled_from("ab"), st.sampled_from("xyz")
    ),
    max_size=12,
)


@settings(max_examples=60)
@given(edits)
def test_no_text_is_ever_lost_and_two_runs_are_one(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("model")
    with ContextEngine.open("sqlite://", embedder=None) as engine:
        registry = engine.templates
        sync = TemplateSync(registry, folder)
        for step, name, text in [*steps, ("run", "", "")]:
            path = folder / f"{name}.prompt"
            if step == "file":
                path.write_text(text)
            elif step == "delete":
                path.unlink(missing_ok=True)
            elif step == "push":
                if any(info.name == name for info in registry.list(archived=True)):
                    registry.unarchive(name)
                registry.push(name, text)
            elif step == "archive":
                if any(info.name == name for info in registry.list()):
                    registry.archive(name)
            else:
                before = {path.stem: path.read_text() for path in folder.glob("*.prompt")}
                items = sync.run()
                after = {path.stem: path.read_text() for path in folder.glob("*.prompt")}
                versions = {
                    info.name: {version.hash for version in registry.versions(info.name)}
                    for info in registry.list(archived=True)
                }
                for file, content in before.items():  # it is there still, or a version of the registry
                    if after.get(file) != content:
                        assert Template.parse(content, name=file).hash in versions[file]
                live = {info.name for info in registry.list()}
                for item in items:
                    if item.action not in ("conflict", "error"):
                        assert (item.name in live) == (item.name in after)
                        if item.name in live:
                            # The newest one, or an old one that the file has gone back to, and that is said.
                            found = Template.parse(after[item.name], name=item.name).hash
                            if item.action == "same":
                                assert found in versions[item.name]
                            else:
                                assert found == registry.version(f"{item.name}@{item.version}").hash
                                assert found == registry.get(item.name).hash or "again" in item.reason
                again = {item.name: item.action for item in sync.run()}
                assert set(again.values()) <= {"same", "conflict"}
    assert json.loads((folder / STATE_FILE).read_text())["format"] == 1
