"""Leases that are lost: by a store that is away, by standing still, to another worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tenure import INJECTED, JobContext
from tenure.clock import SYSTEM_CLOCK
from tenure.core.states import State
from tenure.worker.worker import Worker
from tests.worker.kit import SOON, Gate, House, endless, until
from tests.worker.puppet import Strings

pytestmark = pytest.mark.anyio


class Leaping:
    """The machine's clock, ahead by what a test says: as after a suspension."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def time_us(self) -> int:
        return SYSTEM_CLOCK.time_us()

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic() + self.ahead


def leaping(house: House, **options: object) -> tuple[Worker, Leaping]:
    """A worker whose process can stand still."""
    clock = Leaping()
    plain = house.worker(**options)
    worker = Worker(
        house.engine,
        house.tasks,
        plain.options,
        hooks=house.hooks,
        keeper=house.keeper,
        clock=clock,
    )
    house.keeper.clock = clock
    return worker, clock


def lost(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the worker said about lost leases."""
    return [r.message for r in caplog.records if r.name == "tenure.worker" and "lost" in r.message]


async def test_a_store_away_longer_than_the_lease_is_no_lapse(
    moved: tuple[House, Strings], caplog: pytest.LogCaptureFixture
):
    house, strings = moved
    entered: list[JobContext] = []
    job_id = await house.put(house.task(endless("async", "body", entered)))
    async with house.working(lease=1.0, poll_max=5) as worker:
        await until(lambda: entered)
        strings.fail("extend", "settle", "claim", "next_due")
        await until(lambda: entered[0].stopping == "lost", 5)
        await until(lambda: worker._runner.settler._queue)
        strings.heal()
        await until(lambda: "job.released" in house.names(job_id))
        await until(lambda: len(entered) == 2)
        job = await house.job(job_id)
        assert (job.lapses, job.row.releases, job.row.failures) == (0, 0, 0)
    assert len(lost(caplog)) == 1


async def test_the_lease_of_a_settled_job_is_let_go(house: House):
    async def quick() -> None:
        pass

    async with house.working(lease=30):
        await house.ended(await house.put(house.task(quick)))
        await until(lambda: house.keeper.active == 0, 2)


async def test_clean_up_that_fails_in_an_outage_spends_no_attempt(memory: tuple[House, Strings]):
    """Once told of the loss, a body has nothing more to say."""
    house, strings = memory
    entered: list[JobContext] = []

    async def body(*, ctx: JobContext = INJECTED) -> None:
        entered.append(ctx)
        try:
            await asyncio.sleep(60)
        finally:
            if len(entered) == 1:
                raise ConnectionError("nothing works")

    job_id = await house.put(house.task(body))
    async with house.working(lease=1.0, poll_max=5) as worker:
        await until(lambda: entered)
        strings.fail("extend", "settle", "claim", "next_due")
        await until(lambda: worker._runner.settler._queue, 5)
        strings.heal()
        await until(lambda: len(entered) == 2)
        job = await house.job(job_id)
    assert (job.row.failures, job.lapses, job.row.releases) == (0, 0, 0)


async def test_what_another_took_during_the_outage_stays_his(
    memory: tuple[House, Strings], caplog: pytest.LogCaptureFixture
):
    house, strings = memory
    entered: list[JobContext] = []
    job_id = await house.put(house.task(endless("async", "body", entered)))
    async with house.working(lease=1.0, poll_max=5) as worker:
        await until(lambda: entered)
        strings.fail("extend", "settle", "next_due")
        await until(lambda: worker._runner.settler._queue, 5)
        until_us = (await house.job(job_id)).row.lease_until or 0
        [stolen] = await house.steal(now=until_us + 1)
        strings.heal()
        await until(lambda: not worker.active)
        job = await house.job(job_id)
    assert (job.owner, job.token, job.state) == ("thief", stolen.token, State.RUNNING)
    assert len(lost(caplog)) == 1


async def test_standing_still_is_a_lapse(
    memory: tuple[House, Strings], caplog: pytest.LogCaptureFixture
):
    """The store was there all the time; so the frozen holder counts as one that crashed."""
    house, _ = memory
    entered: list[JobContext] = []
    job_id = await house.put(house.task(endless("async", "body", entered), max_lapses=0))
    worker, clock = leaping(house, lease=1.0)
    async with house.working(worker):
        await until(lambda: entered)
        clock.ahead = 100.0
        house.keeper.nudge([job_id])
        await until(lambda: entered[0].stopping == "lost", 5)
        [job] = await house.ended(job_id)
    assert job.error is not None
    assert (job.state, job.lapses, job.error.kind) == (State.FAILED, 1, "lapsed")
    assert len(entered) == 1
    assert len(lost(caplog)) == 1


async def test_an_error_of_a_body_that_was_not_told_counts(house: House, kind: str):
    """It failed by itself, though its lease had run out; nobody took it over, so that is kept."""
    gate = Gate()

    async def on_loop() -> None:
        await gate.wait()
        raise ValueError("broken")

    def in_thread() -> None:
        gate.wait_in_thread()
        raise ValueError("broken")

    job_id = await house.put(house.task(on_loop if kind == "async" else in_thread))
    worker, clock = leaping(house, lease=30)
    async with house.working(worker):
        await gate.reached()
        worker._runner._attempts[job_id].stop = lambda reason: None  # type: ignore[method-assign]
        clock.ahead = 100.0
        gate.open = True
        [job] = await house.ended(job_id)
    assert job.error is not None
    assert (job.state, job.error.kind) == (State.FAILED, "ValueError")


async def test_a_claim_answered_past_its_own_deadline_is_never_started(
    moved: tuple[House, Strings],
):
    house, strings = moved
    starts = []

    async def body() -> str:
        starts.append(1)
        return "done"

    worker, clock = leaping(house, lease=10)
    job_id = await house.put(house.task(body))

    async def late(name: str, args: object) -> None:
        if name == "claim" and not clock.ahead:
            clock.ahead = 11.0

    strings.on_call = late
    async with house.working(worker):
        [job] = await house.ended(job_id)
    assert (starts, job.claims, job.row.releases, job.lapses) == ([1], 2, 0, 0)


async def test_a_job_lost_and_taken_again_here_waits_for_its_old_body(
    house: House, short_snoozes: None
):
    """The body is in a thread and deaf; the same worker claims the job again."""
    gate, running, most = Gate(), [], []

    def deaf() -> str:
        running.append(1)
        most.append(len(running))
        gate.wait_in_thread()
        running.pop()
        return "done"

    job_id = await house.put(house.task(deaf))
    async with house.working(lease=30):
        await gate.reached()
        await house.engine.cancel([job_id], force=True)
        await house.engine.requeue([job_id])
        await until(lambda: "job.snoozed" in house.names(job_id))
        assert most == [1]
        gate.open = True
        [job] = await house.ended(job_id)
    assert job.result == "done"
    assert max(most) == 1


async def test_a_late_settlement_takes_no_signals_from_the_next_attempt(house: House):
    """The store has applied a retry, its answer is late, and this worker has the job again."""
    entered: list[JobContext] = []
    go = asyncio.Event()

    async def body(*, ctx: JobContext = INJECTED) -> None:
        entered.append(ctx)
        if len(entered) == 1:
            raise ValueError("once")
        await asyncio.sleep(60)

    real_settle = house.engine.settle

    class Late:
        async def settle(self, settlements: list[object]) -> object:
            answers = await real_settle(settlements)  # type: ignore[arg-type]
            await go.wait()
            return answers

    job_id = await house.put(house.task(body, max_attempts=2, retry=SOON))
    worker = house.worker(poll_max=0.05)
    worker._runner.settler._engine = Late()  # type: ignore[assignment]
    async with house.working(worker):
        await until(lambda: len(entered) == 2)
        go.set()
        await until(lambda: "job.retrying" in house.names(job_id))
        await house.engine.cancel([job_id])
        [job] = await house.ended(job_id)
    assert job.state is State.CANCELLED
    assert entered[1].stopping == "cancel"


async def test_a_held_lease_is_renewed_past_its_length(moved: tuple[House, Strings]):
    """And the run time has no limit of its own. The connection for that is closed in the end."""
    house, strings = moved
    gate = Gate()

    async def on_loop() -> str:
        await gate.wait()
        return "done"

    def in_thread() -> str:
        gate.wait_in_thread()
        return "done"

    ids = [await house.put(house.task(function)) for function in (on_loop, in_thread)]
    async with house.working(lease=1.0):
        await gate.reached(2)
        first = [(await house.job(job_id)).row.lease_until or 0 for job_id in ids]

        async def renewed() -> bool:
            now = [(await house.job(job_id)).row.lease_until or 0 for job_id in ids]
            return all(later > before + 1_000_000 for later, before in zip(now, first, strict=True))

        await until(renewed)
        assert strings.handles == 1
        gate.open = True
        jobs = await house.ended(*ids)
        await until(lambda: house.keeper.active == 0)
    assert strings.handles == 0
    assert {(job.result, job.claims, job.lapses) for job in jobs} == {("done", 1, 0)}


@pytest.mark.soak
async def test_many_leases_hold_through_flapping_renewals(
    moved: tuple[House, Strings], scaled: Callable[[int, int], int]
):
    house, strings = moved
    entered: list[JobContext] = []
    task = house.task(endless("async", "body", entered))
    for _ in range(2000):
        await house.put(task)
    async with house.working(lease=3.0, concurrency=2000):
        await until(lambda: len(entered) == 2000, 30)
        for _ in range(30):
            strings.fail("extend")
            await asyncio.sleep(0.5)
            strings.heal()
            await asyncio.sleep(0.5)
        assert not [ctx for ctx in entered if ctx.stopping]
