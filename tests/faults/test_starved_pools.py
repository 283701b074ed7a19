"""Starved pools: what bodies occupy is what the worker itself would need to go on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tenure import QueueService
from tests.worker.kit import House, until

pytestmark = pytest.mark.anyio


async def test_a_full_default_pool_of_the_loop_stops_nothing_of_ours(tmp_path: Path):
    """Bodies fill the loop's own threads; claims, renewals, ends and the closing go on."""
    loop = asyncio.get_running_loop()
    small = ThreadPoolExecutor(2)
    loop.set_default_executor(small)
    let_go = threading.Event()
    jobs = QueueService(f"sqlite:///{tmp_path}/jobs.db", lease=1.0)

    @jobs.task
    async def occupies() -> None:
        await asyncio.to_thread(let_go.wait, 30)

    @jobs.task
    async def quick() -> int:
        return 1

    @jobs.task
    def threaded() -> int:
        return 2

    async with jobs:
        worker = jobs.worker(concurrency=20, stop_grace=0.2)
        running = asyncio.create_task(worker.run())
        full = [await jobs.enqueue(occupies) for _ in range(10)]
        await until(lambda: worker.active == 10)
        leases = [(await handle.job()).lease_until for handle in full]
        for task, result in ((quick, 1), (threaded, 2)) * 3:
            assert await (await jobs.enqueue(task)).result(5) == result

        async def renewed() -> bool:
            now = [(await handle.job()).lease_until for handle in full]
            return all(a and b and a < b for a, b in zip(leases, now, strict=True))

        await until(renewed, 3)
        await jobs.cancel(full[0].id)
        assert (await full[0].wait(5)).state == "cancelled"
        begun = time.monotonic()
        worker.stop()
        worker.stop()
        await asyncio.wait_for(running, 10)
        assert time.monotonic() - begun < 5
    let_go.set()
    small.shutdown()
    assert {(job.claims, job.lapses) for job in await _all(jobs, full)} == {(1, 0)}


async def _all(jobs: QueueService, handles: list[Any]) -> list[Any]:
    async with jobs:
        return [await handle.job() for handle in handles]


async def test_parents_that_wait_for_children_hold_their_own_places_only(
    jobs: QueueService, kind: str
):
    """All places taken by parents: no more of them run than there are places, and the children
    run as soon as a parent's patience ends. Nothing stays stuck."""
    inside: list[int] = []
    most = 0

    @jobs.task
    async def child(n: int) -> int:
        return n

    @contextmanager
    def counted() -> Iterator[None]:
        nonlocal most
        inside.append(1)
        most = max(most, len(inside))
        yield
        inside.pop()

    @jobs.task
    async def on_loop() -> None:
        with counted():
            for handle in [await jobs.enqueue(child, n) for n in range(2)]:
                with suppress(TimeoutError):
                    await handle.result(timeout=0.15)

    @jobs.task
    def in_thread() -> None:
        with counted():
            for handle in [jobs.sync.enqueue(child, n) for n in range(2)]:
                with suppress(TimeoutError):
                    handle.result(timeout=0.15)

    worker = jobs.worker(concurrency=4)
    running = asyncio.create_task(worker.run())
    parents = [await jobs.enqueue(on_loop if kind == "async" else in_thread) for _ in range(8)]
    for handle in parents:
        assert (await handle.wait(20)).state == "completed"
    await until(lambda: worker.active == 0)
    worker.stop()
    await running
    assert most == 4
    children = await jobs.find(tasks=["child"], limit=100)
    assert len(children) == 16
    assert {job.state for job in children} == {"completed"}


async def test_a_pool_full_of_waiting_threads_holds_up_no_async_body(house: House):
    let_go = threading.Event()

    def waits() -> None:
        let_go.wait(30)

    async def quick() -> str:
        return "done"

    blocked = [await house.put(house.task(waits)) for _ in range(5)]
    async with house.working(concurrency=10, threads=2) as worker:
        await until(lambda: worker.active == 5)
        jobs = await house.ended(*[await house.put(house.task(quick)) for _ in range(20)])
        assert {job.result for job in jobs} == {"done"}
        assert worker.active == 5
        let_go.set()
        await house.ended(*blocked)
