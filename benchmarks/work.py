"""A service with a no-op task, which notes what it ran, and the drain of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from benchmarks.measure import Sample, Stopwatch
from tenure import QueueService

CONCURRENCY = 50
A_CALL = 5_000
"""How many jobs go into one `enqueue_many`."""


class Work:
    """A service on `url`, and which jobs its no-op has seen when (`perf_counter` seconds)."""

    def __init__(self, url: str, seen: list[tuple[int, float]] | None = None) -> None:
        self.jobs = QueueService(url)
        self.seen = seen = [] if seen is None else seen
        clock = time.perf_counter

        async def noop(i: int) -> None:
            seen.append((i, clock()))

        self.noop = self.jobs.task(noop)

    async def fill(self, count: int) -> None:
        """Enqueue `count` jobs, numbered from 0."""
        bind = self.noop.bind
        for start in range(0, count, A_CALL):
            part = range(start, min(count, start + A_CALL))
            await self.jobs.enqueue_many([bind(i) for i in part])

    async def drain(self, count: int, elsewhere: Callable[[], float]) -> Sample:
        """Fill, and let one worker run them all. `elsewhere`: CPU seconds of a server so far."""
        self.seen.clear()
        await self.fill(count)
        worker = self.jobs.worker(concurrency=CONCURRENCY, burst=True)
        before, watch = elsewhere(), Stopwatch()
        await worker.run()
        return judged(self.seen, count, watch.sample(count).cpu + elsewhere() - before)


def judged(seen: list[tuple[int, float]], count: int, cpu: float) -> Sample:
    """The rate from the first start to the last, once it is sure that each job ran just once."""
    if sorted(i for i, _ in seen) != list(range(count)):
        raise AssertionError(f"of {count} jobs, {len({i for i, _ in seen})} ran {len(seen)} times")
    times = [at for _, at in seen]
    return Sample(count, max(max(times) - min(times), 1e-9), cpu)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Work]:
    """Work on an open service."""
    work = Work(url)
    async with work.jobs:
        yield work


def drain(url: str, count: int, elsewhere: Callable[[], float] = float) -> Sample:
    """Fill the store and drain it, in a loop of its own. `elsewhere` as in `Work.drain`."""

    async def run() -> Sample:
        async with opened(url) as work:
            return await work.drain(count, elsewhere)

    return asyncio.run(run())
