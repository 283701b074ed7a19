"""Hears what the store signals: jobs to take, running ones to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from tenure.core.retry import RetryPolicy
from tenure.engines.protocol import Engine, Signal, Topic
from tenure.errors import EngineUnavailable

log = logging.getLogger("tenure.worker")

_RETRY = RetryPolicy(base=0.1, factor=2.0, cap=5.0, jitter=0.2)


class Control:
    """Listens for as long as the worker works, and listens again when that breaks.

    `wake()` is called when jobs of the served queues may be due, `cancel(ids)` when these jobs were
    asked to stop (None: any may have been), `changed()` when anything may have changed. Signals are
    hints, so losing them costs time only.
    """

    def __init__(
        self,
        engine: Engine,
        queues: Iterable[str],
        *,
        wake: Callable[[], None],
        cancel: Callable[[Iterable[str] | None], None],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._queues = frozenset(queues)
        self._wake = wake
        self._cancel = cancel
        self._changed = changed
        self._failures = 0

    async def run(self) -> None:
        """Listen until cancelled."""
        while True:
            try:
                await self._listen()
            except Exception as error:
                self._failures += 1
                if self._failures == 1:
                    known = isinstance(error, EngineUnavailable)
                    text = "signals of the store are not heard, so jobs start later: %s"
                    log.warning(text, error, exc_info=None if known else error)
            await asyncio.sleep(_RETRY.delay(self._failures, 0.0) / 1e6)

    async def _listen(self) -> None:
        async with self._engine.listen({Topic.QUEUE, Topic.CANCEL}, self._queues) as listener:
            if self._failures:
                self._wake()
                self._cancel(None)
            while True:
                signals = await listener.wait()
                self._failures = 0
                self._heard(signals)

    def _heard(self, signals: frozenset[Signal]) -> None:
        cancels = [signal.key for signal in signals if signal.topic is Topic.CANCEL]
        if cancels:
            self._cancel(cancels)
        if any(signal.topic is Topic.ANY for signal in signals):
            self._cancel(None)
            self._changed()
        if any(
            signal.topic is Topic.ANY
            or (signal.topic is Topic.QUEUE and signal.key in self._queues)
            for signal in signals
        ):
            self._wake()
