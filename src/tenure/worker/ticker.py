"""Fires the ticks of schedules when they are due. Any number of these may do so at once."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable

import msgspec

from tenure.clock import Clock
from tenure.core.durations import SECOND
from tenure.core.reconcile import Definition
from tenure.core.schedule import Fired, Schedule, ScheduleChange, Tick, advanced
from tenure.core.ticks import after_finish, due_ticks, tick_id
from tenure.declarations import Declarations
from tenure.engines.protocol import Engine
from tenure.errors import EngineUnavailable, TenureError
from tenure.observe.hooks import Hooks
from tenure.worker.reconciler import Reconciler
from tenure.worker.storetime import StoreTime

log = logging.getLogger("tenure.schedules")

LOOK = 15.0
"""Seconds after which all schedules are read anew at the latest."""

_SHORTEST_WAIT = 0.01
_OPEN_LOOK = 1.0
_EARLY_WAIT = 0.05
_EARLY_WAIT_MAX = 1.0
_ROUNDS = 20
_BATCH = 500


class Ticker:
    """Reconciles the schedules of an app, and fires those that it knows.

    The store decides by its own clock which ticks are due, and which were missed; whoever comes
    second is told so. Nothing that is wrong with one schedule stops another.
    """

    def __init__(
        self,
        engine: Engine,
        declarations: Declarations,
        *,
        hooks: Hooks,
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._declarations = declarations
        self._hooks = hooks
        self._clock = clock
        self._time = StoreTime(clock)
        self._reconciler = Reconciler(engine, declarations, clock, hooks)
        self._rows: dict[str, Schedule] = {}
        self._known: dict[str, Definition] = {}
        self._rejected: dict[str, int] = {}  # revisions
        self._read_at = float("-inf")
        self._early = 0.0
        self._careful = False
        self._answers = 0  # ticks that were fired or skipped
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Schedules may have changed: read them now."""
        self._read_at = float("-inf")
        self._wake.set()

    async def run(self) -> None:
        """Fire until cancelled."""
        while True:
            self._wake.clear()
            wait = await self.step()
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def step(self) -> float:
        """As `look`, but what fails is logged and tried again."""
        try:
            return await self.look()
        except EngineUnavailable as error:
            log.debug("schedules wait for the store: %s", error)
            wait = random.uniform(0.5, 1.0)
        except Exception:
            log.exception("schedules could not be looked after; jobs go on")
            wait = LOOK
        self._read_at = float("-inf")
        return wait

    async def fire_due(self) -> tuple[int, bool]:
        """Fire what is due by now, where nobody looks again by himself.

        How many ticks were fired or skipped, and whether more are due. Raises as the store does.
        """
        self.wake()
        before = self._answers
        await self.look()
        now = self._time.now()
        more = any(row.next_at is not None and row.next_at <= now for row in self._live())
        return self._answers - before, more and self._answers > before

    async def look(self) -> float:
        """Fire all that is due; the seconds until there may be something to do."""
        probe = self._clock.monotonic() - self._read_at >= LOOK
        if probe:
            await self._read()
        await self._close_open()
        for _ in range(_ROUNDS):
            offered = self._due(probe=probe)[:_BATCH]
            if not offered or not await self._offer(offered):
                break
        return self._wait()

    async def _read(self) -> None:
        self._read_at = self._clock.monotonic()  # first: whoever wakes us meanwhile says otherwise
        self._rows, plan = await self._reconciler.run(self._time.now())
        self._known = self._declarations.known(self._rows.values())
        done = {"created": plan.created, "replaced": plan.replaced, "retired": plan.retired}
        if any(done.values()):
            told = "; ".join(f"{what}: {', '.join(names)}" for what, names in done.items() if names)
            log.info("schedules %s", told)

    async def _close_open(self) -> None:
        """Plan the next ticks of schedules that wait for the end of a job."""
        waiting = [row for row in self._live() if row.next_at is None and self._is_open(row)]
        if not waiting:
            return
        jobs = await self._engine.get([tick_id(row.name, row.last_at or 0) for row in waiting])
        changes = []
        for row, job in zip(waiting, jobs, strict=True):
            if job is not None and not job.state.final:
                continue
            ended = self._time.now() if job is None else job.finished_at or 0
            following = after_finish(self._known[row.name].timing, row.last_at or 0, ended)
            if following is None:
                self._known.pop(row.name)  # that was the last one; until all is read again
                continue
            planned = msgspec.structs.replace(row, next_at=following)
            changes.append(ScheduleChange(row.name, row.revision, planned))
        if not changes:
            return
        for change, saved in zip(changes, await self._engine.save_schedules(changes), strict=True):
            if saved is None:
                self._read_at = float("-inf")  # another one was faster
            else:
                self._rows[change.name] = saved

    def _live(self) -> list[Schedule]:
        """Those whose ticks may be fired here."""
        return [
            row
            for name, row in self._rows.items()
            if name in self._known and not row.paused and self._rejected.get(name) != row.revision
        ]

    def _is_open(self, row: Schedule) -> bool:
        return self._known[row.name].timing.from_finish and row.last_at is not None

    def _due(self, *, probe: bool) -> list[Tick]:
        """The ticks to offer. `probe`: the first one even if it does not seem due.

        So a clock that is behind the store's holds nothing up for long.
        """
        now = self._time.now()
        planned = sorted((row.next_at, row.name) for row in self._live() if row.next_at is not None)
        names = [name for at, name in planned if at <= now]
        if probe and planned and not names:
            names = [planned[0][1]]
        return [tick for name in names for tick in self._ticks(self._rows[name], now)]

    def _ticks(self, row: Schedule, now: int) -> Iterable[Tick]:
        definition, leaps = self._known[row.name], not self._careful
        assert row.next_at is not None
        try:
            return [
                self._declarations.tick(row, definition, planned)
                for planned in due_ticks(definition.timing, row.next_at, now, leaps=leaps)
            ]
        except TenureError as error:
            self._reject(row, error)
            return ()

    async def _offer(self, ticks: list[Tick]) -> bool:
        """Offer these to the store; whether to look again at once."""
        try:
            answers = await self._engine.fire(ticks)
        except EngineUnavailable:
            raise
        except TenureError as error:
            names = dict.fromkeys(tick.name for tick in ticks)
            if len(names) == 1:
                self._reject(self._rows[ticks[0].name], error)
                return False
            # One of them has a job that cannot be stored; the others must not suffer from it.
            answers_of = [
                await self._offer([tick for tick in ticks if tick.name == name]) for name in names
            ]
            return any(answers_of)
        stopped: set[str] = set()
        again = False
        for tick, answer in zip(ticks, answers, strict=True):
            if tick.name in stopped:
                continue  # it could not be what the store expects next
            if self._answered(tick, answer):
                again = True
            else:
                stopped.add(tick.name)
                again = again or tick.leap
        return again

    def _answered(self, tick: Tick, answer: Fired) -> bool:
        """Take note of what became of a tick; whether the next one was planned."""
        if answer is Fired.STALE:
            self._read_at = float("-inf")
            return False
        if answer is Fired.EARLY:
            at = tick.missed_from if tick.leap and tick.missed_from is not None else tick.at
            if self._time.now() >= at:
                self._time.before(at)
                self._early = min(max(2 * self._early, _EARLY_WAIT), _EARLY_WAIT_MAX)
            self._careful = tick.leap
            return False
        self._answers += 1
        self._careful, self._early = False, 0.0
        self._time.reached(tick.at)
        self._rows[tick.name] = advanced(self._rows[tick.name], tick)
        self._told(tick, answer)
        return True

    def _told(self, tick: Tick, answer: Fired) -> None:
        name = "schedule.fired" if answer is Fired.FIRED else "schedule.skipped"
        facts = {"schedule": tick.name, "tick": tick.at, "task": tick.job.task}
        if answer is Fired.FIRED:
            facts["job_id"] = tick.job.id
        self._hooks.emit(name, **facts)
        level = logging.DEBUG if answer is Fired.FIRED else logging.INFO
        log.log(level, "%s: %s", name, tick.name, extra=facts)

    def _reject(self, row: Schedule, error: Exception) -> None:
        """Fire it no more, until it is changed."""
        self._rejected[row.name] = row.revision
        self._hooks.emit("schedule.rejected", schedule=row.name, reason=str(error))
        log.warning("schedule.rejected: %s: %s", row.name, error, extra={"schedule": row.name})

    def _wait(self) -> float:
        now, live = self._time.now(), self._live()
        waits = [self._read_at + LOOK - self._clock.monotonic()]
        waits += [(row.next_at - now) / SECOND for row in live if row.next_at is not None]
        waits += [_OPEN_LOOK for row in live if row.next_at is None and self._is_open(row)]
        return max(min(waits), self._early, _SHORTEST_WAIT)
