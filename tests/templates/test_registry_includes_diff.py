"""A diff shows what moved under an include."""

from ctxkit import ContextEngine


def test_a_diff_shows_an_include_that_moved():
    with ContextEngine.open("sqlite://", embedder=None) as engine:
        registry = engine.templates
        registry.push("rules", "Be brief.")
        registry.push("a", "{{> rules}} {{question}}")
        registry.push("rules", "Be long.")
        registry.push("a", "{{> rules}} {{question}}")
        diff = registry.diff("a@1", "a@2")
        assert "-{{> rules}} is rules@1 sha256:" in diff
        assert "+{{> rules}} is rules@2 sha256:" in diff
        assert registry.diff("a@2", "a@2") == ""
