"""Shutdown: a deploy loses work, repeats it, or eats up the attempts of what ran."""

from __future__ import annotations

import asyncio
import time

import pytest

from tenure.core.states import State
from tests.cli.test_worker import ended
from tests.worker.kit import Gate, House, until

pytestmark = pytest.mark.anyio


async def test_five_deploys_do_not_fail_a_job_that_is_longer_than_their_interval(house: House):
    """Shutdowns have a budget of their own, and attempts only what goes beyond it."""
    starts: list[float] = []

    async def long() -> str:
        starts.append(time.monotonic())
        if len(starts) <= 5:
            await asyncio.sleep(60)
        return "in the end"

    job_id = await house.put(house.task(long, max_attempts=3))
    for number in range(1, 6):
        worker = house.worker(concurrency=1)
        running = asyncio.create_task(worker.run())
        await until(lambda number=number: len(starts) == number)  # type: ignore[misc]
        worker.stop()
        worker.stop()
        await asyncio.wait_for(running, 10)
    async with house.working():
        [job] = await house.ended(job_id)
    assert (job.state, job.result, len(starts)) == (State.COMPLETED, "in the end", 6)
    assert (job.row.releases, job.lapses) == (5, 0)


async def test_shutdowns_within_their_budget_spend_no_attempt(house: House):
    starts: list[int] = []

    async def once() -> str:
        starts.append(1)
        if len(starts) <= 3:
            await asyncio.sleep(60)
        return "done"

    job_id = await house.put(house.task(once, max_attempts=1))
    for number in range(1, 4):
        worker = house.worker()
        running = asyncio.create_task(worker.run())
        await until(lambda number=number: len(starts) == number)  # type: ignore[misc]
        worker.stop()
        worker.stop()
        await asyncio.wait_for(running, 10)
    await house.burst()
    job = await house.job(job_id)
    assert (job.state, job.row.failures, job.error) == (State.COMPLETED, 0, None)


async def test_a_drain_ends_though_new_work_never_stops_coming(house: House):
    gate = Gate()

    async def body() -> None:
        await gate.wait()

    task, ids, on = house.task(body), [], True

    async def produce() -> None:
        while on:
            ids.append(await house.put(task))
            await asyncio.sleep(0.001)

    producing = asyncio.create_task(produce())
    worker = house.worker(concurrency=5, poll_max=0.01, shutdown_timeout=30)
    running = asyncio.create_task(worker.run())
    await gate.reached(5)
    worker.stop()
    before = len(ids)
    await until(lambda: len(ids) > before + 20)
    assert worker.active == 5
    gate.open = True
    await asyncio.wait_for(running, 5)
    on = False
    await producing
    states = [await house.state(job_id) for job_id in ids]
    assert states.count(State.COMPLETED) == gate.entered == 5
    assert set(states) == {State.COMPLETED, State.PENDING}


async def test_the_record_tells_a_shutdown_from_a_crash(house: House):
    """Each way in which a job comes back has words of its own, and a counter of its own."""

    async def body() -> None:
        pass

    task = house.task(body, max_attempts=1, max_lapses=0, max_interruptions=0)
    crashed, stopped = await house.put(task), await house.put(task)
    jobs = {job.id: job for job in await house.steal()}
    row = jobs[crashed].row
    await house.engine.sweep(1, now=row.lease_until)
    gate = Gate()

    async def waits() -> None:
        await gate.wait()

    interrupted = await house.put(house.task(waits, max_interruptions=0))
    worker = house.worker()
    running = asyncio.create_task(worker.run())
    await gate.reached()
    worker.stop()
    worker.stop()
    await running
    crash, shutdown = (await house.job(crashed)).error, (await house.job(interrupted)).error
    assert crash is not None
    assert shutdown is not None
    assert (crash.kind, shutdown.kind) == ("lapsed", "interrupted")
    assert "vanished" in crash.message
    assert "shutdown" in shutdown.message
    assert (await house.job(stopped)).error is None


def test_a_worker_that_breaks_ends_its_process_with_a_failure(tenure):
    """Nothing that looks alive and takes no more jobs."""
    (tenure.folder / "broken.py").write_text(
        "from app import jobs\n"
        "async def claim(*args, **kwargs):\n"
        "    raise ZeroDivisionError('a defect')\n"
        "jobs._life.engine.claim = claim\n"
    )
    code, _, err = ended(tenure.start("worker", "broken:jobs"))
    assert code not in (0, None)
    assert "the worker ends: ZeroDivisionError" in err
