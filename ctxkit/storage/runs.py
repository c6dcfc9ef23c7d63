"""Recorded prompts: what each was made of, in pieces by the hash of their content, so that it can be replayed.

A piece that many prompts have in common (a template, a past message, a chunk's text) is stored once. Pieces that no
prompt needs any more leave with the last prompt that needed them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, func

from ctxkit.documents import content_hash
from ctxkit.errors import ConfigError, NotFoundError, StorageError
from ctxkit.storage import tables
from ctxkit.storage.checks import checked_text, decoded, encoded
from ctxkit.storage.clock import moment, now
from ctxkit.storage.database import Database
from ctxkit.storage.records import RunInfo
from ctxkit.storage.tenancy import Scope

__all__ = ["Runs"]

_FINGERPRINT = re.compile(r"[0-9a-f]{8,64}\Z")
SHOWN = 200
"""Characters of the question that a list shows."""


class Runs:
    """The recorded prompts of one tenant: `store.runs`."""

    def __init__(self, database: Database, tenant: str) -> None:
        self._database = database
        self._tenant = tenant

    def put(
        self,
        fingerprint: str,
        content: Mapping[str, Any],
        pieces: Mapping[str, Any],
        *,
        session: str | None = None,
        template: str = "",
        question: str = "",
    ) -> bool:
        """Record a prompt with its pieces, whole or not at all; whether it was not recorded before.

        The same fingerprint is the same prompt: recorded again it only counts as newer for `prune`.

        Args:
            content: JSON; it names pieces by their hashes.
            pieces: JSON values by the SHA-256 of their canonical form.

        Raises:
            StorageError: something is not JSON, or a text in it holds NUL or a lone surrogate.
        """
        if not _FINGERPRINT.match(fingerprint) or len(fingerprint) != 64:
            raise ConfigError("not a fingerprint", subject=fingerprint[:80], remedy="Give the 64 digits of a SHA-256.")
        texts = {digest: encoded(value, "a piece of the prompt") for digest, value in pieces.items()}
        moved = now()
        row = {
            "fingerprint": fingerprint,
            "created_at": moved,
            "updated_at": moved,
            "session": session,
            "template": template,
            "question": checked_text(question, "the question")[:SHOWN],
            "content": encoded(content, "the prompt"),
        }

        def work(scope: Scope) -> bool:
            table = tables.runs
            if not scope.insert_missing(table, row):
                mine = table.c.fingerprint == fingerprint
                scope.execute(scope.update(table).where(mine).values(updated_at=moved))
                return False
            _hold(scope, texts)
            scope.insert(tables.run_blobs, [{"fingerprint": fingerprint, "hash": digest} for digest in sorted(texts)])
            return True

        return self._database.write(self._tenant, work)

    def get(self, fingerprint: str) -> tuple[RunInfo, dict[str, Any], dict[str, Any]]:
        """A recorded prompt and its pieces by hash, each checked against it.

        Args:
            fingerprint: or its beginning, 8 hex digits or more.

        Raises:
            NotFoundError: no recorded prompt has this fingerprint, or several begin so.
            StorageError: a piece is not what its hash says.
        """

        def work(scope: Scope) -> tuple[RunInfo, dict[str, Any], dict[str, Any]]:
            row = _find(scope, fingerprint)
            parts, blobs = tables.run_blobs, tables.blobs
            joined = parts.join(blobs, and_(blobs.c.tenant == parts.c.tenant, blobs.c.hash == parts.c.hash))
            found = scope.select(blobs.c.hash, blobs.c.content, source=joined)
            mine = parts.c.fingerprint == row.fingerprint
            pieces = {piece.hash: decoded(piece.content) for piece in scope.all(found.where(mine))}
            return _info(row), decoded(row.content), pieces

        info, content, pieces = self._database.read(self._tenant, work)
        for digest, value in pieces.items():
            if content_hash(value) != digest:
                raise StorageError(
                    f"the piece {digest[:16]} of the prompt is not what it was",
                    subject=info.fingerprint,
                    remedy="Restore a backup of the store.",
                )
        return info, content, pieces

    def list(self, *, session: str | None = None, limit: int = 100) -> list[RunInfo]:
        """The recorded prompts, the newest first; only those of a session, when one is given."""
        if limit < 1:
            raise ConfigError(f"the limit is {limit}", remedy="Ask for 1 or more.")
        table = tables.runs
        columns = [column for column in table.c if column.name != "content"]

        def work(scope: Scope) -> list[RunInfo]:
            statement = scope.select(*columns).order_by(table.c.updated_at.desc(), table.c.fingerprint).limit(limit)
            if session is not None:
                statement = statement.where(table.c.session == checked_text(session, "the session"))
            return [_info(row) for row in scope.all(statement)]

        return self._database.read(self._tenant, work)

    def prune(self, *, before: datetime | None = None, session: str | None = None) -> int:
        """Forget prompts that were last recorded before a time, or that are of a session, and what only they needed.

        Both given, both must hold. How many prompts are forgotten.
        """
        if before is None and session is None:
            raise ConfigError("what is to be forgotten is not said", remedy="Give a time, a session or both.")
        if before is not None and before.tzinfo is None:
            raise ConfigError("the time has no zone", subject=before.isoformat(), remedy="Give an aware datetime.")
        table = tables.runs
        wanted: list[ColumnElement[bool]] = []
        if before is not None:
            wanted.append(table.c.updated_at < _utc(before))
        if session is not None:
            wanted.append(table.c.session == checked_text(session, "the session"))

        def work(scope: Scope) -> int:
            gone = scope.execute(scope.delete(table).where(*wanted)).rowcount
            _sweep(scope)
            return int(gone)

        return self._database.write(self._tenant, work)

    def statistics(self) -> dict[str, int]:
        """How many prompts and pieces there are, and the pieces' characters."""
        runs, blobs = tables.runs, tables.blobs

        def work(scope: Scope) -> dict[str, int]:
            size = func.coalesce(func.sum(func.length(blobs.c.content)), 0)
            pieces = scope.first(scope.select(func.count(), size, source=blobs))
            count = scope.first(scope.select(func.count(), source=runs))
            return {"runs": int(count[0]), "pieces": int(pieces[0]), "characters": int(pieces[1])}

        return self._database.read(self._tenant, work)


