"""`ctxkit templates sync` from the outside."""


def test_sync_both_ways_check_and_conflict(ctxkit, tmp_path):
    folder = tmp_path / "prompts"
    folder.mkdir()
    (folder / "greet.prompt").write_text("Hello {{name}}")
    assert "push     greet" in ctxkit("templates", "sync", str(folder), "-m", "first").out
    assert ctxkit("templates", "sync", str(folder), "--check").code == 0
    (folder / "greet.prompt").write_text("Bye {{name}}")
    dry = ctxkit("templates", "sync", str(folder), "--dry-run")
    assert "+Bye {{name}}" in dry.out
    assert ctxkit("templates", "sync", str(folder), "--check").code == 1
    (tmp_path / "other.txt").write_text("Hi {{name}}")
    ctxkit("templates", "push", "greet", str(tmp_path / "other.txt"))
    conflict = ctxkit("templates", "sync", str(folder), "--json")
    assert conflict.code == 1
    assert [row["action"] for row in conflict.json] == ["conflict"]
    assert (folder / "greet.prompt").read_text() == "Bye {{name}}"
    settled = ctxkit("templates", "sync", str(folder), "--prefer", "greet=folder", "--label", "staging")
    assert settled.code == 0
    assert "Bye {{name}}" in ctxkit("templates", "show", "greet@staging").out
    assert ctxkit("templates", "sync", str(folder), "--prefer", "greet").code == 2
