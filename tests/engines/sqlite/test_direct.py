"""Inserting without an event loop."""

from __future__ import annotations

import gc
import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tenure.engines.memory import MemoryEngine
from tenure.engines.optional import Blocking, Direct, direct_of
from tenure.engines.protocol import Signal, Topic
from tenure.engines.sqlite import SQLiteEngine, checkpoints
from tenure.engines.sqlite.turnstile import Turnstile
from tenure.errors import DuplicateJob, EngineUnavailable, PayloadError
from tests.engines.sqlite.conftest import make_job
from tests.engines.sqlite.test_processes import fork

pytestmark = pytest.mark.anyio


@pytest.fixture
def direct(path: str):
    opened = SQLiteEngine(path).direct()
    yield opened
    opened.close()


def ids(look: sqlite3.Connection) -> list[str]:
    return [row[0] for row in look.execute("SELECT id FROM jobs ORDER BY id")]


def test_which_engines_can(path: str):
    engine = SQLiteEngine(path)
    assert isinstance(engine, Blocking)
    assert engine.direct() is engine.direct()
    assert direct_of(engine) is engine.direct()
    assert not isinstance(MemoryEngine(), Blocking)
    assert direct_of(MemoryEngine()) is None


def test_it_needs_no_open_engine(direct: Direct, look: sqlite3.Connection):
    [answer] = direct.insert([make_job(id="a")])
    assert (answer.id, answer.created) == ("a", True)
    assert [answer.created for answer in direct.insert([make_job(id="a"), make_job()])] == [
        False,
        True,
    ]
    assert direct.insert([]) == []
    assert "a" in ids(look)


def test_the_time_is_that_of_the_store(path: str, look: sqlite3.Connection):
    class Fixed:
        def time_us(self) -> int:
            return 1_000

        def monotonic(self) -> float:
            return 0.0

    direct = SQLiteEngine(path, clock=Fixed()).direct()
    direct.insert([make_job(id="a")])
    direct.insert([make_job(id="b")], now=7)
    direct.close()
    assert look.execute("SELECT created_at FROM jobs ORDER BY id").fetchall() == [(1_000,), (7,)]


def test_all_or_nothing(direct: Direct, look: sqlite3.Connection):
    direct.insert([make_job(id="a", unique_key="k")])
    again = make_job(id="c", unique_key="k", on_conflict="raise")
    with pytest.raises(DuplicateJob):
        direct.insert([make_job(id="b"), again])
    with pytest.raises(PayloadError):
        direct.insert([make_job(id="b"), make_job(id="d", payload=b"1" * 2_000_000)])
    assert ids(look) == ["a"]
    direct.insert([make_job(id="e")])
    assert ids(look) == ["a", "e"]


async def test_listeners_of_this_process_and_of_others_hear_at_once(
    path: str, engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch
):
    heard = {Signal(Topic.QUEUE, "default")}
    async with SQLiteEngine(path) as other, engine.listen({Topic.QUEUE}) as here:
        other._writer._look = engine._writer._look = lambda connection: None  # type: ignore[union-attr]
        async with other.listen({Topic.QUEUE}) as there:
            engine.direct().insert([make_job()])
            assert await here.wait(10) == heard
            assert await there.wait(10) == heard


def test_threads_that_wait_share_a_commit(path: str, direct: Direct, look: sqlite3.Connection):
    direct.insert([make_job()])
    commits: list[int] = []
    finish = direct._group.finish  # type: ignore[attr-defined]

    def counted(database: Any, requests: list[Any]) -> None:
        commits.append(len(requests))
        finish(database, requests)

    direct._group.finish = counted  # type: ignore[attr-defined]
    counter = direct._counter  # type: ignore[attr-defined]
    bad = make_job(id="a", unique_key="k", on_conflict="raise")
    with ThreadPoolExecutor(6) as pool:
        with counter._lock:
            good = [pool.submit(direct.insert, [make_job()]) for _ in range(4)]
            twins = [pool.submit(direct.insert, [bad]), pool.submit(direct.insert, [make_job()])]
            while len(counter._waiting) < 6:
                threading.Event().wait(0.001)
        assert all(call.result(10)[0].created for call in [*good, *twins])
    assert commits == [6]
    assert len(ids(look)) == 7


def test_one_that_fails_fails_alone(path: str, direct: Direct, look: sqlite3.Connection):
    direct.insert([make_job(id="a", unique_key="k")])
    counter = direct._counter  # type: ignore[attr-defined]
    again = make_job(id="b", unique_key="k", on_conflict="raise")
    with ThreadPoolExecutor(3) as pool:
        with counter._lock:
            good = [pool.submit(direct.insert, [make_job(id=job_id)]) for job_id in ("c", "d")]
            bad = pool.submit(direct.insert, [again])
            while len(counter._waiting) < 3:
                threading.Event().wait(0.001)
        assert all(call.result(10)[0].created for call in good)
        with pytest.raises(DuplicateJob):
            bad.result(10)
    assert ids(look) == ["a", "c", "d"]


