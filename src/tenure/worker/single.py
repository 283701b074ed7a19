"""One job that is named, run in this process: for containers, cron and hosts without a worker."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Iterable
from typing import Any

import msgspec

from tenure.clock import SYSTEM_CLOCK
from tenure.core.durations import SECOND, moment
from tenure.core.job import Job, JobRow
from tenure.core.lease import Beat, Extended, Lost
from tenure.core.states import State
from tenure.engines.protocol import ALL_ARMS, Claim, Engine
from tenure.errors import EngineUnavailable, JobNotClaimable, JobNotFound, LeaseLost
from tenure.observe.hooks import Hooks
from tenure.tasks import TaskSet
from tenure.worker.options import WorkerOptions
from tenure.worker.surroundings import PLAIN, Surroundings
from tenure.worker.worker import Worker

_PROMOTED = 1000
"""How many jobs whose time has come one claim makes ready; the one that is wanted may be behind."""

_CLAIMS = 20
_PAUSE = 0.2


class OneRun(Worker):
    """A worker that makes one attempt at one job, and takes no other. Single use.

    `stop()` does what it does for a worker: the first call waits for the body up to
    `shutdown_timeout`, the second cancels it; then the job is given back.
    """

    def __init__(
        self,
        engine: Engine,
        tasks: TaskSet,
        options: WorkerOptions,
        row: JobRow,
        *,
        hooks: Hooks | None = None,
        surroundings: Surroundings = PLAIN,
        owner: str | None = None,
    ) -> None:
        super().__init__(
            engine, tasks, options, hooks=hooks, surroundings=surroundings, owner=owner
        )
        self._engine = engine
        self._row = row
        self._taken = False

    async def finish(self) -> Job:
        """Run the job; what has become of it. Raises what `_refusal` says, with nothing changed."""
        await self.run()
        [row] = await self._engine.get([self._row.id])
        if row is None:
            raise JobNotFound(f"job {self._row.id} was removed while it ran")
        if not self._taken:
            raise self._refusal(row)
        return Job(row)

    def _helpers(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._control.run(),)

    async def _poll(self) -> None:
        try:
            if await self._take():
                self._taken = True
                await self._until_over()
        finally:
            self._stopping.set()

    async def _until_over(self) -> None:
        over = asyncio.ensure_future(self._runner.drain(math.inf))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({over, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            stopping.cancel()

    async def _take(self) -> bool:
        """Begin the job, if it can be had."""
        raise NotImplementedError

    def _refusal(self, row: JobRow) -> Exception:
        """Why the job, as it is now, was not begun."""
        return JobNotClaimable(f"job {row.id} cannot be run now: {reason(row)}")


class SingleRun(OneRun):
    """Claims the job that it runs."""

    async def _take(self) -> bool:
        away = False
        for attempt in range(_CLAIMS):
            sent = SYSTEM_CLOCK.monotonic()
            try:
                rows = await self._engine.claim(self._claim(resume=away))
            except EngineUnavailable:
                if attempt == _CLAIMS - 1 or self._stopping.is_set():
                    raise
                away = True  # the claim may have taken effect all the same
                await asyncio.sleep(_PAUSE)
                continue
            if rows:
                self._runner.begin(rows, sent)
                return True
            if not await self._is_due():
                return False
        return False

    def _claim(self, *, resume: bool) -> Claim:
        return Claim(
            owner=self.id,
            limit=_PROMOTED,
            lease=round(self.options.times.length * SECOND),
            queues=(self._row.queue,),
            tasks=(self._row.task,),
            ids=(self._row.id,),
            held=() if resume else None,
            arms=ALL_ARMS,
        )

    async def _is_due(self) -> bool:
        """Whether the job only waits for being made ready, behind many others."""
        [row] = await self._engine.get([self._row.id])
        return (
            row is not None
            and row.state is State.PENDING
            and not row.ready
            and row.available_at <= SYSTEM_CLOCK.time_us()
        )


class HeldRun(OneRun):
    """Runs a job that was claimed before, for who claimed it: under the same owner and token."""

    _lost = ""

    async def _take(self) -> bool:
        """Renew the lease first: it tells whether the job is still held, and how long from now."""
        seconds = self.options.times.length
        row = self._row
        beat = Beat(row.id, row.token, self.id, seconds)
        for attempt in range(_CLAIMS):
            sent = SYSTEM_CLOCK.monotonic()
            try:
                [answer] = await self._engine.extend([beat])
            except EngineUnavailable:
                if attempt == _CLAIMS - 1 or self._stopping.is_set():
                    raise
                await asyncio.sleep(_PAUSE)
                continue
            if isinstance(answer, Extended):
                held = msgspec.structs.replace(row, cancel_requested=answer.cancel_requested)
                self._runner.begin([held], sent)
                return True
            if isinstance(answer, Lost):
                self._lost = answer.reason
                return False
            await asyncio.sleep(_PAUSE)  # a transaction of the holder's own has the row
        return False

    def _refusal(self, row: JobRow) -> Exception:
        why = self._lost or "a transaction has its row"
        return LeaseLost(f"job {row.id} is not held any more: {why}")


def reason(row: JobRow) -> str:
    """Why a job cannot be claimed, as far as its row tells."""
    if row.state.final:
        return f"it is {row.state} already"
    if row.state is State.RUNNING:
        until = "" if row.lease_until is None else f" until {moment(row.lease_until):%H:%M:%S} UTC"
        return f"{row.owner} holds it{until}, or longer"
    if not row.ready:
        return f"it is not due before {moment(row.available_at):%Y-%m-%d %H:%M:%S} UTC"
    return f"the queue {row.queue} is paused, or the job's time to start has passed"
