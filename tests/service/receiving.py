"""A service whose clock a test turns, with a keeper of its own: for receiving by hand."""

from __future__ import annotations

import math

from tenure import QueueService, task
from tenure.core.retry import RetryPolicy
from tenure.engines.open import open_engine
from tenure.leases.keeper import LeaseKeeper
from tenure.lifetime import Lifetime
from tenure.testing.flaky import Flaky
from tests.leases.kit import ManualClock, until

SOON = RetryPolicy.constant(0.1)


@task(max_attempts=3, retry=SOON)
async def add(a: int, b: int = 1) -> int:
    return a + b


@task
async def other() -> None: ...


class Shop:
    """Jobs on the memory engine, on a clock that stands still."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.keeper = LeaseKeeper(self.clock, stall_warn=math.inf)
        self.keeper._book._jitter = 0.0
        self.clock.on_advance = self._look
        self.jobs = QueueService("memory://", tasks=[add, other])
        self.engine = Flaky(open_engine("memory://", clock=self.clock))
        self.jobs._life = Lifetime(lambda: self.engine, self.jobs._at_exit)
        self.jobs._life.before_close = self.jobs._receiving.close
        self.jobs._receiving._find_keeper = lambda: self.keeper

    def _look(self) -> None:
        runner = self.keeper._runner
        if runner is not None:
            runner.wake()

    def tick(self, seconds: float) -> None:
        """Let time pass, and the keeper do what is due."""
        self.clock.advance(seconds)
        until(self._settled)

    def _settled(self) -> bool:
        book = self.keeper._book
        with self.keeper._guard:
            wake = book.next_wake()
            quiet = not any(entry.flight for entry in book._entries.values())
            return quiet and (wake is None or wake > self.clock.now)

    @property
    def renewals(self) -> int:
        return self.engine.calls["extend"]