def test_many_threads_at_once(direct: Direct, look: sqlite3.Connection):
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(direct.insert, [make_job(id=f"{n:03}")]) for n in range(200)]
        assert all(call.result(20)[0].created for call in calls)
    assert ids(look) == [f"{n:03}" for n in range(200)]


def test_a_call_ends_while_another_process_has_the_turn(path: str, look: sqlite3.Connection):
    direct = SQLiteEngine(path, timeout=0.2).direct()
    direct.insert([make_job(id="a")])
    other = Turnstile(path)
    other.enter()
    for _ in range(2):
        with pytest.raises(EngineUnavailable, match=r"insert: .*jobs.db did not answer within 0.2"):
            direct.insert([make_job(id="b")])
    other.leave()
    for thread in threading.enumerate():
        if thread.name == "tenure-sqlite-turn":  # they let the turn pass on
            thread.join(10)
    direct.insert([make_job(id="c")])
    other.enter()  # as it is free again
    other.leave()
    other.close()
    direct.close()
    assert ids(look) == ["a", "c"]


def test_a_call_waits_for_its_turn(path: str, look: sqlite3.Connection):
    direct = SQLiteEngine(path).direct()
    direct.insert([make_job(id="a")])
    other = Turnstile(path)
    other.enter()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(direct.insert, [make_job(id="b")])
        while not any(t.name == "tenure-sqlite-turn" for t in threading.enumerate()):
            threading.Event().wait(0.001)
        assert not call.done()
        other.leave()
        assert call.result(10)[0].created
    other.close()
    direct.close()


def test_a_call_ends_while_a_thread_is_stuck(path: str):
    direct = SQLiteEngine(path, timeout=0.1).direct()
    refused = pytest.raises(EngineUnavailable, match="busy with other threads")
    with direct._counter._lock, ThreadPoolExecutor(1) as pool, refused:
        pool.submit(direct.insert, [make_job()]).result(10)
    assert not direct._counter._waiting
    direct.close()


def test_what_opening_says_is_raised(tmp_path):
    direct = SQLiteEngine(tmp_path / "no" / "jobs.db").direct()
    for _ in range(2):
        with pytest.raises(Exception, match="does not exist"):
            direct.insert([make_job()])


def test_closing_and_using_it_again(path: str, direct: Direct, look: sqlite3.Connection):
    direct.close()
    direct.insert([make_job(id="a")])
    direct.close()
    direct.close()
    direct.insert([make_job(id="b")])
    assert ids(look) == ["a", "b"]


async def test_it_closes_with_the_engine(path: str):
    engine = SQLiteEngine(path)
    async with engine:
        engine.direct().insert([make_job()])
        assert engine.direct()._counter._database is not None
    assert not engine.direct()._counters
    assert "jobs.db-wal" not in os.listdir(os.path.dirname(path))  # the last one removes it


def test_it_closes_when_it_is_forgotten(path: str):
    SQLiteEngine(path).direct().insert([make_job()])
    gc.collect()
    assert "jobs.db-wal" not in os.listdir(os.path.dirname(path))


def test_the_log_stays_short(path: str):
    direct = SQLiteEngine(path, synchronous="normal").direct()
    for _ in range(3_000):
        direct.insert([make_job()])
    assert os.stat(f"{path}-wal").st_size < 2 * checkpoints.LONG
    direct.close()


def test_a_forked_child_is_refused_while_it_is_open(path: str, direct: Direct):
    direct.insert([make_job(id="a")])

    def use() -> str:
        try:
            direct.insert([make_job(id="b")])
        except EngineUnavailable as error:
            return str(error)
        return "inserted"

    assert "from which this one was forked" in fork(use)
    assert direct.insert([make_job(id="c")])[0].created


def test_a_forked_child_may_use_one_that_was_closed(path: str, direct: Direct, look):
    direct.insert([make_job(id="a")])
    direct.close()
    look.close()

    def use() -> str:
        with ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(direct.insert, [make_job(id=f"b{n}")]) for n in range(8)]
            created = all(call.result(10)[0].created for call in calls)
        direct.close()
        return str(created)

    assert fork(use) == "True"
    assert len(ids(sqlite3.connect(path))) == 9


def test_a_child_that_ends_in_order_leaves_the_file_of_its_parent_alone(path: str, python):
    script = """
import os, sys
from tenure.core.job import NewJob
from tenure.engines.sqlite import SQLiteEngine

direct = SQLiteEngine(sys.argv[1]).direct()
direct.insert([NewJob(id="a", task="t")])
if os.fork() == 0:
    del direct
    sys.exit(0)  # frees whatever it has
os.wait()
direct.insert([NewJob(id="b", task="t")])
print("log" if os.path.exists(sys.argv[1] + "-wal") else "no log", flush=True)
sys.stdin.readline()
"""
    process = python(script, path)
    assert process.stdout.readline() == "log\n"
    process.communicate("go\n")
    assert process.returncode == 0
    assert ids(sqlite3.connect(path)) == ["a", "b"]
