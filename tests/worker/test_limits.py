"""Workers and limits: who sleeps wakes in time, and all run in the end."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from tenure.core.durations import SECOND
from tenure.core.fleet import QueueChange
from tenure.core.limits import NO_LIMITS, Limits, Rate
from tests.worker.kit import NEVER, Gate, House, dormant

pytestmark = pytest.mark.anyio


async def limit(house: House, limits: Limits) -> None:
    await house.engine.configure(QueueChange("default", limits=limits))


@pytest.mark.parametrize("limits", [Limits(concurrency=1), Limits(key_concurrency=1)])
async def test_a_worker_that_sleeps_wakes_when_a_slot_is_free(house: House, limits: Limits):
    gate, running, most = Gate(), 0, 0

    async def body() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1

    await limit(house, limits)
    task = house.task(body)
    ids = [await house.put(task, concurrency_key="k") for _ in range(4)]
    idle: dict[str, Any] = {"concurrency": 4, "poll_max": NEVER}
    async with house.working(**idle) as one, house.working(**idle) as two:
        await gate.reached()
        await dormant(one)
        await dormant(two)
        gate.open = True
        await house.ended(*ids)
    assert most == 1


@pytest.mark.parametrize(
    "limits", [Limits(rate=Rate(1, SECOND // 5)), Limits(key_rate=Rate(1, SECOND // 5))]
)
async def test_a_worker_that_sleeps_wakes_when_the_rate_allows_more(house: House, limits: Limits):
    starts: list[float] = []

    async def body() -> None:
        starts.append(asyncio.get_running_loop().time())

    await limit(house, limits)
    task = house.task(body)
    ids = [await house.put(task, rate_key="r") for _ in range(4)]
    worker = house.worker(concurrency=4, poll_max=NEVER)
    worker._poller._wait = NEVER  # next_due alone tells when to look
    async with house.working(worker):
        await house.ended(*ids)
    rows = [await house.job(job_id) for job_id in ids]
    at = sorted(row.row.started_at or 0 for row in rows)
    assert all(later - sooner >= SECOND // 5 for sooner, later in pairwise(at))


async def test_a_limit_that_is_lifted_is_heard_of(house: House):
    gate = Gate()

    async def body() -> None:
        await gate.wait()

    await limit(house, Limits(key_concurrency=1))
    task = house.task(body)
    ids = [await house.put(task, concurrency_key="k") for _ in range(3)]
    async with house.working(concurrency=4, poll_max=NEVER) as worker:
        await gate.reached()
        await dormant(worker)
        await limit(house, NO_LIMITS)
        await gate.reached(3)
        gate.open = True
        await house.ended(*ids)
