"""Stuck running: the worker is long gone, and something keeps its job from being recovered."""

from __future__ import annotations

import asyncio
import time

import pytest

from tenure.core.fleet import WorkerInfo
from tenure.core.lease import Beat, Extended
from tenure.core.states import State
from tenure.engines.protocol import Claim
from tests.worker.kit import House
from tests.worker.site import Site

pytestmark = pytest.mark.anyio


async def body() -> str:
    return "done"


async def test_a_long_timeout_does_not_delay_recovery(site: Site):
    """A job that may take four hours; the next start comes by the lease of a second."""
    for _ in range(2):
        await site.start()
    job_id = await site.put("sleep", 0.8, timeout=4 * 3600.0)
    first = await site.started(job_id)
    site.process(first).kill()
    killed = time.monotonic()
    await site.started(job_id, 2)
    assert time.monotonic() - killed < 3
    [job] = await site.house.ended(job_id)
    assert (job.state, job.lapses) == (State.COMPLETED, 1)


async def test_a_restart_under_the_same_name_keeps_no_dead_attempt_alive(house: House):
    """As where worker ids come from the host names: the namesake beats for its own jobs only."""
    task = house.task(body)
    dead = await house.put(task)
    [lost] = await house.steal(owner="w-0")
    alive = await house.put(task)
    [kept] = await house.steal(owner="w-0")
    assert (lost.id, kept.id) == (dead, alive)
    end = lost.row.lease_until or 0
    beat = Beat(id=alive, token=kept.token, owner="w-0", seconds=60.0)
    [extension] = await house.engine.extend([beat], now=end - 1)
    assert isinstance(extension, Extended)
    info = WorkerInfo(id="w-0", queues=("default",), tasks=(task.name,), concurrency=1)
    await house.engine.announce(info, 3_600_000_000)
    taken = await house.steal(owner="w-0", now=end)
    assert [(job.id, job.lapses) for job in taken] == [(dead, 1)]


async def test_no_two_workers_have_one_name(house: House):
    assert len({house.worker().id for _ in range(50)}) == 50


async def test_recovery_and_the_roll_of_workers_know_nothing_of_each_other(house: House):
    """The dead worker is taken off the roll before, while and after its job is recovered."""
    ids = [await house.put(house.task(body)) for _ in range(30)]
    info = WorkerInfo(id="dead", queues=("default",), tasks=("body",), concurrency=1)
    await house.engine.announce(info, 3_600_000_000)
    await house.engine.claim(Claim(owner="dead", limit=30, lease=1_000))
    async with house.working(concurrency=30, lease=1.0):
        await asyncio.gather(*(house.engine.announce(info, n % 2) for n in range(20)))
        jobs = await house.ended(*ids)
    assert {(job.result, job.lapses) for job in jobs} == {("done", 1)}
