"""A claim that took effect but whose reply was lost strands no job."""

from __future__ import annotations

import asyncio

import pytest

from tenure.testing.flaky import Flaky
from tests.worker.kit import House, until

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("lost", [1, 3])
async def test_what_a_lost_claim_took_is_run_under_its_token(house: House, lost: int):
    flaky = Flaky(house.engine)
    flaky.fail("claim", times=lost, after=True)
    house.engine = flaky

    async def body() -> str:
        return "done"

    task = house.task(body)
    ids = [await house.put(task) for _ in range(5)]
    async with house.working(lease=60, poll_max=0.05):
        jobs = await house.ended(*ids)
    assert [job.result for job in jobs] == ["done"] * 5
    assert {job.lapses for job in jobs} == {0}  # a lease of a minute was not waited for
    assert {job.claims for job in jobs} == {1}


async def test_what_is_held_is_not_taken_twice(house: House):
    flaky = Flaky(house.engine)
    house.engine = flaky
    started, go = [], asyncio.Event()

    async def body() -> None:
        started.append(1)
        await go.wait()

    first = await house.put(house.task(body))
    async with house.working(lease=60, poll_max=0.05, concurrency=5):
        await until(lambda: len(started) == 1)
        flaky.fail("claim", times=2, after=True)
        second = await house.put(house.tasks.get("body"))
        await until(lambda: len(started) == 2)
        go.set()
        await house.ended(first, second)
    assert len(started) == 2
