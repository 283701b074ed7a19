"""Poison pills: a job that kills its process is recovered for ever, and takes others along."""

from __future__ import annotations

import asyncio

import pytest

from tenure.core.states import State
from tests.worker.kit import House, until
from tests.worker.site import Site

pytestmark = pytest.mark.anyio


async def test_a_killer_ends_by_its_budget_whoever_restarts_the_workers(site: Site):
    """Two processes under supervision; what is in the queue besides is run."""
    killer = await site.put("die", max_lapses=2)
    for _ in range(2):
        await site.start(concurrency=1, lease=1.0)

    async def supervise() -> None:
        while True:
            for process in site.processes:
                if process.returncode is not None and process not in replaced:
                    replaced.append(process)
                    await site.start(concurrency=1, lease=1.0)
            await asyncio.sleep(0.02)

    replaced: list[asyncio.subprocess.Process] = []
    supervising = asyncio.create_task(supervise())
    await site.started(killer)
    neighbours = [await site.put("quick") for _ in range(7)]
    [job, *others] = await site.house.ended(killer, *neighbours, timeout=30)
    supervising.cancel()
    assert job.error is not None
    assert (job.state, job.error.kind) == (State.FAILED, "lapsed")
    assert len(site.notes("start", killer)) == job.lapses == len(replaced) == 3
    assert {other.state for other in others} == {State.COMPLETED}
    assert all(other.lapses == 0 for other in others)


@pytest.mark.parametrize("way", ["claim", "sweep", "both"])
async def test_every_way_of_recovery_counts_against_one_budget(house: House, way: str):
    async def body() -> None:
        pass

    job_id = await house.put(house.task(body), max_lapses=3)
    [job] = await house.steal()
    for number in range(1, 10):
        now = job.row.lease_until
        by_sweep = way == "sweep" or (way == "both" and number % 2)
        if by_sweep:
            await house.engine.sweep(10, now=now)
        taken = await house.steal(owner=f"w{number}", now=now)
        if not taken:
            break
        [job] = taken
        if job.lapses > 3:
            break
    job = await house.job(job_id)
    assert job.lapses == 4
    if way == "sweep":
        assert job.state is State.FAILED  # without any worker
    await house.engine.sweep(10, now=4_000_000_000_000_000)
    await house.burst()
    job = await house.job(job_id)
    assert job.error is not None
    assert (job.state, job.error.kind) == (State.FAILED, "lapsed")
    assert "job.started" not in house.names(job_id)


async def test_what_came_to_an_end_before_the_death_is_not_run_again(site: Site):
    """Jobs of the same process: an outcome that was written is not taken back by the crash."""
    process = await site.start(concurrency=8, lease=1.0)
    done = [await site.put("quick") for _ in range(7)]
    await site.house.ended(*done)
    killer = await site.put("die", max_lapses=0)
    await asyncio.wait_for(process.wait(), 10)
    await site.start(concurrency=8, lease=1.0)
    [job] = await site.house.ended(killer)
    assert job.state is State.FAILED
    await until(lambda: all(len(site.notes("start", job_id)) == 1 for job_id in done))


async def test_a_killer_does_not_take_its_neighbours_along(site: Site):
    """All are claimed together again and again; in the end each suspect runs by itself."""
    killer = await site.put("die", max_lapses=3)
    neighbours = [await site.put("sleep", 0.3) for _ in range(7)]
    await site.start(concurrency=8, lease=1.0)

    async def supervise() -> None:
        while True:
            await site.processes[-1].wait()
            await site.start(concurrency=8, lease=1.0)

    supervising = asyncio.create_task(supervise())
    [job, *others] = await site.house.ended(killer, *neighbours, timeout=45)
    supervising.cancel()
    assert (job.state, job.lapses) == (State.FAILED, 4)
    assert {other.state for other in others} == {State.COMPLETED}
    assert max(other.lapses for other in others) == 3  # they did run beside it
