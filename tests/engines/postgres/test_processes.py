"""Several processes on one store: shared work, clocks that differ, wake-ups, the death of one."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from tenure.clock import OFFSET
from tenure.core.durations import SECOND
from tenure.core.job import JobRow
from tenure.core.schedule import Fired, Schedule, ScheduleChange, Tick
from tenure.engines.protocol import Claim, Signal, Topic
from tests.engines.postgres.conftest import make_job, new_id

pytestmark = pytest.mark.anyio

PRELUDE = """
import asyncio, sys, time
from tenure.clock import IdSource
from tenure.core import rules
from tenure.core.job import NewJob
from tenure.core.outcomes import Completed
from tenure.core.schedule import Tick
from tenure.engines.open import open_engine
from tenure.engines.protocol import Claim

def claim(owner, limit, lease=60_000_000, **more):
    return Claim(owner=owner, limit=limit, lease=lease, tasks=("t",), **more)
"""

CLAIM_ALL = (
    PRELUDE
    + """
async def main(url, owner):
    async with open_engine(url) as engine:
        print("open", flush=True)
        sys.stdin.readline()
        while rows := await engine.claim(claim(owner, 7)):
            for row in rows:
                print(row.id, row.token)
            settled = await engine.settle([rules.decide(r, Completed(), now=0) for r in rows])
            assert all(answer.verdict == "applied" for answer in settled), settled

asyncio.run(main(*sys.argv[1:]))
"""
)

LOOK = (
    PRELUDE
    + """
async def main(url, schedule, revision, at):
    job = NewJob(id=IdSource()(), task="t", queue="ticks")
    tick = Tick(schedule, int(revision), int(at), None, job)
    async with open_engine(url) as engine:
        taken = await engine.claim(claim("other", 10))
        swept = await engine.sweep(10)
        [fired] = await engine.fire([tick])
        print(len(taken), len(swept), fired, time.time_ns() // 1000)

asyncio.run(main(*sys.argv[1:]))
"""
)

HOLD = (
    PRELUDE
    + """
async def main(url):
    async with open_engine(url) as engine:
        rows = await engine.claim(claim("mortal", 3, 1_500_000))
        print(len(rows), flush=True)
        await asyncio.sleep(60)

asyncio.run(main(*sys.argv[1:]))
"""
)


async def test_processes_share_the_work_without_a_double_claim(engine, store, python):
    jobs = [make_job() for _ in range(2000)]
    await engine.insert(jobs)
    processes = [python(CLAIM_ALL, store, f"worker{n}") for n in range(3)]
    for process in processes:
        assert process.stdout.readline() == "open\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [(await asyncio.to_thread(process.communicate))[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    taken = [line.split()[0] for output in outputs for line in output.splitlines()]
    assert sorted(taken) == sorted(job.id for job in jobs)
    assert all(outputs)


@pytest.mark.parametrize("hours", [-1, 1])
async def test_clocks_that_differ_change_nothing(engine, store, python, hours: int):
    """No lease lapses early or late, no job and no tick comes early: the server has the time."""
    await engine.insert([make_job(), make_job(delay=60 * SECOND), make_job(expires_in=60 * SECOND)])
    rows = await engine.claim(Claim(owner="w", limit=2, lease=60 * SECOND, tasks=("t",)))
    assert len(rows) == 2
    at = time.time_ns() // 1000 + 60 * SECOND
    schedule = Schedule(name="s", source="api", task="t", next_at=at)
    [saved] = await engine.save_schedules([ScheduleChange("s", 0, schedule)])
    process = python(LOOK, store, "s", str(saved.revision), str(at), **{OFFSET: str(hours * 3600)})
    output = (await asyncio.to_thread(process.communicate))[0]
    assert output.split()[:3] == ["0", "0", Fired.EARLY]
    # And the other way round: what is due is due, whatever the clock of this host says.
    now = rows[0].lease_until + 1
    swept = await engine.sweep(10, now=now)
    assert {item.id for item in swept} >= {row.id for row in rows}
    tick = Tick("s", saved.revision, at, None, make_job())
    assert await engine.fire([tick], now=at) == [Fired.FIRED]


async def test_the_store_clock_is_the_servers(engine, store, monkeypatch):
    class Wrong:
        def time_us(self) -> int:
            return 1

        def monotonic(self) -> float:
            return time.monotonic()

    monkeypatch.setattr(engine, "_clock", Wrong())
    [answer] = await engine.insert([make_job(id=new_id())])
    [row] = await engine.get([answer.id])
    assert abs(row.created_at - time.time_ns() // 1000) < 60 * SECOND


async def test_a_killed_holder_is_followed_within_its_lease(engine, store, python):
    await engine.insert([make_job() for _ in range(3)])
    process = python(HOLD, store)
    assert await asyncio.to_thread(process.stdout.readline) == "3\n"
    process.send_signal(signal.SIGKILL)
    taken: list[JobRow] = []
    async with asyncio.timeout(20):
        while len(taken) < 3:
            claim = Claim(owner="heir", limit=5, lease=60_000_000, tasks=("t",))
            taken += await engine.claim(claim)
            await asyncio.sleep(0.05)
    assert {(row.lapses, row.claims) for row in taken} == {(1, 2)}


INSERT_ON_DEMAND = (
    PRELUDE
    + """
async def main(url):
    async with open_engine(url) as engine:
        new_id = IdSource()
        print("open", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            await engine.insert([NewJob(id=new_id(), task="t", queue=line.strip())])

asyncio.run(main(*sys.argv[1:]))
"""
)


async def test_another_process_is_heard_at_once(engine, store, python):
    async with engine.listen({Topic.QUEUE}) as listener:
        process = python(INSERT_ON_DEMAND, store)
        assert await asyncio.to_thread(process.stdout.readline) == "open\n"
        waits = []
        for n in range(20):
            process.stdin.write(f"q{n}\n")
            process.stdin.flush()
            started = time.monotonic()
            while Signal(Topic.QUEUE, f"q{n}") not in (heard := await listener.wait(10)):
                assert heard, "nothing was heard"
            waits.append(time.monotonic() - started)
        assert sorted(waits)[10] < 0.2
