"""How a body ends, and what becomes of its job: every line of the table, for both kinds of body."""

from __future__ import annotations

import asyncio
import time

import pytest

from tenure import INJECTED, Cancel, Discard, JobContext, Retry, Snooze
from tenure.core.states import State
from tests.worker.kit import House, endless, made, until

pytestmark = pytest.mark.anyio


def raising(error: BaseException):
    def act():
        raise error

    return act


async def run_once(house: House, kind: str, act, **options):
    """The job of a body that ends as `act` does, after a worker found nothing more to do."""
    task = house.task(made(kind, "body", act), **options)
    job_id = await house.put(task)
    await house.burst()
    return await house.job(job_id)


async def test_a_return_completes(house: House, kind: str):
    job = await run_once(house, kind, lambda: {"n": 1})
    assert (job.state, job.result, job.error) == (State.COMPLETED, {"n": 1}, None)


async def test_a_return_of_nothing_completes(house: House, kind: str):
    job = await run_once(house, kind, lambda: None)
    assert (job.state, job.result) == (State.COMPLETED, None)


async def test_retry_spends_an_attempt_and_waits_as_told(house: House, kind: str):
    job = await run_once(house, kind, raising(Retry("later", after=50)), max_attempts=3)
    assert (job.state, job.row.failures, job.label) == (State.PENDING, 1, "retrying")
    assert 45 < (job.row.available_at - (job.row.started_at or 0)) / 1e6 < 60
    assert job.error is not None
    assert (job.error.kind, job.error.message) == ("Retry", "later")


async def test_retry_without_attempts_left_fails(house: House, kind: str):
    job = await run_once(house, kind, raising(Retry("later")), max_attempts=1)
    assert (job.state, job.row.failures) == (State.FAILED, 1)


async def test_snooze_spends_nothing(house: House, kind: str):
    job = await run_once(house, kind, raising(Snooze(50)), max_attempts=1)
    assert (job.state, job.row.failures, job.error) == (State.PENDING, 0, None)
    assert job.row.available_at - (job.row.started_at or 0) > 45e6


async def test_cancel_ends_as_cancelled_with_its_reason(house: House, kind: str):
    job = await run_once(house, kind, raising(Cancel("not needed")), max_attempts=3)
    assert job.state is State.CANCELLED
    assert job.error is not None
    assert (job.error.kind, job.error.message) == ("cancelled", "not needed")


async def test_discard_fails_whatever_attempts_are_left(house: House, kind: str):
    job = await run_once(house, kind, raising(Discard("hopeless")), max_attempts=3)
    assert (job.state, job.row.failures) == (State.FAILED, 1)
    assert job.error is not None
    assert job.error.message == "hopeless"


@pytest.mark.parametrize(
    ("directive", "state", "failures"),
    [
        (Retry("again", after=50), State.PENDING, 1),
        (Snooze(50), State.PENDING, 0),
        (Cancel("no"), State.CANCELLED, 0),
        (Discard("no"), State.FAILED, 1),
    ],
)
async def test_a_directive_alone_in_groups_counts_as_itself(
    house: House, kind: str, directive: Exception, state: State, failures: int
):
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [directive])])
    job = await run_once(house, kind, raising(group), max_attempts=3)
    assert (job.state, job.row.failures) == (state, failures)


async def test_a_directive_in_company_is_an_error_like_others(house: House, kind: str):
    group = ExceptionGroup("both", [Cancel("no"), ValueError("broken")])
    job = await run_once(house, kind, raising(group))
    assert job.state is State.FAILED
    assert job.error is not None
    assert job.error.kind == "ExceptionGroup"
    assert "broken" in job.error.traceback


async def test_an_exception_is_retried_until_the_budget_is_spent(house: House, kind: str):
    task = house.task(made(kind, "body", raising(ValueError("broken"))), max_attempts=3)
    job_id = await house.put(task)
    async with house.working():
        [job] = await house.ended(job_id)
    assert (job.state, job.row.failures, len(job.errors), job.claims) == (State.FAILED, 3, 3, 3)
    assert [error.attempt for error in job.errors] == [1, 2, 3]
    assert job.error is not None
    assert (job.error.kind, job.error.message) == ("ValueError", "broken")
    assert job.error.traceback.splitlines()[1].strip().endswith(("in on_loop", "in in_thread"))


async def test_a_cancel_request_cancels(house: House, kind: str):
    entered: list[JobContext] = []
    job_id = await house.put(house.task(endless(kind, "body", entered), max_attempts=3))
    async with house.working():
        await until(lambda: entered)
        assert (await house.engine.cancel([job_id])).requested == (job_id,)
        [job] = await house.ended(job_id)
    assert (job.state, job.row.failures, job.error) == (State.CANCELLED, 0, None)
    assert entered[0].stopping == "cancel"


async def test_a_timeout_is_an_error_with_words(house: House, kind: str):
    entered: list[JobContext] = []
    task = house.task(endless(kind, "body", entered), max_attempts=1, timeout=0.1)
    job_id = await house.put(task)
    async with house.working() as worker:
        [job] = await house.ended(job_id)
        await until(lambda: not worker.left_behind)
    assert (job.state, job.row.failures) == (State.FAILED, 1)
    assert job.error is not None
    assert job.error.kind == "timeout"
    assert "longer than its limit of 0.1 seconds" in job.error.message
    assert entered[0].stopping == "timeout"


