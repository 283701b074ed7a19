"""A world whose time is turned by hand: one store, and schedulers with clocks of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from tenure import QueueService
from tenure.core.durations import SECOND, Seconds, instant
from tenure.core.job import JobRow
from tenure.core.outcomes import Completed
from tenure.core.query import Filter, Page
from tenure.core.reconcile import API, is_release
from tenure.core.rules import decide
from tenure.core.schedule import Schedule, ScheduleChange
from tenure.declarations import Declarations, Given
from tenure.engines.protocol import Claim, Engine
from tenure.errors import EngineUnavailable
from tenure.observe.hooks import Happening, Hooks
from tenure.options import TaskOptions, changed
from tenure.recurring import schedule_options
from tenure.tasks import Task, TaskSet
from tenure.testing.clock import ManualClock
from tenure.worker.ticker import Ticker

START = datetime(2026, 1, 1, tzinfo=UTC)
ZERO = instant(START, "start")

_TIMED = frozenset("insert claim extend settle sweep cancel requeue fire next_due stats".split())


class Timed:
    """An engine whose own clock is one of the test's."""

    def __init__(self, engine: Engine, clock: ManualClock) -> None:
        self._engine = engine
        self._clock = clock
        self.lost: set[str] = set()
        """Operations whose next reply is lost after they took effect."""
        self.calls: list[str] = []
        self.sizes: list[int] = []
        """How many ticks were offered at once."""

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._engine, name)
        if not asyncio.iscoroutinefunction(inner):
            return inner

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            if name == "fire":
                self.sizes.append(len(args[0]))
            if name in _TIMED:
                kwargs.setdefault("now", self._clock.time_us())
            answer = await inner(*args, **kwargs)
            if name in self.lost:
                self.lost.discard(name)
                raise EngineUnavailable(f"the reply to {name} was lost")
            return answer

        return call


class Scheduler:
    """One process that fires ticks."""

    def __init__(self, engine: Any, app: str, clock: ManualClock) -> None:
        self.clock = clock
        self.tasks = TaskSet()
        self.told: list[Happening] = []
        self.declarations = Declarations(
            self.tasks, app, QueueService("memory://")._enqueueing.job_of
        )
        self.ticker = Ticker(engine, self.declarations, hooks=Hooks(self.told.append), clock=clock)

    def task(self, name: str = "work", /, **options: Any) -> Task[..., Any]:
        """Declare a task."""

        async def work(n: int = 0) -> None: ...

        spec = changed(TaskOptions(), {"name": name, **options})  # type: ignore[typeddict-item]
        task: Task[..., Any] = Task(work, spec)
        self.tasks.add(task)
        return task

    def names(self) -> list[str]:
        return [happening.name for happening in self.told]


class World:
    """One store and its time."""

    def __init__(self, engine: Engine) -> None:
        self.clock = ManualClock(START)
        self.engine = Timed(engine, self.clock)
        self._clocks = [self.clock]

    def scheduler(self, *, ahead: Seconds = 0, app: str = "shop") -> Scheduler:
        """A scheduler whose clock is so many seconds ahead of the store's."""
        clock = ManualClock(self.clock_time(ahead))
        self._clocks.append(clock)
        return Scheduler(self.engine, app, clock)

    def clock_time(self, ahead: Seconds = 0) -> datetime:
        shifted = self.clock.time_us() + round(float(ahead) * SECOND)  # type: ignore[arg-type]
        return datetime.fromtimestamp(shifted / SECOND, UTC)

    def pass_time(self, seconds: Seconds) -> None:
        for clock in self._clocks:
            clock.advance(seconds)

    async def steps(
        self, seconds: float, *schedulers: Scheduler, every: float = 1.0, first: bool = True
    ) -> None:
        """Let time pass second by second, and all schedulers look each time."""
        if first:
            await asyncio.gather(*(one.ticker.look() for one in schedulers))
        for _ in range(round(seconds / every)):
            self.pass_time(every)
            await asyncio.gather(*(one.ticker.look() for one in schedulers))

    async def add(self, scheduler: Scheduler, name: str, task: Given, **options: Any) -> Schedule:
        """Make a schedule at run time."""
        declared = scheduler.declarations.declared(name, task, schedule_options(options))  # type: ignore[arg-type]
        new = declared.row(API, self.clock.time_us())
        [saved] = await self.engine.save_schedules([ScheduleChange(name, 0, new)])
        assert isinstance(saved, Schedule)
        return saved

    async def row(self, name: str) -> Schedule:
        [row] = [row for row in await self.rows() if row.name == name]
        return row

    async def rows(self) -> list[Schedule]:
        return [row for row in await self.engine.schedules() if not is_release(row)]

    async def change(self, name: str, **fields: Any) -> Schedule:
        """Edit the row of a schedule."""
        row = await self.row(name)
        new = msgspec.structs.replace(row, **fields)
        [saved] = await self.engine.save_schedules([ScheduleChange(name, row.revision, new)])
        assert isinstance(saved, Schedule)
        return saved

    async def jobs(self, schedule: str | None = None) -> list[JobRow]:
        """The jobs there are, of one schedule or of all, the first ticks first."""
        where = Filter(schedules=() if schedule is None else (schedule,))
        found: list[JobRow] = await self.engine.find(where, Page(1000))
        return sorted(found, key=lambda row: (row.schedule or "", row.tick or 0, row.id))

    async def ticks(self, schedule: str | None = None) -> list[float]:
        """The nominal instants of their jobs, in seconds since the start."""
        return [((row.tick or 0) - ZERO) / SECOND for row in await self.jobs(schedule)]

    async def finish(self) -> int:
        """Run every job that is due; how many there were."""
        claim = Claim(owner="w", limit=1000, lease=60 * SECOND)
        rows: list[JobRow] = await self.engine.claim(claim)
        now = self.clock.time_us()
        await self.engine.settle([decide(row, Completed(None), now=now) for row in rows])
        return len(rows)

    async def start(self) -> list[JobRow]:
        """Claim every job that is due."""
        rows: list[JobRow] = await self.engine.claim(
            Claim(owner="w", limit=1000, lease=3600 * SECOND)
        )
        return rows


Make = Callable[[], Awaitable[World]]
