"""Resolver, provider, sanitizer and middleware as settings of a service, and its life with them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tenure import INJECTED, JobContext, QueueService, task
from tenure.core.job import Job, JobError
from tenure.core.states import State
from tenure.engines.protocol import Claim
from tenure.errors import EngineUnavailable
from tenure.testing.flaky import Flaky
from tests.service.stores import Store, store

__all__ = ["store"]
pytestmark = pytest.mark.anyio


@task
async def on_loop(*, db: str = INJECTED) -> str:
    return db


@task
def in_thread(*, db: str = INJECTED, ctx: JobContext = INJECTED) -> str:
    return f"{db} of {ctx.task}"


class Pool:
    """A provider with a life of its own."""

    def __init__(self, asynchronous: bool) -> None:
        self.steps: list[str] = []
        self.fail_at = ""
        if asynchronous:
            self.open: Any = self._open
            self.close: Any = self._close
        else:
            self.open = lambda: self._step("open")
            self.close = lambda: self._step("close")

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if self.fail_at == name:
            raise OSError(f"the pool cannot {name}")

    async def _open(self) -> None:
        self._step("open")

    async def _close(self) -> None:
        self._step("close")

    @asynccontextmanager
    async def __call__(self, context: JobContext) -> AsyncIterator[Mapping[str, Any]]:
        self._step("enter")
        yield {"db": "a database"}
        self._step("leave")


async def test_bodies_of_both_kinds_get_what_the_service_provides(store: Store) -> None:
    pool = Pool(True)
    async with store.service(tasks=[on_loop, in_thread], provider=pool) as jobs:
        first, second = await jobs.enqueue(on_loop), await jobs.enqueue(in_thread)
        await jobs.worker(burst=True).run()
        assert await first.result(20) == "a database"
        assert await second.result(20) == "a database of in_thread"
        third = await jobs.enqueue(on_loop)
        assert (await jobs.run_one(third.id)).result == "a database"
    assert pool.steps == ["open", *["enter", "leave"] * 3, "close"] or pool.steps == [
        "open",
        "enter",
        "enter",
        "leave",
        "leave",
        "enter",
        "leave",
        "close",
    ]


async def test_a_resolver_does_too(store: Store) -> None:
    async def resolve(context: JobContext) -> Mapping[str, Any]:
        return {"db": context.queue}

    async with store.service(tasks=[on_loop, in_thread], resolver=resolve) as jobs:
        first, second = await jobs.enqueue(on_loop), await jobs.enqueue(in_thread)
        await jobs.worker(burst=True).run()
        assert await first.result(20) == "default"
        assert await second.result(20) == "default of in_thread"


@pytest.fixture(params=[True, False], ids=["async", "def"])
def pool(request: pytest.FixtureRequest) -> Pool:
    return Pool(request.param)


def watched(jobs: QueueService, steps: list[str]) -> Flaky:
    """The engine of a service, that notes when it is opened and closed."""

    class Watched(Flaky):
        async def __aenter__(self) -> Any:
            steps.append("engine open")
            return await super().__aenter__()

        async def __aexit__(self, *exc: object) -> None:
            steps.append("engine close")
            await super().__aexit__(*exc)

    engine = Watched(jobs._life.engine)
    jobs._life._make = lambda: engine
    jobs._life._engine = engine
    return engine


async def test_it_is_opened_first_and_closed_last_each_time(pool: Pool) -> None:
    jobs = QueueService("memory://", provider=pool)
    watched(jobs, pool.steps)
    for _ in range(2):
        async with jobs:
            await jobs.find()
    once = ["open", "engine open", "engine close", "close"]
    assert pool.steps == once * 2


async def test_a_provider_that_cannot_be_opened_leaves_nothing_open(pool: Pool) -> None:
    jobs = QueueService("memory://", provider=pool)
    watched(jobs, pool.steps)
    pool.fail_at = "open"
    with pytest.raises(OSError, match="the pool cannot open"):
        await jobs.find()
    assert pool.steps == ["open"]
    pool.fail_at = ""
    async with jobs:
        assert await jobs.find() == []


async def test_an_engine_that_cannot_be_opened_has_the_provider_closed(
    pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = QueueService("memory://", provider=pool)

    class Away(Flaky):
        async def __aenter__(self) -> Any:
            raise EngineUnavailable("away")

    jobs._life._engine = Away(jobs._life.engine)
    for fail_at in ("", "close"):
        pool.fail_at = fail_at
        pool.steps.clear()
        with pytest.raises(EngineUnavailable, match="away"):
            await jobs.open()
        assert pool.steps == ["open", "close"]
    assert [r.levelno for r in caplog.records] == [logging.ERROR]


async def test_a_provider_that_cannot_be_closed_is_told_after_all_else_is(pool: Pool) -> None:
    jobs = QueueService("memory://", provider=pool)
    watched(jobs, pool.steps)
    await jobs.open()
    pool.fail_at = "close"
    with pytest.raises(OSError, match="the pool cannot close"):
        await jobs.close()
    assert pool.steps == ["open", "engine open", "engine close", "close"]
    await jobs.close()


async def test_what_a_sweep_without_a_worker_fails_is_told(store: Store) -> None:
    told: list[tuple[str, str]] = []

    async def on_failure(job: Job, error: JobError) -> None:
        await asyncio.sleep(0)
        told.append((job.id, error.kind))

    async with store.service() as jobs:

        @jobs.task(max_lapses=0, on_failure=on_failure)
        async def body() -> None: ...

        handle = await jobs.enqueue(body)
        await jobs._life.engine.claim(Claim(owner="dead", limit=1, lease=1))
        swept = await jobs.sweep()
        assert [(item.id, item.state) for item in swept] == [(handle.id, State.FAILED)]
        assert told == [(handle.id, "lapsed")]
        assert await jobs.sweep() == []


async def test_errors_are_sanitized_wherever_jobs_are_run() -> None:
    """By a worker, by `run_one`, and in the block of a delivery."""
    secret = "hunter2"
    settings: Any = {"error_sanitizer": lambda error, job: f"hidden in {job.task}"}
    async with QueueService("memory://", **settings) as jobs:

        @jobs.task
        async def body() -> None:
            raise ValueError(secret)

        first, second, third = [await jobs.enqueue(body) for _ in range(3)]
        with pytest.raises(ValueError, match=secret):
            async with jobs.receive(limit=1) as [delivery], delivery:
                raise ValueError(secret)
        await jobs.run_one(second.id)
        await jobs.worker(burst=True).run()
        for handle in (first, second, third):
            error = (await handle.job()).error
            assert error is not None
            assert (error.message, error.traceback) == ("hidden in body", "")


async def test_each_task_says_whether_and_how_its_success_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(1, "tenure")  # its own: a command may have set it before
    async with QueueService("memory://", log_success=True, log_level="DEBUG") as jobs:

        @jobs.task(description="plain")
        async def plain() -> None: ...

        @jobs.task(log_success=False)
        async def silent() -> None: ...

        @jobs.task(log_level="WARNING")
        async def loud() -> None: ...

        @jobs.task(log_level=5)
        async def fails() -> None:
            raise ValueError

        await jobs.enqueue_many([one.bind() for one in (plain, silent, loud, fails)])
        quiet = await jobs.enqueue(plain.options(log_success=False))
        spoken = await jobs.enqueue(silent.options(log_success=True, log_level="ERROR"))
        await jobs.worker(burst=True).run()
        records = [r for r in caplog.records if r.name == "tenure.worker"]
        levels = sorted((r.__dict__["task"], r.levelname) for r in records)
        assert levels == [
            ("fails", "ERROR"),  # the level is that of success
            ("loud", "WARNING"),
            ("plain", "DEBUG"),
            ("silent", "ERROR"),
        ]
        ids = {r.__dict__["job_id"] for r in records}
        assert (quiet.id in ids, spoken.id in ids) == (False, True)
        [one] = [r for r in records if r.__dict__["task"] == "plain"]
        assert one.__dict__["description"] == "plain"
        assert one.__dict__["correlation_id"] == one.__dict__["job_id"]
        caplog.clear()
        await jobs.enqueue(plain)
        await jobs.worker(burst=True, log_success=False).run()
        assert not [r for r in caplog.records if r.name == "tenure.worker"]
