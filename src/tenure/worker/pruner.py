"""Removes now and then what ended and was kept long enough."""

from __future__ import annotations

import asyncio
import logging
import random

from tenure.clock import Clock
from tenure.core.query import Filter
from tenure.core.retention import Retention
from tenure.engines.protocol import Engine, Prunable
from tenure.errors import EngineUnavailable

log = logging.getLogger("tenure.worker")

STEP = 500
"""How many jobs of a kind one step removes at most."""

_SECONDS = 60.0
_SOON = 1.0


class Pruner:
    """Removes a few jobs about once a minute, and every second while there are more of them.

    Every worker does: a look where nothing is to be removed costs next to nothing. What fails is
    tried again the next time.
    """

    def __init__(
        self,
        engine: Engine,
        retention: Retention,
        *,
        clock: Clock,
        every: float = _SECONDS,
        soon: float = _SOON,
    ) -> None:
        self._engine = engine
        self._retention = retention
        self._clock = clock
        self._every = every
        self._soon = soon

    async def run(self) -> None:
        """Prune until cancelled."""
        more = False
        while True:
            wait = self._soon if more else self._every
            await asyncio.sleep(wait * random.uniform(0.8, 1.2))
            more = False
            try:
                _, more = await prune_step(self._engine, self._retention, self._clock.time_us())
            except EngineUnavailable as error:
                log.debug("pruning waits for the store: %s", error)
            except Exception:
                log.exception("pruning failed; jobs go on")


async def prune_step(engine: Engine, retention: Retention, now: int) -> tuple[int, bool]:
    """Remove up to `STEP` jobs of each kind that were kept long enough at the instant `now`.

    How many, and whether more are left.
    """
    count, more = 0, False
    for states, since in retention.of_jobs(now):
        removed = await engine.prune(Prunable.JOBS, since, where=Filter(states=states), limit=STEP)
        count += removed
        more = more or removed == STEP
    return count, more
