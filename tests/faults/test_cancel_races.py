"""Races of cancellation: it reaches some states only, or hits what it was not meant for."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from tenure import INJECTED, JobContext, QueueService
from tenure.core.states import State
from tenure.engines.protocol import Engine, Listener, Signal, Topic
from tests.worker.kit import Gate, House, endless, until
from tests.worker.site import Site

pytestmark = pytest.mark.anyio
Scaled = Callable[[int, int], int]


class Deaf:
    """An engine whose signals never arrive."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def side(self) -> Deaf:
        return Deaf(self._engine.side())

    async def __aenter__(self) -> Deaf:
        await self._engine.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._engine.__aexit__(*exc)

    @asynccontextmanager
    async def listen(self, topics: Iterable[Topic]) -> AsyncIterator[Listener]:
        class Nothing:
            async def wait(self, timeout: float | None = None) -> frozenset[Signal]:
                await asyncio.sleep(3600 if timeout is None else timeout)
                return frozenset()

        yield Nothing()


@pytest.mark.parametrize("signals", ["heard", "lost"])
async def test_a_running_body_of_either_kind_is_stopped(house: House, kind: str, signals: str):
    """Without signals the next renewal tells, a third of the lease later."""
    if signals == "lost":
        house = House(cast(Engine, Deaf(house.engine)))
    entered: list[JobContext] = []
    job_id = await house.put(house.task(endless(kind, "body", entered)))
    async with house.working(lease=1.0):
        await until(lambda: entered)
        asked = time.monotonic()
        answer = await house.engine.cancel([job_id])
        assert list(answer.requested) == [job_id]
        [job] = await house.ended(job_id)
        assert time.monotonic() - asked < 1
    house.keeper.close()
    assert (job.state, job.cancel_requested) == (State.CANCELLED, True)


async def test_what_does_not_run_ends_at_once_without_any_worker(house: House):
    async def fails() -> None:
        raise ValueError("again, please")

    task = house.task(fails, max_attempts=3)
    retrying = await house.put(task)
    await house.burst()
    assert (await house.job(retrying)).label == "retrying"
    waiting, delayed = await house.put(task), await house.put(task, delay=3_600_000_000)
    ids = [retrying, waiting, delayed]
    answer = await house.engine.cancel(ids)
    assert set(answer.cancelled) == set(ids)
    assert {await house.state(job_id) for job_id in ids} == {State.CANCELLED}
    await house.burst()
    assert {(await house.job(job_id)).row.failures for job_id in ids} == {0, 1}


async def test_a_request_outlives_the_worker_that_should_have_heard_it(house: House):
    """Asked to stop while its worker was dying: it is not started again, it is cancelled."""
    starts: list[int] = []

    async def body() -> None:
        starts.append(1)

    job_id = await house.put(house.task(body))
    [held] = await house.steal(owner="dying")
    await house.engine.cancel([job_id])
    [swept] = await house.engine.sweep(10, now=held.row.lease_until)
    assert (swept.id, swept.state) == (job_id, State.CANCELLED)
    await house.burst()
    assert starts == []


async def test_a_job_that_kills_every_worker_can_be_cancelled(site: Site):
    killer = await site.put("die", max_lapses=1000)
    process = await site.start()
    await site.started(killer)
    assert await asyncio.wait_for(process.wait(), 10) == 9
    await site.house.engine.cancel([killer])
    await site.start()
    [job] = await site.house.ended(killer)
    assert job.state is State.CANCELLED
    assert len(site.notes("start", killer)) == 1


async def test_all_of_a_group_are_cancelled_whatever_each_of_them_does(house: House):
    gate = Gate()

    async def body() -> None:
        await gate.wait()

    task = house.task(body)
    ids = [await house.put(task) for _ in range(3)]
    async with house.working(concurrency=3):
        await gate.reached(3)
        ids += [await house.put(task), await house.put(task, delay=3_600_000_000)]
        await house.engine.cancel(ids)
        jobs = await house.ended(*ids)
    assert {job.state for job in jobs} == {State.CANCELLED}


async def test_bodies_cancelled_amid_calls_get_no_answer_of_another(
    jobs: QueueService, scaled: Scaled
):
    """Bodies use the service themselves, and are cancelled at any moment of it."""
    wrong: list[object] = []
    calls = 0

    @jobs.task(queue="other")
    async def child(number: int) -> int:
        return number

    @jobs.task
    async def parent(number: int, *, ctx: JobContext = INJECTED) -> None:
        nonlocal calls
        for n in itertools.count():
            handle = await jobs.enqueue(child, number * 1_000_000 + n)
            job = await jobs.get(handle.id)
            mine = await jobs.get(ctx.job_id)
            if job.arguments != {"number": number * 1_000_000 + n} or mine.id != ctx.job_id:
                wrong.append((number, n, job, mine))
            calls += 1

    dice = random.Random(11)
    worker = jobs.worker(concurrency=20, stop_grace=5)
    running = asyncio.create_task(worker.run())
    ended = 0
    for round_ in range(scaled(8, 500)):
        handles = [await jobs.enqueue(parent.bind(round_ * 20 + n)) for n in range(20)]
        for handle in handles:
            await asyncio.sleep(dice.random() * 0.004)
            await handle.cancel()
        for handle in handles:
            assert (await handle.wait(15)).state == "cancelled"
            ended += 1
    begun = time.monotonic()
    worker.stop()
    await asyncio.wait_for(running, 10)
    assert time.monotonic() - begun < 5
    assert wrong == []
    assert calls > ended / 2
    # And the connections still work.
    last = await jobs.enqueue(child, 7)
    await jobs.worker(queues=["other"], burst=True, concurrency=500).run()
    assert await last.result(5) == 7
