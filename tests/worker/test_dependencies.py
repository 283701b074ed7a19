"""What is provided to bodies: when it is entered and left, and what its failures do."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tenure import INJECTED, Cancel, Discard, Handoff, JobContext, Retry, Snooze
from tenure.core.job import Job
from tenure.core.states import State
from tenure.executors.threads import ThreadPool
from tenure.worker.surroundings import Surroundings
from tests.worker.kit import House, until
from tests.worker.puppet import Strings
from tests.worker.test_endings import run_here

pytestmark = pytest.mark.anyio


@pytest.fixture
def house(memory: tuple[House, Strings]) -> House:
    """One engine will do: nothing here is about what is written."""
    return memory[0]


class Provided:
    """A provider that remembers what was entered and left, and fails as it is told."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.left: list[type[BaseException] | None] = []
        self.enter: Callable[[], Any] = lambda: None
        self.leave: Callable[[], Any] = lambda: None

    def __call__(self, context: JobContext) -> Provided:
        self.context = context
        return self

    async def __aenter__(self) -> Mapping[str, Any]:
        self.entered.append(self.context.job_id)
        answer = self.enter()
        if asyncio.iscoroutine(answer):
            await answer
        return {"db": "a database", "unused": 1}

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> bool:
        assert (error is None) is (kind is None)
        self.left.append(kind)
        answer = self.leave()
        if asyncio.iscoroutine(answer):
            await answer
        return True  # which must not suppress anything


def body_of(kind: str, act: Callable[[str], Any]) -> Callable[..., Any]:
    """A body of this kind that does `act` with the database."""

    async def on_loop(*, db: str = INJECTED, ctx: JobContext = INJECTED) -> Any:
        assert ctx.job_id
        answer = act(db)
        return await answer if asyncio.iscoroutine(answer) else answer

    def in_thread(*, db: str = INJECTED, ctx: JobContext = INJECTED) -> Any:
        assert ctx.job_id
        return act(db)

    return on_loop if kind == "async" else in_thread


async def run_once(
    house: House, kind: str, provided: Provided, act: Callable[[str], Any], **options: Any
) -> Job:
    house.surroundings = Surroundings(provider=provided)
    task = house.task(body_of(kind, act), name="body", **{"max_attempts": 3, **options})
    job_id = await house.put(task)
    worker = await house.burst()
    assert worker.left_behind == 0
    return await house.job(job_id)


def raising(error: BaseException) -> Callable[..., Any]:
    def act(*_: object) -> Any:
        raise error

    return act


async def test_a_resolver_fills_what_is_injected(house: House, kind: str):
    asked: list[str] = []

    async def resolve(context: JobContext) -> Mapping[str, Any]:
        asked.append(context.job_id)
        return {"db": f"database of {context.task}", "other": 1}

    house.surroundings = Surroundings(resolver=resolve)
    job_id = await house.put(house.task(body_of(kind, lambda db: db), name="body"))
    await house.burst()
    assert (await house.job(job_id)).result == "database of body"
    assert asked == [job_id]


async def test_what_is_provided_is_entered_and_left_around_the_body(house: House, kind: str):
    provided = Provided()
    seen: list[int] = []

    def act(db: str) -> str:
        seen.append(len(provided.left))
        return db

    job = await run_once(house, kind, provided, act)
    assert (job.state, job.result) == (State.COMPLETED, "a database")
    assert (provided.entered, provided.left, seen) == ([job.id], [None], [0])


async def test_each_attempt_has_its_own(house: House, kind: str):
    made: list[int] = []

    @asynccontextmanager
    async def provide(context: JobContext) -> AsyncIterator[dict[str, Any]]:
        made.append(context.attempt)
        yield {"db": len(made)}

    def act(db: int) -> int:
        if db < 3:
            raise ValueError("again")
        return db

    house.surroundings = Surroundings(provider=provide)
    task = house.task(body_of(kind, act), name="body", max_attempts=3)  # type: ignore[arg-type]
    job_id = await house.put(task)
    async with house.working():
        [job] = await house.ended(job_id)
    assert (job.result, made) == (3, [1, 2, 3])


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ValueError("boom"), State.PENDING),
        (Retry(after=50), State.PENDING),
        (Snooze(50), State.PENDING),
        (Cancel(), State.CANCELLED),
        (Discard(), State.FAILED),
        (Handoff(), State.RUNNING),
    ],
)
async def test_it_is_left_once_with_the_bodys_exception_and_suppresses_none(
    house: House, kind: str, error: Exception, state: State
):
    provided = Provided()
    job = await run_once(house, kind, provided, raising(error), retry=None)
    assert job.state is state
    assert (len(provided.entered), provided.left) == (1, [type(error)])


