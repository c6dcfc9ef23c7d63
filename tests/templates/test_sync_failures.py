"""A folder and a registry where something is broken or changes meanwhile: nothing overwritten, nothing outside."""

import os

import pytest

from ctxkit import ContextEngine
from ctxkit.errors import ConfigError
from ctxkit.templates.sync import STATE_FILE, TemplateSync
from tests.templates.syncing import actions, snapshot


@pytest.fixture
def registry():
    with ContextEngine.open("sqlite://", embedder=None) as engine:
        yield engine.templates


def test_a_broken_file_does_not_stop_the_others(registry, tmp_path):
    (tmp_path / "bad.prompt").write_text("{{open")
    (tmp_path / "binary.prompt").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "other.prompt").write_text('---\nname: "someone-else"\n---\nHello')
    (tmp_path / "good.prompt").write_text("Hello")
    items = {item.name: item for item in TemplateSync(registry, tmp_path).run()}
    assert items.pop("good").action == "push"
    assert {item.action for item in items.values()} == {"error"}
    assert all(item.reason for item in items.values())
    assert [info.name for info in registry.list()] == ["good"]


def test_links_and_paths_out_of_the_folder_are_refused(registry, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.prompt").write_text("secret")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "linked.prompt").symlink_to(outside / "secret.prompt")
    (folder / "door").symlink_to(outside)
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe.prompt")
    (folder / ".hidden").mkdir()
    (folder / ".hidden/x.prompt").write_text("hidden")
    registry.push("a/../../escape", "out")
    registry.push("door/escape", "out")
    registry.push("up/..", "out")
    items = {item.name: item for item in TemplateSync(registry, folder).run()}
    assert {item.action for item in items.values()} == {"error"}
    assert set(items) == {"linked", "door/", "loop/", "pipe", "a/../../escape", "door/escape", "up/.."}
    assert snapshot(outside) == {"secret.prompt": b"secret"}
    assert [info.name for info in registry.list()] == ["a/../../escape", "door/escape", "up/.."]


def test_names_that_a_file_system_may_take_for_one_are_refused(registry, tmp_path):
    registry.push("Answer", "one")
    registry.push("answer", "two")
    items = TemplateSync(registry, tmp_path).run()
    assert sorted(item.action for item in items) == ["error", "pull"]


def test_a_version_pushed_meanwhile_is_not_covered_up(registry, tmp_path, monkeypatch):
    for name in "ab":
        registry.push(name, "one")
    sync = TemplateSync(registry, tmp_path)
    sync.run()
    (tmp_path / "a.prompt").write_text("mine")
    (tmp_path / "b.prompt").unlink()
    plan = sync._plan

    def planned(prefer):
        found = plan(prefer)
        for name in "ab":
            registry.push(name, "theirs")
        return found

    monkeypatch.setattr(sync, "_plan", planned)
    assert actions(sync.run()) == {"a": "error", "b": "error"}
    monkeypatch.undo()
    assert [version.version for version in registry.versions("a")] == [1, 2]
    assert [info.name for info in registry.list()] == ["a", "b"]
    assert actions(sync.run()) == {"a": "conflict", "b": "conflict"}


def test_what_cannot_be_seen_is_not_gone(registry, tmp_path):
    registry.push("sub/a", "one")
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    folder.mkdir()
    sync = TemplateSync(registry, folder)
    sync.run()
    (folder / "sub").rename(elsewhere)
    (folder / "sub").symlink_to(elsewhere)
    assert actions(sync.run()) == {"sub/": "error", "sub/a": "error"}
    elsewhere.rename(tmp_path / "nowhere")
    assert actions(sync.run()) == {"sub/": "error", "sub/a": "error"}
    assert [info.name for info in registry.list()] == ["sub/a"]


def test_what_stands_in_the_place_of_a_file_is_an_error_of_this_one(registry, tmp_path):
    for name in ("a/b", "c", "z"):
        registry.push(name, "one")
    (tmp_path / "a").write_text("no folder")
    (tmp_path / "c.prompt").mkdir()
    assert actions(TemplateSync(registry, tmp_path).run()) == {"a/b": "error", "c": "error", "z": "pull"}
    assert {path.name for path in tmp_path.iterdir()} == {"a", "c.prompt", "z.prompt", STATE_FILE}


def test_what_a_killed_writer_left_is_cleared_away_in_time(registry, tmp_path):
    old, new = tmp_path / ".ctxkit-a.partial", tmp_path / ".ctxkit-b.partial"
    for left in (old, new):
        left.write_text("half")
    os.utime(old, (0, 0))
    TemplateSync(registry, tmp_path).plan()
    assert old.exists()
    TemplateSync(registry, tmp_path).run()
    assert (old.exists(), new.exists()) == (False, True)


def test_a_push_that_fails_is_the_reason_wherever_it_is_included(registry, tmp_path):
    registry.push("b", "old")
    registry.protect("b", "production")
    (tmp_path / "a.prompt").write_text("A {{> b@latest}}")
    (tmp_path / "b.prompt").write_text("B")
    items = TemplateSync(registry, tmp_path).run(prefer={"b": "folder"}, label="production")
    assert [(item.action, "protected" in item.reason) for item in items] == [("error", True)] * 2
    assert [info.versions for info in registry.list()] == [1]  # without its label, nothing is pushed


@pytest.mark.parametrize("state", ["", "[]", "{}", '{"format": 9, "templates": {}}', '{"format": 1, "templates": 3}'])
def test_a_damaged_base_is_an_error_before_anything_is_written(registry, tmp_path, state):
    (tmp_path / STATE_FILE).write_text(state)
    (tmp_path / "a.prompt").write_text("one")
    with pytest.raises(ConfigError, match="last synchronised"):
        TemplateSync(registry, tmp_path).run()
    assert registry.list() == []


def test_a_folder_that_is_not_there(registry, tmp_path):
    with pytest.raises(ConfigError, match="no such folder"):
        TemplateSync(registry, tmp_path / "nowhere")


def test_a_file_changed_meanwhile_is_not_overwritten(registry, tmp_path, monkeypatch):
    registry.push("a", "one")
    sync = TemplateSync(registry, tmp_path)
    sync.run()
    registry.push("a", "two")
    plan = sync._plan

    def edited(prefer):
        found = plan(prefer)
        (tmp_path / "a.prompt").write_text("edited meanwhile")
        return found

    monkeypatch.setattr(sync, "_plan", edited)
    (item,) = sync.run()
    assert item.action == "error"
    assert "meanwhile" not in item.reason
    assert (tmp_path / "a.prompt").read_text() == "edited meanwhile"
    monkeypatch.undo()
    assert actions(sync.run()) == {"a": "conflict"}
