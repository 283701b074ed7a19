"""Looks for due jobs: at once when told of some, else at intervals that grow while idle."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Protocol

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


class Holder(Protocol):
    """Who takes what the poller claims."""

    @property
    def active(self) -> int:
        """How many jobs are held."""
        ...

    def free(self) -> int:
        """How many more jobs are taken now."""
        ...

    def held(self) -> tuple[str, ...]:
        """The ids of the jobs that are held."""
        ...

    def begin(self, rows: Sequence[JobRow], sent_at: float) -> None:
        """Take these; `sent_at` is the monotonic time at which the claim was sent."""
        ...


class Poller:
    """Claims for the free slots of `holder` and hands the rows on, until stopped.

    After a claim whose reply was lost, the next one asks for what it took as well. In burst mode
    it ends by itself, when a look found nothing due while nothing is held.
    """

    def __init__(
        self,
        engine: Engine,
        options: WorkerOptions,
        *,
        owner: str,
        tasks: TaskSet,
        holder: Holder,
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._options = options
        self._owner = owner
        self._tasks = tasks
        self._holder = holder
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
            free = min(self._holder.free(), CLAIM_MAX)
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
            self._holder.begin(rows, sent)
            return True
        if self._options.burst and not self._news and not self._holder.active:
            self.stopped = True
        return self._news

    def _claim(self, limit: int, arms: frozenset[Arm]) -> Claim:
        return Claim(
            owner=self._owner,
            limit=limit,
            lease=round(self._options.times.length * SECOND),
            queues=self._options.queues,
            tasks=self._tasks.names,  # asked each time: some may be declared late
            held=self._holder.held() if self._away else None,
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