def _hold(scope: Scope, texts: Mapping[str, str]) -> None:
    """Store the pieces that are not there, and keep those that are until the transaction ends."""
    table = tables.blobs
    wanted = sorted(texts)
    while True:
        statement = scope.select(table.c.hash).where(scope.among(table.c.hash, wanted)).order_by(table.c.hash)
        if scope.kind == "postgresql":
            # Many may hold a piece at once; `prune` waits for all of them.
            statement = statement.with_for_update(read=True, key_share=True)
        held = {row.hash for row in scope.all(statement)}
        missing = [digest for digest in wanted if digest not in held]
        if not missing:
            return
        for digest in missing:
            scope.insert_missing(table, {"hash": digest, "content": texts[digest]})


def _sweep(scope: Scope) -> None:
    """Delete the pieces that no prompt needs."""
    blobs, parts = tables.blobs, tables.run_blobs
    needed = scope.select(parts.c.hash).where(parts.c.hash == blobs.c.hash).correlate(blobs).exists()
    # A writer that holds a piece is waited for; then a second look, at what it has written meanwhile.
    loose = scope.all(scope.locked(scope.select(blobs.c.hash).where(~needed).order_by(blobs.c.hash)))
    mine = scope.among(blobs.c.hash, [row.hash for row in loose])
    scope.execute(scope.delete(blobs).where(mine, ~needed))


def _find(scope: Scope, fingerprint: str) -> Any:
    table = tables.runs
    rows: Sequence[Any] = ()
    if _FINGERPRINT.match(fingerprint):
        # Hexadecimal digits sort below the letter g.
        between = and_(table.c.fingerprint >= fingerprint, table.c.fingerprint < f"{fingerprint}g")
        rows = scope.all(scope.select(table).where(between).limit(2))
    if len(rows) == 1:
        return rows[0]
    raise NotFoundError(
        "several recorded prompts have a fingerprint that begins so" if rows else "no such prompt is recorded",
        subject=ascii(fingerprint)[1:-1][:80],
        remedy="Give more of its digits."
        if rows
        else "Give 8 digits of its fingerprint or more; record=True (--record) records a prompt.",
    )


def _utc(moment: datetime) -> str:
    from datetime import UTC

    try:
        return moment.astimezone(UTC).isoformat(timespec="microseconds")
    except OverflowError as error:  # the first and the last day, seen from another zone
        raise ConfigError(
            "the time is out of range", subject=moment.isoformat(), remedy="Give a time between the years 2 and 9998."
        ) from error


def _info(row: Any) -> RunInfo:
    return RunInfo(
        row.fingerprint, moment(row.created_at), moment(row.updated_at), row.session, row.template, row.question
    )
