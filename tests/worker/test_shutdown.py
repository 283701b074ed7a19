"""Stopping: what runs may end, what does not is given back, nothing is left in between."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from tenure import JobContext
from tenure.core.states import State
from tests.worker.kit import Gate, House, endless, until
from tests.worker.puppet import Strings

pytestmark = pytest.mark.anyio


async def test_stop_drains(house: House, kind: str):
    gate = Gate()

    async def on_loop() -> str:
        await gate.wait()
        return "done"

    def in_thread() -> str:
        gate.wait_in_thread()
        return "done"

    task = house.task(on_loop if kind == "async" else in_thread)
    first = await house.put(task)
    worker = house.worker()
    running = asyncio.create_task(worker.run())
    await gate.reached()
    worker.stop()
    second = await house.put(task)
    await asyncio.sleep(0)
    assert not running.done()
    gate.open = True
    await asyncio.wait_for(running, 10)
    job = await house.job(first)
    assert (job.state, job.result, job.row.releases) == (State.COMPLETED, "done", 0)
    assert (await house.job(second)).claims == 0
    assert house.keeper.active == 0


async def test_the_second_stop_cancels_and_releases(house: House, kind: str):
    entered: list[JobContext] = []
    job_id = await house.put(house.task(endless(kind, "body", entered)))
    worker = house.worker()
    running = asyncio.create_task(worker.run())
    await until(lambda: entered)
    worker.stop()
    worker.stop()
    started = time.monotonic()
    await asyncio.wait_for(running, 10)
    assert time.monotonic() - started < 2
    job = await house.job(job_id)
    assert (job.state, job.row.releases, job.row.failures) == (State.PENDING, 1, 0)


async def test_the_drain_has_a_limit(house: House, kind: str):
    entered: list[JobContext] = []
    job_id = await house.put(house.task(endless(kind, "body", entered)))
    worker = house.worker(shutdown_timeout=0.1)
    running = asyncio.create_task(worker.run())
    await until(lambda: entered)
    worker.stop()
    await asyncio.wait_for(running, 10)
    assert (await house.job(job_id)).row.releases == 1


async def test_interruptions_are_counted_and_past_the_cap_one_is_an_error(house: House):
    entered: list[JobContext] = []
    task = house.task(endless("async", "body", entered), max_interruptions=1, max_attempts=1)
    job_id = await house.put(task)

    def seen(count: int) -> bool:
        return len(entered) == count

    for count in (1, 2):
        async with house.working():
            await until(partial(seen, count))
    job = await house.job(job_id)
    assert job.error is not None
    assert (job.state, job.error.kind, job.row.releases) == (State.FAILED, "interrupted", 2)


async def test_a_claim_in_flight_at_the_stop_is_not_lost(moved: tuple[House, Strings]):
    house, strings = moved
    asked, go = asyncio.Event(), asyncio.Event()

    async def body() -> str:
        return "done"

    async def slowly(name: str, args: object) -> None:
        if name == "claim":
            asked.set()
            await go.wait()

    strings.on_call = slowly
    job_id = await house.put(house.task(body))
    worker = house.worker()
    running = asyncio.create_task(worker.run())
    await asked.wait()
    worker.stop()
    go.set()
    await asyncio.wait_for(running, 10)
    assert (await house.job(job_id)).result == "done"


async def test_a_claim_in_flight_at_the_second_stop_is_given_back(moved: tuple[House, Strings]):
    house, strings = moved
    asked, go = asyncio.Event(), asyncio.Event()
    starts = []

    async def body() -> None:
        starts.append(1)

    async def slowly(name: str, args: object) -> None:
        if name == "claim":
            asked.set()
            await go.wait()

    strings.on_call = slowly
    job_id = await house.put(house.task(body))
    worker = house.worker()
    running = asyncio.create_task(worker.run())
    await asked.wait()
    worker.stop()
    worker.stop()
    go.set()
    await asyncio.wait_for(running, 10)
    job = await house.job(job_id)
    assert (job.state, job.claims, job.row.releases, starts) == (State.PENDING, 1, 0, [])


@pytest.mark.parametrize("when", ["working", "draining"])
async def test_cancelling_run_releases_and_raises(house: House, kind: str, when: str):
    entered: list[JobContext] = []
    job_id = await house.put(house.task(endless(kind, "body", entered)))
    worker = house.worker()
    running = asyncio.create_task(worker.run())
    await until(lambda: entered)
    if when == "draining":
        worker.stop()
        await until(lambda: worker._poller.stopped)
        await asyncio.sleep(0)
    running.cancel()
    started = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert time.monotonic() - started < 5
    job = await house.job(job_id)
    assert (job.state, job.row.releases) == (State.PENDING, 1)
    assert house.keeper.active == 0


async def test_many_cancellations_do_not_break_the_release(moved: tuple[House, Strings]):
    house, strings = moved
    entered: list[JobContext] = []
    task = house.task(endless("async", "body", entered))
    ids = [await house.put(task) for _ in range(3)]
    running = asyncio.create_task(house.worker().run())
    await until(lambda: len(entered) == 3)

    async def slowly(name: str, args: object) -> None:
        if name == "settle":
            running.cancel()

    strings.on_call = slowly
    for _ in range(5):
        running.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert {(await house.job(job_id)).row.releases for job_id in ids} == {1}


async def test_stop_before_the_run_ends_it_at_once(house: House):
    async def body() -> None:
        pass

    job_id = await house.put(house.task(body))
    worker = house.worker()
    worker.stop()
    await asyncio.wait_for(worker.run(), 5)
    assert (await house.job(job_id)).claims == 0


async def test_stopping_while_the_store_is_away_is_bounded(
    memory: tuple[House, Strings], caplog: pytest.LogCaptureFixture
):
    house, strings = memory
    entered: list[JobContext] = []
    job_id = await house.put(house.task(endless("async", "body", entered)))
    worker = house.worker(stop_grace=0.05, shutdown_timeout=0.1)
    running = asyncio.create_task(worker.run())
    await until(lambda: entered)
    strings.fail()
    worker.stop()
    started = time.monotonic()
    await asyncio.wait_for(running, 10)
    assert time.monotonic() - started < 3
    assert "1 outcomes could not be written" in caplog.text
    strings.heal()
    assert await house.state(job_id) is State.RUNNING  # its lease lapses


async def test_burst_ends_when_nothing_is_due(house: House):
    async def body() -> None:
        pass

    task = house.task(body)
    due = [await house.put(task) for _ in range(25)]
    later = await house.put(task, delay=60_000_000)
    await house.burst(concurrency=4)
    assert {await house.state(job_id) for job_id in due} == {State.COMPLETED}
    assert await house.state(later) is State.PENDING


async def test_burst_runs_what_bodies_enqueue(house: House):
    async def child() -> None:
        pass

    async def parent() -> None:
        ids.append(await house.put(house.task(child)))

    ids: list[str] = []
    await house.put(house.task(parent))
    await house.burst()
    assert [await house.state(job_id) for job_id in ids] == [State.COMPLETED]


async def test_burst_waits_for_a_long_job_without_looking_about(house: House):
    gate = Gate()

    async def body() -> str:
        await gate.wait()
        return "done"

    job_id = await house.put(house.task(body))
    running = asyncio.create_task(house.burst(poll_max=60))
    await gate.reached()
    gate.open = True
    await running
    assert (await house.job(job_id)).result == "done"


async def test_nothing_is_left_over_by_a_worker(house: House, kind: str):
    entered: list[JobContext] = []
    await house.put(house.task(endless(kind, "body", entered)))
    before = asyncio.all_tasks()
    async with house.working() as worker:
        await until(lambda: entered)
    await until(lambda: asyncio.all_tasks() == before, 5)
    assert (worker.active, worker.left_behind, house.keeper.active) == (0, 0, 0)
    assert worker._runner._threads.threads == 0 or kind == "def"
    await until(lambda: worker._runner._threads.threads == 0, 5)


@pytest.mark.parametrize("seed", range(3))
async def test_stops_at_random_moments_leave_nothing_in_between(
    house: House, seed: int, scaled: Callable[[int, int], int]
):
    """All jobs are completed or pending in the end, and none was run twice to completion."""
    dice = random.Random(seed)
    done: Counter[int] = Counter()

    async def on_loop(n: int) -> int:
        await asyncio.sleep(dice.random() * 0.002)
        done[n] += 1
        return n

    def in_thread(n: int) -> int:
        time.sleep(dice.random() * 0.002)
        done[n] += 1
        return n

    tasks = [house.task(on_loop), house.task(in_thread)]
    count = scaled(200, 5000)
    ids = [await house.put(tasks[n % 2], n, max_interruptions=1000) for n in range(count)]
    rounds = 0
    while rounds < 200:
        rounds += 1
        worker = house.worker(concurrency=dice.choice((1, 5, 40)), burst=True)
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(dice.random() * 0.05)
        for _ in range(dice.choice((1, 2))):
            worker.stop()
        await asyncio.wait_for(running, 10)
        rows = await house.engine.get(ids)
        states = Counter(row.state for row in rows if row is not None)
        assert set(states) <= {State.COMPLETED, State.PENDING}, states
        assert house.keeper.active == 0
        if set(states) == {State.COMPLETED}:
            break
    assert set(states) == {State.COMPLETED}
    rows = await house.engine.get(ids)
    assert all(row is not None and row.failures == row.lapses == 0 for row in rows)
    # What a thread finished after it was told to stop is kept as well, so nothing ran twice
    # but for async bodies cut off in their sleep, which did not count themselves.
    assert set(done.values()) == {1}
