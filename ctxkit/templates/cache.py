"""Templates in memory: versions for ever, labels for as long as they are known to stand where they stood.

What a label means is checked by the tenant's epoch, one number in the database that grows with every change: one short
query a `ttl` covers all labels, and only after a change is a template read again. While the database cannot be reached
what is known is served on, `max_stale` seconds at the most; then there is an error, or the fallback that was declared.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, TypeGuard

from ctxkit.checking import check_number, check_whole
from ctxkit.errors import CtxkitError, NotFoundError, StorageError
from ctxkit.templates.registry import parse_reference
from ctxkit.templates.template import Template

if TYPE_CHECKING:
    from ctxkit.templates.registry import TemplateRegistry

__all__ = ["TemplateCache"]

_RETRY = 1.0  # seconds between attempts to reach a database that did not answer
_PATIENCE = 1.0  # seconds to wait for the epoch while there is something old to give
_WHOLE_HASH = 64


@dataclass(slots=True)
class _Entry:
    template: Template | None
    missing: NotFoundError | None
    fixed: bool  # a version by number or by its whole hash: it cannot change
    epoch: int
    used: bool = True  # since the cache was last full


class _Flight:
    """One question to the database that several threads wait for; who knows of a later change asks another one."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.done = threading.Event()
        self.entry: _Entry | None = None
        self.error: CtxkitError | None = None


