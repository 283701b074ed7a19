"""Checkpoints: the log stays short, nobody's commit is disturbed, and a kill loses nothing."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sqlite3
import time
from collections.abc import Callable

import pytest

from tenure.engines.sqlite import SQLiteEngine, checkpoints, writer
from tenure.engines.sqlite.checkpoints import Checkpoints
from tenure.engines.sqlite.connection import Place, connect, connect_reader
from tests.engines.sqlite.conftest import make_job

pytestmark = pytest.mark.anyio

INSERT_AND_CHECKPOINT = """
import asyncio, sys
from tenure.clock import IdSource
from tenure.core.job import NewJob
from tenure.engines.sqlite import SQLiteEngine, checkpoints, writer

checkpoints.COMMITS = 1
checkpoints.LARGE = int(sys.argv[2])

async def main(path):
    async with SQLiteEngine(path, synchronous="normal") as engine:
        new_id = IdSource()
        while True:
            answers = await engine.insert([NewJob(id=new_id(), task="t") for _ in range(20)])
            print(*(answer.id for answer in answers), flush=True)

asyncio.run(main(sys.argv[1]))
"""


def log_size(path: str) -> int:
    return os.stat(f"{path}-wal").st_size


def in_turn(path: str) -> bool:
    """Whether somebody has the turn to write."""
    descriptor = os.open(f"{path}-turn", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def be_idle_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (checkpoints, writer):
        monkeypatch.setattr(module, "IDLE_AFTER", 0.02)


async def fill(engine: SQLiteEngine, commits: int) -> None:
    for _ in range(commits):
        await engine.insert([make_job()])


async def test_no_connection_runs_checkpoints_by_itself(path: str, engine: SQLiteEngine):
    asked = "PRAGMA wal_autocheckpoint"
    await engine.insert([make_job()])
    assert await engine._write("ask", lambda tx, at: tx.execute(asked), None, 1) == [(0,)]
    assert await engine._read("ask", lambda tx, at: tx.execute(asked), None) == [(0,)]
    for opened in (connect(Place(path)), connect_reader(Place(path))):
        assert opened.execute(asked).fetchall() == [(0,)]
        opened.close()


async def test_the_log_stays_short(path: str, scaled: Callable[[int, int], int]):
    async with SQLiteEngine(path, synchronous="normal") as engine:
        largest = 0
        for _ in range(scaled(60, 500)):
            await fill(engine, 100)
            largest = max(largest, log_size(path))
    assert largest < 2 * checkpoints.LONG


async def test_large_writes_are_moved_sooner(path: str):
    async with SQLiteEngine(path, synchronous="normal") as engine:
        for _ in range(100):
            await engine.insert([make_job(payload=b'"%s"' % (b"x" * 1_000_000))])
        assert log_size(path) < checkpoints.LARGE


async def test_what_a_reader_needs_stays_until_it_has_left(
    path: str, engine: SQLiteEngine, look: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(checkpoints, "LARGE", 100_000)
    be_idle_soon(monkeypatch)
    look.execute("BEGIN")
    look.execute("SELECT count(*) FROM jobs").fetchall()
    await fill(engine, 300)
    assert log_size(path) > 1_000_000
    assert look.execute("SELECT count(*) FROM jobs").fetchall() == [(0,)]
    look.execute("COMMIT")
    await asyncio.to_thread(until, lambda: log_size(path) == 0)
    assert look.execute("SELECT count(*) FROM jobs").fetchall() == [(300,)]


async def test_what_was_written_is_moved_when_it_is_quiet(
    path: str, engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch
):
    be_idle_soon(monkeypatch)
    before = os.stat(path).st_size
    await engine.insert([make_job() for _ in range(500)])
    await asyncio.to_thread(until, lambda: os.stat(path).st_size > before)


async def test_what_a_caller_wrote_is_moved_too(
    path: str, engine: SQLiteEngine, look: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
):
    be_idle_soon(monkeypatch)
    before = os.stat(path).st_size
    look.execute("BEGIN IMMEDIATE")
    joined = engine.join(look)
    joined.insert([make_job() for _ in range(500)])
    look.execute("COMMIT")
    joined.wake()
    await asyncio.to_thread(until, lambda: os.stat(path).st_size > before)


async def test_checkpoints_and_closing_happen_in_turn(path: str, monkeypatch: pytest.MonkeyPatch):
    seen: list[bool] = []
    run = Checkpoints.run

    def noted(self: Checkpoints) -> None:
        seen.append(in_turn(path))
        run(self)

    class Noting(sqlite3.Connection):
        def close(self) -> None:
            seen.append(in_turn(path))
            super().close()

    plain = sqlite3.connect
    monkeypatch.setattr(Checkpoints, "run", noted)
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: plain(*a, **k, factory=Noting))
    monkeypatch.setattr(checkpoints, "COMMITS", 3)
    async with SQLiteEngine(path) as engine:
        await fill(engine, 4)
        await engine.stats()
    assert seen == [True, True, True]  # a checkpoint, the reader, the writer
    assert not in_turn(path)


async def test_an_answer_does_not_wait_for_the_checkpoint(
    engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch
):
    answered = asyncio.Event()
    loop = asyncio.get_running_loop()
    waited: list[bool] = []

    def run(self: Checkpoints) -> None:
        self._commits = 0
        waited.append(asyncio.run_coroutine_threadsafe(answered.wait(), loop).result(10))

    monkeypatch.setattr(Checkpoints, "run", run)
    monkeypatch.setattr(checkpoints, "COMMITS", 1)
    await fill(engine, 1)
    answered.set()
    await asyncio.to_thread(until, lambda: bool(waited))
    assert waited[0] is True


async def test_a_checkpoint_that_fails_is_tried_again(
    engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch
):
    tries: list[int] = []

    def fail(self: Checkpoints, statement: str) -> bool:
        tries.append(1)
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(Checkpoints, "_checkpoint", fail)
    be_idle_soon(monkeypatch)
    await fill(engine, 1)
    await asyncio.to_thread(until, lambda: len(tries) > 2)
    await fill(engine, 1)


@pytest.mark.parametrize("large", [0, checkpoints.LARGE])
async def test_a_kill_during_a_checkpoint_loses_nothing(
    path: str, python, scaled: Callable[[int, int], int], large: int
):
    """Two processes that do little else, killed at any moment; `large` 0 cuts the log each time."""
    acknowledged: list[str] = []
    for _ in range(scaled(4, 100)):
        processes = [python(INSERT_AND_CHECKPOINT, path, str(large)) for _ in range(2)]
        for process in processes:
            acknowledged += process.stdout.readline().split()
            for _ in range(10):
                acknowledged += process.stdout.readline().split()
        for process in processes:
            process.kill()
        for process in processes:
            rest = process.stdout.read()
            assert process.wait() == -signal.SIGKILL
            acknowledged += rest.rpartition("\n")[0].split()  # the last line may be cut off
    async with SQLiteEngine(path) as engine:
        assert None not in await engine.get(acknowledged)
        checked = await engine._read("check", lambda tx, _: tx.execute("PRAGMA quick_check"), None)
        assert checked == [("ok",)]


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition has not come true in time"
        time.sleep(0.01)