async def test_a_failing_exit_after_a_good_body_is_a_failure_worth_another_try(
    house: House, kind: str
):
    """Even where the task says that such an exception is not: the body was not to blame."""
    provided = Provided()
    provided.leave = raising(OSError("the commit failed"))
    job = await run_once(house, kind, provided, lambda db: "good", discard_for=OSError)
    assert (job.label, job.row.failures, job.result) == ("retrying", 1, None)
    assert job.error is not None
    assert (job.error.kind, job.error.message) == ("OSError", "the commit failed")


@pytest.mark.parametrize(
    ("error", "state", "kind_of_error"),
    [
        (ValueError("boom"), State.FAILED, "ValueError"),
        (Snooze(50), State.PENDING, None),
        (Cancel("off"), State.CANCELLED, "cancelled"),
    ],
)
async def test_a_failing_exit_after_another_end_is_logged_and_changes_nothing(
    house: House,
    kind: str,
    error: Exception,
    state: State,
    kind_of_error: str | None,
    caplog: pytest.LogCaptureFixture,
):
    provided = Provided()
    provided.leave = raising(OSError("the rollback failed"))
    job = await run_once(house, kind, provided, raising(error), max_attempts=1)
    assert job.state is state
    assert (job.error and job.error.kind) == kind_of_error
    told = [r for r in caplog.records if "could not be left" in r.getMessage()]
    assert [record.levelno for record in told] == [logging.ERROR]
    assert type(error).__name__ in told[0].getMessage()
    assert told[0].exc_info is not None
    assert told[0].__dict__["job_id"] == job.id


async def test_what_cannot_be_entered_is_not_left_and_the_body_does_not_run(
    house: House, kind: str
):
    provided = Provided()
    provided.enter = raising(ConnectionError("no database"))
    ran: list[str] = []
    job = await run_once(house, kind, provided, ran.append)
    assert (job.label, provided.left, ran) == ("retrying", [], [])
    assert job.error is not None
    assert job.error.kind == "ConnectionError"


async def test_a_parameter_that_nobody_fills_is_named_and_the_rest_is_left(house: House, kind: str):
    provided = Provided()

    async def on_loop(*, cache: object = INJECTED) -> None: ...

    def in_thread(*, cache: object = INJECTED) -> None: ...

    house.surroundings = Surroundings(provider=provided)
    task = house.task(on_loop if kind == "async" else in_thread)
    job_id = await house.put(task)
    await house.burst()
    job = await house.job(job_id)
    assert job.error is not None
    assert (job.state, job.error.kind) == (State.FAILED, "MissingDependency")
    assert "'cache'" in job.error.message
    assert [kind.__name__ for kind in provided.left if kind] == ["MissingDependency"]


@pytest.mark.parametrize("given", [None, [], 7, "text"])
async def test_a_resolver_that_gives_no_mapping_fails_the_job_with_words(
    house: House, kind: str, given: Any
):
    async def resolve(context: JobContext) -> Any:
        return given

    house.surroundings = Surroundings(resolver=resolve)
    job_id = await house.put(house.task(body_of(kind, lambda db: db)))
    await house.burst()
    job = await house.job(job_id)
    assert job.state is State.FAILED
    assert job.error is not None
    assert job.error.kind in ("MissingDependency", "TypeError")


@pytest.mark.parametrize("where", ["enter", "leave"])
async def test_entering_and_leaving_are_within_the_timeout(house: House, kind: str, where: str):
    provided = Provided()
    setattr(provided, where, lambda: asyncio.sleep(60))
    job = await run_once(house, kind, provided, lambda db: db, timeout=0.05, max_attempts=1)
    assert job.error is not None
    assert (job.state, job.error.kind) == (State.FAILED, "timeout")
    assert provided.left == ([] if where == "enter" else [None])


