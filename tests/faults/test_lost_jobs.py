"""Lost jobs: a crash or an outage at the worst moment, and a job that nobody ever runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tenure.core.fleet import Flaw
from tenure.core.job import NewJob
from tenure.core.states import State
from tenure.engines.sqlite import SQLiteEngine
from tests.faults.scripts import run
from tests.worker.kit import House, until
from tests.worker.puppet import Strings

pytestmark = pytest.mark.anyio
Scaled = Callable[[int, int], int]

DIE_AFTER_CLAIM = """
import asyncio, os, signal, sys
from tenure.engines.protocol import Claim
from tenure.engines.sqlite import SQLiteEngine

async def main(path, owner):
    async with SQLiteEngine(path) as engine:
        claim = Claim(owner=owner, limit=3, lease=1_000, queues=("default", "other"))
        assert await engine.claim(claim)
        os.kill(os.getpid(), signal.SIGKILL)

for number in range(int(sys.argv[2])):
    pid = os.fork()  # before anything is open
    if pid == 0:
        asyncio.run(main(sys.argv[1], f"w{number}"))
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
"""

DIE_WHILE_INSERTING = """
import asyncio, os, random, signal, sys, time
from tenure.core.fleet import Flaw
from tenure.core.job import NewJob
from tenure.engines.sqlite import SQLiteEngine

async def main(path, number):
    async with SQLiteEngine(path) as engine:
        for n in range(1000):
            job = NewJob(id=f"{number:03}-{n:03}", task="quick", unique_key=f"{number}-{n}")
            await engine.insert([job])
            os.write(1, b".")

dice = random.Random(5)
for number in range(int(sys.argv[2])):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writing, 1)
        asyncio.run(main(sys.argv[1], number))
        os._exit(0)
    os.close(writing)
    for _ in range(dice.randrange(1, 8)):
        assert os.read(reading, 1)
    time.sleep(dice.random() * 0.002)  # to hit any moment of an insert
    os.kill(pid, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    os.close(reading)
"""


async def quick() -> str:
    return "ran"


def called_again(strings: Strings, before: int) -> bool:
    return strings.calls["claim"] >= before + 2


async def test_a_worker_that_dies_between_claim_and_start_loses_nothing(
    tmp_path: Path, scaled: Scaled
):
    """The claim is one write: there is no moment at which a job is in nobody's books."""
    rounds, path = scaled(12, 500), tmp_path / "jobs.db"
    async with SQLiteEngine(path) as engine:
        house = House(engine)
        task = house.task(quick)
        queues = ("default", "other")
        ids = [await house.put(task, queue=queues[n % 2], max_lapses=1000) for n in range(12)]
    run(DIE_AFTER_CLAIM, str(path), str(rounds), cwd=tmp_path, seconds=50)
    async with engine:
        await house.burst(queues=queues)
        ended = [await house.job(job_id) for job_id in ids]
        house.keeper.close()
    assert {(job.state, job.result) for job in ended} == {(State.COMPLETED, "ran")}
    assert sum(job.lapses for job in ended) == 3 * rounds


async def test_a_producer_that_dies_while_it_enqueues_leaves_whole_jobs_or_none(
    tmp_path: Path, scaled: Scaled
):
    """Nothing half written, and no unique key that is taken by a job which is in no queue."""
    rounds, path = scaled(12, 200), tmp_path / "jobs.db"
    async with SQLiteEngine(path) as engine:
        await engine.stats()
    run(DIE_WHILE_INSERTING, str(path), str(rounds), cwd=tmp_path, seconds=50)
    async with engine:
        house = House(engine)
        house.task(quick)
        assert [f for f in (await engine.inspect()).findings if f.code in set(Flaw)] == []
        [before] = await engine.stats()
        again = [
            NewJob(id=f"again-{number}-{n}", task="quick", unique_key=f"{number}-{n}")
            for number in range(rounds)
            for n in range(40)
        ]
        answers = await engine.insert(again)
        taken = [answer.id for answer in answers if not answer.created]
        assert taken
        await house.burst(concurrency=500)
        for start in range(0, len(taken), 500):
            rows = await engine.get(taken[start : start + 500])
            assert {row.state for row in rows if row} == {State.COMPLETED}
        [after] = await engine.stats()
        house.keeper.close()
    assert (after.pending, after.running) == (0, 0)
    assert after.completed == before.pending + len(again) - len(taken)


async def test_a_worker_takes_jobs_again_after_a_store_that_flaps(
    memory: tuple[House, Strings],
):
    """Away three times, each time while the worker is still recovering from the last."""
    house, strings = memory
    task = house.task(quick)
    async with house.working(poll_max=0.05):
        for _ in range(3):
            before = strings.calls["claim"]
            strings.fail()
            await until(partial(called_again, strings, before))
            strings.heal()
        jobs = await house.ended(*[await house.put(task) for _ in range(20)])
    assert {(job.state, job.claims) for job in jobs} == {(State.COMPLETED, 1)}
