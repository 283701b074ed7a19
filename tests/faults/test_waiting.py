"""Waiting: whoever waits for a result waits for ever, whatever became of the job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from tenure import JobFailed, JobHandle, QueueService, handles
from tenure.engines.protocol import Prunable
from tenure.errors import JobCancelled, JobExpired, JobNotFound
from tests.worker.kit import until

pytestmark = pytest.mark.anyio
Scaled = Callable[[int, int], int]


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handles, "_POLL_SECONDS", 0.1)


async def fails() -> None:
    raise ValueError("no")


async def works() -> str:
    return "done"


async def never() -> None:
    await asyncio.sleep(60)


async def complete(jobs: QueueService, handle: JobHandle[Any]) -> None:
    await jobs.worker(burst=True).run()


async def cancel(jobs: QueueService, handle: JobHandle[Any]) -> None:
    await handle.cancel()


async def expire(jobs: QueueService, handle: JobHandle[Any]) -> None:
    await jobs._life.engine.sweep(10, now=4_000_000_000_000_000)


async def prune(jobs: QueueService, handle: JobHandle[Any]) -> None:
    await handle.cancel()
    await jobs._life.engine.prune(Prunable.JOBS, 4_000_000_000_000_000)


async def force(jobs: QueueService, handle: JobHandle[Any]) -> None:
    worker = jobs.worker(stop_grace=0.1)
    running = asyncio.create_task(worker.run())

    async def begun() -> bool:
        return (await handle.job()).state == "running"

    await until(begun)
    await handle.cancel(force=True)
    worker.stop()
    worker.stop()
    await running


ENDS: dict[str, tuple[Any, dict[str, Any], Any, Any]] = {
    "completed": (works, {}, complete, "done"),
    "failed": (fails, {}, complete, JobFailed),
    "cancelled": (works, {}, cancel, JobCancelled),
    "expired": (works, {"expires_in": 3600}, expire, JobExpired),
    "pruned": (works, {}, prune, (JobNotFound, JobCancelled)),
    "forced": (never, {}, force, JobCancelled),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("when", ["before", "at", "after"])
async def test_every_end_is_told_whenever_the_waiting_began(
    jobs: QueueService, end: str, when: str
):
    body, options, act, expected = ENDS[end]
    handle = await jobs.enqueue(jobs.task(**options)(body).bind())
    begun = time.monotonic()
    if when == "before":
        waiting = asyncio.create_task(handle.result(10))
        await asyncio.sleep(0)
        await act(jobs, handle)
    elif when == "at":
        waiting = asyncio.create_task(handle.result(10))
        await asyncio.gather(act(jobs, handle), asyncio.wait({waiting}))
    else:
        await act(jobs, handle)
        waiting = asyncio.create_task(handle.result(10))
    if isinstance(expected, str):
        assert await waiting == expected
    else:
        with pytest.raises(expected):
            await waiting
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("timeout", [0, 0.05])
async def test_without_anybody_to_run_it_the_waiting_ends_by_its_own_limit(
    jobs: QueueService, timeout: float
):
    handle = await jobs.enqueue(jobs.task(works))
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        await handle.result(timeout)
    assert time.monotonic() - begun < 1
    assert (await handle.job()).state == "pending"


async def test_an_unknown_job_is_told_at_once(jobs: QueueService):
    begun = time.monotonic()
    with pytest.raises(JobNotFound):
        await jobs.handle("01890000-0000-7000-8000-000000000000").result()
    assert time.monotonic() - begun < 1


async def test_many_wait_each_for_their_own(jobs: QueueService, scaled: Scaled):
    @jobs.task
    async def echo(n: int) -> int:
        return n

    count = scaled(200, 1000)
    handles_ = await jobs.enqueue_many([echo.bind(n) for n in range(count)])
    waiting = asyncio.gather(*(handle.result(30) for handle in handles_))
    worker = jobs.worker(concurrency=50)
    running = asyncio.create_task(worker.run())
    assert await waiting == list(range(count))
    worker.stop()
    await running


async def test_a_result_outlives_a_restart_of_the_store_meanwhile(tmp_path):
    jobs = QueueService(f"sqlite:///{tmp_path}/jobs.db")
    handle = await jobs.enqueue(jobs.task(works))
    await jobs.close()
    await jobs.worker(burst=True).run()
    await jobs.close()
    assert await handle.result(5) == "done"
    await jobs.close()
