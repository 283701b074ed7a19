"""Retry storms: all attempts burn in a moment, or all jobs come back in the same one."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import httpx
import pytest

from tenure import QueueService, RetryPolicy, retry_after_of
from tenure.core.job import JobError
from tenure.core.outcomes import Errored
from tenure.core.rules import decide
from tenure.core.states import State
from tests.worker.kit import House, until
from tests.worker.puppet import Strings

pytestmark = pytest.mark.anyio

SECOND = 1_000_000


async def body() -> None:
    raise ConnectionError("the dependency is away")


async def test_by_default_attempts_outlast_a_dependency_that_is_away_for_a_minute(
    house: House,
):
    """Followed through the store, by its clock, at the worst throw of the dice."""
    job_id = await house.put(house.task(body, max_attempts=5), retry=None)
    now = (await house.job(job_id)).row.created_at
    waits = []
    while (job := await house.job(job_id)).state is State.PENDING:
        waits.append(max(0, job.row.available_at - now))
        now = max(now, job.row.available_at)
        [held] = await house.steal(now=now)
        error = JobError(kind="ConnectionError", message="away", attempt=1, at=now)
        settlement = decide(held.row, Errored(error), now=now, roll=0.999)
        await house.engine.settle([settlement], now=now)
    assert (job.state, len(waits)) == (State.FAILED, 5)
    assert sum(waits) > 60 * SECOND
    assert waits[0] == 0
    assert all(later > 2 * sooner for sooner, later in pairwise(waits[1:]))


async def test_a_base_of_zero_does_not_burn_all_attempts_in_one_look(
    memory: tuple[House, Strings],
):
    house, _ = memory
    starts: list[float] = []

    async def fails() -> None:
        starts.append(time.monotonic())
        raise ValueError("no")

    task = house.task(fails, max_attempts=4, retry=RetryPolicy(base=0))
    job_id = await house.put(task)
    async with house.working(poll_max=0.01):
        [job] = await house.ended(job_id)
    assert (job.state, len(starts)) == (State.FAILED, 4)
    assert all(b - a > 0.07 for a, b in pairwise(starts))


async def test_jobs_that_failed_together_do_not_come_back_together(house: House):
    task = house.task(body, max_attempts=2)
    ids = [await house.put(task, retry=None) for _ in range(100)]
    await house.burst(concurrency=100)
    due = sorted([(await house.job(job_id)).row.available_at for job_id in ids])
    assert due[-1] - due[0] > SECOND // 2
    assert len(set(due)) > 50


async def test_jobs_that_a_server_put_off_together_do_not_come_back_together(house: House):
    """`Retry-After: 60` for a hundred at once: none is back before, and they spread after it."""

    def asked() -> None:
        request = httpx.Request("GET", "http://localhost/")
        response = httpx.Response(429, headers={"Retry-After": "60"}, request=request)
        response.raise_for_status()

    task = house.task(asked, max_attempts=2, retry_if=retry_after_of)
    ids = [await house.put(task) for _ in range(100)]
    await house.burst(concurrency=100)
    rows = [(await house.job(job_id)).row for job_id in ids]
    waits = sorted(row.available_at - (row.started_at or 0) for row in rows)
    assert waits[0] >= 60 * SECOND
    assert waits[-1] - waits[0] > 6 * SECOND
    assert len(set(waits)) > 50


async def test_each_job_keeps_the_policy_it_was_enqueued_with(jobs: QueueService):
    """Changing the options in the code is for what is enqueued from then on."""
    task = jobs.task(body)
    old = await jobs.enqueue(task.options(max_attempts=2, retry=RetryPolicy.constant(300)).bind())
    new = await jobs.enqueue(task.options(max_attempts=2, retry=RetryPolicy.constant(30)).bind())
    await jobs.worker(burst=True).run()
    waits = [(await handle.job()).available_at for handle in (old, new)]
    assert 268 < (waits[0] - waits[1]).total_seconds() < 272


async def test_what_cannot_start_yet_costs_a_look_a_second_and_no_attempt(
    memory: tuple[House, Strings],
):
    """A job whose old body still runs in this process is put off, not asked for all the time."""
    house, strings = memory
    release = False

    def stuck() -> None:
        while not release:
            time.sleep(0.01)

    job_id = await house.put(house.task(stuck, timeout=0.05, max_attempts=2))

    async def put_off() -> bool:
        return (await house.job(job_id)).claims >= 2

    async with house.working(concurrency=5):
        await until(put_off)
        before = (await house.job(job_id)).claims
        await asyncio.sleep(0.8)  # most of the time for which it is put off
        job = await house.job(job_id)
        assert job.claims - before <= 1
        assert job.row.failures == 1
        release = True
        await house.engine.cancel([job_id])
        await house.ended(job_id)
    assert strings.calls["claim"] < 40
