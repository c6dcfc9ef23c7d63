"""Many processes push, label and record at once, and some are killed: nothing is lost, doubled or half-done."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from ctxkit.documents import content_hash
from ctxkit.storage import Store

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

# Has everything imported and forks as many writers as it is asked for, which begin at the same moment: starting 50
# interpreters would take longer than all that they do.
NURSERY = """
import json, os, sys, traceback
from ctxkit.documents import content_hash
from ctxkit.errors import ConflictError
from ctxkit.storage import Store
Store.open("sqlite://").close()
try:
    import psycopg
except ImportError:
    pass

for line in sys.stdin:
    task = json.loads(line)
    ready, go = os.pipe(), os.pipe()
    children = []
    for me in range(task["count"]):
        child = os.fork()
        if not child:
            code = 1
            try:
                os.close(go[1])
                store = Store.open(task["url"], create=False)
                os.write(ready[1], b"r")
                os.read(go[0], 1)
                exec(task["code"], {**globals(), **task["names"], "store": store, "me": me})
                store.close()
                code = 0
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        children.append(child)
    waited = 0
    while waited < len(children):
        waited += len(os.read(ready[0], 4096))
    for end in (*ready, *go):
        os.close(end)
    print(json.dumps(children), flush=True)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]), flush=True)
"""

Together = Callable[..., list[int]]


@pytest.fixture(scope="module")
def together() -> Iterator[Together]:
    """Runs a code in so many processes at once; their exit codes. `meanwhile` gets their ids when they have begun."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    def run(
        url: str, count: int, code: str, meanwhile: Callable[[list[int]], None] = lambda pids: None, **names: object
    ) -> list[int]:
        stdin.write(json.dumps({"url": url, "count": count, "code": textwrap.dedent(code), "names": names}) + "\n")
        stdin.flush()
        meanwhile(json.loads(stdout.readline()))
        codes: list[int] = json.loads(stdout.readline())
        return codes

    yield run
    process.communicate(timeout=60)


def writers(store: Store) -> int:
    """As many as the issue asks for: 50 on PostgreSQL, 8 on SQLite, which has one writer at a time."""
    return 50 if store.kind == "postgresql" else 8


def test_many_processes_push_versions_and_move_labels(store: Store, store_url: str, together: Together) -> None:
    store.templates.push("moved", {"text": "0"})
    for number in range(1, 5):
        store.templates.push("moved", {"text": str(number)})
    count = writers(store)
    codes = together(
        store_url,
        count,
        """
        store.templates.push("t", {"text": str(me)})
        store.templates.label("moved", "production", 1 + me % 5, by=str(me))
        store.templates.push("t", {"text": "the same from all"})
        store.payloads.put("k", {"n": me})
        """,
    )
    assert codes == [0] * count, "no error to a caller"
    versions = store.templates.versions("t")
    assert [version.version for version in versions] == list(range(1, count + 2))
    assert len({version.hash for version in versions}) == count + 1
    assert [version.version for version in store.payloads.versions("k")] == list(range(1, count + 1))
    moves = store.templates.label_history("moved", "production")
    assert len(moves) == count, "one row for each move"
    assert moves[0].previous is None
    assert all(later.previous == earlier.version for earlier, later in pairwise(moves)), "each saw the one before"
    assert store.templates.list()[0].labels == {"production": moves[-1].version}, "one holder"
    assert sorted(int(move.by) for move in moves) == list(range(count))


def test_compare_and_swap_counts_without_a_loss(store: Store, store_url: str, together: Together) -> None:
    for number in range(5):
        store.templates.push("t", {"text": str(number)})
    store.templates.label("t", "production", 1)
    codes = together(
        store_url,
        8,
        """
        while True:
            current = store.templates.get("t", label="production").version
            try:
                store.templates.label("t", "production", 1 + current % 5, expected=current)
                break
            except ConflictError:
                pass
        """,
    )
    assert codes == [0] * 8
    assert [move.version for move in store.templates.label_history("t", "production")] == [1 + n % 5 for n in range(9)]


WRITING = """
note = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def done(*what):
    os.write(note, (json.dumps(what) + "\\n").encode())
turn = first
while True:
    turn += 1
    text = f"{me} {turn}"
    version = store.templates.push("t", {"text": text}, includes=[("child", "h")])
    done("version", version.version, version.hash)
    move = store.templates.label("t", "production", version.version, by=text)
    done("move", text)
    if turn % 3 == 0:
        store.templates.rollback("t", "production", by=text + " back")
        done("move", text + " back")
    done("payload", text, store.payloads.put(f"k{me}", {"text": text}).hash)
    pieces = {content_hash(piece): piece for piece in ("shared by all", text, [text, turn])}
    store.runs.put(content_hash([text, "run"]), {"pieces": sorted(pieces)}, pieces, session=f"s{turn % 5}")
    done("run", content_hash([text, "run"]), turn % 5)
    if turn % 4 == 0:
        done("pruned", turn % 5)
        store.runs.prune(session=f"s{turn % 5}")
"""


def test_killed_writers_leave_nothing_half_done(
    store: Store, store_url: str, together: Together, tmp_path: Path
) -> None:
    rng = random.Random(50)
    notes = tmp_path / "notes"
    for first in range(0, 3_000, 1_000):
        already = notes.stat().st_size if notes.exists() else 0

        def kill(pids: list[int], already: int = already) -> None:
            deadline = time.monotonic() + 60
            while (not notes.exists() or notes.stat().st_size <= already + 4_000) and time.monotonic() < deadline:
                time.sleep(0.005)
            for pid in pids:
                time.sleep(rng.uniform(0, 0.08))
                os.kill(pid, signal.SIGKILL)

        assert set(together(store_url, 3, WRITING, kill, notes=str(notes), first=first)) == {-signal.SIGKILL}
        assert store.check() == []
        check_whole(store, [json.loads(line) for line in notes.read_text().splitlines()])


def check_whole(store: Store, acknowledged: list[list[str]]) -> None:
    versions = store.templates.versions("t")
    assert [version.version for version in versions] == list(range(1, len(versions) + 1))
    assert all(version.hash == content_hash(dict(version.content)) for version in versions)
    (info,) = store.templates.list()
    moves = store.templates.label_history("t", "production")
    assert (info.versions, info.labels) == (len(versions), {"production": moves[-1].version})
    assert all(later.previous == earlier.version for earlier, later in pairwise(moves))
    recorded = {run.fingerprint for run in store.runs.list(limit=100_000)}
    for fingerprint in recorded:
        _, content, pieces = store.runs.get(fingerprint)
        assert sorted(pieces) == content["pieces"], "a recorded prompt has all its pieces"
    pruned = {what[1] for what in acknowledged if what[0] == "pruned"}
    moved = {move.by for move in moves}
    hashes = {version.version: version.hash for version in versions}
    for kind, *what in acknowledged:
        if kind == "version":
            assert hashes[int(what[0])] == what[1], "an acknowledged version is lost"
        elif kind == "move":
            assert what[0] in moved, "an acknowledged move is not on record"
        elif kind == "payload":
            assert store.payloads.get(hash=what[1]) == {"text": what[0]}
        elif kind == "run" and what[1] not in pruned:
            assert what[0] in recorded, "an acknowledged prompt is lost"
    for key in store.payloads.list():
        numbers = [version.version for version in store.payloads.versions(key.key)]
        assert numbers == list(range(1, key.versions + 1)) and key.version in numbers
