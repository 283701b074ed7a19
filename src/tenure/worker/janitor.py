"""Takes back now and then what nobody claims: lapsed and overdue jobs, of unknown tasks too."""

from __future__ import annotations

import asyncio
import logging
import random

from tenure.core.states import State
from tenure.engines.protocol import Engine
from tenure.errors import EngineUnavailable
from tenure.worker.callbacks import Callbacks
from tenure.worker.report import Reporter

log = logging.getLogger("tenure.worker")

SWEEP_SECONDS = 10.0
_LIMIT = 500


class Janitor:
    """Sweeps about every `every` seconds; what fails is tried again the next time."""

    def __init__(
        self,
        engine: Engine,
        reporter: Reporter,
        callbacks: Callbacks,
        *,
        every: float = SWEEP_SECONDS,
    ) -> None:
        self._engine = engine
        self._reporter = reporter
        self._callbacks = callbacks
        self._every = every

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await asyncio.sleep(self._every * random.uniform(0.8, 1.2))
            try:
                swept = await self._engine.sweep(_LIMIT)
                for item in swept:
                    self._reporter.swept(item)
                failed = [item.id for item in swept if item.state is State.FAILED]
                if failed:
                    self._callbacks.swept(await self._engine.get(failed))
            except EngineUnavailable as error:
                log.debug("the sweep waits for the store: %s", error)
            except Exception:
                log.exception("the sweep failed; jobs go on")
