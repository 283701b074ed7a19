"""Waiting for the end of a job, before, at and after it, with the store present or away."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tenure import JobFailed, JobHandle, QueueService, State, handles
from tenure.core.job import JobError, JobRow
from tenure.core.outcomes import Completed, Errored, Outcome, Snoozed
from tenure.core.rules import decide
from tenure.engines.protocol import Claim, Signal, Topic
from tenure.errors import (
    ConfigurationError,
    EngineUnavailable,
    JobCancelled,
    JobEnded,
    JobExpired,
    JobNotFound,
    PayloadError,
)
from tests.service.conftest import End

pytestmark = pytest.mark.anyio
NEVER = 3600.0
Rows = list[JobRow | None]
Look = Callable[[Sequence[str]], Awaitable[Rows]]


@pytest.fixture(autouse=True)
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """What must be heard of is not to be found by chance."""
    monkeypatch.setattr(handles, "_POLL_SECONDS", NEVER)


@pytest.fixture
async def handle(jobs: QueueService) -> JobHandle[str]:
    @jobs.task
    async def work() -> str:
        return "done"

    return await jobs.enqueue(work)


class Looks:
    """Counts the looks of a service at its jobs; `look` may be replaced."""

    def __init__(self, jobs: QueueService) -> None:
        engine: Any = jobs._life.engine
        self.real: Look = engine.get
        self.look: Look = self.real
        self.sizes: list[int] = []
        self.listeners = 0
        self.looked = asyncio.Event()
        self._listen = engine.listen
        engine.get = self.get
        engine.listen = self.listen

    async def get(self, ids: Sequence[str]) -> Rows:
        try:
            return await self.look(ids)
        finally:
            self.sizes.append(len(ids))
            self.looked.set()

    def listen(self, topics: Any) -> Any:
        self.listeners += 1
        return self._listen(topics)

    async def next(self) -> None:
        self.looked.clear()
        await self.looked.wait()


@pytest.fixture
def looks(jobs: QueueService, handle: object) -> Looks:
    return Looks(jobs)


async def waiting(handle: JobHandle[Any], looks: Looks) -> asyncio.Task[Any]:
    """A task that waits, and has had its first look."""
    task = asyncio.create_task(handle.wait())
    await looks.next()
    return task


# When


async def test_a_job_that_has_ended_is_there_at_once(
    jobs: QueueService, handle: JobHandle[str], end: End
) -> None:
    await end(jobs, handle.id)
    assert await handle.result() == "done"
    assert await handle.result(timeout=0) == "done"
    assert (await handle.wait(timeout=timedelta(minutes=1))).state is State.COMPLETED
    assert (await jobs.wait(handle.id, timeout=0.0)).id == handle.id


async def test_the_end_of_a_job_is_heard(
    jobs: QueueService, handle: JobHandle[str], looks: Looks, end: End
) -> None:
    waiter = await waiting(handle, looks)
    await end(jobs, handle.id)
    assert (await waiter).result == "done"


async def test_an_end_during_the_first_look_is_heard(
    jobs: QueueService, handle: JobHandle[str], looks: Looks, end: End
) -> None:
    async def look(ids: Sequence[str]) -> Rows:
        rows = await looks.real(ids)
        looks.look = looks.real
        await end(jobs, handle.id)
        return rows  # from before

    looks.look = look
    assert (await handle.wait()).result == "done"
    assert len(looks.sizes) == 2


async def test_a_retry_is_no_end(
    jobs: QueueService, handle: JobHandle[str], looks: Looks, end: End
) -> None:
    waiter = await waiting(handle, looks)
    await end(jobs, handle.id, Snoozed(0))
    assert not waiter.done()
    await end(jobs, handle.id)
    assert (await waiter).claims == 2


async def test_waits_may_follow_each_other(jobs: QueueService, handle: Any, end: End) -> None:
    for _ in range(3):
        waiter = asyncio.create_task(handle.wait())
        await end(jobs, handle.id)
        await waiter
        await jobs.requeue(handle.id)
    assert (await handle.job()).claims == 3


# Limits


@pytest.mark.parametrize("timeout", [0, 0.01, timedelta(milliseconds=1)])
async def test_past_its_timeout_the_job_goes_on(handle: JobHandle[str], timeout: Any) -> None:
    for wait in (handle.wait, handle.result):
        with pytest.raises(TimeoutError, match=f"job {handle.id} has not ended"):
            await wait(timeout)
    assert (await handle.job()).state is State.PENDING


@pytest.mark.parametrize("timeout", [-1, math.nan, math.inf, True, "5", timedelta(seconds=-1)])
async def test_a_bad_timeout_is_refused(handle: JobHandle[str], timeout: Any) -> None:
    with pytest.raises(ConfigurationError, match="timeout must"):
        await handle.wait(timeout)


async def test_a_store_that_hangs_does_not_stretch_the_timeout(
    handle: JobHandle[str], looks: Looks
) -> None:
    async def look(ids: Sequence[str]) -> Rows:
        await asyncio.Event().wait()
        raise AssertionError

    looks.look = look
    first = asyncio.create_task(handle.wait())
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await handle.wait(0.01)
    first.cancel()


async def test_a_caller_that_leaves_leaves_nothing_behind(
    jobs: QueueService, handle: JobHandle[str], looks: Looks, end: End
) -> None:
    other = await waiting(handle, looks)
    waiter = jobs._life.waiter()
    task = await waiting(handle, looks)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await end(jobs, handle.id)
    await other
    if waiter._watch is not None:
        await waiter._watch
    assert not waiter._waiting


# How it ended


@pytest.mark.parametrize(
    ("outcome", "error", "text"),
    [
        (Errored(JobError("ValueError", "no")), JobFailed, r"\(work\) failed: ValueError: no"),
        (None, JobCancelled, r"\(work\) cancelled"),
        (Snoozed(60_000_000), JobExpired, r"\(work\) expired"),
    ],
)
async def test_a_job_that_did_not_complete_raises(
    jobs: QueueService, end: End, outcome: Outcome | None, error: type[JobEnded], text: str
) -> None:
    @jobs.task(expires_in=1)
    async def work() -> str: ...  # type: ignore[empty-body]

    handle = await jobs.enqueue(work)
    if outcome is None:
        assert (await handle.cancel()).cancelled == (handle.id,)
    else:
        await end(jobs, handle.id, outcome)
    with pytest.raises(error, match=f"job {handle.id} {text}") as caught:
        await handle.result()
    assert caught.value.job == await handle.wait() == await handle.job()


async def test_a_result_has_the_annotated_type(jobs: QueueService, end: End) -> None:
    @jobs.task
    async def where() -> Path: ...  # type: ignore[empty-body]

    handle = await jobs.enqueue(where)
    await end(jobs, handle.id, Completed(b'"/a"'))
    assert await handle.result() == Path("/a")
    assert await jobs.handle(handle.id).result() == "/a"
    handle = await jobs.enqueue(where)
    await end(jobs, handle.id, Completed(b"3"))
    with pytest.raises((PayloadError, TypeError), match="result"):
        await handle.result()


async def test_no_result_is_none(jobs: QueueService, end: End) -> None:
    @jobs.task
    async def nothing() -> None: ...

    handle = await jobs.enqueue(nothing)
    await end(jobs, handle.id, Completed(None))
    assert await handle.result() is None  # type: ignore[func-returns-value]


# Jobs that are not there


@pytest.mark.parametrize("timeout", [None, 0, 5])
async def test_an_unknown_job_is_no_reason_to_wait(jobs: QueueService, timeout: Any) -> None:
    for wait in (jobs.handle("nobody").wait, jobs.handle("nobody").result):
        with pytest.raises(JobNotFound, match="'nobody'"):
            await wait(timeout)


async def test_a_job_that_vanishes_is_missed(
    handle: JobHandle[str], looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(ids: Sequence[str]) -> Rows:
        return [None] * len(ids)

    monkeypatch.setattr(handles, "_POLL_SECONDS", 0.01)
    waiter = await waiting(handle, looks)
    looks.look = gone
    with pytest.raises(JobNotFound, match=handle.id):
        await waiter


# Lost signals


class Deaf:
    """A listener that hears of others only."""

    def __init__(self, signals: frozenset[Signal]) -> None:
        self.signals = signals

    async def wait(self, timeout: float | None = None) -> frozenset[Signal]:
        await (asyncio.sleep(0) if self.signals else asyncio.Event().wait())
        return self.signals


@pytest.mark.parametrize("others", [frozenset(), frozenset({Signal(Topic.DONE, "other")})])
async def test_a_lost_signal_costs_time_only(
    jobs: QueueService,
    handle: JobHandle[str],
    looks: Looks,
    end: End,
    others: frozenset[Signal],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @asynccontextmanager
    async def deaf(topics: object) -> AsyncIterator[Deaf]:
        yield Deaf(others)

    monkeypatch.setattr(handles, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(jobs._life.engine, "listen", deaf)
    waiter = await waiting(handle, looks)
    await end(jobs, handle.id)
    assert (await waiter).result == "done"


async def test_a_vague_signal_has_every_job_looked_at(
    jobs: QueueService, handle: JobHandle[str], looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is all that another process's writes give."""
    waiter = await waiting(handle, looks)

    async def ended(ids: Sequence[str]) -> Rows:
        [row] = await looks.real(ids)
        assert row is not None
        return [msgspec_replace(row, state=State.CANCELLED)]

    looks.look = ended
    await jobs._life.engine.notify([Signal(Topic.ANY)])
    assert (await waiter).state is State.CANCELLED


