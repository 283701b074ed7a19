"""Cancelling by id at the service: every state, force, and the race with a claim."""

from __future__ import annotations

import asyncio
import time

import pytest

from tenure import INJECTED, JobContext
from tenure.core.states import State
from tenure.errors import JobCancelled
from tests.service.stores import Store, store
from tests.worker.kit import until

__all__ = ["store"]
pytestmark = pytest.mark.anyio


async def test_each_state_has_its_answer(store: Store) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async with store.service() as jobs:

        @jobs.task
        async def body() -> str:
            entered.set()
            await leave.wait()
            return "done"

        running = await jobs.enqueue(body)
        working = asyncio.create_task(jobs.worker(concurrency=1).run())
        await entered.wait()
        pending, later = await jobs.enqueue(body), await jobs.enqueue(body.options(delay=60))
        answer = await jobs.cancel(running.id, pending.id, later.id, "nothing")
        assert set(answer.cancelled) == {pending.id, later.id}
        assert (answer.requested, answer.not_found) == ((running.id,), ("nothing",))
        assert (await running.wait(20)).state is State.CANCELLED
        assert (await jobs.cancel(running.id)).already_final == (running.id,)
        with pytest.raises(JobCancelled):
            await running.result(20)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def test_force_ends_a_job_whatever_its_body_does(store: Store) -> None:
    """The old holder is refused from then on, by a token that is greater."""
    tokens: list[int] = []

    async with store.service() as jobs:

        @jobs.task
        def stubborn(*, ctx: JobContext = INJECTED) -> str:
            tokens.append(ctx.token)
            deadline = time.monotonic() + 20
            while ctx.stopping is None and time.monotonic() < deadline:
                time.sleep(0.002)
            return "too late"

        handle = await jobs.enqueue(stubborn)
        working = asyncio.create_task(jobs.worker().run())
        await until(lambda: tokens)
        assert (await handle.cancel(force=True)).cancelled == (handle.id,)
        job = await handle.job()
        assert (job.state, job.token > tokens[0], job.result) == (State.CANCELLED, True, None)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        assert (await handle.job()).row == job.row


async def test_a_cancel_that_meets_a_claim_is_never_answered_with_neither(store: Store) -> None:
    """Whichever write is first: the job is cancelled at once, or its holder is asked to stop."""
    one, other = store.service(), store.service()
    async with one, other:

        @one.task
        async def body() -> None:
            await asyncio.sleep(60)

        other.tasks.add(body)
        handles = await one.enqueue_many([body.bind() for _ in range(30)])
        working = asyncio.create_task(one.worker(concurrency=30, stop_grace=0.1).run())
        answers = await asyncio.gather(*(other.cancel(handle.id) for handle in handles))
        for handle, answer in zip(handles, answers, strict=True):
            assert [*answer.cancelled, *answer.requested] == [handle.id]
        for handle in handles:
            assert (await handle.wait(30)).state is State.CANCELLED
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