class TemplateCache:
    """A registry's templates, read once and kept: a `get` of what is known costs no query and no lock.

    A version by number or by its whole hash is kept for ever, any other reference (a label, the newest, a shortened
    hash) until the epoch has moved. Changes made through the same store object are seen at once, with `listen` on
    PostgreSQL those of others too. Else they are seen within twice `ttl`: after `ttl` the epoch is asked for in the
    background while the known template is served; after twice that the answer is waited for. Of many threads that
    ask, one asks the database. A forked process may go on using it.

    Keys are the registry's own: one store, one tenant. A cache is made per tenant, never shared between two.

    Args:
        registry: of one store and tenant.
        ttl: seconds for which what labels mean is taken as known.
        max_stale: seconds beyond `ttl` for which it is still served while the database does not answer.
        fallbacks: by reference, a template, or the source of one, for when there is nothing else to give.
        max_templates: how many are kept; those not asked for lately go first.
        listen: be told of changes (PostgreSQL): one more connection and one thread.
        clock: seconds that only grow.

    Example:
        >>> from ctxkit import ContextEngine
        >>> engine = ContextEngine.open("sqlite://", embedder=None)
        >>> version = engine.templates.push("greet", "Hello {{name}}")
        >>> with TemplateCache(engine.templates) as cache:
        ...     cache.get("greet@1") is cache.get("greet@1")
        True
    """

    def __init__(
        self,
        registry: TemplateRegistry,
        *,
        ttl: float = 60.0,
        max_stale: float = 3600.0,
        fallbacks: Mapping[str, Template | str] | None = None,
        max_templates: int = 10_000,
        listen: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_number(ttl, "ttl", minimum=0.0)
        check_number(max_stale, "max_stale", minimum=0.0)
        check_whole(max_templates, "max_templates", minimum=1)
        self.registry = registry
        self.ttl = ttl
        self.max_stale = max_stale
        self._fallbacks = {
            reference: Template.parse(item, name=parse_reference(reference).name) if isinstance(item, str) else item
            for reference, item in (fallbacks or {}).items()
        }
        self._most = max_templates
        self._clock = clock
        self._stored = registry.store.templates
        self._entries: dict[str, _Entry] = {}
        self._flights: dict[str, _Flight] = {}
        self._lock = threading.Lock()
        self._epoch = -1  # none known yet
        self._checked = float("-inf")  # when the epoch was last seen
        self._fresh_until = float("-inf")
        self._changes = self._stored.changes
        self._generation = 0  # grows with every change that is known of: an older answer says nothing then
        self._asking: _Flight | None = None  # the question for the epoch that is under way
        self._retry_at = float("-inf")
        self._failure: StorageError | None = None  # of the last attempt, until one succeeds
        self._closed = threading.Event()
        self._is_listening = listen
        self._is_told = False  # of every change, since a connection listens
        self.loads = 0
        """How often a template was read from the database."""
        if listen:
            if registry.store.kind != "postgresql":
                raise StorageError("SQLite sends no notifications", remedy="Leave listen off; a short ttl is cheap.")
            self._start_listening()
        _CACHES.add(self)

    def get(self, reference: str) -> Template:
        """The template that a reference names. O(1) where it is known.

        Raises:
            NotFoundError: there is none, and no fallback.
            StorageError: the database does not answer, what is known is older than `ttl + max_stale`, and there is no
                fallback.
        """
        entry = self._entries.get(reference)
        if entry is not None:
            if entry.fixed:
                entry.used = True
                return entry.template  # type: ignore[return-value]
            if (
                entry.epoch == self._epoch
                and entry.template is not None
                and self._changes == self._stored.changes
                and self._clock() < self._fresh_until
            ):
                entry.used = True
                return entry.template
        return self._get(reference)

    async def aget(self, reference: str) -> Template:
        """`get`; only what has to be read runs in a thread."""
        entry = self._entries.get(reference)
        if entry is not None and entry.fixed and entry.template is not None:
            return entry.template
        return await asyncio.to_thread(self.get, reference)

    def invalidate(self) -> None:
        """Take nothing about labels as known any more: the next `get` asks the database."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        self._generation += 1
        self._fresh_until = self._retry_at = float("-inf")
        self._epoch = -1

    def close(self) -> None:
        """Stop listening. The cache still answers."""
        self._closed.set()

    def __enter__(self) -> TemplateCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------- what is not simple

    def _get(self, reference: str) -> Template:
        known = self._entries.get(reference)
        now = self._clock()
        if self._changes != self._stored.changes:
            changes = self._stored.changes
            self.invalidate()
            self._changes = changes  # last: nobody may take what was known before the change for fresh
        # What was known and has only grown old is served while the epoch is asked for; what is known to have changed
        # is not.
        stale_ok = known is not None and known.template is not None and known.epoch == self._epoch
        if now >= self._fresh_until:
            age = now - self._checked  # before asking: the answer may be there before the next line
            if stale_ok and self.ttl > 0 and age < self.ttl + self.max_stale:
                flight = self._ask(now, background=True)
                if flight is None or age < 2 * self.ttl:
                    return known.template  # type: ignore[union-attr,return-value]
                flight.done.wait(_PATIENCE)
            else:
                self._ask(now, background=False)
        known = self._entries.get(reference)
        if known is not None and (known.fixed or known.epoch == self._epoch) and self._is_bounded():
            return self._given(reference, known)
        return self._given(reference, self._load(reference, known))

    def _is_bounded(self) -> bool:
        return self._clock() - self._checked < self.ttl + self.max_stale or self._clock() < self._fresh_until

    def _given(self, reference: str, entry: _Entry) -> Template:
        if entry.template is not None:
            return entry.template
        if reference in self._fallbacks:
            return self._fallbacks[reference]
        missing = entry.missing or NotFoundError("there is no such template", subject=reference, remedy="Push it.")
        raise NotFoundError(missing.message, subject=missing.subject, remedy=missing.remedy)

    def _load(self, reference: str, known: _Entry | None) -> _Entry:
        with self._lock:
            flight = self._flights.get(reference)
            mine = flight is None or flight.generation != self._generation
            if flight is None or mine:
                flight = self._flights[reference] = _Flight(self._generation)
        if mine:
            try:
                if self._failure is not None and self._clock() < self._retry_at:
                    flight.error = self._failure
                else:
                    flight.entry = self._read(reference, flight.generation)
            except CtxkitError as error:
                flight.error = error
                if _is_outage(error):
                    self._failed(error)
            finally:
                with self._lock:
                    if self._flights.get(reference) is flight:
                        del self._flights[reference]
                flight.done.set()
        else:
            flight.done.wait()
        if flight.entry is not None:
            return flight.entry
        failure = flight.error or StorageError("a template could not be read", subject=reference, remedy="Try again.")
        if not _is_outage(failure):
            raise failure
        if (
            known is not None
            and known.template is not None
            and self._clock() - self._checked < self.ttl + self.max_stale
        ):
            return known
        if reference in self._fallbacks:
            return _Entry(self._fallbacks[reference], None, False, -1)
        if known is None:
            raise failure
        raise StorageError(
            f"the database does not answer, and what is known is older than {self.ttl + self.max_stale:g} seconds "
            f"({failure.message})",
            subject=reference,
            remedy="Bring the database back, raise max_stale, or declare a fallback.",
        ) from failure

    def _read(self, reference: str, generation: int) -> _Entry:
        wanted = parse_reference(reference)
        fixed = wanted.version is not None or (wanted.hash is not None and len(wanted.hash) == _WHOLE_HASH)
        # The epoch first: if somebody changes something in between, the entry counts as old, not as new.
        epoch = -1 if fixed else self._stored.epoch()
        self.loads += 1
        try:
            entry = _Entry(self.registry.get(wanted), None, fixed, epoch)
        except NotFoundError as error:
            entry = _Entry(None, error, False, self._stored.epoch() if fixed else epoch)
        now = self._clock()
        with self._lock:
            if not entry.fixed and entry.epoch >= self._epoch and generation == self._generation:
                self._seen(entry.epoch, now)
            if reference not in self._entries and len(self._entries) >= self._most:
                self._make_room()
            self._entries[reference] = entry
        return entry

    def _make_room(self) -> None:
        """Drop what was not asked for since the last time; half of all where everything was."""
        unused = [reference for reference, entry in self._entries.items() if not entry.used]
        for reference in unused or list(self._entries)[: (len(self._entries) + 1) // 2]:
            del self._entries[reference]
        for entry in self._entries.values():
            entry.used = False

    # ------------------------------------------------------------------------------------------------- the epoch

    def _seen(self, epoch: int, now: float) -> None:
        self._failure = None
        self._epoch = epoch
        self._checked = now
        self._fresh_until = now + (self.ttl if self._is_told or not self._is_listening else min(self.ttl, _RETRY))

    def _ask(self, now: float, *, background: bool) -> _Flight | None:
        """Ask for the epoch, once for all who want to know; None where the database is left alone for a moment.

        If there is no answer, what is known stays, as old as it is.
        """
        with self._lock:
            flight = self._asking
            mine = flight is None or flight.generation != self._generation
            if flight is None or mine:
                if now < self._retry_at:
                    return None
                flight = self._asking = _Flight(self._generation)
        if not mine:
            if not background:
                flight.done.wait()
        elif background:
            threading.Thread(target=self._answer, args=(flight,), name="ctxkit-templates-epoch", daemon=True).start()
        else:
            self._answer(flight)
        return flight

    def _answer(self, flight: _Flight) -> None:
        now = self._clock()
        try:
            epoch = self._stored.epoch()
            with self._lock:
                if flight.generation == self._generation:
                    self._seen(epoch, now)
        except StorageError as error:
            self._failed(error)
        finally:
            with self._lock:
                if self._asking is flight:
                    self._asking = None
            flight.done.set()

    def _failed(self, error: StorageError) -> None:
        self._failure = error
        self._retry_at = self._clock() + _RETRY

    def _start_listening(self) -> None:
        threading.Thread(target=self._listen, name="ctxkit-templates", daemon=True).start()

    def _after_fork(self) -> None:
        """No thread of the parent is here, and whoever held the lock will never let it go."""
        self._lock = threading.Lock()
        self._flights = {}
        self._asking = None
        self._fresh_until = float("-inf")
        self._is_told = False
        if not self._closed.is_set():
            self._closed = threading.Event()
            if self._is_listening:
                self._start_listening()

    def _listen(self) -> None:
        process = os.getpid()
        while not self._closed.is_set() and os.getpid() == process:
            try:
                # What was sent while nobody listened is not sent again: the first answer says that somebody does.
                missed = True
                for changed in self._stored.notifications(timeout=0.2):
                    if self._closed.is_set():
                        return
                    self._is_told = True
                    if changed or missed:
                        self.invalidate()
                    missed = False
            except Exception:  # whatever the driver raises: until somebody listens again the epoch is asked for
                self._is_told = False
                self.invalidate()
                self._closed.wait(_RETRY)


_CACHES: weakref.WeakSet[TemplateCache] = weakref.WeakSet()


def _after_fork() -> None:
    for cache in list(_CACHES):
        cache._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _is_outage(error: CtxkitError) -> TypeGuard[StorageError]:
    """Whether the database did not answer, rather than answer that there is nothing."""
    return isinstance(error, StorageError) and not isinstance(error, NotFoundError)
