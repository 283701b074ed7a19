"""Jobs that cannot be run or saved as they are: each ends readably, and the worker goes on."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tenure import INJECTED, JobContext, Snooze
from tenure.core.job import Job
from tenure.core.states import State
from tenure.tasks import TaskSet
from tests.worker.kit import House, made, until

pytestmark = pytest.mark.anyio


async def good() -> str:
    return "fine"


async def add(a: int, b: int = 1) -> int:
    return a + b


async def ended_beside_a_good_one(house: House, job_id: str) -> Job:
    """The job, once it has ended and so has one that came after it."""
    neighbour = await house.put(house.task(good))
    await house.burst(concurrency=1)
    assert (await house.job(neighbour)).result == "fine"
    return await house.job(job_id)


async def test_unknown_names_are_never_claimed_and_their_neighbours_are(house: House):
    unknown = await house.put(house.task(add), 1, task="elsewhere")
    neighbours = [await house.put(house.task(add), n) for n in range(3)]
    await house.burst(concurrency=1)
    job = await house.job(unknown)
    assert (job.state, job.claims, job.token) == (State.PENDING, 0, 0)
    assert [(await house.job(n)).result for n in neighbours] == [1, 2, 3]


async def test_other_queues_are_never_claimed(house: House):
    task = house.task(add)
    ids = [await house.put(task, 1, queue=queue) for queue in ("a", "b", "c")]
    await house.burst(queues=("a", "c"))
    states = [await house.state(job_id) for job_id in ids]
    assert states == [State.COMPLETED, State.PENDING, State.COMPLETED]


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"\xff\xfe{", "stored value is not JSON"),
        (b'{"a": 1', "stored value is not JSON"),
        (b"", "stored value is not JSON"),
        (b"[1]", "the payload is a list, not an object"),
        (b"{}", "missing argument 'a'"),
        (b'{"a": "many"}', "a: Expected `int`, got `str`"),
        (b'{"a": 1, "c": 2}', "unknown argument 'c'"),
        (b"[" * 5000 + b"]" * 5000, ""),  # how deep is too deep depends on the interpreter
    ],
)
async def test_a_bad_payload_fails_with_words(house: House, payload: bytes, words: str):
    job_id = await house.put(house.task(add), 1, payload=payload)
    job = await ended_beside_a_good_one(house, job_id)
    assert job.state is State.FAILED
    assert job.error is not None
    assert job.error.kind == "PayloadError"
    assert words in job.error.message


async def test_a_payload_in_an_unknown_encoding_fails_with_words(house: House):
    job_id = await house.put(house.task(add), 1, codec="msgpack")
    job = await ended_beside_a_good_one(house, job_id)
    assert job.error is not None
    assert "'msgpack'" in job.error.message


async def test_a_missing_dependency_is_named(house: House):
    async def needy(*, session: dict[str, int] = INJECTED) -> None:
        pass

    job_id = await house.put(house.task(needy))
    job = await ended_beside_a_good_one(house, job_id)
    assert job.error is not None
    assert (job.state, job.error.kind) == (State.FAILED, "MissingDependency")
    assert "'session'" in job.error.message


class Trap:
    """Converting to it exits."""

    @classmethod
    def model_validate(cls, value: object) -> Trap:
        raise SystemExit("while reading an argument")


async def test_an_exit_while_reading_arguments_releases_the_job(house: House):
    async def trapped(a: Trap) -> None:
        pass

    task = house.task(trapped)
    job_id = await house.put(house.task(add), 1, task=task.name, payload=b'{"a": 1}')
    with pytest.raises(SystemExit):
        async with asyncio.timeout(15):
            await house.worker().run()
    assert (await house.job(job_id)).row.releases == 1


async def coroutine() -> None:
    pass


class Exits:
    def model_dump(self, mode: str) -> object:
        raise ValueError("cannot be dumped")


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (lambda: object(), "result: object cannot be stored as JSON"),
        (lambda: {"x": [1, float("nan")]}, "result.x[1]: nan cannot be stored"),
        (lambda: "a\0b", "NUL"),
        (lambda: "\ud800", "surrogate"),
        (lambda: {1: 2}, "JSON keys are strings"),
        (lambda: 2**70, "64 bits"),
        (lambda: "x" * (1024 * 1024), "1048578 bytes are more than the 1048576 allowed"),
        (lambda: coroutine(), "coroutine that nobody awaited"),
        (Exits, "cannot be"),
    ],
)
async def test_a_result_that_cannot_be_stored_fails_with_words(
    house: House, kind: str, result: Any, words: str
):
    task = house.task(made(kind, "body", result), max_attempts=3)
    job = await ended_beside_a_good_one(house, await house.put(task))
    assert (job.state, job.claims) == (State.FAILED, 1)  # its effects happened: not run again
    assert job.error is not None
    assert words in job.error.message


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Exiting(Exception):
    def __str__(self) -> str:
        raise SystemExit("in str()")

    __repr__ = __str__


class Cancelling(Exception):
    def __str__(self) -> str:
        raise asyncio.CancelledError


class Unlike(str):
    """Text that is not plain `str`."""

    def __str__(self) -> str:
        return self


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Mute(), "(its text cannot be shown: str() raised RuntimeError)"),
        (Exiting(), "(its text cannot be shown: str() raised SystemExit)"),
        (Cancelling(), "(its text cannot be shown: str() raised CancelledError)"),
        (ValueError(), "ValueError without a message"),
        (ValueError("nul \0 and \ud800"), "nul \\x00 and \\ud800"),
        (ValueError("long " * 1_000_000), ("long " * 1_000_000)[:4000]),
        (ValueError(Unlike("odd")), "odd"),
        (KeyError(Mute()), "(its text cannot be shown: str() raised RuntimeError)"),
        (type("Odd" * 1000, (Exception,), {})("odd name"), "odd name"),
    ],
)
async def test_any_exception_can_be_saved(house: House, kind: str, error: Exception, message: str):
    def act() -> None:
        raise error

    job = await ended_beside_a_good_one(house, await house.put(house.task(made(kind, "b", act))))
    assert job.state is State.FAILED
    assert job.error is not None
    assert job.error.message == message
    assert "raise error" in job.error.traceback
    assert len(job.error.traceback) <= 16_000
    assert len(job.error.kind) <= 255


async def test_endless_chains_of_exceptions_can_be_saved(house: House, kind: str):
    def act() -> None:
        error = ValueError("first")
        for n in range(3000):
            later = ValueError(str(n))
            later.__context__ = error
            error = later
        raise error

    job = await ended_beside_a_good_one(house, await house.put(house.task(made(kind, "b", act))))
    assert job.error is not None
    assert job.error.message == "2999"


async def test_groups_nested_without_end_can_be_saved(house: House, kind: str):
    def act() -> None:
        error: Exception = ValueError("first")
        for _ in range(3000):
            error = ExceptionGroup("more", [error, error])
        raise error

    job = await ended_beside_a_good_one(house, await house.put(house.task(made(kind, "b", act))))
    assert job.state is State.FAILED


async def test_a_body_that_swallows_one_cancellation_ends_with_the_next(house: House):
    swallowed: list[int] = []

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if swallowed:
                    raise
                swallowed.append(1)

    job_id = await house.put(house.task(stubborn, timeout=0.05))
    job = await ended_beside_a_good_one(house, job_id)
    assert job.error is not None
    assert (job.state, job.error.kind) == (State.FAILED, "timeout")
    assert "still runs" not in job.error.message


async def test_a_body_that_swallows_a_timeout_and_returns_was_late(house: House):
    async def late() -> int:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
        return 1

    job = await ended_beside_a_good_one(house, await house.put(house.task(late, timeout=0.05)))
    assert job.error is not None
    assert (job.state, job.error.kind, job.result) == (State.FAILED, "timeout", None)
    assert "it returned too late" in job.error.message


async def test_a_body_that_swallows_every_cancellation_is_left_behind(house: House):
    released = asyncio.Event()

    async def stubborn() -> None:
        deadline = time.monotonic() + 5  # a test that fails must end as well
        while not released.is_set() and time.monotonic() < deadline:
            try:
                async with asyncio.timeout(0.5):
                    await released.wait()
            except (asyncio.CancelledError, TimeoutError):
                pass

    job_id = await house.put(house.task(stubborn, timeout=0.05))
    async with house.working(stop_grace=0.05, concurrency=1) as worker:
        [job] = await house.ended(job_id)
        assert job.error is not None
        assert (job.state, job.error.kind) == (State.FAILED, "timeout")
        assert "still runs" in job.error.message
        [neighbour] = await house.ended(await house.put(house.task(good)))
        assert neighbour.result == "fine"
        assert worker.left_behind == 1
        released.set()
        await until(lambda: worker.left_behind == 0)


@pytest.mark.usefixtures("short_snoozes")
async def test_a_body_never_started_twice_while_its_old_self_runs(house: House):
    """A retry of a job whose body was left behind waits for that body."""
    released = asyncio.Event()
    starts = []

    async def stubborn(*, ctx: JobContext = INJECTED) -> None:
        starts.append(ctx.attempt)
        deadline = time.monotonic() + 5  # a test that fails must end as well
        while not released.is_set() and time.monotonic() < deadline:
            try:
                async with asyncio.timeout(0.5):
                    await released.wait()
            except (asyncio.CancelledError, TimeoutError):
                pass

    job_id = await house.put(house.task(stubborn, timeout=0.05, max_attempts=2))
    async with house.working(stop_grace=0.02):
        await until(lambda: "job.snoozed" in house.names(job_id))
        assert starts == [1]
        released.set()
        [job] = await house.ended(job_id)
    assert starts == [1, 2]
    assert job.state is State.COMPLETED


async def test_a_task_declared_while_the_worker_runs_is_run(house: House):
    async with house.working():
        [job] = await house.ended(await house.put(house.task(good)))
    assert job.result == "fine"


async def test_a_task_that_is_not_there_any_more_is_an_error(
    house: House, monkeypatch: pytest.MonkeyPatch
):
    """An engine that gives what was not asked for must not leave a job without an end."""
    job_id = await house.put(house.task(add), 1)
    monkeypatch.setattr(house.tasks, "get", TaskSet().get)
    async with house.working():
        [job] = await house.ended(job_id)
        await until(lambda: house.keeper.active == 0)
    assert job.error is not None
    assert (job.state, job.error.kind) == (State.FAILED, "UnknownTask")


async def test_recursion_in_a_body_is_an_error(house: House, kind: str):
    def deeper() -> None:
        deeper()

    job = await ended_beside_a_good_one(
        house, await house.put(house.task(made(kind, "body", deeper)))
    )
    assert job.error is not None
    assert job.error.kind == "RecursionError"


async def test_an_absurd_snooze_or_progress_harms_nobody(house: House, kind: str):
    """What the body reports travels with the renewals of others."""

    def act() -> None:
        raise Snooze(10**11)

    job = await ended_beside_a_good_one(house, await house.put(house.task(made(kind, "b", act))))
    assert job.state is State.PENDING


async def test_progress_that_no_store_holds_keeps_no_lease_from_renewal(house: House):
    done = asyncio.Event()

    async def odd(*, ctx: JobContext = INJECTED) -> None:
        ctx.progress(10**30, 10**40, "nul \0")
        await done.wait()

    job_id = await house.put(house.task(odd))
    async with house.working(lease=1.0):

        async def reported() -> bool:
            return (await house.job(job_id)).progress is not None

        await until(reported)
        done.set()
        [job] = await house.ended(job_id)
    assert job.state is State.COMPLETED
    assert job.progress is not None
    assert job.progress.message == "nul \\x00"


async def test_a_deep_result_of_a_slow_body_is_one_job_only(house: House):
    async def deep() -> list[Any]:
        value: list[Any] = []
        for _ in range(100_000):
            value = [value]
        return value

    started = time.monotonic()
    job = await ended_beside_a_good_one(house, await house.put(house.task(deep)))
    assert job.state is State.FAILED
    assert time.monotonic() - started < 10