def msgspec_replace(row: JobRow, **changes: Any) -> JobRow:
    import msgspec

    return msgspec.structs.replace(row, **changes)


# Many


async def test_a_thousand_waiters_share_a_listener_and_few_looks(jobs: QueueService) -> None:
    @jobs.task
    async def work(n: int) -> int: ...  # type: ignore[empty-body]

    handles_ = await jobs.enqueue_many(work.bind(n) for n in range(1000))
    looks = Looks(jobs)
    waiters = [asyncio.create_task(handle.result()) for handle in handles_]
    await looks.next()
    rows = await jobs._life.engine.claim(Claim(owner="test", limit=1000, lease=60_000_000))
    done = [decide(row, Completed(row.payload[5:-1]), now=0) for row in rows]
    await jobs._life.engine.settle(done)
    assert await asyncio.gather(*waiters) == list(range(1000))
    assert looks.listeners == 1
    assert len(looks.sizes) <= 6  # 1000 ids are two looks
    assert max(looks.sizes) <= 500


# The store goes


async def test_a_store_that_is_away_for_a_while_is_waited_for(
    jobs: QueueService,
    handle: JobHandle[str],
    looks: Looks,
    end: End,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def away(ids: Sequence[str]) -> Rows:
        raise EngineUnavailable("get: away")

    monkeypatch.setattr(handles, "_POLL_SECONDS", 0.01)
    waiter = await waiting(handle, looks)
    looks.look = away
    await looks.next()
    await end(jobs, handle.id)
    await looks.next()
    assert not waiter.done()
    looks.look = looks.real
    assert (await waiter).result == "done"


async def test_whoever_waits_is_told_that_the_service_is_closed(
    jobs: QueueService, handle: JobHandle[str], looks: Looks
) -> None:
    waiters = [await waiting(handle, looks), asyncio.create_task(handle.wait(NEVER))]
    await jobs.close()
    for waiter in waiters:
        with pytest.raises(EngineUnavailable, match="closed while waiting"):
            await waiter


async def test_a_defect_reaches_everybody_who_waits(
    jobs: QueueService, handle: JobHandle[str], looks: Looks, end: End
) -> None:
    async def broken(ids: Sequence[str]) -> Rows:
        raise ValueError("a bad row")

    looks.look = broken
    waiters = [asyncio.create_task(handle.wait()) for _ in range(2)]
    errors = await asyncio.gather(*waiters, return_exceptions=True)
    assert [str(error) for error in errors] == ["waiting failed: a bad row"] * 2
    assert errors[0] is not errors[1]
    assert isinstance(errors[0], EngineUnavailable)
    looks.look = looks.real
    await end(jobs, handle.id)
    assert await handle.result() == "done"


async def test_a_listener_that_cannot_be_had_is_no_reason_to_hang(
    jobs: QueueService, handle: JobHandle[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def broken(topics: object) -> AsyncIterator[Any]:
        raise EngineUnavailable("listen: no more connections")
        yield

    monkeypatch.setattr(jobs._life.engine, "listen", broken)
    with pytest.raises(EngineUnavailable, match="no more connections"):
        await handle.wait()


async def test_whoever_comes_while_a_listener_leaves_is_not_forgotten(
    jobs: QueueService, handle: JobHandle[str], end: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving, left = asyncio.Event(), asyncio.Event()
    listen = jobs._life.engine.listen

    @asynccontextmanager
    async def slow(topics: Any) -> AsyncIterator[Any]:
        async with listen(topics) as listener:
            yield listener
        leaving.set()
        await left.wait()

    monkeypatch.setattr(jobs._life.engine, "listen", slow)
    await end(jobs, handle.id)
    await handle.wait()
    await leaving.wait()
    assert await handle.result(timeout=30) == "done"
    left.set()
