"""Dialogues: messages in the order they were appended, numbered without gaps, each stored once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from ctxkit.checking import check_kind, check_whole
from ctxkit.errors import ConfigError
from ctxkit.messages import Message
from ctxkit.stage_inputs import check_message
from ctxkit.storage import session_branches, session_retention, tables
from ctxkit.storage.checks import checked_name, checked_text
from ctxkit.storage.clock import moment
from ctxkit.storage.database import Database
from ctxkit.storage.encryption import Encryption
from ctxkit.storage.session_appending import append
from ctxkit.storage.session_records import Keep, Retained, SessionInfo, SessionMatch
from ctxkit.storage.session_rewinding import rewind
from ctxkit.storage.session_rows import Codec, Row, to_row
from ctxkit.storage.session_search import search
from ctxkit.storage.session_vectors import Vectors, read_vectors, write_vectors
from ctxkit.storage.session_views import existing, find, read
from ctxkit.storage.tenancy import Scope

__all__ = ["Sessions"]


class Sessions:
    """The dialogues of one tenant: `store.sessions`. Each method has an async twin: `aappend`, `amessages`, …"""

    def __init__(self, database: Database, tenant: str, encryption: Encryption | None = None) -> None:
        self._database = database
        self._tenant = tenant
        self._codec = Codec(tenant, encryption)

    def append(self, session: str, messages: Sequence[Message]) -> list[Message]:
        """Append messages, all or none, and give them back as they are stored.

        Sequence numbers begin at 1 and have no gaps, however many processes append at once; they give the order,
        whatever clocks say. A message without an id gets `{session}:{sequence}`. A message whose id is stored already,
        archived ones too, changes nothing if the content is the same, so that a client may safely try again.

        Raises:
            ConflictError: an id is stored already with another content.
            StorageError: a text holds NUL or a lone surrogate, a part's data is not JSON, or the session is encrypted
                and the store was opened without a key.
        """
        given = self._checked(session, messages)
        codec = self._codec
        return self._database.write(self._tenant, lambda scope: append(scope, codec, session, given)) if given else []

    def check(self, session: str, messages: Sequence[Message] = ()) -> None:
        """Raise what `append` would raise for this name and these messages, and write nothing."""
        self._checked(session, messages)

    def _checked(self, session: str, messages: Sequence[Message]) -> list[tuple[Message, Row]]:
        checked_name(session, "the session")
        for message in messages:
            check_message(message)
        return [
            (message, to_row(message, f"message {number} for {session[:60]!r}"))
            for number, message in enumerate(messages, 1)
        ]

    def messages(self, session: str, *, last: int | None = None, archived: bool = False) -> list[Message]:
        """The messages in order, or only the `last` ones; none for a session that does not exist.

        Args:
            last: only the newest ones, so many.
            archived: those that were archived too.

        Raises:
            StorageError: a message is encrypted and its key is missing or another one.
        """
        checked_text(session, "the session")
        if last is not None:
            check_whole(last, "last", minimum=0, remedy="Ask for 0 or more messages.")

        def work(scope: Scope) -> list[Message]:
            view = find(scope, session)
            if view is None or last == 0:
                return []
            if archived:
                rows = read(scope, view, view.existing, archived=True)
                return [self._codec.message(row) for row in rows[-last if last else 0 :]]
            rows = read(scope, view, view.active if last is None else view.newest(last))
            return [self._codec.message(row) for row in rows]

        return self._database.read(self._tenant, work)

    def branch(self, session: str, *, at: int | str, name: str | None = None) -> SessionInfo:
        """Make a session that shares the past of this one up to the message `at`, its id or its sequence number.

        Nothing is copied, and the original never changes with it. Numbers go on from `at`; with 0 it begins empty.

        Args:
            at: the last message that both have.
            name: its id; `{session}~1`, `~2` … without one.

        Raises:
            NotFoundError: there is no such session or message, or it is archived.
            ConflictError: there is a session of this name.
        """
        checked_text(session, "the session")
        _check_place(at)

        def work(scope: Scope) -> SessionInfo:
            view = existing(scope, session, lock=True)
            made = session_branches.branch(scope, view, session_branches.locate(scope, view, at), name)
            return _info(scope, made)

        return self._database.write(self._tenant, work)

    def edit(self, session: str, message: int | str, new: Message, *, name: str | None = None) -> SessionInfo:
        """Make a branch on which `new` stands in place of a message, and nothing behind it.

        The original stays as it is; `replaces` of the branch says which message was edited.

        Raises:
            NotFoundError: there is no such session or message, or it is archived.
            ConflictError: there is a session of this name, or the past has a message of the new one's id.
        """
        checked_text(session, "the session")
        _check_place(message)
        ((_, row),) = self._checked(session, [new])

        def work(scope: Scope) -> SessionInfo:
            view = existing(scope, session, lock=True)
            sequence = session_branches.locate(scope, view, message, inside=True)
            table = tables.messages
            there = (table.c.session_id == view.owner(sequence)) & (table.c.sequence == sequence)
            (replaced,) = scope.first(scope.select(table.c.id).where(there))
            made = session_branches.branch(scope, view, sequence - 1, name, replaced)
            append(scope, self._codec, made, [(new, row)])
            return _info(scope, made)

        return self._database.write(self._tenant, work)

    def rewind(
        self, session: str, count: int, *, messages: Sequence[Message] = (), expected: int | None = None
    ) -> list[Message]:
        """Take back the newest `count` messages, put others in their place, all in one; what was taken back.

        Numbers go on from what is left. Taking back more than there are takes all.

        Args:
            messages: appended in place of what went, as `append` does it.
            expected: the number of the newest message that the caller has seen, 0 for none.

        Raises:
            ConflictError: the newest message has another number than `expected`.
            ProtectedError: a branch shares some of the messages, or archived ones stand behind them.
        """
        check_whole(count, "count", minimum=0)
        given = self._checked(session, messages)

        def work(scope: Scope) -> list[Message]:
            return rewind(scope, self._codec, session, count, given, expected)

        return self._database.write(self._tenant, work)

    def archive(self, session: str, *, keep: Keep, now: datetime | None = None) -> Retained:
        """Move what is not to be kept out of the dialogue, into the archive: `messages(archived=True)` still gives it.

        Args:
            keep: what stays in the dialogue; whole units alone leave it.
            now: what ages count from; the clock by default.

        Raises:
            NotFoundError: there is no such session.
        """
        return self._retain(session, keep, now, archive=True)

    def prune(self, session: str, *, keep: Keep, now: datetime | None = None) -> Retained:
        """Delete what is not to be kept, from the dialogue and from its archive. Like `archive` in all else."""
        return self._retain(session, keep, now, archive=False)

    def _retain(self, session: str, keep: Keep, now: datetime | None, *, archive: bool) -> Retained:
        checked_text(session, "the session")
        check_kind(keep, Keep, "keep", remedy="Give Keep(messages=…), from ctxkit.storage.")
        if now is not None and now.tzinfo is None:
            raise ConfigError("now has no time zone", remedy="Give an aware datetime.")
        at = now or datetime.now(UTC)
        return self._database.write(
            self._tenant,
            lambda scope: session_retention.retain(scope, self._codec, session, keep, at, archive=archive),
        )

    def encrypt(self, session: str) -> int:
        """Encrypt the session's own messages with the current key, whatever they are encrypted with; how many changed.

        Raises:
            NotFoundError: there is no such session.
            ConfigError: the store was opened without a key.
            StorageError: the key of a message is missing.
        """
        checked_text(session, "the session")
        encryption = self._codec.encryption
        if encryption is None:
            raise ConfigError(
                "the store was opened without a key", remedy="Open it with Store.open(url, encryption=…)."
            )

        def work(scope: Scope) -> int:
            existing(scope, session, lock=True)
            vectors = tables.message_vectors  # a vector tells much of what a text says
            scope.execute(scope.delete(vectors).where(vectors.c.session_id == session))
            changed = 0
            for table in (tables.messages, tables.archived_messages):
                for found in scope.all(scope.select(*table.c).where(table.c.session_id == session)):
                    if found.key_id == encryption.current:
                        continue
                    row = self._codec.closed(self._codec.opened(found))
                    values = {name: row[name] for name in ("content", "tool_calls", "key_id")}
                    place = (table.c.session_id == session) & (table.c.sequence == found.sequence)
                    scope.execute(scope.update(table).where(place).values(values))
                    changed += 1
            scope.execute(scope.update(tables.sessions).where(tables.sessions.c.id == session).values(encrypted=1))
            return changed

        return self._database.write(self._tenant, work)

    def delete(self, session: str, *, branches: bool = False) -> int:
        """Delete a session with its archive; how many messages are gone. 0 where there is none.

        Raises:
            ProtectedError: branches share its messages, and `branches` does not say to delete them too.
        """
        checked_text(session, "the session")
        return self._database.write(
            self._tenant, lambda scope: session_branches.delete(scope, session, branches=branches)
        )

    def info(self, session: str) -> SessionInfo:
        """What is known of a session. Raises `NotFoundError` where there is none."""
        checked_text(session, "the session")

        def work(scope: Scope) -> SessionInfo:
            existing(scope, session)
            return _info(scope, session)

        return self._database.read(self._tenant, work)

    def search(self, text: str, *, session: str | None = None, limit: int = 20) -> list[SessionMatch]:
        """The newest messages that hold every word of a text, in whatever case; the last changed sessions first.

        Words are found inside longer ones. What is archived is not searched. Encrypted messages are decrypted to be
        looked at. Linear in the characters of the tenant's messages, until there are `limit` matches.

        Args:
            session: look only there, into its shared past too.

        Raises:
            ConfigError: there is no word, or `limit` is below 1.
            StorageError: a message is encrypted and its key is missing or another one.
        """
        check_kind(text, str, "the text", remedy="Give the words to look for.")
        check_whole(limit, "limit", minimum=1)
        words = text.casefold().split()
        if not words:
            raise ConfigError("there is nothing to look for", remedy="Give at least one word.")
        if session is not None:
            checked_text(session, "the session")
        return self._database.read(self._tenant, lambda scope: search(scope, self._codec, words, session, limit))

    def vectors(self, session: str, fingerprint: str) -> Vectors:
        """The stored embeddings of an embedder, by message number: the digest of what was embedded, and the vector.

        Of the messages that `messages()` gives, shared ones included; none for a session that does not exist.
        """
        checked_text(session, "the session")
        return self._database.read(self._tenant, lambda scope: read_vectors(scope, session, fingerprint))

    def put_vectors(self, session: str, fingerprint: str, given: Vectors, *, encrypted: bool = False) -> int:
        """Keep embeddings beside their messages, with which they are archived, pruned and deleted; how many.

        Those of messages that are gone are left out, and so are those of encrypted messages, since a vector tells much
        of what a text says, unless `encrypted` says to keep them in the clear.

        Raises:
            StorageError: a vector is not finite, or they differ in dimension.
        """
        checked_text(session, "the session")
        checked_name(fingerprint, "the fingerprint")
        return self._database.write(
            self._tenant, lambda scope: write_vectors(scope, session, fingerprint, given, encrypted=encrypted)
        )

    # Async twins: both drivers are synchronous, so the work is done in a thread; what has begun ends.

    async def aappend(self, session: str, messages: Sequence[Message]) -> list[Message]:
        return await asyncio.to_thread(self.append, session, messages)

    async def amessages(self, session: str, *, last: int | None = None, archived: bool = False) -> list[Message]:
        return await asyncio.to_thread(self.messages, session, last=last, archived=archived)

    async def abranch(self, session: str, *, at: int | str, name: str | None = None) -> SessionInfo:
        return await asyncio.to_thread(self.branch, session, at=at, name=name)

    async def aedit(self, session: str, message: int | str, new: Message, *, name: str | None = None) -> SessionInfo:
        return await asyncio.to_thread(self.edit, session, message, new, name=name)

    async def arewind(
        self, session: str, count: int, *, messages: Sequence[Message] = (), expected: int | None = None
    ) -> list[Message]:
        return await asyncio.to_thread(self.rewind, session, count, messages=messages, expected=expected)

    async def aarchive(self, session: str, *, keep: Keep, now: datetime | None = None) -> Retained:
        return await asyncio.to_thread(self.archive, session, keep=keep, now=now)

    async def aprune(self, session: str, *, keep: Keep, now: datetime | None = None) -> Retained:
        return await asyncio.to_thread(self.prune, session, keep=keep, now=now)

    async def aencrypt(self, session: str) -> int:
        return await asyncio.to_thread(self.encrypt, session)

    async def adelete(self, session: str, *, branches: bool = False) -> int:
        return await asyncio.to_thread(self.delete, session, branches=branches)

    async def ainfo(self, session: str) -> SessionInfo:
        return await asyncio.to_thread(self.info, session)

    async def alist(self) -> list[SessionInfo]:
        return await asyncio.to_thread(self.list)

    async def asearch(self, text: str, *, session: str | None = None, limit: int = 20) -> list[SessionMatch]:
        return await asyncio.to_thread(self.search, text, session=session, limit=limit)

    def list(self) -> list[SessionInfo]:
        """The sessions, by id."""
        return self._database.read(self._tenant, _infos)


def _check_place(at: int | str) -> None:
    if isinstance(at, bool) or not isinstance(at, int | str):
        raise ConfigError(f"at is {at!r:.60}", remedy="Give a message's id, or its sequence number.")
    if isinstance(at, str):
        checked_text(at, "the message's id")


def _infos(scope: Scope, session: str | None = None) -> list[SessionInfo]:
    head, links = tables.sessions, tables.session_branches
    joined = head.outerjoin(links, (links.c.tenant == head.c.tenant) & (links.c.session_id == head.c.id))
    statement = scope.select(*head.c, links.c.parent, links.c.replaces, source=joined)
    if session is not None:
        statement = statement.where(head.c.id == session)
    return [
        SessionInfo(
            row.id,
            row.last_sequence - row.archived_through + min(row.pinned, row.archived_through),
            moment(row.created_at),
            moment(row.updated_at),
            last_sequence=row.last_sequence,
            parent=row.parent,
            fork=row.fork,
            replaces=row.replaces,
            archived_through=row.archived_through,
            deleted_through=row.deleted_through,
            encrypted=bool(row.encrypted),
        )
        for row in scope.all(statement.order_by(head.c.id))
    ]


def _info(scope: Scope, session: str) -> SessionInfo:
    return _infos(scope, session)[0]
