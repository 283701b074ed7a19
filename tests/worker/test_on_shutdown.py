"""What becomes of running jobs at a shutdown, as each of them says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from tenure import INJECTED, JobContext
from tenure.core.states import State
from tests.worker.kit import PATIENCE, Gate, House, until

pytestmark = pytest.mark.anyio


def body_of(kind: str, gate: Gate, name: str) -> Callable[..., Any]:
    """A body that runs until the gate is opened, or it is stopped."""

    async def on_loop() -> str:
        await gate.wait()
        return "done"

    def in_thread(*, ctx: JobContext = INJECTED) -> str:
        gate.entered += 1
        deadline = time.monotonic() + PATIENCE
        while not gate.open and time.monotonic() < deadline:
            ctx.check()
            time.sleep(0.002)
        return "done"

    function: Callable[..., Any] = on_loop if kind == "async" else in_thread
    function.__name__ = name
    return function


async def test_each_job_ends_as_it_says(house: House, kind: str):
    """The worker gives up on what it may, and waits for the rest, however long it takes."""
    gate = Gate()
    ids = {}
    for choice in (None, "release", "fail", "run_out"):
        task = house.task(body_of(kind, gate, f"body_{choice}"), max_attempts=5)
        ids[choice] = await house.put(task, on_shutdown=choice)
    worker = house.worker(shutdown_timeout=0.05)
    running = asyncio.create_task(worker.run())
    await gate.reached(4)
    worker.stop()
    await until(lambda: worker.running_out and worker.active == 1)
    jobs = {choice: await house.job(job_id) for choice, job_id in ids.items()}
    assert jobs["run_out"].state is State.RUNNING
    for choice in (None, "release"):
        assert (jobs[choice].state, jobs[choice].row.releases) == (State.PENDING, 1)
    failed = jobs["fail"]
    assert failed.error is not None
    assert (failed.state, failed.error.kind, failed.row.failures) == (
        State.FAILED,
        "interrupted",
        1,
    )
    assert not running.done()
    late = await house.put(house.tasks.get("body_run_out"), on_shutdown="run_out")
    gate.open = True
    await asyncio.wait_for(running, PATIENCE)
    assert (await house.job(ids["run_out"])).result == "done"
    assert await house.state(late) is State.PENDING


async def test_a_second_word_ends_those_that_run_out_too(house: House, kind: str):
    gate = Gate()
    job_id = await house.put(house.task(body_of(kind, gate, "body")), on_shutdown="run_out")
    worker = house.worker(shutdown_timeout=0.01)
    running = asyncio.create_task(worker.run())
    await gate.reached()
    worker.stop()
    await until(lambda: worker.running_out)
    worker.stop()
    await asyncio.wait_for(running, PATIENCE)
    job = await house.job(job_id)
    assert (job.state, job.row.releases, worker.running_out) == (State.PENDING, 1, False)


async def test_what_ends_before_the_patience_does_is_as_always(house: House, kind: str):
    gate = Gate()
    ids = [
        await house.put(house.task(body_of(kind, gate, choice)), on_shutdown=choice)
        for choice in ("release", "run_out", "fail")
    ]
    worker = house.worker(shutdown_timeout=60)
    running = asyncio.create_task(worker.run())
    await gate.reached(3)
    worker.stop()
    gate.open = True
    await asyncio.wait_for(running, PATIENCE)
    assert [(await house.job(one)).result for one in ids] == ["done"] * 3


async def test_one_that_runs_out_still_has_its_timeout_and_can_be_cancelled(
    house: House, kind: str
):
    gate = Gate()
    task = house.task(body_of(kind, gate, "body"), timeout=0.2)
    timed = await house.put(task, on_shutdown="run_out")
    cancelled = await house.put(
        house.task(body_of(kind, gate, "other")), on_shutdown="run_out", timeout=None
    )
    worker = house.worker(shutdown_timeout=0.01)
    running = asyncio.create_task(worker.run())
    await gate.reached(2)
    worker.stop()
    await until(lambda: worker.running_out)
    await house.engine.cancel([cancelled])
    await asyncio.wait_for(running, PATIENCE)
    assert await house.state(timed) is State.FAILED
    assert await house.state(cancelled) is State.CANCELLED


async def test_the_interruptions_of_a_job_have_a_cap(house: House, kind: str):
    gate = Gate()
    task = house.task(body_of(kind, gate, "body"), max_interruptions=1)
    job_id = await house.put(task)
    for number in (1, 2):
        worker = house.worker(shutdown_timeout=0)
        running = asyncio.create_task(worker.run())
        await gate.reached(number)
        worker.stop()
        await asyncio.wait_for(running, PATIENCE)
    job = await house.job(job_id)
    assert job.error is not None
    assert (job.state, job.error.kind, job.row.releases) == (State.FAILED, "interrupted", 2)
