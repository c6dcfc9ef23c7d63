"""A store of the fifth revision becomes one of the sixth: its dialogues are as they were."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, text

from ctxkit.messages import Message
from ctxkit.storage import Keep, Store
from ctxkit.storage.migrate import script_location


def test_dialogues_are_as_they_were(store_url: str) -> None:
    engine = create_engine(store_url)
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(script_location()))
        config.attributes["connection"] = connection
        command.upgrade(config, "0005")
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT set_config('ctxkit.tenant', 'default', true)"))
        for statement in (
            "INSERT INTO sessions VALUES ('default', 's', 3, '2026-01-01T00:00:00+00:00', '2026-01-02T00:00:00+00:00')",
            "INSERT INTO messages VALUES ('default', 's', 1, 'a', 'user', NULL, NULL, NULL, '[]', '\"one\"')",
            "INSERT INTO messages VALUES ('default', 's', 2, 'b', 'user', NULL, NULL, NULL, '[]', '\"two\"')",
            "INSERT INTO messages VALUES ('default', 's', 3, 'c', 'user', NULL, NULL, NULL, '[]', '\"three\"')",
        ):
            connection.execute(text(statement.replace(":", "\\:")))
    engine.dispose()
    with Store.open(store_url) as store:
        assert [message.text for message in store.sessions.messages("s")] == ["one", "two", "three"]
        (info,) = store.sessions.list()
        assert (info.message_count, info.last_sequence, info.parent, info.encrypted) == (3, 3, None, False)
        assert store.sessions.append("s", [Message("user", "four")])[0].sequence == 4
        assert store.sessions.branch("s", at="b").message_count == 2
        assert store.sessions.archive("s", keep=Keep(messages=1)).archived == 3
        assert store.check() == []
