"""Several processes on one file, and the death of one of them."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from tenure.engines.protocol import Claim, Signal, Topic
from tenure.engines.sqlite import SQLiteEngine
from tenure.errors import EngineUnavailable
from tests.engines.sqlite.conftest import make_job

pytestmark = pytest.mark.anyio

CLAIM_ALL = """
import asyncio, sys, time
from tenure.core import rules
from tenure.core.outcomes import Completed
from tenure.engines.protocol import Claim
from tenure.engines.sqlite import SQLiteEngine

async def main(path, owner, count):
    async with SQLiteEngine(path) as engine:
        print("open", flush=True)
        sys.stdin.readline()
        while True:
            rows = await engine.claim(Claim(owner=owner, limit=7, lease=60_000_000))
            if not rows:
                break
            for row in rows:
                print(row.id, row.token, flush=False)
            now = time.time_ns() // 1000
            settled = await engine.settle([rules.decide(r, Completed(), now=now) for r in rows])
            assert all(answer.verdict == "applied" for answer in settled), settled

asyncio.run(main(sys.argv[1], sys.argv[2], 7))
"""

INSERT_FOREVER = """
import asyncio, sys
from tenure.clock import IdSource
from tenure.core.job import NewJob
from tenure.engines.sqlite import SQLiteEngine

async def produce(engine, new_id):
    while True:
        answers = await engine.insert([NewJob(id=new_id(), task="t") for _ in range(3)])
        print("\\n".join(answer.id for answer in answers), flush=True)

async def main(path):
    async with SQLiteEngine(path) as engine:
        new_id = IdSource()
        await asyncio.gather(*(produce(engine, new_id) for _ in range(4)))

asyncio.run(main(sys.argv[1]))
"""

CANCEL = """
import asyncio, sys
from tenure.engines.sqlite import SQLiteEngine

async def main(path, job_id):
    async with SQLiteEngine(path) as engine:
        print(await engine.cancel([job_id]))

asyncio.run(main(*sys.argv[1:]))
"""


async def test_two_processes_share_the_work_without_a_double_claim(path: str, python):
    ids = {f"{i:05}" for i in range(2_000)}
    await insert(path, ids)
    processes = [python(CLAIM_ALL, path, f"worker{i}") for i in range(2)]
    for process in processes:
        assert process.stdout.readline() == "open\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    claimed = [line.split()[0] for output in outputs for line in output.splitlines()]
    assert len(claimed) == len(ids)
    assert set(claimed) == ids
    assert all(output for output in outputs)


async def test_a_killed_process_loses_nothing_that_was_acknowledged(path: str, python):
    process = python(INSERT_FOREVER, path)
    acknowledged = [process.stdout.readline().strip() for _ in range(300)]
    process.kill()
    rest = process.stdout.read()
    assert process.wait() == -signal.SIGKILL
    acknowledged += rest.split("\n")[:-1]  # the last line may be cut off
    assert "jobs.db-wal" in os.listdir(os.path.dirname(path))  # so that what follows recovers it
    async with SQLiteEngine(path) as engine:
        found = await engine.get(acknowledged)
        taken = await engine.claim(Claim(owner="w", limit=5, lease=10**7))
    assert None not in found
    assert [row.id for row in taken] == sorted(acknowledged)[:5]


async def test_a_log_without_its_index_is_recovered(path: str, python):
    """As after a power cut: `-shm` is gone, `-wal` holds what was committed."""
    process = python(INSERT_FOREVER, path)
    acknowledged = [process.stdout.readline().strip() for _ in range(30)]
    process.kill()
    process.wait()
    remove(f"{path}-shm")
    async with SQLiteEngine(path) as engine:
        assert None not in await engine.get(acknowledged)


async def test_a_forked_child_is_refused(engine: SQLiteEngine):
    await engine.insert([make_job(id="a")])
    await engine.get(["a"])  # so that there is a reader to inherit
    said = fork(lambda: in_child(engine))
    refused = f"was opened by process {os.getpid()}; SQLite does not survive a fork"
    assert said.count(refused) == 2
    assert said.endswith("closed")
    assert (await engine.insert([make_job(id="b")]))[0].created  # and here all goes on
    assert None not in await engine.get(["a", "b"])


async def test_a_forked_child_cannot_open_the_file_anew(path: str, engine: SQLiteEngine):
    """SQLite would work there without locks, and lose what it commits when the parent closes."""

    async def use() -> str:
        async with SQLiteEngine(path) as other:
            return f"opened {other.url}"

    assert "from which this one was forked" in fork(lambda: run_in_child(use))


async def test_a_forked_child_may_open_a_file_that_was_closed_before(path: str):
    async with SQLiteEngine(path) as engine:
        await engine.insert([make_job(id="a")])

    async def use() -> str:
        async with SQLiteEngine(path) as other:
            return str((await other.insert([make_job(id="b")]))[0].created)

    assert fork(lambda: run_in_child(use)) == "True"


async def test_a_forked_child_keeps_no_turn(engine: SQLiteEngine, path: str):
    """Else a turn would outlive the process that took it."""
    assert len(turn_descriptors(path)) == 2
    assert fork(lambda: str(turn_descriptors(path))) == "[]"
    assert (await engine.insert([make_job()]))[0].created


def turn_descriptors(path: str) -> list[int]:
    kept = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if target in (f"{path}-gate", f"{path}-turn"):
            kept.append(int(descriptor))
    return kept


def fork(answer: Callable[[], str]) -> str:
    """What a forked child answers."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, answer().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        said = answers.read()
    os.waitpid(child, 0)
    return said


