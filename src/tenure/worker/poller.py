"""Looks for due jobs: at once when told of some, else at intervals that grow while idle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from tenure.clock import Clock
from tenure.core.durations import SECOND
from tenure.core.job import JobRow
from tenure.engines.protocol import ALL_ARMS, Arm, Claim, Engine
from tenure.errors import EngineUnavailable
from tenure.worker.options import WorkerOptions, seconds

log = logging.getLogger("tenure.worker")

CLAIM_MAX = 1000
_SHORTEST_WAIT = 0.05
_AWAY_WAIT = 5.0


class Poller:
    """Claims for the free slots and hands the rows on, until stopped.

    `free()` tells how many more jobs the worker takes now; `begin(rows, sent_at)` takes them.
    """

    def __init__(
        self,
        engine: Engine,
        options: WorkerOptions,
        *,
        owner: str,
        tasks: Sequence[str],
        free: Callable[[], int],
        begin: Callable[[Sequence[JobRow], float], None],
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._options = options
        self._owner = owner
        self._tasks = tuple(tasks)
        self._free = free
        self._begin = begin
        self._clock = clock
        self._poll_max = seconds(options.poll_max, "poll_max")
        self._lapsed_every = min(1.0, options.times.length / 3)
        self._lapsed_looked = float("-inf")
        self._wake = asyncio.Event()
        self._news = True
        self._wait = _SHORTEST_WAIT
        self._away = 0
        self.idle = asyncio.Event()
        self.stopped = False

    def wake(self) -> None:
        """Jobs may be due: look now."""
        self._news = True
        self._wake.set()

    def slot_freed(self) -> None:
        """A slot is free: look now if the last look left something behind."""
        if self._news:
            self._wake.set()

    def stop(self) -> None:
        """Claim no more. A claim in flight is still handed on."""
        self.stopped = True
        self._wake.set()

    async def run(self) -> None:
        """Claim until stopped. `idle` is set whenever a look found nothing due."""
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
            self._wait = min(_AWAY_WAIT, _SHORTEST_WAIT * 2**self._away)
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
        self.idle.set()
        return self._news

    def _claim(self, limit: int, arms: frozenset[Arm]) -> Claim:
        return Claim(
            owner=self._owner,
            limit=limit,
            lease=round(self._options.times.length * SECOND),
            queues=self._options.queues,
            tasks=self._tasks,
            arms=arms,
        )

    async def _pause(self, free: int) -> None:
        if free <= 0:
            await self._wake.wait()
            return
        wait = self._wait
        self._wait = min(self._poll_max, wait * 2)
        if not self._away:
            wait = min(wait, await self._until_due())
        try:
            async with asyncio.timeout(wait):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _until_due(self) -> float:
        try:
            due = await self._engine.next_due(self._options.queues, self._tasks)
        except EngineUnavailable:
            return self._poll_max
        # Zero would mean that a claim left a due job behind: somebody else's, or a new one.
        return self._poll_max if due is None else max(due / SECOND, 0.005)