async def test_a_body_that_swallows_its_timeout_has_timed_out_all_the_same(house: House):
    async def swallow(db: str) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
        return db

    job = await run_once(house, "async", Provided(), swallow, timeout=0.05, max_attempts=1)
    assert job.error is not None
    assert (job.state, job.error.kind) == (State.FAILED, "timeout")


async def test_a_timeout_of_an_async_body_leaves_what_was_provided(house: House):
    provided = Provided()
    job = await run_once(
        house, "async", provided, lambda db: asyncio.sleep(60), timeout=0.05, max_attempts=1
    )
    assert job.error is not None
    assert (job.state, job.error.kind) == (State.FAILED, "timeout")
    assert provided.left == [asyncio.CancelledError]


async def test_a_thread_that_outlives_its_timeout_keeps_what_was_provided(house: House):
    """It still uses the database, so that is left when the thread returns, and not before."""
    provided = Provided()
    leave: list[int] = []

    def slow(db: str) -> str:
        deadline = time.monotonic() + 15
        while not leave and time.monotonic() < deadline:
            time.sleep(0.002)
        return db

    house.surroundings = Surroundings(provider=provided)
    task = house.task(body_of("def", slow), timeout=0.05)
    job_id = await house.put(task)
    async with house.working() as worker:
        [job] = await house.ended(job_id)
        assert (job.state, provided.left) == (State.FAILED, [])
        await until(lambda: worker.left_behind == 1)
        leave.append(1)
        await until(lambda: worker.left_behind == 0)
    assert provided.left == [None]


async def test_a_cancelled_job_leaves_what_was_provided(house: House, kind: str):
    provided = Provided()
    entered: list[str] = []

    async def on_loop(*, db: str = INJECTED) -> None:
        entered.append(db)
        await asyncio.sleep(60)

    def in_thread(*, ctx: JobContext = INJECTED) -> None:
        entered.append("thread")
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            ctx.check()
            time.sleep(0.002)

    house.surroundings = Surroundings(provider=provided)
    job_id = await house.put(house.task(on_loop if kind == "async" else in_thread))
    async with house.working():
        await until(lambda: entered)
        await house.engine.cancel([job_id])
        [job] = await house.ended(job_id)
    assert job.state is State.CANCELLED
    [left] = provided.left
    assert left is not None
    assert left.__name__ == ("CancelledError" if kind == "async" else "Stopped")


async def test_a_shutdown_leaves_what_was_provided_and_gives_the_job_back(house: House):
    provided = Provided()
    house.surroundings = Surroundings(provider=provided)
    job_id = await house.put(house.task(body_of("async", lambda db: asyncio.sleep(60))))
    async with house.working():
        await until(lambda: provided.entered)
    assert (await house.job(job_id)).row.releases == 1
    assert provided.left == [asyncio.CancelledError]


async def test_without_a_thread_nothing_is_lost_and_the_place_is_given_back(
    house: House, short_snoozes: None, monkeypatch: pytest.MonkeyPatch
):
    provided = Provided()
    house.surroundings = Surroundings(provider=provided)
    job_id = await house.put(house.task(body_of("def", lambda db: db)))
    real = ThreadPool.submit
    refused: list[int] = []

    def submit(self: ThreadPool, function: Any) -> Any:
        if len(refused) < 2:
            refused.append(1)
            raise RuntimeError("can't start new thread")
        return real(self, function)

    monkeypatch.setattr(ThreadPool, "submit", submit)
    async with house.working(threads=1):
        [job] = await house.ended(job_id)
    assert (job.result, job.row.failures) == ("a database", 0)
    assert len(provided.entered) == len(provided.left) == 3


async def test_an_exit_that_ends_the_process_ends_the_worker(house: House, kind: str):
    provided = Provided()
    provided.leave = raising(SystemExit("enough"))
    house.surroundings = Surroundings(provider=provided)
    job_id = await house.put(house.task(body_of(kind, lambda db: db)))
    with pytest.raises(SystemExit, match="enough"):
        await run_here(house)
    assert (await house.job(job_id)).state is State.PENDING
