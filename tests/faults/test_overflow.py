"""Overflow: a number that some layer cannot hold changes order, or meets another row."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tenure import QueueService
from tenure.core.job import PRIORITY_MAX, PRIORITY_MIN, NewJob
from tenure.errors import TenureError
from tests.worker.kit import House

pytestmark = pytest.mark.anyio

BAD: list[Any] = [
    2**31,
    -(2**31) - 1,
    2**53 + 1,
    -(2**53) - 1,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    10**400,
    True,
    1.0,
    "5",
    float("nan"),
]
OPTIONS = ["priority", "max_attempts", "max_lapses", "max_interruptions"]


async def body(value: Any = None) -> Any:
    return value


@pytest.mark.parametrize("option", OPTIONS)
async def test_a_number_out_of_range_is_refused_by_the_name_of_its_option(
    jobs: QueueService, option: str
):
    task = jobs.task(body)
    for value in BAD:
        with pytest.raises(TenureError, match=option):
            await jobs.enqueue(task.options(**{option: value}).bind())
    assert await jobs.find() == []


@pytest.mark.parametrize("option", ["concurrency", "threads", "lease"])
async def test_a_worker_refuses_them_too(jobs: QueueService, option: str):
    values: list[Any] = [0, -1, 2**31, 2**63, True, "5", float("nan")]
    for value in values:
        with pytest.raises(TenureError, match=option):
            jobs.worker(**{option: value})


async def test_large_integers_come_back_exactly_or_are_refused(jobs: QueueService):
    task, kept = jobs.task(body), {}
    for value in (2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**64, 10**30):
        try:
            kept[value] = await jobs.enqueue(task, value)
        except TenureError:
            assert not -(2**63) <= value < 2**64
    await jobs.worker(burst=True).run()
    assert len(kept) >= 4
    for value, handle in kept.items():
        assert await handle.result(0) == value
        assert (await handle.job()).arguments == {"value": value}


@pytest.mark.parametrize("priority", [PRIORITY_MIN, 0, PRIORITY_MAX])
async def test_first_in_is_first_out_at_both_ends_of_the_range(house: House, priority: int):
    """In the same instant, too, and whatever the order in which they were written."""
    task = house.task(body)
    ids = [f"{n:04}" for n in range(50)]
    now = 1_700_000_000_000_500
    mixed = random.Random(1).sample(ids, len(ids))
    for job_id in mixed:
        await _put(house, task.name, job_id, priority, now)
    taken = await house.steal(now=now)
    assert [job.id for job in taken] == ids


async def test_neighbouring_priorities_stay_apart_at_both_ends(house: House):
    now = 1_700_000_000_000_500
    task = house.task(body)
    for at in (PRIORITY_MIN, PRIORITY_MIN + 1, PRIORITY_MAX - 1, PRIORITY_MAX):
        await _put(house, task.name, f"p{at}", at, now)
    # A microsecond of waiting counts at the ends as anywhere.
    await _put(house, task.name, "z-earlier", PRIORITY_MAX, now - 1)
    taken = [job.id for job in await house.steal(now=now)]
    assert taken == [
        "z-earlier",
        f"p{PRIORITY_MAX}",
        f"p{PRIORITY_MAX - 1}",
        f"p{PRIORITY_MIN + 1}",
        f"p{PRIORITY_MIN}",
    ]


async def _put(house: House, task: str, job_id: str, priority: int, now: int) -> None:
    await house.engine.insert([NewJob(id=job_id, task=task, priority=priority)], now=now)
