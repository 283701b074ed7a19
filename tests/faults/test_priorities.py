"""Priorities: the low ones never run, or a job that comes back has lost its place."""

from __future__ import annotations

import pytest

from tenure.core.job import NewJob
from tenure.core.outcomes import Released, ReleaseReason, Snoozed
from tenure.core.rules import decide
from tenure.engines.protocol import Claim
from tests.worker.kit import House

pytestmark = pytest.mark.anyio

MINUTE = 60_000_000
HOUR = 60 * MINUTE
NOW = 1_700_000_000_000_000


async def body() -> None:
    pass


class Line:
    """Jobs in a store, by its own clock; each is taken and gone."""

    def __init__(self, house: House) -> None:
        self.house = house
        self._task = house.task(body).name
        self._count = 0

    async def put(self, name: str, now: int, priority: int = 0) -> str:
        self._count += 1
        job_id = f"{self._count:06}-{name}"
        new = NewJob(id=job_id, task=self._task, priority=priority)
        await self.house.engine.insert([new], now=now)
        return job_id

    async def take(self, now: int) -> list[str]:
        jobs = await self.house.steal(now=now)
        return [job.id for job in jobs]

    async def one(self, now: int) -> str:
        claim = Claim(owner="w", limit=1, lease=10 * HOUR)
        [row] = await self.house.engine.claim(claim, now=now)
        return row.id


async def test_low_ones_run_within_a_bound_though_high_ones_never_cease(house: House):
    """Five units lower is five hours later, and no more than that, at 110% of what is run."""
    line = Line(house)
    low = {await line.put("low", NOW) for _ in range(20)}
    started: dict[str, int] = {}
    for minute in range(7 * 60):
        now = NOW + minute * MINUTE
        await line.put("high", now, priority=5)
        if minute % 10 == 0:
            await line.put("high", now, priority=5)
        taken = await line.one(now)
        if taken in low:
            started[taken] = minute
        if len(started) == len(low):
            break
    assert set(started) == low
    assert min(started.values()) >= 4.5 * 60  # until then priority is what counts
    assert max(started.values()) <= 6.5 * 60


async def test_within_that_bound_the_higher_one_goes_first(house: House):
    line = Line(house)
    low = await line.put("low", NOW)
    high = await line.put("high", NOW + 59 * MINUTE, priority=1)
    late = await line.put("late", NOW + 61 * MINUTE, priority=1)
    assert await line.take(NOW + 62 * MINUTE) == [high, low, late]


WAYS = ["lapse", "sweep", "release", "snooze", "requeue"]


@pytest.mark.parametrize("way", WAYS)
async def test_a_job_that_comes_back_keeps_its_priority(house: House, way: str):
    line, engine = Line(house), house.engine
    high = await line.put("high", NOW, priority=9)
    [held] = await house.steal(now=NOW)
    for _ in range(50):
        await line.put("low", NOW, priority=1)
    now = NOW + 2 * MINUTE
    if way == "sweep":
        await engine.sweep(10, now=now)
    if way == "release":
        settlement = decide(held.row, Released(ReleaseReason.SHUTDOWN), now=now)
        await engine.settle([settlement], now=now)
    if way == "snooze":
        await engine.settle([decide(held.row, Snoozed(MINUTE), now=now)], now=now)
        now += MINUTE
    if way == "requeue":
        await engine.cancel([high], force=True, now=now)
        await engine.requeue([high], now=now)
    taken = await line.take(now)
    assert taken[0] == high
    assert len(taken) == 51
    assert (await house.job(high)).priority == 9


async def test_nothing_is_left_over_once_all_have_run(house: House):
    task = house.task(body)
    ids = [await house.put(task, priority=n % 7, delay=n % 3 * 1000) for n in range(60)]
    await house.engine.cancel(ids[:5])
    async with house.working():
        await house.ended(*ids)
    [stats] = await house.engine.stats()
    assert (stats.pending, stats.running, stats.scheduled) == (0, 0, 0)
    far = 4_000_000_000_000_000
    assert await house.steal(now=far, tasks=None) == []
    assert await house.engine.next_due(["default"], None) is None
