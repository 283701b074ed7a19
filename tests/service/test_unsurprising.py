"""Small things that surprise users of other queues, and are as one would expect here."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import tenure
from tenure import INJECTED, JobContext, QueueService, RetryPolicy, correlation
from tenure.core.states import State
from tests.service.stores import Store, store

__all__ = ["store"]
pytestmark = pytest.mark.anyio


def test_every_public_name_is_there_and_there_are_few() -> None:
    names: dict[str, Any] = {}
    exec("from tenure import *", names)
    assert set(tenure.__all__) == names.keys() - {"__builtins__"}
    assert len(tenure.__all__) == len(set(tenure.__all__)) <= 32


async def test_extra_keywords_are_those_that_were_given_and_no_more() -> None:
    @asynccontextmanager
    async def provide(context: JobContext) -> AsyncIterator[dict[str, Any]]:
        yield {"db": 1, "unasked": 2}

    async with QueueService("memory://", provider=provide) as jobs:

        @jobs.task
        async def body(*, db: int = INJECTED, ctx: JobContext = INJECTED, **extra: int) -> Any:
            return {"db": db, "attempt": ctx.attempt, **extra}

        handle = await jobs.enqueue(body, x=5)
        await jobs.worker(burst=True).run()
        assert await handle.result(20) == {"db": 1, "attempt": 1, "x": 5}


async def test_parameters_may_be_named_as_options_are() -> None:
    """Options are given by `options(...)`, so no argument is ever taken for one."""
    async with QueueService("memory://") as jobs:

        @jobs.task(priority=3)
        async def body(queue: str, priority: int, delay: float, unique_key: str, task: str) -> Any:
            return [queue, priority, delay, unique_key, task]

        given: dict[str, Any] = {"queue": "q", "priority": 9, "delay": 1e6, "unique_key": "k"}
        handle = await jobs.enqueue(body, **given, task="t")
        job = await handle.job()
        assert (job.queue, job.priority, job.unique_key) == ("default", 3, None)
        await jobs.worker(burst=True).run()
        assert await handle.result(20) == ["q", 9, 1e6, "k", "t"]


def test_each_option_can_be_taken_back() -> None:
    jobs = QueueService("memory://")

    @jobs.task(
        retry=RetryPolicy(), timeout=5, expires_in=5, description="d", actor="a", unique_key="k",
        unique_by="task", log_success=True, log_level=10, delay=7, tags=["x"], metadata={"m": 1},
    )  # fmt: skip
    async def body() -> None: ...

    plain = body.options(
        retry=None, timeout=None, expires_in=None, description=None, actor=None, unique_key=None,
        unique_by=None, log_success=None, log_level=None, delay=0, tags=[], metadata={},
    )  # fmt: skip
    assert plain.spec.of_job == {}
    assert plain.bind().unique_key() is None
    assert body.options(priority=1).spec.actor == "a"


async def test_metadata_is_the_users_alone(store: Store) -> None:
    """Whatever else is known of a job has a place of its own."""
    async with store.service() as jobs:

        @jobs.task(
            metadata={"timeout": "mine"}, timeout=5, retry=RetryPolicy(), unique_by="task",
            description="d", log_success=True, actor="a",
        )  # fmt: skip
        async def body() -> None:
            raise ValueError

        with correlation("request", traceparent=f"00-{'a' * 32}-{'b' * 16}-01"):
            handle = await jobs.enqueue(body)
        await jobs.worker(burst=True).run()
        job = await handle.job()
        assert (job.metadata, job.state) == ({"timeout": "mine"}, State.FAILED)


async def test_closing_keeps_the_loop_going_while_a_thread_does_not_end() -> None:
    leave, entered, ticks = threading.Event(), threading.Event(), 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    async with QueueService("memory://") as jobs:

        @jobs.task
        def stuck() -> None:
            entered.set()
            leave.wait(30)

        await jobs.enqueue(stuck)
        worker = jobs.worker(shutdown_timeout=0, stop_grace=0.1)
        running = asyncio.create_task(worker.run())
        await asyncio.to_thread(entered.wait, 15)
        ticking = asyncio.create_task(tick())
        await asyncio.sleep(0)
        before = ticks
        worker.stop()
        await running
        assert ticks > before
        assert worker.left_behind == 1
    leave.set()
    ticking.cancel()
    await asyncio.gather(ticking, return_exceptions=True)
