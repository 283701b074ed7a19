"""Writes outcomes: what finished while the last write was in flight goes together in the next."""

from __future__ import annotations

import asyncio
import logging

from tenure.clock import Clock
from tenure.core.outcomes import Settled, Settlement, Verdict
from tenure.core.retry import RetryPolicy
from tenure.engines.protocol import Engine
from tenure.errors import EngineUnavailable

log = logging.getLogger("tenure.worker")

BATCH_MAX = 1000
_RETRY = RetryPolicy(base=0.1, factor=2.0, cap=2.0)


class Settler:
    """Settles through one engine, in batches, until closed.

    A store that is away is tried again for as long as it takes: every settlement is fenced, so a
    late one is either still right or refused.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._queue: list[tuple[Settlement, asyncio.Future[Settled]]] = []
        self._wake = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to write; on the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def settle(self, settlement: Settlement) -> asyncio.Future[Settled]:
        """The answer to this settlement, once it has been written or refused."""
        future: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._queue.append((settlement, future))
        self._wake.set()
        return future

    async def close(self, timeout: float) -> int:
        """Write what is left, for at most `timeout` seconds; the number of those not written.

        What is not written is not lost: its lease lapses and it is run again.
        """
        self._closing = True
        self._wake.set()
        if self._task is None:
            return 0
        done, _ = await asyncio.wait({self._task}, timeout=timeout)
        if not done:
            self._task.cancel()
            await asyncio.wait({self._task})
        for _, future in self._queue:
            future.cancel()
        return len(self._queue)

    async def _run(self) -> None:
        while True:
            if not self._queue:
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()
                continue
            batch = self._queue[:BATCH_MAX]
            answers = await self._write([settlement for settlement, _ in batch])
            del self._queue[: len(batch)]
            busy = []
            for item, answer in zip(batch, answers, strict=True):
                if answer.verdict is Verdict.BUSY:
                    busy.append(item)
                elif not item[1].done():
                    item[1].set_result(answer)
            if busy:
                self._queue += busy
                await asyncio.sleep(0.1)

    async def _write(self, settlements: list[Settlement]) -> list[Settled]:
        failures = 0
        while True:
            try:
                return await self._engine.settle(settlements)
            except EngineUnavailable as error:
                failures += 1
                if failures == 1:
                    log.warning("%d outcomes wait for the store: %s", len(settlements), error)
                await asyncio.sleep(_RETRY.delay(failures, 0.0) / 1e6)
