"""Starved leases: what a body does keeps its worker from renewing, or one failure ends renewal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tenure.core.states import State
from tests.worker.kit import House, until
from tests.worker.puppet import Strings
from tests.worker.site import Site

pytestmark = pytest.mark.anyio
Scaled = Callable[[int, int], int]


async def test_c_code_that_lets_no_thread_run_is_taken_over_and_refused(site: Site, tmp_path: Path):
    """Nothing in that process can renew, so another one runs the job, and the first is told."""
    for _ in range(2):
        await site.start(lease=1.0)
    job_id = await site.put("seize_once", str(tmp_path / "flag"), 3)
    first = await site.started(job_id)
    begun = time.monotonic()
    second = await site.started(job_id, 2)
    assert time.monotonic() - begun < 2.7  # by the lease, not by the end of the call
    [job] = await site.house.ended(job_id)
    stuck = site.process(first)
    await until(lambda: f"job {job_id} (seize_once) lost its lease" in site.errors(stuck))
    assert second != first
    assert (job.state, job.result, job.claims, job.lapses) == (State.COMPLETED, second, 2, 1)
    assert await site.house.job(job_id) == job


async def test_many_busy_threads_keep_their_leases(site: Site, scaled: Scaled):
    """More threads than cores, all busy, beside a worker that would take what lapses."""
    count, seconds = scaled(8, 40), scaled(33, 200) / 10
    busy = await site.start(concurrency=count, lease=3.0)
    ids = [await site.put("spin_in_thread", seconds) for _ in range(count)]
    await asyncio.gather(*(site.started(job_id) for job_id in ids))
    await site.start(lease=3.0)
    jobs = await site.house.ended(*ids, timeout=50)
    assert {(job.state, job.claims, job.lapses) for job in jobs} == {(State.COMPLETED, 1, 0)}
    assert {job.result for job in jobs} == {busy.pid}


async def test_renewals_that_fail_for_most_of_a_lease_start_nothing_twice(
    memory: tuple[House, Strings],
):
    house, strings = memory
    starts: list[float] = []

    async def body() -> None:
        starts.append(time.monotonic())
        await asyncio.sleep(1.7)

    job_id = await house.put(house.task(body))
    async with house.working(lease=1.0), house.working(lease=1.0):
        await until(lambda: strings.calls["extend"] >= 1)
        asked = time.monotonic()
        strings.fail("extend")
        await until(lambda: strings.calls["extend"] >= 2)
        await asyncio.sleep(asked + 0.6 - time.monotonic())  # this long it is away
        strings.heal()
        [job] = await house.ended(job_id)
    assert len(starts) == 1
    assert (job.state, job.claims, job.lapses) == (State.COMPLETED, 1, 0)
    assert strings.calls["extend"] >= 4


async def test_a_definitive_refusal_stops_the_body_and_is_not_asked_again(
    memory: tuple[House, Strings],
):
    house, strings = memory
    stopped: list[str] = []

    async def body() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append("stopped")
            raise

    job_id = await house.put(house.task(body))
    async with house.working(lease=1.0) as worker:
        await until(lambda: strings.calls["extend"] >= 1)
        await house.engine.cancel([job_id], force=True)  # takes it from its holder
        await until(lambda: worker.active == 0)
        asked = strings.calls["extend"]
        await asyncio.sleep(0.7)  # two intervals
        assert strings.calls["extend"] == asked
    assert stopped == ["stopped"]
    assert house.names(job_id).count("job.lease_lost") == 1
