"""Several worker processes on one file: blocked, frozen, killed."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tenure.core.states import State
from tests.worker.kit import until
from tests.worker.site import Site, open_site

pytestmark = pytest.mark.anyio


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with open_site(tmp_path) as site:
        yield site


async def one_start_one_completion(site: Site, name: str, amount: float, patience: float) -> None:
    await site.start(lease=3.0)
    job_id = await site.put(name, amount)
    first = await site.started(job_id)
    await site.start(lease=3.0)
    begun = time.monotonic()
    [job] = await site.house.ended(job_id, timeout=patience)
    assert time.monotonic() - begun > 6
    assert (job.state, job.result, job.claims, job.lapses) == (State.COMPLETED, first, 1, 0)
    assert site.notes("start", job_id) == site.notes("end", job_id) == [first]


async def test_a_blocked_event_loop_keeps_its_lease(site: Site):
    """In real time: a busy loop of 10 s under a lease of 3 s, beside an idle worker."""
    await one_start_one_completion(site, "spin", 10, 20)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "amount"), [("spin_in_thread", 10), ("hold_gil", 30)], ids=["thread", "gil"]
)
async def test_a_busy_thread_keeps_its_lease(site: Site, name: str, amount: int):
    await one_start_one_completion(site, name, amount, 120)


async def test_the_job_of_a_killed_worker_is_run_by_another(site: Site):
    for _ in range(2):
        await site.start()
    job_id = await site.put("sleep", 0.8)
    first = await site.started(job_id)
    site.process(first).kill()
    killed = time.monotonic()
    second = await site.started(job_id, 2)
    assert time.monotonic() - killed < 3
    [job] = await site.house.ended(job_id)
    assert second != first
    assert (job.state, job.result) == (State.COMPLETED, second)
    assert (job.claims, job.lapses, job.row.failures) == (2, 1, 0)


async def test_a_job_that_kills_its_process_is_given_up_and_neighbours_finish(site: Site):
    killer = await site.put("die")
    neighbours = [await site.put("quick") for _ in range(5)]
    for times in (1, 2):
        process = await site.start(concurrency=1)
        await site.started(killer, times)
        assert await asyncio.wait_for(process.wait(), 10) == 9
    await site.start(concurrency=1)
    [job, *others] = await site.house.ended(killer, *neighbours)
    assert job.error is not None
    assert (job.state, job.error.kind, job.lapses) == (State.FAILED, "lapsed", 2)
    assert "vanished 2 times" in job.error.message
    assert len(site.notes("start", killer)) == 2
    assert {other.state for other in others} == {State.COMPLETED}
    assert all(len(site.notes("start", other.id)) == 1 for other in others)


async def test_what_a_frozen_worker_brings_late_is_refused(site: Site):
    for _ in range(2):
        await site.start()
    job_id = await site.put("sleep", 1.0)
    first = await site.started(job_id)
    frozen = site.process(first)
    await site.freeze(frozen)
    second = await site.started(job_id, 2)
    [job] = await site.house.ended(job_id)
    frozen.send_signal(signal.SIGCONT)
    await until(lambda: "lost its lease" in site.errors(frozen))
    assert second != first
    assert await site.house.job(job_id) == job  # nothing came after it
    assert (job.result, job.claims, job.lapses) == (second, 2, 1)
    assert site.errors(frozen).count(f"job {job_id} (sleep) lost its lease") == 1
    # It works on.
    site.process(second).kill()
    await site.process(second).wait()
    later = await site.put("quick")
    [job] = await site.house.ended(later)
    assert job.result == first


async def test_a_cancel_is_heard_by_another_process(site: Site):
    await site.start(lease=60, poll_max=60)
    job_id = await site.put("wait")
    await site.started(job_id)
    asked = time.monotonic()
    await site.house.engine.cancel([job_id])
    [job] = await site.house.ended(job_id)
    assert job.state is State.CANCELLED
    assert time.monotonic() - asked < 1.5


async def test_an_enqueue_is_heard_by_another_process(site: Site):
    await site.start(poll_max=60)
    await site.house.ended(await site.put("quick"))
    asked = time.monotonic()
    await site.house.ended(await site.put("quick", delay=100_000))
    assert time.monotonic() - asked < 1.5
