"""Writes outcomes: what finished while the last write was in flight goes together in the next."""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from tenure.core.outcomes import Settled, Settlement, Verdict
from tenure.core.retry import RetryPolicy
from tenure.engines.protocol import Engine
from tenure.errors import EngineUnavailable

log = logging.getLogger("tenure.worker")

BATCH_MAX = 1000
_RETRY = RetryPolicy(base=0.1, factor=2.0, cap=2.0)
_BUSY_WAIT = 0.1
_CANCEL_PATIENCE = 1.0


class _Item(NamedTuple):
    settlement: Settlement
    answer: asyncio.Future[Settled]


class Settler:
    """Settles through one engine, in batches, until closed.

    A store that is away is tried again for as long as it takes: every settlement is fenced, so a
    late one is either still right or refused. Any other error of the engine goes to who asked for
    the settlement that it came of, and to nobody else.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queue: list[_Item] = []
        self._wake = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to write; on the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._ended)

    def settle(self, settlement: Settlement) -> asyncio.Future[Settled]:
        """The answer to this settlement, once it has been written or refused.

        The future is cancelled if the settler ends before that.
        """
        answer: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        if self._task is None or self._task.done():
            answer.cancel()
        else:
            self._queue.append(_Item(settlement, answer))
            self._wake.set()
        return answer

    async def close(self, timeout: float) -> int:
        """Write what is left, for at most `timeout` seconds; the number of those not written.

        What is not written is not lost: its lease lapses and it is run again.
        """
        self._closing = True
        self._wake.set()
        if self._task is None:
            return 0
        await asyncio.wait({self._task}, timeout=timeout)
        unwritten = len(self._queue)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_CANCEL_PATIENCE)
        self._give_up()
        return unwritten

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("outcomes are not written any more", exc_info=error)
        self._give_up()

    def _give_up(self) -> None:
        queue, self._queue = self._queue, []
        for item in queue:
            item.answer.cancel()

    async def _run(self) -> None:
        while True:
            if not self._queue:
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()
                continue
            batch = self._queue[:BATCH_MAX]
            answers = await self._write([item.settlement for item in batch])
            del self._queue[: len(batch)]
            busy = [item for item, answer in zip(batch, answers, strict=True) if _busy(answer)]
            for item, answer in zip(batch, answers, strict=True):
                _tell(item, answer)
            if busy:
                await self._try_again(busy)

    async def _write(self, settlements: list[Settlement]) -> list[Settled | Exception]:
        """One answer or error for each; waits as long as the store is away."""
        failures = 0
        while True:
            try:
                return [*await self._ask(settlements)]
            except EngineUnavailable as error:
                failures += 1
                if failures == 1:
                    log.warning("%d outcomes wait for the store: %s", len(settlements), error)
                await asyncio.sleep(_RETRY.delay(failures, 0.0) / 1e6)
            except Exception as error:
                if len(settlements) == 1:
                    return [error]
                # One of them may be to blame, so each is written by itself.
                return [(await self._write([settlement]))[0] for settlement in settlements]

    async def _ask(self, settlements: list[Settlement]) -> list[Settled]:
        answers = await self._engine.settle(settlements)
        if len(answers) != len(settlements):
            raise RuntimeError(f"{len(answers)} answers to {len(settlements)} settlements")
        return answers

    async def _try_again(self, busy: list[_Item]) -> None:
        """Put these back, behind what came meanwhile; alone they would be tried without a rest."""
        self._queue += busy
        if len(self._queue) > len(busy):
            return
        self._wake.clear()
        try:
            async with asyncio.timeout(_BUSY_WAIT):
                await self._wake.wait()
        except TimeoutError:
            pass


def _busy(answer: Settled | Exception) -> bool:
    return isinstance(answer, Settled) and answer.verdict is Verdict.BUSY


def _tell(item: _Item, answer: Settled | Exception) -> None:
    if item.answer.done() or _busy(answer):
        return
    if isinstance(answer, Exception):
        item.answer.set_exception(answer)
    else:
        item.answer.set_result(answer)
