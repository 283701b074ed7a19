"""`on_failure` and `on_lost`: told once, of every way to the end, and without a say in it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tenure import INJECTED, Cancel, Discard, JobContext, Retry, current_job
from tenure.core.job import Job, JobError
from tenure.core.retry import RetryPolicy
from tenure.core.states import State
from tenure.engines.protocol import Claim
from tenure.errors import EngineUnavailable
from tests.worker.kit import SOON, House, made, until
from tests.worker.puppet import Strings
from tests.worker.test_endings import raising

pytestmark = pytest.mark.anyio

Told = list[tuple[Job, JobError]]


@pytest.fixture(params=["async", "def"])
def told_by(request: pytest.FixtureRequest) -> tuple[Told, Callable[..., Any]]:
    """What was told, and an `on_failure` of either kind that notes it."""
    told: Told = []

    async def on_loop(job: Job, error: JobError) -> None:
        told.append((job, error))

    def in_thread(job: Job, error: JobError) -> None:
        assert threading.current_thread().name.startswith("tenure-thread")
        told.append((job, error))

    return told, on_loop if request.param == "async" else in_thread


async def test_it_is_told_once_after_the_last_attempt(house: House, told_by: Any):
    told, on_failure = told_by
    act = raising(ValueError("boom"))
    task = house.task(made("async", "body", act), max_attempts=3, retry=SOON, on_failure=on_failure)
    job_id = await house.put(task)
    async with house.working():
        await house.ended(job_id)
        await until(lambda: told)
    [(job, error)] = told
    assert (job.id, job.state, job.attempt, job.row.failures) == (job_id, State.FAILED, 3, 3)
    assert job.error == error
    assert (error.kind, error.message, len(job.errors)) == ("ValueError", "boom", 3)
    stored = await house.job(job_id)
    assert (job.errors, job.finished_at is not None) == (stored.errors, True)


@pytest.mark.parametrize(
    "error", [Discard("hopeless"), Retry("later"), TimeoutError(), ExceptionGroup("", [OSError()])]
)
async def test_every_failure_is_told(house: House, kind: str, told_by: Any, error: Exception):
    told, on_failure = told_by
    task = house.task(made(kind, "body", raising(error)), on_failure=on_failure)
    job_id = await house.put(task)
    await house.burst()
    assert [job.id for job, _ in told] == [job_id]


async def test_an_end_that_is_no_failure_is_not_told(house: House, kind: str, told_by: Any):
    told, on_failure = told_by
    done = await house.put(house.task(made(kind, "a", lambda: 1), on_failure=on_failure))
    wait = RetryPolicy.constant(3600)
    act_b = made(kind, "b", raising(ValueError()))
    retried = house.task(act_b, max_attempts=2, retry=wait, on_failure=on_failure)
    later = await house.put(retried)
    off = await house.put(house.task(made(kind, "c", lambda: 1), on_failure=on_failure), delay=9**9)
    await house.engine.cancel([off])
    ends = iter([ValueError("first"), None, ValueError("first"), Cancel("then")])

    def act() -> None:
        if (error := next(ends)) is not None:
            raise error

    mended = house.task(made(kind, "d", act), max_attempts=3, retry=SOON, on_failure=on_failure)
    for _ in range(2):  # one completes after an error, one is cancelled by its body
        job_id = await house.put(mended)
        async with house.working():
            [job] = await house.ended(job_id)
        assert (job.state is State.FAILED, job.error is None) == (False, False)
    await house.burst()
    assert [await house.state(one) for one in (done, later, off)] == [
        State.COMPLETED,
        State.PENDING,
        State.CANCELLED,
    ]
    assert told == []


async def test_a_job_that_killed_its_last_worker_is_told_by_the_claim(house: House, told_by: Any):
    told, on_failure = told_by
    task = house.task(made("async", "body", lambda: 1), on_failure=on_failure, max_lapses=0)
    job_id = await house.put(task)
    await house.engine.claim(Claim(owner="dead", limit=1, lease=1))
    await house.burst()
    [(job, error)] = told
    assert (job.id, job.state, error.kind) == (job_id, State.FAILED, "lapsed")


async def test_a_job_that_a_sweep_fails_is_told_by_the_worker_that_swept(
    house: House, told_by: Any
):
    """Of another queue, so that no claim of this worker comes first."""
    told, on_failure = told_by
    task = house.task(made("async", "body", lambda: 1), on_failure=on_failure, max_lapses=0)
    job_id = await house.put(task, queue="elsewhere")
    await house.engine.claim(Claim(owner="dead", limit=1, lease=1, queues=("elsewhere",)))
    worker = house.worker()
    worker._janitor._every = 0.01
    async with house.working(worker):
        await until(lambda: told)
    [(job, error)] = told
    assert (job.id, job.state, error.kind) == (job_id, State.FAILED, "lapsed")


@pytest.mark.parametrize("how", ["async", "def", "mistaken"])
async def test_its_own_failure_is_logged_and_changes_nothing(
    house: House, how: str, caplog: pytest.LogCaptureFixture
):
    async def on_loop(job: Job, error: JobError) -> None:
        raise OSError("no mail server")

    def in_thread(job: Job, error: JobError) -> None:
        raise OSError("no mail server")

    def mistaken(job: Job, error: JobError) -> Any:
        return on_loop(job, error)

    functions = {"async": on_loop, "def": in_thread, "mistaken": mistaken}
    task = house.task(made("async", "body", raising(ValueError())), on_failure=functions[how])
    job_id = await house.put(task)
    await house.burst()
    assert await house.state(job_id) is State.FAILED
    [record] = [r for r in caplog.records if "on_failure" in r.getMessage()]
    assert (record.levelno, record.__dict__["job_id"]) == (logging.ERROR, job_id)
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], TypeError if how == "mistaken" else OSError)


async def test_one_that_hangs_holds_up_no_job_and_no_shutdown(
    house: House, caplog: pytest.LogCaptureFixture
):
    async def hang(job: Job, error: JobError) -> None:
        await asyncio.sleep(3600)

    task = house.task(made("async", "body", raising(ValueError())), on_failure=hang)
    ids = [await house.put(task) for _ in range(5)]
    worker = house.worker(concurrency=1, burst=True)
    worker._runner._grace = 0.05
    await asyncio.wait_for(worker.run(), 15)
    assert {await house.state(one) for one in ids} == {State.FAILED}
    assert sum("was cancelled: the worker ends" in r.getMessage() for r in caplog.records) == 5


async def test_after_a_lost_reply_it_is_told_once(moved: tuple[House, Strings], told_by: Any):
    house, strings = moved
    told, on_failure = told_by
    task = house.task(made("async", "body", raising(ValueError())), on_failure=on_failure)
    job_id = await house.put(task)
    strings.after["settle"] = [EngineUnavailable("the reply is lost")]
    await house.burst()
    assert [job.id for job, _ in told] == [job_id]


async def test_who_lost_the_job_does_not_tell_of_its_failure(house: House, told_by: Any):
    """Another holder has it by now, and it may still complete."""
    told, on_failure = told_by
    lost: list[str] = []

    async def body() -> None:
        await house.engine.cancel([current_id()], force=True)
        raise ValueError("of a job that is not ours any more")

    def current_id() -> str:
        context = current_job()
        assert context is not None
        return context.job_id

    task = house.task(
        body, on_failure=on_failure, on_lost=lambda context, reason: lost.append(context.job_id)
    )
    job_id = await house.put(task)
    await house.burst()
    assert (told, lost, await house.state(job_id)) == ([], [job_id], State.CANCELLED)


@pytest.mark.parametrize("how", ["async", "def"])
async def test_the_loss_of_a_lease_is_told_once_while_the_body_still_runs(
    house: House, kind: str, how: str
):
    told: list[tuple[str, int, str, str | None]] = []
    running: list[str] = []
    ended: list[str] = []

    async def on_loop(context: JobContext, reason: str) -> None:
        told.append((context.job_id, context.token, reason, context.stopping))

    def in_thread(context: JobContext, reason: str) -> None:
        told.append((context.job_id, context.token, reason, context.stopping))

    async def waits(*, ctx: JobContext = INJECTED) -> None:
        running.append(ctx.job_id)
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(ctx.job_id)

    def blocks(*, ctx: JobContext = INJECTED) -> None:
        running.append(ctx.job_id)
        deadline = time.monotonic() + 15
        while ctx.stopping is None and time.monotonic() < deadline:
            time.sleep(0.002)
        while not told and time.monotonic() < deadline:
            time.sleep(0.002)
        ended.append(ctx.job_id)

    body = waits if kind == "async" else blocks
    task = house.task(body, on_lost=on_loop if how == "async" else in_thread)
    job_id = await house.put(task)
    async with house.working():
        await until(lambda: running)
        [taken] = (await house.engine.cancel([job_id], force=True)).cancelled
        await until(lambda: told and ended)
        await house.ended(job_id)
    assert taken == job_id
    [(lost, token, reason, stopping)] = told
    assert (lost, token > 0, bool(reason), stopping) == (job_id, True, True, "lost")


async def test_a_lease_that_was_not_lost_is_not_told(house: House, kind: str):
    told: list[str] = []
    task = house.task(made(kind, "body", lambda: 1), on_lost=lambda c, r: told.append(r))
    await house.put(task)
    await house.burst()
    assert told == []
