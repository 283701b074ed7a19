"""Recurring jobs: declaring, looking after, and seeing what they did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from tenure.clock import SYSTEM_CLOCK
from tenure.core.durations import SECOND, moment
from tenure.core.fleet import Finding, shown
from tenure.core.job import Job
from tenure.core.query import Filter
from tenure.core.reconcile import (
    API,
    Declared,
    Definition,
    Plan,
    app_of,
    definition_of,
    is_release,
)
from tenure.core.schedule import Overlap, Schedule, ScheduleChange
from tenure.core.ticks import first_tick, next_tick
from tenure.declarations import Declarations, Given
from tenure.engines.protocol import Engine, Facet, Signal, Topic
from tenure.errors import ConfigurationError, ScheduleNotFound
from tenure.handles import JobHandle
from tenure.lookups import count, page
from tenure.options import check_name
from tenure.recurring import ScheduleChanges, changed_timing, schedule_options
from tenure.worker.reconciler import Reconciler

if TYPE_CHECKING:
    from tenure.service import QueueService

PREVIEW_MAX = 1000
_TRIES = 100


class Synced(msgspec.Struct, frozen=True):
    """What a sync did, by the names of schedules. `rejected` says why some were left out."""

    created: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    rejected: dict[str, str] = {}


class ScheduleInfo:
    """A schedule as users read it. A snapshot, not live."""

    __slots__ = ("_definition", "known", "row")

    def __init__(self, row: Schedule, *, known: bool) -> None:
        self.row = row
        self.known = known
        """Whether this app has its definition, so that its workers fire it."""
        self._definition = definition_of(row)

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def task(self) -> str:
        return self.row.task

    @property
    def app(self) -> str | None:
        """The app whose code declares it; None for one that was made or edited at run time."""
        return app_of(self.row.source)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of its jobs by parameter name, as plain JSON values."""
        return {} if self._definition is None else dict(self._definition.arguments)

    @property
    def rule(self) -> str:
        """When it runs, in short: `0 7 * * * Europe/Berlin`, `every 300 s`."""
        if self._definition is None:
            return "of another version of tenure"
        timing = self._definition.timing
        if timing.interval is not None:
            text = f"every {timing.interval / SECOND:g} s"
        else:
            text = f"{timing.cron} {timing.timezone}"
        return f"{text} from finish" if timing.from_finish else text

    @property
    def overlap(self) -> Overlap:
        return self.row.overlap

    @property
    def paused(self) -> bool:
        return self.row.paused

    @property
    def next_at(self) -> datetime | None:
        """The next tick; None when there is none, or when it counts from the end of a job."""
        return None if self.row.next_at is None else moment(self.row.next_at)

    @property
    def last_at(self) -> datetime | None:
        """The nominal instant of the last tick."""
        return None if self.row.last_at is None else moment(self.row.last_at)

    @property
    def state(self) -> str:
        """`paused`, `unknown` (nobody here knows it, so it is not fired), `waiting` (for the end of
        a job), `ended`, or `active`."""
        if self.paused:
            return "paused"
        if not self.known:
            return "unknown"
        if self.row.next_at is not None:
            return "active"
        timing = None if self._definition is None else self._definition.timing
        open_ = timing is not None and timing.from_finish and self.row.last_at is not None
        return "waiting" if open_ else "ended"

    def preview(self, n: int = 5) -> list[datetime]:
        """Its next ticks, up to `n` (1 to 1,000), by their nominal instants and without jitter."""
        most, at = count(n, PREVIEW_MAX, "n"), self.row.next_at
        ticks: list[datetime] = []
        while at is not None and len(ticks) < most and self._definition is not None:
            ticks.append(moment(at))
            at = next_tick(self._definition.timing, at)
        return ticks

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values of every field shown to people; times as ISO 8601 text in UTC."""
        return {
            "name": self.name,
            "state": self.state,
            "task": self.task,
            "app": self.app,
            "rule": self.rule,
            "arguments": self.arguments,
            "overlap": str(self.overlap),
            "paused": self.paused,
            "known": self.known,
            "next_at": _text(self.next_at),
            "last_at": _text(self.last_at),
        }

    def __repr__(self) -> str:
        return f"<ScheduleInfo {self.name} {self.state}>"


class Schedules:
    """Recurring jobs: `jobs.schedules`.

    What code declares belongs to the code: workers make the store agree with it when they start.
    What is added or edited at run time is kept as it is, whatever is deployed.
    """

    def __init__(self, service: QueueService, declarations: Declarations) -> None:
        self._service = service
        self._declarations = declarations

    def declare(self, name: str, task: Given, /, **options: Unpack[ScheduleChanges]) -> None:
        """Declare a schedule in code: `jobs.schedules.declare("eu", report.bind("eu"), cron=...)`.

        For one task there may be any number of them. Nothing is stored until a worker starts, or by
        `sync`. The options are those of `@jobs.task`; see `ScheduleOptions`. Raises
        `ConfigurationError`.
        """
        self._declarations.declare(name, task, options)

    async def sync(self) -> Synced:
        """Make the store agree with what this app declares, now and whatever was there before.

        Workers do so when they start, unless a newer release of the app is in force. Only
        schedules that this app declared are touched. What is wrong with one stops no other.
        """

        async def sync(engine: Engine) -> Plan:
            reconciler = Reconciler(engine, self._declarations, SYSTEM_CLOCK, self._service.hooks)
            _, plan = await reconciler.run(SYSTEM_CLOCK.time_us(), force=True)
            await engine.notify([Signal(Topic.ANY)])
            return plan

        plan = await self._service._run(sync)
        return Synced(plan.created, plan.kept, plan.replaced, plan.retired, dict(plan.rejected))

    async def list(self) -> Sequence[ScheduleInfo]:
        """All schedules of the store, by name."""
        rows = await self._service._run(lambda engine: engine.schedules())
        return self._infos([row for row in rows if not is_release(row)])

    async def get(self, name: str) -> ScheduleInfo:
        """The schedule of this name. Raises `ScheduleNotFound`."""
        return self._info(await self._row(name))

    async def add(
        self, name: str, task: Given, /, **options: Unpack[ScheduleChanges]
    ) -> ScheduleInfo:
        """Make a schedule at run time; it is stored when this returns.

        `task` is a task, `task.bind(...)` or a task's name. Raises `ConfigurationError` for a name
        that is taken, and as `declare` does.
        """
        declared = self._declarations.declared(name, task, schedule_options(options))
        new = declared.row(API, SYSTEM_CLOCK.time_us())
        saved = await self._save(ScheduleChange(name, 0, new))
        if saved is None:
            raise ConfigurationError(f"there is a schedule {name!r} already; edit or remove it")
        return self._info(saved)

    async def edit(
        self, name: str, /, task: Given | None = None, **options: Unpack[ScheduleChanges]
    ) -> ScheduleInfo:
        """Change a schedule's options, or its task and arguments, and keep the rest.

        With new times the next tick is computed from now on; otherwise the plan stays. One that
        code declared is then kept as it was edited, until it is removed. Raises `ScheduleNotFound`
        and `ConfigurationError`.
        """

        def edited(row: Schedule) -> Schedule:
            old = definition_of(row)
            if old is None:
                raise ConfigurationError(f"{name} was made by another version of tenure")
            timing = changed_timing(old.timing, options) if options else old.timing
            definition = msgspec.structs.replace(old, timing=timing)
            named = row.task
            if task is not None:
                given = self._declarations.declared(name, task, _ANY_TIME)
                named, values = given.task, given.definition
                definition = Definition(
                    timing=timing, arguments=values.arguments, options=values.options
                )
            overlap = Overlap(options.get("overlap", row.overlap))
            wanted = Declared(name=name, task=named, definition=definition, overlap=overlap)
            return wanted.over(row, API, SYSTEM_CLOCK.time_us())

        return await self._change(name, edited)

    async def pause(self, name: str) -> ScheduleInfo:
        """Fire no more ticks, until it is resumed. Raises `ScheduleNotFound`."""
        return await self._change(name, lambda row: msgspec.structs.replace(row, paused=True))

    async def resume(self, name: str) -> ScheduleInfo:
        """Fire ticks again, from the next one on; the pause is not made up for."""

        def resumed(row: Schedule) -> Schedule:
            definition, following = definition_of(row), row.next_at
            now = SYSTEM_CLOCK.time_us()
            if row.paused and definition is not None and following is not None and following < now:
                following = _from_now(definition, following, now)
            return msgspec.structs.replace(row, paused=False, next_at=following)

        return await self._change(name, resumed)

    async def remove(self, name: str) -> None:
        """Forget a schedule; its jobs stay. One that code declares comes back with the next sync.

        Raises `ScheduleNotFound`.
        """
        for _ in range(_TRIES):
            row = await self._row(name)
            await self._save(ScheduleChange(name, row.revision, None))
            if await self._find(name) is None:
                return
        raise ConfigurationError(f"{name} is changed by others all the time; try again")

    async def run_now(self, name: str) -> JobHandle[Any]:
        """Put in one job as a tick would, now; the plan stays as it is.

        Raises `ScheduleNotFound`, and `UnknownTask` for one whose task this app does not have.
        """
        row = await self._row(name)
        definition = definition_of(row)
        if definition is None:
            raise ConfigurationError(f"{name} was made by another version of tenure")
        now, new_id = SYSTEM_CLOCK.time_us(), self._service._life.ids()
        timed = self._declarations.job(row, definition, now, new_id)
        wait = None if timed.expires_at is None else timed.expires_at - now
        values = {"run_at": None, "expires_at": None, "expires_in": wait}
        job = msgspec.structs.replace(timed, **values)
        [answer] = await self._service._run(lambda engine: engine.insert([job]))
        return JobHandle(self._service, answer.id, created=answer.created)

    async def preview(self, name: str, n: int = 5) -> Sequence[datetime]:
        """The next ticks, up to `n` (1 to 1,000). Raises `ScheduleNotFound`."""
        return (await self.get(name)).preview(n)

    async def history(
        self, name: str, *, limit: int = 100, before: str | None = None
    ) -> Sequence[Job]:
        """The jobs that this schedule made, newest first: as `QueueService.find`.

        `Job.tick` is the nominal instant; None for a job of `run_now`.
        """
        where, part = Filter(schedules=(check_name(name, "name"),)), page(limit, before)
        rows = await self._service._run(lambda engine: engine.find(where, part))
        return [Job(row) for row in rows]

    async def _notes(self) -> tuple[Finding, ...]:
        """What deserves attention: schedules that nobody fires, or that this app does not know."""
        if Facet.SCHEDULES not in self._service._life.engine.traits.facets:
            return ()
        infos, now, found = await self.list(), SYSTEM_CLOCK.time_us(), []
        late = [
            info.name
            for info in infos
            if not info.paused and info.row.next_at is not None and info.row.next_at + _LATE < now
        ]
        if late:
            text = f"{len(late)} schedules are due for more than a minute, and nobody fired them: "
            remedy = "start a worker of the app that declares them; remove what nobody needs"
            found.append(Finding("schedule-late", text + shown(late), remedy, problem=False))
        mine = (None, self._declarations.app)
        unknown = [info.name for info in infos if not info.known and info.app in mine]
        if unknown:
            text = f"{len(unknown)} schedules are not known to this app, so it does not fire them: "
            remedy = "nothing during a deploy; after a rollback, run `tenure schedules sync`"
            found.append(Finding("schedule-unknown", text + shown(unknown), remedy, problem=False))
        return tuple(found)

    async def _change(self, name: str, make: Callable[[Schedule], Schedule]) -> ScheduleInfo:
        for _ in range(_TRIES):
            row = await self._row(name)
            saved = await self._save(ScheduleChange(name, row.revision, make(row)))
            if saved is not None:
                return self._info(saved)
        raise ConfigurationError(f"{name} is changed by others all the time; try again")

    async def _save(self, change: ScheduleChange) -> Schedule | None:
        async def save(engine: Engine) -> Schedule | None:
            [saved] = await engine.save_schedules([change])
            await engine.notify([Signal(Topic.ANY)])
            return saved

        return await self._service._run(save)

    async def _find(self, name: str) -> Schedule | None:
        rows = await self._service._run(lambda engine: engine.schedules())
        return next((row for row in rows if row.name == name and not is_release(row)), None)

    async def _row(self, name: str) -> Schedule:
        row = await self._find(name)
        if row is None:
            raise ScheduleNotFound(f"no schedule is named {name!r}")
        return row

    def _info(self, row: Schedule) -> ScheduleInfo:
        return self._infos([row])[0]

    def _infos(self, rows: Sequence[Schedule]) -> Sequence[ScheduleInfo]:
        known = self._declarations.known(rows)
        return [ScheduleInfo(row, known=row.name in known) for row in rows]


_LATE = 60 * SECOND
_ANY_TIME = schedule_options({"interval": 1})


def _from_now(definition: Definition, tick: int, now: int) -> int | None:
    """The first tick after now of a plan that stood still at `tick`."""
    timing = definition.timing
    if timing.interval is None:
        return first_tick(msgspec.structs.replace(timing, initial_delay=None), now)
    passed = (now - tick) // timing.interval
    return next_tick(timing, tick + passed * timing.interval)


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat().replace("+00:00", "Z")
