# ruff: noqa: PT012 (how a block ends is what is tested)
"""Blocks of deliveries: whose job it is in there, and what the task is told of its end."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tenure import Discard, Handoff, JobContext, State, correlation, current_job
from tenure.ambient import correlation_id
from tenure.core.job import Job, JobError
from tenure.core.retry import RetryPolicy
from tenure.errors import LeaseLost
from tests.service.receiving import Shop
from tests.service.stores import Store, store
from tests.worker.kit import until

__all__ = ["store"]
SOON = RetryPolicy.constant(0.01)
pytestmark = pytest.mark.anyio


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop = Shop()
    async with shop.jobs:
        yield shop
    shop.keeper.close()


class Told:
    """What `on_failure` and `on_lost` of a task were told."""

    def __init__(self) -> None:
        self.failures: list[tuple[Job, JobError]] = []
        self.losses: list[tuple[str, str]] = []
        self.jobs: list[Any] = []

    async def failure(self, job: Job, error: JobError) -> None:
        self.jobs.append(current_job())
        self.failures.append((job, error))

    def loss(self, context: Any, reason: str) -> None:
        self.losses.append((context.job_id, reason))

    @property
    def options(self) -> dict[str, Any]:
        return {"on_failure": self.failure, "on_lost": self.loss}


# Whose job it is


async def test_a_block_works_for_its_job_and_what_is_before_comes_back(store: Store):
    async with store.service() as jobs:

        @jobs.task
        async def act() -> None: ...

        with correlation("request-1"):
            await jobs.enqueue_many([act.bind(), act.bind()])
        with correlation("mine"):
            async with jobs.receive() as deliveries:
                for delivery in deliveries:
                    async with delivery:
                        context = current_job()
                        assert context is not None
                        assert (context.job_id, correlation_id()) == (delivery.id, "request-1")
                        assert context.token == delivery.lease.token
                        context.progress(1, 2)
                        child = await jobs.enqueue(act)
                    assert (current_job(), correlation_id()) == (None, "mine")
                    assert (await child.job()).correlation_id == "request-1"


async def test_a_failing_block_is_left_too(shop: Shop):
    await shop.jobs.enqueue(shop.jobs.tasks.get("add"), 1)
    async with shop.jobs.receive() as deliveries:
        with pytest.raises(ValueError, match="boom"):
            async with deliveries[0]:
                raise ValueError("boom")
        assert current_job() is None


async def test_blocks_at_the_same_time_see_each_their_own(shop: Shop):
    await shop.jobs.enqueue_many([shop.jobs.tasks.get("other").bind() for _ in range(8)])
    seen: dict[str, Any] = {}
    together = asyncio.Barrier(8)

    async def work(delivery: Any) -> None:
        async with delivery:
            await together.wait()
            context = current_job()
            seen[delivery.id] = context and context.job_id

    async with shop.jobs.receive() as deliveries:
        await asyncio.gather(*map(work, deliveries))
    assert len(seen) == 8
    assert all(job_id == found for job_id, found in seen.items())


async def test_a_block_that_is_left_in_another_context_can_be_left(shop: Shop):
    await shop.jobs.enqueue(shop.jobs.tasks.get("other"))
    async with shop.jobs.receive() as deliveries:
        [delivery] = deliveries
        delivery._held.begin()
        contextvars.Context().run(delivery._held.leave)
        delivery._held.leave()
        assert current_job() is None
        await delivery._held.close(None, None)


def test_sync_blocks_work_for_their_jobs(service):
    @service.task
    def act() -> None: ...

    with correlation("request-1"):
        service.sync.enqueue(act)
    for delivery in service.sync.receive():
        with delivery:
            context = current_job()
            assert context is not None
            assert (context.job_id, correlation_id()) == (delivery.id, "request-1")
        assert (current_job(), correlation_id()) == (None, None)


# What the task is told


@pytest.mark.parametrize("error", [ValueError("boom"), Discard("hopeless")], ids=repr)
async def test_a_failure_is_told_once(store: Store, error: Exception):
    told = Told()
    async with store.service() as jobs:

        @jobs.task(max_attempts=2, retry=SOON, **told.options)
        async def act() -> None: ...

        handle = await jobs.enqueue(act)
        attempts = 0
        while not (await handle.job()).state.final:
            async for delivery in jobs.receive(wait=5):
                attempts += 1
                try:
                    async with delivery:
                        raise error
                except ValueError:
                    pass
        await until(lambda: told.failures)
    assert attempts == (1 if isinstance(error, Discard) else 2)
    [(job, found)] = told.failures
    assert (job.id, job.state, job.row.failures) == (handle.id, State.FAILED, attempts)
    assert (found.message, told.losses) == (str(error), [])
    assert told.jobs[0].job_id == handle.id


async def test_what_may_not_be_started_any_more_is_told(shop: Shop):
    told = Told()
    act = shop.jobs.task(name="act", max_lapses=0, **told.options)(_nothing)
    handle = await shop.jobs.enqueue(act)
    await shop.jobs.claim()
    shop.clock.advance(60)
    async with shop.jobs.receive() as deliveries:
        assert not deliveries
        await until(lambda: told.failures)
    assert [(job.id, error.kind) for job, error in told.failures] == [(handle.id, "lapsed")]


async def test_closing_waits_for_what_is_being_told(store: Store):
    ended = []
    async with store.service() as jobs:
        begun = asyncio.Event()

        async def slow(job: Job, error: JobError) -> None:
            begun.set()
            await asyncio.sleep(0.01)
            ended.append(job.id)

        act = jobs.task(name="act", on_failure=slow)(_nothing)
        handle = await jobs.enqueue(act)
        async for delivery in jobs.receive():
            async with delivery:
                raise Discard
        await begun.wait()
    assert ended == [handle.id]


async def test_a_lost_lease_is_told_once(shop: Shop):
    told = Told()
    act = shop.jobs.task(name="act", **told.options)(_nothing)
    handle = await shop.jobs.enqueue(act)
    async with shop.jobs.receive() as deliveries:
        with pytest.raises(LeaseLost):
            async with deliveries[0]:
                context = entered()
                await shop.jobs.cancel(handle.id, force=True)
                shop.clock.advance(10)
                await asyncio.sleep(30)
        assert context.stopping == "lost"
        await until(lambda: told.losses)
        assert not told.failures
    assert [job_id for job_id, _ in told.losses] == [handle.id]


async def test_a_failure_of_another_holders_job_is_not_told(shop: Shop):
    told = Told()
    act = shop.jobs.task(name="act", **told.options)(_nothing)
    handle = await shop.jobs.enqueue(act)
    shop.engine.fail("extend", times=100)
    async with shop.jobs.receive() as deliveries:
        with pytest.raises(ValueError, match="boom"):
            async with deliveries[0]:
                deliveries[0].lease.on_signal = None  # as if it had heard of nothing
                shop.clock.advance(40)
                assert [job.id for job in await shop.jobs.claim()] == [handle.id]
                raise ValueError("boom")
        await until(lambda: told.losses)
    assert (told.losses, told.failures) == ([(handle.id, "taken")], [])
    assert (await handle.job()).state is State.RUNNING


async def test_a_cancel_stops_the_context(shop: Shop):
    handle = await shop.jobs.enqueue(shop.jobs.tasks.get("other"))
    async with shop.jobs.receive() as deliveries, deliveries[0]:
        context = entered()
        await shop.jobs.cancel(handle.id)
        shop.clock.advance(10)
        await asyncio.sleep(30)
    assert context.stopping == "cancel"
    assert (await handle.job()).state is State.CANCELLED


def test_sync_a_lost_lease_and_a_failure_are_told(service):
    told, called = Told(), threading.Event()

    def failed(job: Job, error: JobError) -> None:
        told.failures.append((job, error))
        called.set()

    @service.task(on_failure=failed, on_lost=told.loss)
    def act() -> None: ...

    lost = service.sync.enqueue(act)
    [delivery] = service.sync.receive().__enter__()
    with pytest.raises(LeaseLost), delivery:
        service.sync.cancel(delivery.id, force=True)
    failing = service.sync.enqueue(act)
    [delivery] = service.sync.receive().__enter__()
    with delivery:
        raise Discard("hopeless")
    assert called.wait(20)
    service.sync.close()
    assert [job.id for job, _ in told.failures] == [failing.id]
    assert [job_id for job_id, _ in told.losses] == [lost.id]


async def test_a_last_retry_by_receipt_is_told(store: Store):
    told = Told()
    async with store.service() as jobs:
        act = jobs.task(name="act", max_attempts=2, retry=SOON, **told.options)(_nothing)
        handle = await jobs.enqueue(act)
        for _ in range(2):
            async for delivery in jobs.receive(wait=5):
                async with delivery:
                    raise Handoff
                await jobs.receipts.retry(delivery.receipt)
                await jobs.receipts.retry(delivery.receipt)
        await until(lambda: told.failures)
    assert [(job.id, job.state) for job, _ in told.failures] == [(handle.id, State.FAILED)]


def entered() -> JobContext:
    """The context of the block around."""
    context = current_job()
    assert context is not None
    return context


async def _nothing() -> None: ...
