"""The engine as the keeper sees it: a client that extends leases from the keeper's own loop."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.core.lease import Beat, Extension
from tenure.core.retry import RetryPolicy
from tenure.engines.protocol import Engine


class EngineLeases:
    """Extends through a side handle of the engine, with a connection of its own."""

    resolution = 0
    retry = RetryPolicy(base=0.5, factor=2.0, cap=5.0, jitter=0.5)

    def __init__(self, engine: Engine) -> None:
        self._side = engine.side()

    async def open(self) -> None:
        await self._side.__aenter__()

    async def close(self) -> None:
        await self._side.__aexit__(None, None, None)

    async def extend(self, beats: Sequence[Beat]) -> Sequence[Extension]:
        return await self._side.extend(beats)