def in_child(engine: SQLiteEngine) -> str:
    """What using and closing an inherited engine says."""

    async def use() -> str:
        said = ""
        for work in (engine.insert([make_job()]), engine.get(["a"])):
            try:
                await work
            except EngineUnavailable as error:
                said += str(error)
        await engine.__aexit__()
        return said + "closed"

    return run_in_child(use)


def run_in_child(use: Callable[[], Coroutine[None, None, str]]) -> str:
    # The loop of the parent still counts as running in this thread.
    asyncio.events._set_running_loop(None)
    try:
        return asyncio.run(use())
    except EngineUnavailable as error:
        return str(error)


async def test_a_child_may_open_its_own(path: str, engine: SQLiteEngine, python):
    await insert(path, {"a", "b"})
    process = python(CLAIM_ALL, path, "child")
    output, _ = process.communicate("go\n")
    assert len(output.splitlines()) == 3
    stats = await engine.stats()
    assert stats[0].completed == 2


async def test_without_mail_listeners_look_at_the_file(path: str, engine: SQLiteEngine, python):
    engine._exchange._post.possible = False
    await engine.insert([make_job(id="a")])
    await engine.claim(Claim(owner="w", limit=1, lease=10**8))
    async with engine.listen({Topic.CANCEL}) as listener:
        output, _ = await asyncio.to_thread(python(CANCEL, path, "a").communicate)
        assert "requested=('a',)" in output
        heard: set[Signal] = set()
        while Signal(Topic.CANCEL, "a") not in heard:
            signals = await listener.wait(10)
            assert signals
            heard |= signals
    assert Signal(Topic.ANY) in heard


async def test_nobody_is_woken_by_what_this_engine_wrote(engine: SQLiteEngine):
    looks: list[bool] = []
    look = engine._writer._look  # type: ignore[union-attr]

    def counted(connection: sqlite3.Connection) -> None:
        look(connection)
        looks.append(True)

    engine._writer._look = counted  # type: ignore[union-attr]
    async with engine.listen({Topic.DONE}) as listener:
        while len(looks) < 3:  # one look notes the version, the others compare
            await engine.insert([make_job()])
        assert await listener.wait(0) == frozenset()


async def insert(path: str, ids: set[str]) -> None:
    async with SQLiteEngine(path) as engine:
        await engine.insert([make_job(id=job_id) for job_id in sorted(ids)])


def remove(path: str) -> None:
    Path(path).unlink()