async def test_a_shutdown_releases(house: House, kind: str):
    entered: list[JobContext] = []
    job_id = await house.put(house.task(endless(kind, "body", entered), max_attempts=1))
    async with house.working():
        await until(lambda: entered)
    job = await house.job(job_id)
    assert (job.state, job.row.releases, job.row.failures) == (State.PENDING, 1, 0)
    assert (job.label, job.row.lease_until) == ("pending", None)
    assert entered[0].stopping == "shutdown"


async def test_a_lost_lease_stops_the_body_and_nothing_is_written(house: House, kind: str):
    entered: list[JobContext] = []
    job_id = await house.put(house.task(endless(kind, "body", entered)))
    async with house.working():
        await until(lambda: entered)
        await house.engine.cancel([job_id], force=True)
        before = await house.job(job_id)
        await until(lambda: "job.lease_lost" in house.names(job_id))
        await until(lambda: house.keeper.active == 0)
    assert await house.job(job_id) == before
    assert entered[0].stopping == "lost"


async def test_after_a_loss_a_return_is_offered_and_the_token_decides(house: House):
    """The body notices nothing of the loss; the store does."""
    held = asyncio.Event()

    async def body() -> int:
        held.set()
        for _ in range(2):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return 7
        return 0

    job_id = await house.put(house.task(body))
    async with house.working():
        await held.wait()
        await house.engine.cancel([job_id], force=True)
        await until(lambda: "job.lease_lost" in house.names(job_id))
    job = await house.job(job_id)
    assert (job.state, job.result) == (State.CANCELLED, None)
    [loss] = [h for h in house.told if h.name == "job.lease_lost"]
    assert loss.facts["phase"] == "settle"


async def test_a_cancellation_nobody_caused_is_an_error(house: House, kind: str):
    job = await run_once(house, kind, raising(asyncio.CancelledError("odd")))
    assert job.state is State.FAILED
    assert job.error is not None
    assert (job.error.kind, job.error.message) == ("CancelledError", "odd")


async def test_a_body_that_cancels_itself_is_an_error(house: House):
    async def body() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    job_id = await house.put(house.task(body))
    await house.burst()
    assert await house.state(job_id) is State.FAILED


async def run_here(house: House) -> None:
    # Not in a task of its own: asyncio lets a SystemExit out of one break the loop.
    async with asyncio.timeout(15):
        await house.worker().run()


class Odd(BaseException):
    """Neither an `Exception` nor one of those that asyncio knows."""


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), Odd("odd")])
async def test_an_exit_releases_the_job_and_ends_the_worker(
    house: House, kind: str, error: BaseException
):
    job_id = await house.put(house.task(made(kind, "body", raising(error))))
    with pytest.raises(type(error)):
        await run_here(house)
    job = await house.job(job_id)
    assert (job.state, job.row.releases, job.row.failures) == (State.PENDING, 1, 0)


async def test_an_exit_in_a_group_ends_the_worker(house: House, kind: str):
    group = BaseExceptionGroup("both", [ValueError("broken"), SystemExit(3)])
    job_id = await house.put(house.task(made(kind, "body", raising(group))))
    with pytest.raises(BaseExceptionGroup):
        await run_here(house)
    assert (await house.job(job_id)).row.releases == 1


async def test_a_group_of_a_cancellation_and_an_error_ends_no_worker(house: House, kind: str):
    group = BaseExceptionGroup("both", [ValueError("broken"), asyncio.CancelledError()])
    job = await run_once(house, kind, raising(group))
    assert job.state is State.FAILED


async def test_neighbours_drain_when_a_body_exits(house: House, kind: str):
    async def slow() -> str:
        await asyncio.sleep(0.1)
        return "done"

    neighbour = await house.put(house.task(slow))
    await house.put(house.task(made(kind, "body", raising(SystemExit()))))
    with pytest.raises(SystemExit):
        await run_here(house)
    assert (await house.job(neighbour)).result == "done"


async def test_clean_up_that_fails_on_shutdown_spends_no_attempt(house: House):
    entered = []

    async def body() -> None:
        try:
            entered.append(1)
            await asyncio.sleep(60)
        finally:
            raise ConnectionError("the connection is gone")

    job_id = await house.put(house.task(body))
    async with house.working():
        await until(lambda: entered)
    job = await house.job(job_id)
    assert (job.state, job.row.releases, job.row.failures) == (State.PENDING, 1, 0)


async def test_an_error_of_its_own_during_shutdown_is_an_error(house: House):
    entered = []

    def body(*, ctx: JobContext = INJECTED) -> None:
        entered.append(1)
        while ctx.stopping is None:
            time.sleep(0.002)
        raise ValueError("broken anyway")

    job_id = await house.put(house.task(body))
    async with house.working():
        await until(lambda: entered)
    assert await house.state(job_id) is State.FAILED


async def test_a_stop_inside_a_task_group_is_a_stop(house: House):
    entered: list[JobContext] = []

    async def body(*, ctx: JobContext = INJECTED) -> None:
        entered.append(ctx)
        while ctx.stopping is None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass
        async with asyncio.TaskGroup() as group:
            group.create_task(child(ctx))

    async def child(ctx: JobContext) -> None:
        ctx.check()

    job_id = await house.put(house.task(body))
    async with house.working():
        await until(lambda: entered)
    job = await house.job(job_id)
    assert (job.state, job.row.releases, job.row.failures) == (State.PENDING, 1, 0)
