"""The cache: fresh as declared, bounded in age and size, one read for many, and no query for what is known."""

import os
import signal
import threading
import time

import pytest

from ctxkit import ContextEngine
from ctxkit.errors import ConfigError, NotFoundError, StorageError
from ctxkit.storage import Store
from ctxkit.templates import Template, TemplateRegistry
from ctxkit.templates.cache import TemplateCache, _Flight
from tests.timing import slowness


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def url(tmp_path):
    address = f"sqlite:///{tmp_path}/store.db"
    with ContextEngine.open(address, embedder=None) as engine:
        engine.templates.push("a", "one")
        engine.templates.label("a", "production", 1)
    return address


@pytest.fixture
def store(url):
    with Store.open(url) as opened:
        yield opened


@pytest.fixture
def other(url):
    """Another process's registry, as far as the cache can tell."""
    with Store.open(url) as opened:
        yield TemplateRegistry(opened)


def text(template: Template) -> str:
    return template.messages[0].content


def until(condition, seconds=60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_versions_are_read_once_and_kept_for_ever(store, other):
    clock = Clock()
    cache = TemplateCache(TemplateRegistry(store), ttl=1, max_stale=1, clock=clock)
    first = cache.get("a@1")
    whole = f"a@sha256:{first.hash}"
    assert cache.get(whole).hash == first.hash
    other.push("a", "two")
    clock.now += 1e9
    store.close()
    assert cache.get("a@1") is first
    assert cache.get(whole).hash == first.hash
    assert cache.loads == 2


def test_a_label_of_others_is_seen_after_the_ttl(store, other):
    clock = Clock()
    cache = TemplateCache(TemplateRegistry(store), ttl=10, clock=clock)
    assert text(cache.get("a@production")) == text(cache.get("a")) == "one"
    other.push("a", "two")
    other.label("a", "production", 2)
    assert text(cache.get("a@production")) == "one"
    clock.now += 11
    assert text(cache.get("a@production")) == "one"  # the known one, while the epoch is asked for
    until(lambda: text(cache.get("a@production")) == "two")
    assert text(cache.get("a")) == "two"


def test_ones_own_changes_are_seen_at_once(store):
    registry = TemplateRegistry(store)
    cache = TemplateCache(registry, ttl=1e6)
    assert text(cache.get("a@production")) == "one"
    registry.push("a", "two")
    registry.label("a", "production", 2)
    assert (text(cache.get("a@production")), text(cache.get("a"))) == ("two", "two")
    registry.rollback("a", "production")
    assert text(cache.get("a@production")) == "one"
    registry.archive("a@2")
    assert text(cache.get("a")) == "one"


def test_what_has_not_changed_is_not_read_again(store):
    clock = Clock()
    cache = TemplateCache(TemplateRegistry(store), ttl=10, clock=clock)
    for _ in range(50):
        cache.get("a@production")
        cache.get("a")
        clock.now += 11
        cache.invalidate()
    assert cache.loads == 2


def test_stale_is_bounded_then_an_error_or_the_fallback(store):
    clock = Clock()
    cache = TemplateCache(
        TemplateRegistry(store), ttl=10, max_stale=100, clock=clock, fallbacks={"a@staging": "fallback"}
    )
    plain = cache.get("a@production")
    declared = cache.get("a@staging")
    assert text(declared) == "fallback"  # the label does not exist, and a fallback is declared
    store.close()
    clock.now += 50
    assert cache.get("a@production") is plain
    assert cache.get("a@production") is plain
    clock.now += 59.9
    assert cache.get("a@production") is plain
    clock.now += 0.2
    with pytest.raises(StorageError, match="older than 110 seconds"):
        cache.get("a@production")
    assert text(cache.get("a@staging")) == "fallback"
    with pytest.raises(StorageError, match="closed"):
        cache.get("never@seen")


def test_it_recovers_when_the_database_does(url):
    clock = Clock()
    with Store.open(url) as store:
        cache = TemplateCache(TemplateRegistry(store), ttl=10, max_stale=10, clock=clock)
        cache.get("a@production")
    clock.now += 21
    with pytest.raises(StorageError):
        cache.get("a@production")
    store._database._closed = False
    clock.now += 2
    assert text(cache.get("a@production")) == "one"


def test_what_is_not_there_is_remembered_until_something_changes(store, other):
    clock = Clock()
    cache = TemplateCache(TemplateRegistry(store), ttl=10, clock=clock)
    for _ in range(5):
        with pytest.raises(NotFoundError):
            cache.get("a@staging")
    assert cache.loads == 1
    other.label("a", "staging", 1)
    clock.now += 11
    assert text(cache.get("a@staging")) == "one"


def test_many_threads_make_one_read(store):
    cache = TemplateCache(TemplateRegistry(store))
    barrier = threading.Barrier(16)
    found = []

    def ask() -> None:
        barrier.wait()
        found.append(cache.get("a@production"))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 16
    assert len({id(template) for template in found}) == cache.loads
    assert cache.loads <= 2  # a thread that comes after the first read has ended may find it not stored yet


def test_many_threads_ask_for_the_epoch_once(store):
    cache = TemplateCache(TemplateRegistry(store))
    cache.get("a@production")
    asked, epoch = [], store.templates.epoch

    def slow() -> int:
        asked.append(1)
        time.sleep(0.2)
        return epoch()

    store.templates.epoch = slow
    cache.invalidate()
    threads = [threading.Thread(target=cache.get, args=("a@production",)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(asked) <= 2  # the epoch alone, and before the read that follows


def test_an_answer_from_before_a_change_is_not_taken_for_one_after_it(store, other):
    cache = TemplateCache(TemplateRegistry(store), ttl=1e6)
    cache.get("a@production")
    other.push("a", "two")
    epoch = store.templates.epoch

    def overtaken() -> int:
        found = epoch()
        store.templates.epoch = epoch
        other.label("a", "production", 2)
        cache.invalidate()  # as a listener does
        return found

    store.templates.epoch = overtaken
    cache.invalidate()
    cache.get("a@production")
    assert text(cache.get("a@production")) == "two"


def test_what_nobody_asked_for_in_a_long_time_is_not_old(store, other, monkeypatch):
    monkeypatch.setattr("ctxkit.templates.cache._PATIENCE", 60)
    clock = Clock()
    cache = TemplateCache(TemplateRegistry(store), ttl=10, max_stale=1_000, clock=clock)
    assert text(cache.get("a@production")) == "one"
    other.push("a", "two")
    other.label("a", "production", 2)
    clock.now += 21
    assert text(cache.get("a@production")) == "two"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_waits_for_nobody_of_its_parent(store, other):
    cache = TemplateCache(TemplateRegistry(store), ttl=0.01)
    cache.get("a@production")
    other.push("a", "two")
    other.label("a", "production", 2)
    asking = _Flight(cache._generation)
    cache._asking = cache._flights["a@production"] = asking
    with cache._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            code = 1
            try:
                until(lambda: text(cache.get("a@production")) == "two")
                code = 0
            finally:
                os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_it_holds_only_so_many(store):
    registry = TemplateRegistry(store)
    for number in range(12):
        registry.push(f"t{number}", "x")
    cache = TemplateCache(registry, max_templates=4)
    for _ in range(2):
        for number in range(12):
            cache.get(f"t{number}@1")
            assert len(cache._entries) <= 4


def test_tenants_have_caches_of_their_own(store):
    registry = TemplateRegistry(store.for_tenant("b"))
    registry.push("a", "of b")
    registry.label("a", "production", 1)
    mine, theirs = TemplateCache(TemplateRegistry(store)), TemplateCache(registry)
    assert (text(mine.get("a@production")), text(theirs.get("a@production"))) == ("one", "of b")
    assert store.templates.epoch() != 0
    assert store.for_tenant("c").templates.epoch() == 0


async def test_the_async_twin(store):
    cache = TemplateCache(TemplateRegistry(store))
    assert await cache.aget("a@production") is await cache.aget("a@production")
    assert await cache.aget("a@1") is cache.get("a@1")


def test_wrong_options(store):
    registry = TemplateRegistry(store)
    for options in ({"ttl": -1}, {"max_stale": float("nan")}, {"max_templates": 0}, {"fallbacks": {"@": "x"}}):
        with pytest.raises(ConfigError):
            TemplateCache(registry, **options)
    with pytest.raises(StorageError, match="SQLite"):
        TemplateCache(registry, listen=True)


def test_a_warm_get_takes_microseconds(store):
    cache = TemplateCache(TemplateRegistry(store))
    cache.get("a@production")
    taken = []
    for _ in range(10):
        started = time.process_time()
        for _ in range(2_000):
            cache.get("a@production")
        taken.append((time.process_time() - started) / 2_000)
    assert min(taken) < 20e-6 * slowness()


@pytest.mark.postgres
def test_a_listener_is_told_at_once(postgres_url):
    with Store.open(postgres_url, tenant="listening") as store, Store.open(postgres_url, tenant="listening") as second:
        other = TemplateRegistry(second)
        other.push("a", "one")
        other.label("a", "production", 1)
        with TemplateCache(TemplateRegistry(store), ttl=1e6, listen=True) as cache:
            assert text(cache.get("a@production")) == "one"
            time.sleep(0.5)  # it listens by now
            other.push("a", "two")
            other.label("a", "production", 2)
            until(lambda: text(cache.get("a@production")) == "two")
            loads = cache.loads
            third = TemplateRegistry(second.for_tenant("somebody-else"))
            third.push("a", "three")
            time.sleep(0.3)
            assert text(cache.get("a@production")) == "two"
            assert cache.loads == loads


@pytest.mark.postgres
def test_a_listener_that_is_cut_off_misses_nothing(postgresql, postgres_url):
    database = postgres_url.split("@/")[1].split("?")[0]
    with Store.open(postgres_url, tenant="cut") as store, Store.open(postgres_url, tenant="cut") as second:
        other = TemplateRegistry(second)
        for source in ("one", "two", "three"):
            other.push("a", source)
        other.label("a", "production", 1)
        with TemplateCache(TemplateRegistry(store), ttl=1e6, listen=True) as cache:
            assert text(cache.get("a@production")) == "one"
            time.sleep(0.5)  # it listens by now
            found, began = store.templates.notifications, threading.Event()

            def late(**options):
                began.wait(10)
                yield from found(**options)

            store.templates.notifications = late
            postgresql.execute(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
                " AND pid <> pg_backend_pid()"
            )
            other.label("a", "production", 2)
            until(lambda: text(cache.get("a@production")) == "two")
            time.sleep(1.5)  # it waits to listen again
            assert text(cache.get("a@production")) == "two"
            other.label("a", "production", 3)
            began.set()
            until(lambda: text(cache.get("a@production")) == "three")
