"""A store of the second revision becomes one of the third: nothing is lost, and what is new is filled."""

from __future__ import annotations

import json

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, text

from ctxkit.storage import Store
from ctxkit.storage.migrate import script_location

CONTENT = {"messages": [{"role": "user", "content": "Straße {{tone}} {{#items}}{{.}}{{/items}}"}]}


def old_store(url: str) -> None:
    """A store as the second revision left it."""
    engine = create_engine(url)
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(script_location()))
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
    for tenant in ("acme", "other"):
        with engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT set_config('ctxkit.tenant', :tenant, true)"), {"tenant": tenant})
            for statement in (
                "INSERT INTO templates VALUES (:t, 'answer', 1, '2026-01-01T00:00:00+00:00')",
                "INSERT INTO template_versions VALUES (:t, 'answer', 1, 'h', 'First', '2026-01-01T00:00:00+00:00', :c)",
                "INSERT INTO template_labels VALUES (:t, 'answer', 'production', 1)",
                "INSERT INTO label_history VALUES (:t, 'answer', 'production', 1, NULL, 1, '2026-01-01T00:00:00Z')",
                "INSERT INTO label_history VALUES (:t, 'answer', 'production', 2, 1, 1, '2026-01-02T00:00:00Z')",
                "INSERT INTO payloads (tenant, hash, created_at, content) "
                "VALUES (:t, 'p', '2026-01-01T00:00:00+00:00', :p)",
                "INSERT INTO payload_keys VALUES (:t, 'brand', 'p', '2026-01-03T00:00:00+00:00')",
            ):
                bound = {"t": tenant, "c": json.dumps(CONTENT), "p": json.dumps({"tone": tenant})}
                wanted = {name: value for name, value in bound.items() if f":{name}" in statement}
                connection.execute(text(statement), wanted)
    engine.dispose()


def test_what_was_there_is_there_and_what_is_new_is_filled(store_url: str) -> None:
    old_store(store_url)
    with Store.open(store_url, tenant="acme") as store:
        for tenant in ("acme", "other"):
            view = store.for_tenant(tenant)
            (version,) = view.templates.versions("answer")
            assert (version.content, version.message, version.by, version.archived_at) == (CONTENT, "First", "", None)
            moves = view.templates.label_history("answer", "production")
            assert [(move.previous, move.version, move.action) for move in moves] == [(None, 1, "move"), (1, 1, "move")]
            assert view.payloads.get("brand") == view.payloads.get("brand", 1) == {"tone": tenant}
            for query, place in (("STRASSE", "text"), ("first", "text"), ("Items", "slot"), ("produc", "label")):
                (match,) = view.templates.search(query)
                assert place in match.places, query
            assert view.payloads.put("brand", {"tone": "new"}).version == 2
        assert store.check() == []
