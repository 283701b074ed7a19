"""The ideal loop: what one worker process could drain if it had no features but fencing.

Claims as many as are free, runs each as an asyncio task, and completes whatever has finished in
one write. No retries, results, renewals or events: a bound, not a goal.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from benchmarks.measure import Sample, Stopwatch
from benchmarks.raw import store
from benchmarks.raw.store import Claimed
from benchmarks.raw.thread import raw_thread
from benchmarks.work import CONCURRENCY, judged

Claim = Callable[[int], Awaitable[list[Claimed]]]
Complete = Callable[[Sequence[Claimed]], Awaitable[object]]


class IdealWorker:
    """Runs `count` jobs and ends."""

    def __init__(self, claim: Claim, complete: Complete, count: int) -> None:
        self.seen: list[tuple[int, float]] = []
        self._claim = claim
        self._complete = complete
        self._count = count
        self._free = CONCURRENCY
        self._done: list[Claimed] = []
        self._freed = asyncio.Event()
        self._finished = asyncio.Event()

    async def run(self) -> Sample:
        watch = Stopwatch()
        await asyncio.gather(self._claimer(), self._completer())
        return judged(self.seen, self._count, watch.sample(self._count).cpu)

    async def _handler(self, i: int) -> None:
        self.seen.append((i, time.perf_counter()))

    async def _job(self, job: Claimed) -> None:
        await self._handler(*json.loads(job[1]))
        self._done.append(job)
        self._finished.set()

    async def _completer(self) -> None:
        left = self._count
        while left:
            if not self._done:
                self._finished.clear()
                await self._finished.wait()
            batch, self._done = self._done, []
            await self._complete(batch)
            left -= len(batch)
            self._free += len(batch)
            self._freed.set()

    async def _claimer(self) -> None:
        left = self._count
        tasks: set[asyncio.Task[None]] = set()
        while left:
            if self._free < CONCURRENCY // 2:
                self._freed.clear()
                await self._freed.wait()
                continue
            jobs = await self._claim(self._free)
            left -= len(jobs)
            self._free -= len(jobs)
            for job in jobs:
                task = asyncio.create_task(self._job(job))
                tasks.add(task)
                task.add_done_callback(tasks.discard)


def drain_sqlite(folder: Path, synchronous: str, count: int) -> Sample:
    """The ideal drain of a bare table."""

    async def run() -> Sample:
        connection = store.create(folder / "ideal.db", synchronous)
        store.insert_many(connection, range(count))
        with raw_thread(connection, grouped=True) as thread:
            worker = IdealWorker(
                lambda limit: thread.call(lambda c: store.claim(c, limit)),
                lambda jobs: thread.call(lambda c: store.complete(c, jobs)),
                count,
            )
            return await worker.run()

    return asyncio.run(run())


def drain_memory(count: int) -> Sample:
    """The ideal drain of a list."""

    async def run() -> Sample:
        waiting = [(i, json.dumps([i]).encode(), 1) for i in range(count)]
        waiting.reverse()

        async def claim(limit: int) -> list[Claimed]:
            await asyncio.sleep(0)
            return [waiting.pop() for _ in range(min(limit, len(waiting)))]

        async def complete(jobs: Sequence[Claimed]) -> None:
            await asyncio.sleep(0)

        return await IdealWorker(claim, complete, count).run()

    return asyncio.run(run())
