"""Several processes on one store: shared work, clocks that differ, the death of one, forks."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tenure.clock import OFFSET
from tenure.core.durations import SECOND
from tenure.core.job import JobRow
from tenure.core.schedule import Fired, Schedule, ScheduleChange
from tenure.engines.protocol import Claim
from tenure.engines.redis import RedisEngine, place_of
from tenure.errors import EngineUnavailable
from tests.engines.postgres.test_processes import CLAIM_ALL, HOLD, LOOK
from tests.engines.redis.conftest import make_job
from tests.engines.sqlite.test_processes import fork
from tests.faults.scripts import run
from tests.faults.test_forks import BUSY_PARENT, RENEWING_PARENT

pytestmark = pytest.mark.anyio

Scaled = Callable[[int, int], int]


async def test_processes_share_the_work_without_a_double_claim(engine, valkey_store, python):
    jobs = [make_job() for _ in range(2000)]
    await engine.insert(jobs)
    processes = [python(CLAIM_ALL, valkey_store, f"worker{n}") for n in range(3)]
    for process in processes:
        assert process.stdout.readline() == "open\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [(await asyncio.to_thread(process.communicate))[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    taken = [line.split()[0] for output in outputs for line in output.splitlines()]
    assert sorted(taken) == sorted(job.id for job in jobs)


@pytest.mark.parametrize("hours", [-1, 1])
async def test_clocks_that_differ_change_nothing(engine, valkey_store, python, hours: int):
    """No lease lapses early or late, no job and no tick comes early: the server has the time."""
    await engine.insert([make_job(), make_job(delay=60 * SECOND), make_job(expires_in=60 * SECOND)])
    rows = await engine.claim(Claim(owner="w", limit=2, lease=60 * SECOND, tasks=("t",)))
    assert len(rows) == 2
    at = time.time_ns() // 1000 + 60 * SECOND
    schedule = Schedule(name="s", source="api", task="t", next_at=at)
    [saved] = await engine.save_schedules([ScheduleChange("s", 0, schedule)])
    offset = {OFFSET: str(hours * 3600)}
    process = python(LOOK, valkey_store, "s", str(saved.revision), str(at), **offset)
    output = (await asyncio.to_thread(process.communicate))[0]
    assert output.split()[:3] == ["0", "0", Fired.EARLY]


async def test_a_killed_holder_is_followed_within_its_lease(engine, valkey_store, python):
    await engine.insert([make_job() for _ in range(3)])
    process = python(HOLD, valkey_store)
    assert await asyncio.to_thread(process.stdout.readline) == "3\n"
    process.send_signal(signal.SIGKILL)
    taken: list[JobRow] = []
    async with asyncio.timeout(20):
        while len(taken) < 3:
            claim = Claim(owner="heir", limit=5, lease=60_000_000, tasks=("t",))
            taken += await engine.claim(claim)
            await asyncio.sleep(0.05)
    assert {(row.lapses, row.claims) for row in taken} == {(1, 2)}


async def test_a_child_leaves_the_sockets_of_its_parent_alone(engine: RedisEngine, valkey_store):
    await engine.insert([make_job()])
    direct = engine.direct()
    direct.insert([make_job()])
    said = await asyncio.to_thread(fork, lambda: in_the_child(engine, valkey_store))
    assert "fork" in said
    await engine.insert([make_job()])
    direct.insert([make_job()])
    [stats] = await engine.stats()
    assert stats.pending == 6


def in_the_child(engine: RedisEngine, url: str) -> str:
    """What using an inherited engine says; what may be used works, on connections of its own."""

    async def use() -> str:
        async with RedisEngine(place_of(url)) as own:
            await own.insert([make_job()])
        try:
            await engine.stats()
        except EngineUnavailable as error:
            return str(error)
        return "it used what is not its own"

    engine.direct().insert([make_job()])
    return asyncio.run(use())


def test_children_of_a_busy_parent_never_hang(tmp_path: Path, valkey_store: str, scaled: Scaled):
    rounds = scaled(4, 500)
    run(BUSY_PARENT, valkey_store, str(rounds), cwd=tmp_path, seconds=scaled(50, 3000))


def test_a_worker_that_forks_keeps_its_leases(tmp_path: Path, valkey_store: str, scaled: Scaled):
    rounds, seconds = scaled(8, 500), scaled(2, 20)
    printed = run(
        RENEWING_PARENT, valkey_store, str(rounds), str(seconds), cwd=tmp_path, seconds=50
    )
    assert printed.strip() == "done"
