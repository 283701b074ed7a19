"""`def` bodies: in threads, which nothing can interrupt."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time

import pytest

from tenure import INJECTED, JobContext
from tenure.core.fleet import QueueChange
from tenure.core.limits import Limits
from tenure.core.states import State
from tests.worker.kit import SOON, Gate, House, until
from tests.worker.puppet import Strings

pytestmark = pytest.mark.anyio


async def test_a_timeout_settles_at_once_and_the_slot_stays_taken(house: House):
    gate = Gate()

    def stuck() -> None:
        gate.wait_in_thread()

    def quick() -> str:
        return threading.current_thread().name

    job_id = await house.put(house.task(stuck, timeout=0.1))
    other = house.task(quick)
    async with house.working(concurrency=2) as worker:
        started = time.monotonic()
        [job] = await house.ended(job_id)
        assert time.monotonic() - started < 2
        assert job.error is not None
        assert (job.state, job.error.kind) == (State.FAILED, "timeout")
        assert "still runs" in job.error.message
        # The other slot goes on, alone.
        assert worker.left_behind == 1
        ids = [await house.put(other) for _ in range(20)]
        jobs = await house.ended(*ids)
        assert len({job.result for job in jobs}) == 1
        assert worker.left_behind == 1
        gate.open = True
        await until(lambda: worker.left_behind == 0)


async def test_a_body_with_a_concurrency_key_keeps_its_slot_past_its_timeout(house: House):
    gate = Gate()
    began: list[str] = []

    def stuck(name: str) -> None:
        began.append(name)
        gate.wait_in_thread()

    await house.engine.configure(QueueChange("default", limits=Limits(key_concurrency=1)))
    task = house.task(stuck, timeout=0.1)
    first = await house.put(task, "first", concurrency_key="k")
    second = await house.put(task, "second", concurrency_key="k")
    async with house.working(concurrency=2):
        await until(lambda: began == ["first"])
        late = time.monotonic() + 0.5
        await until(lambda: time.monotonic() > late)
        assert await house.state(first) is State.RUNNING
        assert await house.state(second) is State.PENDING
        gate.open = True
        [job, _] = await house.ended(first, second)
    assert began == ["first", "second"]
    assert (job.state, job.error and job.error.kind) == (State.FAILED, "timeout")


async def test_a_full_house_of_stuck_bodies_takes_nothing_until_one_returns(house: House):
    gate = Gate()

    def stuck() -> None:
        gate.wait_in_thread()

    async def quick() -> None:
        pass

    task = house.task(stuck, timeout=0.05)
    stuck_ids = [await house.put(task) for _ in range(2)]
    async with house.working(concurrency=2, poll_max=60) as worker:
        await house.ended(*stuck_ids)
        await until(lambda: worker.active == 0)
        other = await house.put(house.task(quick))
        await asyncio.sleep(0.05)
        assert (worker._runner.free(), await house.state(other)) == (0, State.PENDING)
        gate.open = True
        await house.ended(other)


async def test_a_slot_that_comes_free_wakes_a_poller_that_found_no_room(
    moved: tuple[House, Strings],
):
    """A body that outlives its attempt takes the room that its job, being settled, gave up; a look
    in between finds no room without having left anything behind."""
    house, strings = moved
    gate, go = Gate(), asyncio.Event()

    def stuck() -> None:
        gate.wait_in_thread()

    async def slowly(name: str, args: object) -> None:
        if name == "settle":
            await go.wait()

    async def quick() -> None:
        """Runs as soon as there is room."""

    strings.on_call = slowly
    first = await house.put(house.task(stuck, timeout=0.02))
    worker = house.worker(concurrency=1, poll_max=3600)
    worker._control._wake = lambda: None  # signals are hints; this must work without
    async with house.working(worker):
        await until(lambda: worker._poller._full)
        second = await house.put(house.task(quick))
        go.set()
        await house.ended(first)
        gate.open = True
        await house.ended(second)


async def test_a_cancel_while_waiting_for_a_thread_leaks_no_thread(house: House):
    gate = Gate()

    def body() -> str:
        gate.wait_in_thread()
        return "done"

    task = house.task(body)
    async with house.working(concurrency=5, threads=1) as worker:
        first = await house.put(task)
        await gate.reached()
        second = await house.put(task)
        await until(lambda: worker.active == 2)
        await house.engine.cancel([second])
        await house.ended(second)
        gate.open = True
        jobs = await house.ended(first, await house.put(task))
    assert [job.result for job in jobs] == ["done", "done"]
    assert await house.state(second) is State.CANCELLED


@pytest.mark.usefixtures("short_snoozes")
async def test_the_same_job_is_not_started_while_its_old_body_runs(house: House):
    starts: list[float] = []
    running = []

    def slow() -> int:
        starts.append(time.monotonic())
        running.append(1)
        try:
            assert len(running) == 1
            if len(starts) == 1:
                time.sleep(0.5)
            return len(starts)
        finally:
            running.pop()

    job_id = await house.put(house.task(slow, timeout=0.1, max_attempts=2, retry=SOON))
    async with house.working():
        [job] = await house.ended(job_id)
    assert (job.state, job.result, len(starts)) == (State.COMPLETED, 2, 2)
    assert starts[1] - starts[0] >= 0.5
    assert "job.snoozed" in house.names(job_id)


async def test_waiting_for_a_thread_costs_no_timeout(house: House):
    """More jobs than threads: what waits has not begun, so its time does not run."""

    def slow() -> None:
        time.sleep(0.06)

    task = house.task(slow, timeout=0.3)
    ids = [await house.put(task) for _ in range(8)]
    async with house.working(concurrency=8, threads=1):
        jobs = await house.ended(*ids)
    assert {job.state for job in jobs} == {State.COMPLETED}


async def test_what_waits_for_a_thread_is_given_back_unstarted(house: House):
    gate = Gate()
    starts = []

    def body(*, ctx: JobContext = INJECTED) -> None:
        starts.append(ctx.job_id)
        gate.wait_in_thread()

    task = house.task(body, timeout=30)
    ids = [await house.put(task) for _ in range(3)]
    worker = house.worker(concurrency=3, threads=1)
    running = asyncio.create_task(worker.run())
    await until(lambda: len(starts) == 1 and worker.active == 3)
    await house.engine.cancel([ids[2]])
    await house.ended(ids[2])
    assert await house.state(ids[2]) is State.CANCELLED
    worker.stop()
    worker.stop()
    await running
    jobs = [await house.job(job_id) for job_id in ids]
    assert starts == [ids[0]]
    assert [job.row.releases for job in jobs] == [1, 0, 0]
    assert [job.state for job in jobs[:2]] == [State.PENDING, State.PENDING]
    gate.open = True


async def test_a_timed_out_body_frees_its_thread_for_who_waits(house: House):
    gate = Gate()

    def stuck() -> None:
        gate.wait_in_thread()

    def quick() -> str:
        return "done"

    first = await house.put(house.task(stuck, timeout=0.1))
    async with house.working(concurrency=5, threads=1):
        await gate.reached()
        second = await house.put(house.task(quick, timeout=0.1))
        await house.ended(first)
        gate.open = True
        [job] = await house.ended(second)
    assert job.result == "done"


async def test_a_cancelled_thread_holds_up_no_shutdown(house: House):
    gate = Gate()

    def deaf() -> None:
        gate.wait_in_thread()

    job_id = await house.put(house.task(deaf))
    worker = house.worker(stop_grace=0.1, shutdown_timeout=0)
    running = asyncio.create_task(worker.run())
    await gate.reached()
    await house.engine.cancel([job_id])
    [attempt] = worker._runner._attempts.values()
    await until(lambda: attempt.context.stopping == "cancel")
    started = time.monotonic()
    worker.stop()
    await asyncio.wait_for(running, 5)
    assert time.monotonic() - started < 2
    job = await house.job(job_id)
    assert job.state is State.CANCELLED
    assert job.error is not None
    assert "still runs" in job.error.message
    assert worker.left_behind == 1
    gate.open = True
    await until(lambda: worker.left_behind == 0)


@pytest.mark.usefixtures("short_snoozes")
async def test_no_thread_to_be_had_costs_no_attempt(house: House, monkeypatch: pytest.MonkeyPatch):
    def quick() -> str:
        return "done"

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def warm_up() -> None:
        pass

    async with house.working() as worker:
        await house.ended(await house.put(house.task(warm_up)))  # the keeper's thread runs now
        pool = worker._runner._threads
        with monkeypatch.context() as patched:
            patched.setattr(pool, "_start_thread", lambda: refuse(threading.current_thread()))
            job_id = await house.put(house.task(quick))
            await until(lambda: "job.snoozed" in house.names(job_id))
        assert pool.places.take().done()
        pool.places.give_back()
        pool._work.clear()
        [job] = await house.ended(job_id)
    assert (job.state, job.row.failures, job.result) == (State.COMPLETED, 0, "done")


variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)


async def test_context_variables_reach_bodies_and_leak_into_no_other(house: House, kind: str):
    def seen() -> int:
        before = variable.get()
        variable.set(99)
        return before

    async def on_loop() -> int:
        return seen()

    def in_thread() -> int:
        return seen()

    task = house.task(on_loop if kind == "async" else in_thread)
    variable.set(5)
    ids = [await house.put(task) for _ in range(5)]
    await house.burst(concurrency=1)
    assert [(await house.job(job_id)).result for job_id in ids] == [5] * 5


async def test_late_exceptions_of_left_behind_bodies_kill_no_thread(house: House):
    """A body that overran its timeout fails later; its thread serves on."""

    def late() -> None:
        time.sleep(0.08)
        raise ValueError("too late for anybody")

    def quick() -> int:
        return 1

    task = house.task(late, timeout=0.02)
    ids = [await house.put(task) for _ in range(12)]
    async with house.working(concurrency=4) as worker:
        await house.ended(*ids)
        jobs = await house.ended(*[await house.put(house.task(quick)) for _ in range(10)])
        assert [job.result for job in jobs] == [1] * 10
        await until(lambda: worker.left_behind == 0)
        assert worker._runner.free() == 4
