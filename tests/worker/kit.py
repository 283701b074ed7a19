"""A small house to run workers in: an engine, tasks, a keeper of its own, and bounded waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tenure.clock import IdSource
from tenure.context import JobContext
from tenure.core.job import Job, NewJob
from tenure.core.retry import RetryPolicy
from tenure.core.states import State
from tenure.engines.protocol import Claim, Engine
from tenure.leases.keeper import LeaseKeeper
from tenure.observe.hooks import Happening, Hooks
from tenure.options import TaskOptions, changed
from tenure.signatures import INJECTED
from tenure.tasks import Task, TaskSet
from tenure.worker.options import WorkerOptions
from tenure.worker.surroundings import PLAIN
from tenure.worker.worker import Worker

PATIENCE = 15.0
SOON = RetryPolicy.constant(0.1)
"""The shortest backoff there is."""

NEVER = 3600.0
"""A poll that no test lives to see."""


async def until(condition: Callable[[], Any], timeout: float = PATIENCE) -> None:
    """Wait until it holds; a condition may be a coroutine function."""
    deadline = time.monotonic() + timeout
    while True:
        answer = condition()
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer:
            return
        assert time.monotonic() < deadline, f"did not come true within {timeout:g} s"
        await asyncio.sleep(0.005)


class House:
    """Runs workers on one engine, and remembers what their hooks were told."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.tasks = TaskSet()
        self.keeper = LeaseKeeper()
        self.told: list[Happening] = []
        self.hooks = Hooks(self.told.append)
        self.surroundings = PLAIN
        self._ids = IdSource()

    def task(self, function: Callable[..., Any], **options: Any) -> Task[..., Any]:
        """Declare a task."""
        task: Task[..., Any] = Task(function, changed(TaskOptions(), options))  # type: ignore[arg-type]
        self.tasks.add(task)
        return task

    async def put(self, task: Task[..., Any], /, *args: Any, **changes: Any) -> str:
        """Enqueue; the id. `changes` are of `NewJob`, as times in microseconds."""
        bound = task.bind(*args)
        new = NewJob(
            id=self._ids(),
            task=task.name,
            queue=task.spec.queue,
            payload=bound.payload,
            max_attempts=task.spec.max_attempts,
            max_lapses=task.spec.max_lapses,
            max_interruptions=task.spec.max_interruptions,
            timeout=task.spec.timeout_seconds,
            retry=task.spec.retry or SOON,
        )
        await self.engine.insert([msgspec.structs.replace(new, **changes)])
        return new.id

    async def job(self, job_id: str) -> Job:
        [row] = await self.engine.get([job_id])
        assert row is not None
        return Job(row)

    async def state(self, job_id: str) -> State:
        return (await self.job(job_id)).state

    async def ended(self, *ids: str, timeout: float = PATIENCE) -> list[Job]:
        """These jobs, once all are final."""

        async def final() -> bool:
            rows = await self.engine.get(ids)
            return all(row is not None and row.state.final for row in rows)

        await until(final, timeout)
        return [await self.job(job_id) for job_id in ids]

    def worker(self, **options: Any) -> Worker:
        options = {"concurrency": 10, "poll_max": 0.2, "stop_grace": 0.2, **options}
        return Worker(
            self.engine,
            self.tasks,
            WorkerOptions(**options),
            hooks=self.hooks,
            keeper=self.keeper,
            surroundings=self.surroundings,
        )

    async def burst(self, **options: Any) -> Worker:
        """Run a worker until nothing is due."""
        worker = self.worker(burst=True, **options)
        await asyncio.wait_for(worker.run(), PATIENCE)
        return worker

    @asynccontextmanager
    async def working(self, worker: Worker | None = None, **options: Any) -> AsyncIterator[Worker]:
        """A worker that runs meanwhile and is stopped at once afterwards."""
        worker = worker or self.worker(**options)
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            worker.stop()
            await asyncio.wait_for(running, PATIENCE)

    def names(self, job_id: str | None = None) -> list[str]:
        """The names of what the hooks were told of this job (None: of all)."""
        return [h.name for h in self.told if job_id in (None, h.facts.get("job_id"))]

    async def steal(self, owner: str = "thief", **changes: Any) -> list[Job]:
        """Claim as another worker would; `now` far enough ahead takes what has lapsed."""
        now = changes.pop("now", None)
        claim = Claim(owner=owner, limit=100, lease=60_000_000, **changes)
        return [Job(row) for row in await self.engine.claim(claim, now=now)]


async def dormant(worker: Worker) -> None:
    """The worker will not look again by itself, as if it had been idle for long."""
    poller, looks = worker._poller, 0
    real = poller._pause

    async def pause(free: int) -> None:
        nonlocal looks
        looks += 1
        poller._wait = NEVER
        await real(free)

    poller._pause = pause  # type: ignore[method-assign]
    poller.wake()
    await until(lambda: looks)
    await asyncio.sleep(0.02)  # while it asks what is due


class Gate:
    """Where bodies tell that they run, and wait to be let go; for `async` and `def` ones."""

    def __init__(self) -> None:
        self.entered = 0
        self.open = False

    async def wait(self) -> None:
        self.entered += 1
        while not self.open:  # noqa: ASYNC110 (shared with threads)
            await asyncio.sleep(0.005)

    def wait_in_thread(self) -> None:
        self.entered += 1
        deadline = time.monotonic() + PATIENCE
        while not self.open and time.monotonic() < deadline:
            time.sleep(0.005)

    async def reached(self, count: int = 1) -> None:
        await until(lambda: self.entered >= count)


def made(kind: str, name: str, act: Callable[[], Any]) -> Callable[..., Any]:
    """A body of this kind (`async` or `def`) that ends as `act` does."""

    async def on_loop() -> Any:
        return act()

    def in_thread() -> Any:
        return act()

    function: Callable[..., Any] = on_loop if kind == "async" else in_thread
    function.__name__ = name
    return function


def endless(kind: str, name: str, entered: list[JobContext]) -> Callable[..., Any]:
    """A body of this kind that goes on until it is stopped, as a well-behaved one is."""

    async def on_loop(*, ctx: JobContext = INJECTED) -> None:
        entered.append(ctx)
        await asyncio.sleep(60)

    def in_thread(*, ctx: JobContext = INJECTED) -> None:
        entered.append(ctx)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            ctx.check()
            time.sleep(0.002)

    function: Callable[..., Any] = on_loop if kind == "async" else in_thread
    function.__name__ = name
    return function
