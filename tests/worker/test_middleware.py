"""Middleware around attempts: it sees everything, and changes no outcome."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import Any

import pytest

from tenure import INJECTED, JobContext, Snooze
from tenure.core.job import Job
from tenure.core.states import State
from tenure.worker.surroundings import Surroundings
from tests.worker.kit import House, made, until
from tests.worker.puppet import Strings
from tests.worker.test_dependencies import Provided, body_of
from tests.worker.test_endings import raising

pytestmark = pytest.mark.anyio


@pytest.fixture
def house(memory: tuple[House, Strings]) -> House:
    """One engine will do."""
    return memory[0]


async def run_once(house: House, kind: str, act: Any, *middleware: Any, **options: Any) -> Job:
    house.surroundings = Surroundings(middleware=middleware)
    job_id = await house.put(house.task(made(kind, "body", act), **options))
    await house.burst()
    return await house.job(job_id)


async def test_each_is_around_the_next_and_all_around_the_body(house: House, kind: str):
    order: list[str] = []

    def named(name: str) -> Any:
        async def middleware(job: Job, step: Any) -> Any:
            order.append(f"{name} before {job.task}")
            answer = await step()
            order.append(f"{name} after {answer}")
            return answer

        return middleware

    def act() -> str:
        order.append("body")
        return "done"

    job = await run_once(house, kind, act, named("outer"), named("inner"))
    assert job.result == "done"
    assert order == [
        "outer before body",
        "inner before body",
        "body",
        "inner after done",
        "outer after done",
    ]


async def test_it_sees_how_the_body_failed(house: House, kind: str):
    seen: list[BaseException] = []

    async def watch(job: Job, step: Any) -> Any:
        try:
            return await step()
        except ValueError as error:
            seen.append(error)
            raise

    job = await run_once(house, kind, raising(ValueError("boom")), watch)
    assert (job.state, [str(error) for error in seen]) == (State.FAILED, ["boom"])


async def swallow(job: Job, step: Any) -> Any:
    try:
        await step()
    except BaseException:
        pass
    return "something else"


async def replace(job: Job, step: Any) -> Any:
    await step()
    return "something else"


async def fail_after(job: Job, step: Any) -> Any:
    try:
        return await step()
    finally:
        raise OSError("the exporter is away")


async def fail_before(job: Job, step: Any) -> Any:
    raise OSError("the exporter is away")


async def leave_out(job: Job, step: Any) -> Any:
    return "never called"


async def call_twice(job: Job, step: Any) -> Any:
    await step()
    return await step()


async def snooze(job: Job, step: Any) -> Any:
    raise Snooze(60)


ALL = [swallow, replace, fail_after, fail_before, leave_out, call_twice, snooze]


@pytest.mark.parametrize("middleware", ALL, ids=lambda one: one.__name__)
async def test_whatever_it_does_a_result_stays_the_result(house: House, kind: str, middleware: Any):
    runs: list[int] = []

    def act() -> str:
        runs.append(1)
        return "done"

    job = await run_once(house, kind, act, middleware)
    assert (job.state, job.result, runs) == (State.COMPLETED, "done", [1])


@pytest.mark.parametrize("middleware", ALL, ids=lambda one: one.__name__)
async def test_whatever_it_does_a_failure_stays_the_failure(
    house: House, kind: str, middleware: Any
):
    job = await run_once(house, kind, raising(ValueError("boom")), middleware)
    assert job.error is not None
    assert (job.state, job.error.kind, job.error.message) == (State.FAILED, "ValueError", "boom")


@pytest.mark.parametrize("middleware", [fail_after, fail_before, leave_out, call_twice, snooze])
async def test_what_it_does_wrong_is_logged(
    house: House, kind: str, middleware: Any, caplog: pytest.LogCaptureFixture
):
    job = await run_once(house, kind, lambda: "done", middleware)
    told = [r for r in caplog.records if "middleware" in r.getMessage()]
    assert [(r.levelno, r.__dict__["job_id"]) for r in told] == [(logging.ERROR, job.id)]


async def test_slow_middleware_after_the_body_is_cut_short_and_changes_nothing(
    house: House, kind: str
):
    async def slow(job: Job, step: Any) -> Any:
        await step()
        await asyncio.sleep(60)

    job = await run_once(house, kind, lambda: "done", slow, timeout=0.1)
    assert (job.state, job.result) == (State.COMPLETED, "done")


async def test_middleware_that_ignores_being_stopped_is_left_behind_and_changes_nothing(
    house: House, kind: str
):
    leave = asyncio.Event()

    async def stubborn(job: Job, step: Any) -> Any:
        await step()
        while not leave.is_set():
            try:
                await leave.wait()
            except asyncio.CancelledError:
                pass

    house.surroundings = Surroundings(middleware=(stubborn,))
    job_id = await house.put(house.task(made(kind, "body", lambda: "done"), timeout=0.1))
    async with house.working(stop_grace=0.01) as worker:
        [job] = await house.ended(job_id)
        assert (job.state, job.result) == (State.COMPLETED, "done")
        leave.set()
        await until(lambda: worker.left_behind == 0)


async def test_slow_middleware_before_the_body_counts_towards_the_timeout(house: House, kind: str):
    async def slow(job: Job, step: Any) -> Any:
        await asyncio.sleep(60)
        return await step()

    ran: list[int] = []
    job = await run_once(house, kind, lambda: ran.append(1), slow, timeout=0.05)
    assert job.error is not None
    assert (job.state, job.error.kind, ran) == (State.FAILED, "timeout", [])


async def test_what_it_binds_reaches_the_body_and_no_other_job(house: House, kind: str):
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")
    before: list[str] = []

    async def bind(job: Job, step: Any) -> Any:
        before.append(tenant.get())
        tenant.set(job.id)
        return await step()

    house.surroundings = Surroundings(middleware=(bind,))
    task = house.task(made(kind, "body", tenant.get))
    ids = [await house.put(task) for _ in range(5)]
    await house.burst(threads=2)
    assert [(await house.job(one)).result for one in ids] == ids
    assert before == ["nobody"] * 5


async def test_it_is_around_what_is_provided(house: House, kind: str):
    provided = Provided()
    seen: list[Any] = []

    async def watch(job: Job, step: Any) -> Any:
        seen.append(list(provided.entered))
        answer = await step()
        seen.append(list(provided.left))
        return answer

    house.surroundings = Surroundings(provider=provided, middleware=(watch,))
    job_id = await house.put(house.task(body_of(kind, lambda db: db)))
    await house.burst()
    assert (await house.job(job_id)).result == "a database"
    assert seen == [[], [None]]


async def test_a_cancel_that_comes_while_it_runs_on_is_too_late(house: House, kind: str):
    """The body ended first, so the job has completed."""
    after = asyncio.Event()

    async def slow(job: Job, step: Any) -> Any:
        await step()
        after.set()
        await asyncio.sleep(60)

    house.surroundings = Surroundings(middleware=(slow,))
    job_id = await house.put(house.task(made(kind, "body", lambda: "done")))
    async with house.working():
        await asyncio.wait_for(after.wait(), 15)
        await house.engine.cancel([job_id])
        [job] = await house.ended(job_id)
    assert (job.state, job.result) == (State.COMPLETED, "done")


async def test_it_knows_whose_job_it_is(house: House):
    told: list[object] = []

    async def watch(job: Job, step: Any) -> Any:
        told.append((job.id, job.attempt, job.state))
        return await step()

    async def body(*, ctx: JobContext = INJECTED) -> None:
        told.append((ctx.job_id, ctx.attempt, State.RUNNING))

    house.surroundings = Surroundings(middleware=(watch,))
    job_id = await house.put(house.task(body))
    await house.burst()
    assert told == [(job_id, 1, State.RUNNING)] * 2
