"""Looks for due jobs: at once when told of some, else at intervals that grow while idle."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence

from tenure.clock import Clock
from tenure.core.durations import SECOND
from tenure.core.job import JobRow
from tenure.core.retry import RetryPolicy
from tenure.engines.protocol import ALL_ARMS, Arm, Claim, Engine
from tenure.errors import EngineUnavailable
from tenure.tasks import TaskSet
from tenure.worker.options import WorkerOptions, seconds

log = logging.getLogger("tenure.worker")

CLAIM_MAX = 1000
_SHORTEST_WAIT = 0.05
_SOON = 0.005
_AWAY = RetryPolicy(base=0.1, factor=2.0, cap=5.0, jitter=0.2)


class Poller:
    """Claims for the free slots and hands the rows on, until stopped.

    `free()` tells how many more jobs the worker takes now; `begin(rows, sent_at)` takes them. In
    burst mode it ends by itself, when a look found nothing due while the worker is not `busy()`.
    """

    def __init__(
        self,
        engine: Engine,
        options: WorkerOptions,
        *,
        owner: str,
        tasks: TaskSet,
        free: Callable[[], int],
        begin: Callable[[Sequence[JobRow], float], None],
        busy: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._options = options
        self._owner = owner
        self._tasks = tasks
        self._free = free
        self._begin = begin
        self._busy = busy
        self._clock = clock
        self._poll_max = seconds(options.poll_max, "poll_max")
        self._lapsed_every = min(1.0, options.times.length / 3)
        self._lapsed_looked = float("-inf")
        self._wake = asyncio.Event()
        self._news = True
        self._full = False
        self._wait = _SHORTEST_WAIT
        self._away = 0
        self.stopped = False

    def wake(self) -> None:
        """Jobs may be due: look now."""
        self._news = True
        self._wake.set()

    def slot_freed(self) -> None:
        """A slot is free: look now if the last look left something behind, or none was possible."""
        if self._news or self._full:
            self._wake.set()

    def stop(self) -> None:
        """Claim no more. A claim in flight is still handed on."""
        self.stopped = True
        self._wake.set()

    async def run(self) -> None:
        """Claim until stopped."""
        while not self.stopped:
            self._wake.clear()
            free = min(self._free(), CLAIM_MAX)
            if free > 0 and await self._look(free):
                continue
            if not self.stopped:
                await self._pause(free)

    async def _look(self, free: int) -> bool:
        """Claim once; True when there is probably more to take right now."""
        sent = self._clock.monotonic()
        arms = ALL_ARMS
        if sent - self._lapsed_looked < self._lapsed_every:
            arms = ALL_ARMS - {Arm.LAPSED}
        self._news = False
        try:
            rows = await self._engine.claim(self._claim(free, arms))
        except EngineUnavailable as error:
            self._away += 1
            if self._away == 1:
                log.warning("no jobs are taken while the store is away: %s", error)
            self._wait = _AWAY.delay(self._away, random.random()) / SECOND
            return False
        if Arm.LAPSED in arms:
            self._lapsed_looked = sent
        if self._away:
            self._away = 0
            log.info("the store is back")
        if rows:
            self._wait = _SHORTEST_WAIT
            self._news = self._news or len(rows) == free
            self._begin(rows, sent)
            return True
        if self._options.burst and not self._news and not self._busy():
            self.stopped = True
        return self._news

    def _claim(self, limit: int, arms: frozenset[Arm]) -> Claim:
        return Claim(
            owner=self._owner,
            limit=limit,
            lease=round(self._options.times.length * SECOND),
            queues=self._options.queues,
            tasks=self._tasks.names,  # asked each time: some may be declared late
            arms=arms,
        )

    async def _pause(self, free: int) -> None:
        """Wait until there may be something to do."""
        if free <= 0:
            self._full = True
            await self._wake.wait()
            self._full = False
            return
        wait = self._wait
        if not self._away:
            self._wait = min(self._poll_max, wait * 2)
            wait = min(wait, await self._until_due())
        try:
            async with asyncio.timeout(wait):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _until_due(self) -> float:
        try:
            due = await self._engine.next_due(self._options.queues, self._tasks.names)
        except EngineUnavailable:
            return self._poll_max
        # Zero would mean that a claim left a due job behind: somebody else's, or a new one.
        return self._poll_max if due is None else max(due / SECOND, _SOON)
