"""The engine as the keeper sees it: a client that extends leases from the keeper's own loop."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tenure.clock import Clock
from tenure.core.lease import Beat, Extension
from tenure.core.retry import RetryPolicy
from tenure.engines.protocol import Engine


class EngineLeases:
    """Extends through a side handle of the engine, with a connection of its own."""

    resolution = 0
    retry = RetryPolicy(base=0.5, factor=2.0, cap=5.0, jitter=0.5)

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._side = engine.side()
        self._clock = clock
        self._failed_at = -math.inf

    async def open(self) -> None:
        try:
            await self._side.__aenter__()
        except BaseException:
            self._failed_at = self._clock.monotonic()
            raise

    async def close(self) -> None:
        await self._side.__aexit__(None, None, None)

    async def extend(self, beats: Sequence[Beat]) -> Sequence[Extension]:
        try:
            return await self._side.extend(beats)
        except BaseException:  # a request that took too long is cancelled
            self._failed_at = self._clock.monotonic()
            raise

    def failed_within(self, seconds: float) -> bool:
        """Whether the store did not answer lately. From any thread."""
        return self._clock.monotonic() - self._failed_at <= seconds
