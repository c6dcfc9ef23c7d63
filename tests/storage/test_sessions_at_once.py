"""Many writers to one session, some killed: nothing that was acknowledged is lost, nothing is there twice, no gaps.

The full size is `full_size(url)`: 32 writers, 10,000 messages.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxkit.messages import Message
from ctxkit.storage import Keep, Store
from tests.storage.making import Workers

# Has everything imported and forks the writers: starting Python takes longer than their writing.
NURSERY = """
import json, os, random, signal, sys, threading, time
from ctxkit.errors import StorageError
from ctxkit.messages import Message
from ctxkit.storage import Store
Store.open("sqlite://").close()
try:
    import psycopg
except ImportError:
    pass

def die(seconds):
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)

def write(task, me):
    dies_at = task["deaths"].get(str(me))
    doom = threading.Thread(target=die, args=(random.Random(me).uniform(0, 0.01),))
    note = os.open(os.path.join(task["notes"], str(me)), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    store = Store.open(task["url"])
    turn = 0
    while turn < task["each"]:
        if dies_at is not None and turn >= dies_at and not doom.is_alive():
            doom.start()
        some = range(turn, min(turn + 1 + turn % 3, task["each"]))
        said = [Message("user", f"{me} says {n}", id=f"{me}-{n}") for n in some]
        store.sessions.append("s", said)
        os.write(note, b"".join(b"%d-%d\\n" % (me, n) for n in some))
        turn = some[-1] + 1
    if dies_at is not None:
        doom.join()

for line in sys.stdin:
    task = json.loads(line)
    children = []
    for me in task["writers"]:
        child = os.fork()
        if child == 0:
            try:
                write(task, me)
                os._exit(0)
            except BaseException as error:
                print(error, file=sys.stderr, flush=True)
            os._exit(1)
        children.append(child)
    print(json.dumps(children), flush=True)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]), flush=True)
"""


class Nursery:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, **task: Any) -> list[int]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        children: list[int] = self.answer()
        return children

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


def write_at_once(nursery: Nursery, url: str, notes: Path, *, writers: int, each: int, kills: int) -> None:
    """Writers append at once, `kills` of them are killed on the way and then begin again from their start."""
    rng = random.Random(32)
    Store.open(url).close()
    victims = rng.sample(range(writers), kills)
    # Each dies by its own hand within 10 ms of a message: a killer outside would find that the fastest had ended.
    deaths = {str(victim): each * (at + 1) // (kills + 2) for at, victim in enumerate(victims)}
    nursery.start(url=url, notes=str(notes), writers=list(range(writers)), each=each, deaths=deaths)
    codes = nursery.answer()
    killed = [at for at, code in enumerate(codes) if code == -signal.SIGKILL]
    assert killed == sorted(victims) and set(codes) <= {0, -signal.SIGKILL}, "a writer failed"
    with Store.open(url, create=False) as store:
        check(store, notes, whole=False)
    if killed:
        nursery.start(url=url, notes=str(notes), writers=killed, each=each, deaths={})
        assert not any(nursery.answer())
    with Store.open(url, create=False) as store:
        check(store, notes, whole=True)
        messages = store.sessions.messages("s")
        assert len(messages) == writers * each
        for me in range(writers):
            mine = [message.text for message in messages if message.id.startswith(f"{me}-")]
            assert mine == [f"{me} says {n}" for n in range(each)], "each writer's order is kept"
        assert store.check() == []


def check(store: Store, notes: Path, *, whole: bool) -> None:
    messages = store.sessions.messages("s")
    ids = {message.id for message in messages}
    assert [message.sequence for message in messages] == list(range(1, len(messages) + 1)), "no gaps"
    assert len(ids) == len(messages), "none twice"
    acknowledged = {line for file in notes.iterdir() for line in file.read_text().split()}
    assert acknowledged <= ids, "none lost"
    if whole:
        assert acknowledged == ids


def full_size(url: str, notes: Path, kills: int) -> float:
    """32 writers, 10,000 messages; the seconds that it took."""
    nursery = Nursery()
    started = time.monotonic()
    # 32 do not divide 10,000: 16 more are written.
    write_at_once(nursery, url, notes, writers=32, each=313, kills=kills)
    nursery.process.communicate(timeout=60)
    return time.monotonic() - started


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    started = Nursery()
    yield started
    started.process.communicate(timeout=30)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_thirty_two_writers_lose_nothing_though_some_are_killed(
    store_url: str, nursery: Nursery, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    write_at_once(nursery, store_url, notes, writers=32, each=5, kills=4)


def test_branches_and_retention_while_others_append(workers: Workers, store_url: str) -> None:
    with Store.open(store_url) as store:
        store.sessions.append("s", [Message("user", str(number)) for number in range(20)])
    workers.together(
        """
    from ctxkit.storage import Keep
    store = Store.open(url)
    go()
    for turn in range(4):
        if me < 2:
            store.sessions.append("s", [Message("user", f"{me} {turn}")])
        elif me == 2:
            store.sessions.archive("s", keep=Keep(messages=10))
            store.sessions.prune("s", keep=Keep(messages=15))
        elif me == 3:
            made = store.sessions.branch("s", at=store.sessions.info("s").last_sequence)
            store.sessions.append(made.id, [Message("user", "on the branch")])
            if turn % 2:
                store.sessions.delete(made.id)
        else:
            for info in store.sessions.list():
                for archived in (False, True):
                    there = [message.sequence for message in store.sessions.messages(info.id, archived=archived)]
                    assert there == list(range(there[0], there[0] + len(there))) if there else True, there
    store.close()
""",
        url=store_url,
    )
    with Store.open(store_url) as store:
        assert store.sessions.info("s").last_sequence == 28
        assert store.check() == []
        branches = [info for info in store.sessions.list() if info.parent]
        assert len(branches) == 2
        for info in branches:
            messages = store.sessions.messages(info.id)
            assert [message.sequence for message in messages][-1] == info.fork + 1
            assert len(messages) == info.message_count
        store.sessions.prune("s", keep=Keep(messages=0))
        assert store.sessions.delete("s", branches=True) >= 2
        assert store.statistics()["messages"] == 0
