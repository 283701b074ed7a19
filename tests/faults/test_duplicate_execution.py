"""Duplicate execution: a healthy job is taken from its worker and started a second time."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import cast

import pytest

from tenure.core.states import State
from tenure.engines.protocol import Engine
from tenure.testing.flaky import Flaky
from tests.worker.kit import Gate, House, until
from tests.worker.site import Site

pytestmark = pytest.mark.anyio


async def test_sweeps_between_a_claim_and_its_start_take_no_job(house: House):
    """The worker hears of its claim late; housekeeping goes on all the time meanwhile."""
    flaky = Flaky(house.engine)
    slow = House(cast(Engine, flaky))
    gate = Gate()

    async def body() -> None:
        await gate.wait()

    task = slow.task(body)
    ids = [await slow.put(task) for _ in range(5)]
    held = flaky.hold("claim", after=True)
    async with slow.working(lease=5):
        await held.reached()
        swept = [await house.engine.sweep(500) for _ in range(100)]
        held.let_go()
        await gate.reached(5)
        swept += [await house.engine.sweep(500) for _ in range(100)]
        gate.open = True
        jobs = await slow.ended(*ids)
        swept += [await house.engine.sweep(500) for _ in range(100)]
        jobs = [await slow.job(job.id) for job in jobs]
    slow.keeper.close()
    assert not any(swept)
    assert gate.entered == 5
    assert {(job.state, job.claims, job.lapses) for job in jobs} == {(State.COMPLETED, 1, 0)}


async def test_what_ended_is_never_revived_however_late_a_sweep_comes(house: House):
    async def body() -> str:
        return "done"

    ids = [await house.put(house.task(body)) for _ in range(10)]
    far = 4_000_000_000_000_000  # longer than any lease
    async with house.working():
        await asyncio.gather(house.ended(*ids), *(house.engine.sweep(500) for _ in range(50)))
    before = [await house.job(job_id) for job_id in ids]
    assert await house.engine.sweep(500, now=far) == []
    assert await house.steal(now=far) == []
    assert [await house.job(job_id) for job_id in ids] == before


async def test_a_worker_frozen_before_it_reports_the_end_counts_once(site: Site, tmp_path: Path):
    """The body is about to return, the outcome is not written yet, and the process stands still."""
    for _ in range(2):
        await site.start()
    job_id = await site.put("linger_once", str(tmp_path / "flag"))
    first = await site.started(job_id)
    frozen = site.process(first)
    await site.freeze(frozen)
    (tmp_path / "flag.go").touch()
    second = await site.started(job_id, 2)
    [job] = await site.house.ended(job_id)
    frozen.send_signal(signal.SIGCONT)
    await until(lambda: f"job {job_id} (linger_once) lost its lease" in site.errors(frozen))
    assert (job.state, job.result, job.lapses) == (State.COMPLETED, second, 1)
    assert await site.house.job(job_id) == job
    assert "Traceback" not in site.errors(frozen)
    assert site.errors(frozen).count("lost its lease") == 1
    # It goes on with what comes.
    site.process(second).kill()
    await site.process(second).wait()
    later = await site.put("quick")
    assert (await site.house.ended(later))[0].result == first
