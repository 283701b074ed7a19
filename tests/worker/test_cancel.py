"""A cancel of a running job: heard quickly, and the end of the body decides."""

from __future__ import annotations

import asyncio
import time

import pytest

from tenure import INJECTED, JobContext
from tenure.core.states import State
from tenure.engines.protocol import Claim, Signal, Topic
from tenure.worker.control import Control
from tests.worker.kit import Gate, House, endless, until
from tests.worker.puppet import Strings

pytestmark = pytest.mark.anyio


async def test_it_is_heard_long_before_the_next_renewal(house: House, kind: str):
    entered: list[JobContext] = []
    job_id = await house.put(house.task(endless(kind, "body", entered)))
    async with house.working(lease=300, poll_max=300):
        await until(lambda: entered)
        asked = time.monotonic()
        await house.engine.cancel([job_id])
        [job] = await house.ended(job_id)
    assert job.state is State.CANCELLED
    assert time.monotonic() - asked < 1


async def test_it_is_heard_from_another_handle(house: House):
    entered: list[JobContext] = []
    job_id = await house.put(house.task(endless("async", "body", entered)))
    async with house.working(lease=300, poll_max=300), house.engine.side() as other:
        await until(lambda: entered)
        await other.cancel([job_id])
        await house.ended(job_id, timeout=2)


async def test_a_hint_that_comes_before_the_claims_answer_is_not_lost(house: House):
    """The store flags the job right after the claim, and says so before the claim returns."""
    entered: list[JobContext] = []
    job_id = await house.put(house.task(endless("async", "body", entered)))
    worker = house.worker(lease=300, poll_max=300)
    real = house.engine.claim

    async def hinted() -> bool:
        # Again, as hints get lost while the worker begins to listen.
        await house.engine.notify([Signal(Topic.CANCEL, job_id)])
        return job_id in worker._runner._early_cancels

    class Slow:
        async def claim(self, claim: object) -> object:
            rows = await real(claim)  # type: ignore[arg-type]
            if rows:
                await house.engine.cancel([job_id])
                await until(hinted)
            return rows

        def __getattr__(self, name: str) -> object:
            return getattr(house.engine, name)

    worker._poller._engine = Slow()  # type: ignore[assignment]
    async with house.working(worker):
        await house.ended(job_id, timeout=3)
    assert await house.state(job_id) is State.CANCELLED


async def test_when_anything_may_have_changed_a_request_to_stop_may_be_among_it(house: House):
    asked: list[object] = []
    control = Control(house.engine, ["default"], wake=lambda: None, cancel=asked.append)
    control._heard(frozenset({Signal(Topic.QUEUE, "default"), Signal(Topic.CANCEL, "a")}))
    control._heard(frozenset({Signal(Topic.ANY)}))
    assert asked == [["a"], None]


async def test_a_body_that_finishes_first_has_completed(house: House):
    entered = asyncio.Event()

    async def body() -> str:
        entered.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
        return "done all the same"

    job_id = await house.put(house.task(body))
    async with house.working():
        await entered.wait()
        await house.engine.cancel([job_id])
        [job] = await house.ended(job_id)
    assert (job.state, job.result) == (State.COMPLETED, "done all the same")


async def test_any_other_end_becomes_cancelled(house: House):
    gate = Gate()

    async def body() -> None:
        await gate.wait()
        raise ValueError("broken")

    job_id = await house.put(house.task(body, max_attempts=5))
    async with house.working() as worker:
        await gate.reached()
        worker._runner.ask = lambda ids: None  # type: ignore[method-assign]  # nothing is heard
        worker._control._cancel = lambda ids: None
        gate.open = True
        await house.engine.cancel([job_id])
        [job] = await house.ended(job_id)
    assert job.state is State.CANCELLED
    assert job.error is not None
    assert job.error.message == "broken"


async def test_context_tells_a_thread(house: House):
    seen: list[str | None] = []

    def body(*, ctx: JobContext = INJECTED) -> None:
        seen.append(ctx.stopping)
        deadline = time.monotonic() + 10
        while ctx.stopping is None and time.monotonic() < deadline:
            time.sleep(0.002)
        seen.append(ctx.stopping)
        ctx.check()

    job_id = await house.put(house.task(body))
    async with house.working():
        await until(lambda: seen)
        await house.engine.cancel([job_id])
        [job] = await house.ended(job_id)
    assert (job.state, seen) == (State.CANCELLED, [None, "cancel"])


async def test_a_job_cancelled_while_pending_never_starts(house: House):
    entered: list[JobContext] = []
    job_id = await house.put(house.task(endless("async", "body", entered)))
    await house.engine.cancel([job_id])
    await house.burst()
    assert (await house.state(job_id), entered) == (State.CANCELLED, [])


async def test_a_job_that_lapsed_after_a_cancel_is_not_started_again(house: House):
    entered: list[JobContext] = []
    job_id = await house.put(house.task(endless("async", "body", entered)))
    await house.engine.claim(Claim(owner="dead", limit=1, lease=1))
    await house.engine.cancel([job_id])
    async with house.working():
        [job] = await house.ended(job_id)
    assert (job.state, entered) == (State.CANCELLED, [])


async def test_hints_about_foreign_jobs_are_kept_within_bounds(memory: tuple[House, Strings]):
    house, _ = memory
    async with house.working() as worker:
        for n in range(50):
            await house.engine.notify([Signal(Topic.CANCEL, f"{n}-{m}") for m in range(100)])
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)
        assert len(worker._runner._early_cancels) <= 1200
