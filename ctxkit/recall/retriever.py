"""`HistoryRetriever`: finds the turns of a dialogue's past that bear on a question."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.checking import check_able, check_kind, check_whole
from ctxkit.documents import Candidate, Chunk, Query, Span
from ctxkit.embedded import embedded
from ctxkit.errors import ConfigError, NotFoundError, StorageError
from ctxkit.messages import Message
from ctxkit.protocols import Embedder
from ctxkit.recall.dates import DateRange, dates_in
from ctxkit.recall.entries import Entry
from ctxkit.recall.index import PastIndex
from ctxkit.recall.lexicon import Lexicon
from ctxkit.recall.ranking import Ranked, Ranking
from ctxkit.retrieval import BM25, Analyzer
from ctxkit.stage_inputs import check_asked

if TYPE_CHECKING:
    from ctxkit.storage import Store

__all__ = ["HistoryRetriever"]

_REMEMBERED = 16
"""Dialogues that are held in memory."""


@dataclass(eq=False)
class HistoryRetriever:
    """Finds what was said in the past of a dialogue: by words, by meaning, by who said it and when.

    Dates in the question ("last May", "two weeks ago", 去年五月) are counted from `query.now`, else from the newest
    message, never from a clock, and entries far from them fall behind. What is found is cited by message: a candidate's
    chunk has the message's id as its id and its document's, its text is what the messages of the unit say.

    The index follows the session: it is made when it is first asked for and takes in what was appended since, whoever
    appended it; archived, pruned and deleted messages are gone from it, and a branch sees its own past. Vectors are
    kept in the store beside their messages, so that each message is embedded once; nothing else is written. Of
    encrypted messages no vector is stored, unless `store_encrypted` says to: they are embedded anew by each process.

    Args:
        store: whose sessions.
        embedder: for meaning; None for words alone.
        ranking: how the signals make one score.
        pause: a longer one between two messages begins another sitting.
        bm25: the lexical signal's parameters; turns differ in length less than documents do.
        analyzer: turns texts into terms; choose the stemmer's language here.
        store_encrypted: keep vectors of encrypted messages, in the clear. A vector tells much of what a text says.

    Raises:
        ConfigError: a parameter is wrong, `k` is not positive, or the query is another tenant's or of no session.
        NotFoundError: there is no such session.
        StorageError: a message is encrypted and its key is missing or another one.

    Complexity: a question costs the entries of the session, and the first one to embed those that have no vector.

    Example:
        >>> from ctxkit.storage import Store
        >>> store = Store.open("sqlite://")
        >>> _ = store.sessions.append("alice", [Message("user", "My cat is called Minka."), Message("user", "Hm.")])
        >>> found = HistoryRetriever(store, None).retrieve(Query("What is the name of my cat?", session="alice"), 1)
        >>> found[0].chunk.id, found[0].text
        ('alice:1', 'My cat is called Minka.')
    """

    store: Store
    embedder: Embedder | None
    _: KW_ONLY
    ranking: Ranking = field(default_factory=Ranking)
    pause: timedelta = timedelta(hours=4)
    bm25: BM25 = field(default_factory=lambda: BM25(b=0.3))
    analyzer: Analyzer = field(default_factory=Analyzer)
    store_encrypted: bool = False
    _indexes: OrderedDict[str | None, PastIndex] = field(init=False, repr=False, default_factory=OrderedDict)
    _lock: threading.RLock = field(init=False, repr=False, default_factory=threading.RLock)

    def __post_init__(self) -> None:
        if self.embedder is not None:
            check_able(self.embedder, "embed", "embedder", remedy="Give an embedder, or None.")
        check_kind(self.ranking, Ranking, "ranking", remedy="Give a Ranking.")
        check_kind(self.pause, timedelta, "pause", remedy="Give a timedelta, such as timedelta(hours=4).")

    def retrieve(self, query: Query, k: int) -> list[Candidate]:
        """The best `k` units of the past of `query.session`, best first; nothing for a blank question."""
        check_asked(query)
        check_whole(k, "k", minimum=1)
        if query.tenant != self.store.tenant:
            raise ConfigError(
                f"a query of tenant {query.tenant!r} reached the store of tenant {self.store.tenant!r}",
                remedy="Use a retriever over store.for_tenant(query.tenant).",
            )
        if query.session is None:
            raise ConfigError("the query is of no session", remedy="Give Query(…, session=…), or use search().")
        if query.filters:
            raise ConfigError("a dialogue has no filters", remedy="Leave them out of the query.")
        if not query.text.strip():
            return []
        messages = self.store.sessions.messages(query.session)
        if not messages:
            self.store.sessions.info(query.session)
        found, ranked = self.rank(query.session, messages, query.text, query.now)
        return [candidate(query.session, found[at], ranked, at) for at in ranked.order()[:k].tolist()]

    def update(self, session: str) -> int:
        """Bring the index of a session up to date now, and not at the next question; how many entries it has."""
        messages = self.store.sessions.messages(session)
        if not messages:
            self.store.sessions.info(session)
        with self._lock:
            return len(self._index(session, messages).entries)

    def rank(
        self, session: str | None, messages: Sequence[Message], question: str, now: datetime | None
    ) -> tuple[list[Entry], Ranked]:
        """The entries of these messages and what each is worth for a question.

        Args:
            session: whose messages they are, as the store gave them; None for messages that are in no store.
            now: what dates in the question count from; the newest message's time without it.
        """
        with self._lock:
            index = self._index(session, messages)
            found = list(index.entries)
            cosines = index.cosines(self._vector(question)) if found else None
            return found, self._ranked(question, found, index.lexicon, cosines, messages, now)

    def search(
        self, question: str, k: int, *, sessions: Sequence[str] | None = None, now: datetime | None = None
    ) -> list[Candidate]:
        """The best `k` units of several sessions, by default of all that the tenant has, in one ranking.

        What sessions share stands once. Linear in their messages.

        Raises:
            ConfigError: `k` is not positive, or what is given is of another kind.
            NotFoundError: there is no session of a name in `sessions`.
        """
        check_whole(k, "k", minimum=1)
        check_kind(question, str, "the question", remedy="Give a text.")
        if sessions is None:
            names = [info.id for info in self.store.sessions.list()]
        else:
            check_kind(sessions, (list, tuple), "sessions", remedy="Give a list of sessions.")
            names = [self.store.sessions.info(session).id for session in dict.fromkeys(sessions)]
        if not question.strip():
            return []
        with self._lock:
            vector = self._vector(question)
            lexicon, past = Lexicon(self.analyzer, self.bm25), list[Entry]()
            owners, cosines, stamps = list[str](), list[float](), list[Message]()
            seen: set[tuple[str, str]] = set()
            for name in names:
                messages = self.store.sessions.messages(name)
                index = self._index(name, messages)
                stamps += messages
                near = index.cosines(vector)
                first = past[-1].sitting + 1 if past else 0
                for at, entry in enumerate(index.entries):
                    if (entry.id, entry.digest) in seen:
                        continue
                    seen.add((entry.id, entry.digest))
                    past.append(replace(entry, sitting=first + entry.sitting))
                    lexicon.add(entry.indexed)
                    owners.append(name)
                    if near is not None:
                        cosines.append(float(near[at]))
            ranked = self._ranked(question, past, lexicon, np.array(cosines) if cosines else None, stamps, now)
        return [candidate(owners[at], past[at], ranked, at) for at in ranked.order()[:k].tolist()]

    def _vector(self, question: str) -> Any:
        return None if self.embedder is None else embedded(self.embedder, [question])[0]

    def _ranked(
        self,
        question: str,
        past: Sequence[Entry],
        lexicon: Lexicon,
        cosines: Any,
        messages: Sequence[Message],
        now: datetime | None,
    ) -> Ranked:
        check_kind(now, (datetime, type(None)), "now", remedy="Give a datetime, or None.")
        moment = now or max((one.created_at for one in messages if one.created_at), default=None)
        dates: tuple[DateRange, ...] = dates_in(question, moment) if moment is not None else ()
        return self.ranking.rank(question, past, lexicon, cosines=cosines, dates=dates, zone=now)

    def _index(self, session: str | None, messages: Sequence[Message]) -> PastIndex:
        index = self._indexes.pop(session, None) or PastIndex(
            self.embedder, analyzer=self.analyzer, weights=self.bm25, pause=self.pause
        )
        fingerprint = "" if self.embedder is None else self.embedder.fingerprint

        def known() -> dict[int, Any]:
            return {} if session is None else dict(self.store.sessions.vectors(session, fingerprint))

        def keep(made: dict[int, Any]) -> None:
            if session is not None and made:
                # A store that cannot be written costs the next process some time and nobody an answer.
                with contextlib.suppress(StorageError, NotFoundError):
                    self.store.sessions.put_vectors(session, fingerprint, made, encrypted=self.store_encrypted)

        # An index comes back when it has followed: one that an error or an interrupt left half way is made anew.
        index.follow(messages, known, keep)
        self._indexes[session] = index
        while len(self._indexes) > _REMEMBERED:
            self._indexes.popitem(last=False)
        return index


def candidate(session: str, entry: Entry, ranked: Ranked, at: int) -> Candidate:
    """A ranked entry as a candidate, cited by its first message."""
    first = entry.messages[0]
    chunk = Chunk(
        id=entry.id,
        document_id=entry.id,
        span=Span(0, len(entry.body)),
        text=entry.body,
        token_count=max(1, len(entry.body) // 4),
        metadata={
            "source": f"{session}/{entry.id}",
            "session": session,
            "role": entry.role,
            "name": first.name,
            "sequence": entry.sequence,
            "message_ids": list(entry.ids),
            "created_at": first.created_at.isoformat() if first.created_at else None,
        },
    )
    scores = {"lexical": float(ranked.lexical[at]), "time": float(ranked.time[at]), "final": float(ranked.final[at])}
    if ranked.dense is not None:
        scores["dense"] = float(ranked.dense[at])
    return replace(Candidate(chunk, scores), via=reasons(ranked, at))


def reasons(ranked: Ranked, at: int) -> tuple[str, ...]:
    """Through whom and which days an entry came, for `explain`."""
    near = [one.text for one in ranked.dates] if ranked.dates and ranked.time[at] >= 0.999 else []
    return ((ranked.speaker,) if ranked.own[at] else ()) + tuple(near)
