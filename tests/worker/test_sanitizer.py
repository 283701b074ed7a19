"""The error sanitizer has the say over text and traceback of exceptions, everywhere they go."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tenure import INJECTED, Cancel, Discard, JobContext, Retry
from tenure.core.job import Job
from tenure.core.states import State
from tenure.worker.failure import MESSAGE_MAX, TRACEBACK_MAX, Describer
from tenure.worker.surroundings import Surroundings
from tests.worker.kit import House, made
from tests.worker.puppet import Strings
from tests.worker.test_dependencies import Provided
from tests.worker.test_endings import raising, run_here

pytestmark = pytest.mark.anyio
SECRET = "hunter2"


@pytest.fixture
def house(memory: tuple[House, Strings]) -> House:
    """One engine will do."""
    return memory[0]


def everything(house: House, job: Job, caplog: pytest.LogCaptureFixture) -> str:
    """All that is stored, logged or told of this job."""
    formatter = logging.Formatter()
    lines = [formatter.format(record) for record in caplog.records]
    return f"{job.errors} {job.error} {job.describe_end()} {house.told} {lines}"


async def run_once(house: House, kind: str, act: Any, sanitizer: Any, **options: Any) -> Job:
    house.surroundings = Surroundings(describer=Describer(sanitizer))
    task = house.task(made(kind, "body", act), **options)
    job_id = await house.put(task)
    await house.burst()
    return await house.job(job_id)


def hide(error: BaseException, job: Job) -> str:
    return f"{type(error).__name__} in {job.task}"


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ValueError(SECRET), State.FAILED),
        (Retry(SECRET), State.FAILED),
        (Discard(SECRET), State.FAILED),
        (Cancel(SECRET), State.CANCELLED),
        (ExceptionGroup(SECRET, [KeyError(SECRET), OSError(SECRET)]), State.FAILED),
    ],
)
async def test_no_text_of_an_exception_gets_past_it(
    house: House, kind: str, error: Exception, state: State, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    told: list[Any] = []
    options = {"on_failure": lambda job, failure: told.append((job.errors, failure))}
    job = await run_once(house, kind, raising(error), hide, **options)
    assert job.state is state
    assert job.error is not None
    assert (job.error.message, job.error.traceback) == (f"{type(error).__name__} in body", "")
    assert SECRET not in everything(house, job, caplog) + str(told)


async def test_it_may_keep_a_traceback(house: House, kind: str):
    job = await run_once(house, kind, raising(ValueError(SECRET)), lambda e, j: ("why", "where"))
    assert job.error is not None
    assert (job.error.kind, job.error.message, job.error.traceback) == (
        "ValueError",
        "why",
        "where",
    )


@pytest.mark.parametrize(
    "sanitizer",
    [
        lambda e, j: 1 / 0,
        lambda e: "too few",
        lambda e, j: None,
        lambda e, j: b"bytes",
        lambda e, j: ("a", "b", "c"),
        lambda e, j: ("a", 3),
        lambda e, j: "",
    ],
)
async def test_if_it_fails_only_the_type_is_kept(
    house: House, kind: str, sanitizer: Any, caplog: pytest.LogCaptureFixture
):
    job = await run_once(house, kind, raising(ValueError(SECRET)), sanitizer)
    assert job.state is State.FAILED
    assert job.error is not None
    assert (job.error.kind, job.error.message, job.error.traceback) == (
        "ValueError",
        "ValueError",
        "",
    )
    assert SECRET not in everything(house, job, caplog)


async def test_what_it_gives_is_cut_and_made_storable(house: House):
    text = "\x00\udce4" + "x" * 50_000
    job = await run_once(house, "async", raising(ValueError()), lambda e, j: (text, text))
    assert job.error is not None
    assert len(job.error.message) == MESSAGE_MAX
    assert len(job.error.traceback) <= TRACEBACK_MAX
    assert job.error.message.startswith("\\x00\\udce4xxx")


async def test_errors_beside_the_body_go_through_it_as_well(
    house: House, caplog: pytest.LogCaptureFixture
):
    """Those of middleware, of what is provided, of callbacks, and of a bad payload."""
    caplog.set_level(logging.DEBUG)
    provided = Provided()
    provided.leave = raising(OSError(SECRET))

    async def middleware(job: Job, step: Any) -> Any:
        try:
            return await step()
        finally:
            raise LookupError(SECRET)

    house.surroundings = Surroundings(
        provider=provided, middleware=(middleware,), describer=Describer(hide)
    )

    def failing(*_: object) -> None:
        raise PermissionError(SECRET)

    async def body(number: int = 0, *, ctx: JobContext = INJECTED) -> None:
        raise ValueError(SECRET)

    task = house.task(body, on_failure=failing)
    first = await house.put(task)
    second = await house.put(task, payload=b'{"number": "hunter2"}')
    await house.burst()
    for job_id in (first, second):
        text = everything(house, await house.job(job_id), caplog)
        assert SECRET not in text
        assert "PermissionError in body" in text
    assert "OSError in body" in everything(house, await house.job(first), caplog)
    assert "LookupError in body" in everything(house, await house.job(first), caplog)


async def test_an_exit_is_raised_and_not_written_down(
    house: House, caplog: pytest.LogCaptureFixture
):
    house.surroundings = Surroundings(describer=Describer(hide))
    job_id = await house.put(house.task(made("async", "body", raising(SystemExit(SECRET)))))
    with pytest.raises(SystemExit, match=SECRET):
        await run_here(house)
    assert SECRET not in everything(house, await house.job(job_id), caplog)


async def test_our_own_words_are_not_its_business(house: House):
    """A timeout holds nothing of the body's."""

    async def slow() -> None:
        await asyncio.sleep(60)

    house.surroundings = Surroundings(describer=Describer(hide))
    job_id = await house.put(house.task(slow, timeout=0.01))
    await house.burst()
    error = (await house.job(job_id)).error
    assert error is not None
    assert (error.kind, "0.01 seconds" in error.message) == ("timeout", True)
