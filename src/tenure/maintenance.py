"""Housekeeping in bounded steps, by one runner of a fleet at a time."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.core.durations import SECOND
from tenure.core.ids import uuid7
from tenure.core.job import JobRow, NewJob
from tenure.core.outcomes import Cancelled, Completed, Outcome, Verdict
from tenure.core.query import Swept
from tenure.core.retention import Retention
from tenure.core.rules import decide
from tenure.core.upkeep import Maintained, PhaseReport, PhaseState
from tenure.engines.protocol import Arm, Claim, Engine, Prunable
from tenure.errors import EngineUnavailable
from tenure.worker.pruner import STEP, prune_step
from tenure.worker.ticker import Ticker

log = logging.getLogger("tenure")

NAME = "tenure.maintenance"
"""The task and the queue of the job that the runner holds. No worker runs it."""

JOB_ID = uuid7(0, 0, 0)
"""The one job of a store whose lease is the right to maintain it. It sorts before all others."""

_SPARE = 60.0
"""Seconds by which the lease outlasts the budget: the step of each phase that is under way when
its time ends may take as long as an engine lets a call take."""


class Phase(NamedTuple):
    """One part: `step()` moves a bounded number of things; how many, and whether more are left."""

    name: str
    step: Callable[[], Awaitable[tuple[int, bool]]]


class Maintenance:
    """One run. Whoever holds the lease of the job `JOB_ID` is the runner, so a crashed one is
    followed by another when its lease ends, and two at once do not get it.

    All steps may be done by anybody at any time; one runner is enough, and two would be a waste.
    `sweep` sweeps and tells who wants to know. `ticker` fires the schedules that an app knows.
    """

    def __init__(
        self,
        engine: Engine,
        retention: Retention,
        *,
        clock: Clock = SYSTEM_CLOCK,
        sweep: Callable[[int], Awaitable[Sequence[Swept]]] | None = None,
        ticker: Ticker | None = None,
    ) -> None:
        self._engine = engine
        self._retention = retention
        self._clock = clock
        self._sweep_once = sweep or engine.sweep
        self._ticker = ticker
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"

    async def run(self, budget: float) -> Maintained:
        """Do what there is to do within about `budget` seconds. Raises `EngineUnavailable`."""
        row = await self._begin(budget)
        if row is None:
            [held] = await self._engine.get([JOB_ID])
            return Maintained(runner=None if held is None else held.owner, already_running=True)
        end = self._clock.monotonic() + budget
        try:
            phases = await self._all(row.started_at or 0, end)
        except BaseException:
            await asyncio.shield(self._end(row, Cancelled()))
            raise
        report = Maintained(runner=self._owner, phases=phases)
        await self._end(row, Completed(msgspec.json.encode(report)))
        return report

    async def _begin(self, budget: float) -> JobRow | None:
        """The job, if it is ours now."""
        await self._engine.insert([NewJob(id=JOB_ID, task=NAME, queue=NAME)])
        await self._engine.requeue([JOB_ID])  # which changes nothing while it is held
        claim = Claim(
            owner=self._owner,
            limit=1,
            lease=round((budget + _SPARE) * SECOND),
            queues=(NAME,),
            tasks=(NAME,),
            ids=(JOB_ID,),
            arms=frozenset({Arm.DUE, Arm.LAPSED}),
        )
        rows = await self._engine.claim(claim)
        return rows[0] if rows else None

    async def _end(self, row: JobRow, outcome: Outcome) -> None:
        settlement = decide(row, outcome, now=row.started_at or 0)
        try:
            [answer] = await self._engine.settle([settlement])
        except EngineUnavailable as error:
            log.warning("the end of maintenance could not be written, its lease lapses: %s", error)
        else:
            if answer.verdict is Verdict.LOST:
                log.warning("maintenance took longer than its lease; another may have begun")

    async def _all(self, now: int, end: float) -> tuple[PhaseReport, ...]:
        phases = self._phases(now)
        reports = []
        for place, phase in enumerate(phases):
            begun = self._clock.monotonic()
            share = max(0.0, end - begun) / (len(phases) - place)
            reports.append(await self._one(phase, begun + share))
        return tuple(reports)

    async def _one(self, phase: Phase, end: float) -> PhaseReport:
        """Step until nothing is left or the time is over; at least once."""
        count, more, error = 0, True, None
        try:
            while more:
                moved, more = await phase.step()
                count += moved
                if more and self._clock.monotonic() >= end:
                    break
        except Exception as failure:
            error = f"{type(failure).__qualname__}: {failure}"
            log.warning("maintenance: the phase %s failed: %s", phase.name, error)
        state = PhaseState.PARTIAL if more else PhaseState.DONE
        if error is not None:
            state = PhaseState.FAILED
        return PhaseReport(name=phase.name, state=state, count=count, error=error)

    def _phases(self, now: int) -> tuple[Phase, ...]:
        """All phases in their order, at the store's time `now`."""
        phases = [
            Phase("sweep", self._sweep),
            Phase("retention", lambda: prune_step(self._engine, self._retention, now)),
            Phase("events", lambda: self._events(now)),
        ]
        if self._ticker is not None:
            phases.insert(2, Phase("schedules", self._ticker.fire_due))
        return tuple(phases)

    async def _sweep(self) -> tuple[int, bool]:
        swept = await self._sweep_once(STEP)
        return len(swept), len(swept) >= STEP

    async def _events(self, now: int) -> tuple[int, bool]:
        since = self._retention.of_events(now)
        if since is None:
            return 0, False
        removed = await self._engine.prune(Prunable.EVENTS, since, limit=STEP)
        return removed, removed == STEP
