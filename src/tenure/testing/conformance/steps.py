"""The steps of a history: operations with arguments that often hit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from tenure.core.durations import SECOND
from tenure.core.event import EventFilter, NewEvent, StoredEvent
from tenure.core.fleet import Inspection
from tenure.core.job import JobRow, NewJob
from tenure.core.lease import Lost
from tenure.core.outcomes import Settled
from tenure.core.query import CancelResult, Filter, Page, RequeueResult, Swept
from tenure.core.schedule import Fired, Schedule, ScheduleChange, Tick
from tenure.core.states import State
from tenure.engines.protocol import Claim, Engine, Inserted, Prunable
from tenure.errors import DuplicateJob, UniquenessConflict
from tenure.testing.conformance.kit import NOW, job_id

QUEUES, TASKS, OWNERS = ("a", "b"), ("x", "y", "z"), ("host:1:a", "host:2:b", "host:3:c")
KEYS, SCHEDULES = ("k", "l"), ("s", "t")


class Step(NamedTuple):
    """One operation, to be done on each engine. `text` is what a failure shows of it."""

    name: str
    text: str
    call: Callable[[Engine], Awaitable[Any]]


class Raised(NamedTuple):
    """An operation refused: part of its answer, as any other."""

    kind: str
    text: str


async def answer(step: Step, engine: Engine) -> Any:
    """What an engine answers to a step; what differs between any two stores is left out."""
    try:
        return _plain(await step.call(engine))
    except (DuplicateJob, UniquenessConflict) as error:
        return Raised(type(error).__name__, str(error))


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Schedule):
        return msgspec.structs.replace(value, revision=0)
    if isinstance(value, StoredEvent):
        return msgspec.structs.replace(value, cursor="")
    if isinstance(value, Inspection):
        problems = tuple(finding for finding in value.findings if finding.problem)
        return msgspec.structs.replace(value, findings=problems)
    return value


def difference(mine: Any, other: Any) -> str:
    """What of an answer is not in the other one; rows by their differing columns."""
    if not isinstance(mine, list) or not isinstance(other, list) or len(mine) != len(other):
        return repr(mine)
    parts = []
    for one, two in zip(mine, other, strict=True):
        if one == two:
            continue
        if isinstance(one, JobRow) and isinstance(two, JobRow):
            names = [n for n in JobRow.__struct_fields__ if getattr(one, n) != getattr(two, n)]
            parts.append(f"{one.id}: { ({n: getattr(one, n) for n in names}) }")
        else:
            parts.append(repr(one))
    return "; ".join(parts)


def kinds(step: Step, given: Any) -> list[str]:
    """The kinds of answer in it, for the tally."""
    if isinstance(given, CancelResult | RequeueResult):
        names = given.__struct_fields__
        found = [name for name in names for _ in getattr(given, name)]
        return ["requeue taken" if name == "taken" else name for name in found]
    if isinstance(given, Raised):
        return [given.kind]
    if isinstance(given, int):
        return [f"{step.name} {'yes' if given else 'no'}"]
    items = given if isinstance(given, list) else []
    return [kind for item in items for kind in _kinds_of(step, item)]


def _kinds_of(step: Step, item: Any) -> Iterable[str]:
    match item:
        case Inserted(_, created, cancelling):
            yield "created" if created else "twin, cancelling" if cancelling else "twin"
        case Lost(reason):
            yield reason
        case Settled(verdict=verdict, state=state):
            yield str(verdict)
            yield f"to {state}"
        case Swept(_, state):
            yield f"swept to {state}"
        case Fired():
            yield str(item)
        case None:
            yield f"{step.name} refused"
        case _:
            yield type(item).__name__


def is_final(row: JobRow) -> bool:
    return row.state.final


def is_running(row: JobRow) -> bool:
    return row.state is State.RUNNING


class Wish(NamedTuple):
    """A job to be inserted, but for its id. `again`: as the id of a job that was inserted before,
    counted from the latest."""

    task: str
    queue: str
    priority: int
    more: dict[str, Any]
    again: int | None


class Store:
    """What a history knows of the store that it works on: ids, tickets of claims, the time."""

    def __init__(self) -> None:
        self.now = self.latest = NOW
        self.count = 0
        self.tickets: list[JobRow] = []
        self.rows: dict[str, JobRow | None] = {}
        self.schedules: dict[str, Schedule] = {}

    def pass_time(self, microseconds: int) -> None:
        self.now += microseconds
        self.latest = max(self.latest, self.now)

    def id_of(self, back: int) -> str:
        """The id of a job, counted from the latest; now and then one that nobody inserted."""
        return job_id(max(self.count - 1 - back, 0) if back >= 0 else 999_999)

    def aimed(self, back: int, state: Callable[[JobRow], bool]) -> str:
        """The id of a job in such a state, counted from the latest; of any where there is none.

        Now and then of any anyway. Jobs with a key are preferred every other time.
        """
        there = [row for row in self.rows.values() if row is not None and state(row)]
        fits = [row for row in there if row.unique_key is not None] if back % 2 else []
        fits = fits or there
        return fits[-1 - back % len(fits)].id if fits and back % 4 else self.id_of(back)

    def holder(self, back: int) -> JobRow | None:
        """A living job that has a unique key, counted from the latest; every other time, one that
        runs, if there is one."""
        living = [
            row
            for row in self.rows.values()
            if row is not None and row.unique_key is not None and not row.state.final
        ]
        fits = list(filter(is_running, living)) if back % 2 else []
        fits = fits or living
        return fits[-1 - back % len(fits)] if fits else None

    def job(self, wish: Wish) -> NewJob:
        if wish.again is not None and wish.again < self.count:
            name = self.id_of(wish.again)
        else:
            name = job_id(self.count)
            self.count += 1
        payload = b"%d" % self.count
        known = {"task": wish.task, "queue": wish.queue, "priority": wish.priority}
        return NewJob(id=name, payload=payload, **{**known, **wish.more})

    def ticket(self, back: int, wrong: dict[str, Any]) -> JobRow | None:
        """A row as it was claimed, counted from the latest claim, perhaps forged."""
        if not self.tickets:
            return None
        row = self.tickets[-1 - back % len(self.tickets)]
        forged = dict(wrong)
        if "token" in forged:
            forged["token"] += row.token
        return msgspec.structs.replace(row, **forged)

    def held_by(self, owner: str) -> list[str]:
        """The jobs that an owner was last given."""
        last = {row.id: row for row in self.tickets}
        return [row.id for row in last.values() if row.owner == owner]

    def everything(self) -> list[str]:
        return [job_id(n) for n in range(self.count)]


def cancel(ids: Sequence[str], force: bool, now: int) -> Step:
    name = "force" if force else "cancel"
    return Step(
        name, f"{name} {ids} at {now}", lambda engine: engine.cancel(ids, force=force, now=now)
    )


def requeue(ids: Sequence[str], payload: bytes | None, now: int) -> Step:
    return Step(
        "requeue",
        f"requeue {ids} with {payload!r} at {now}",
        lambda engine: engine.requeue(ids, payload=payload, now=now),
    )


def prune(kind: Prunable, before: int, where: Filter | None, limit: int) -> Step:
    return Step(
        f"prune {kind}",
        f"prune {limit} {kind} before {before} of {where}",
        lambda engine: engine.prune(kind, before, where=where, limit=limit),
    )


def save(name: str, schedule: Schedule, off: int) -> Step:
    """Save a schedule under the revision it has, or one that is `off` by so much."""

    async def call(engine: Engine) -> list[Schedule | None]:
        kept = {s.name: s.revision for s in await engine.schedules()}
        change = ScheduleChange(name, kept.get(name, 0) + off, schedule)
        return await engine.save_schedules([change])

    return Step("save_schedule", f"save_schedule off by {off}: {schedule}", call)


def remove(name: str, off: int) -> Step:
    """Remove a schedule under the revision it has, or one that is `off`; whether it is gone."""

    async def call(engine: Engine) -> bool:
        before = {s.name: s.revision for s in await engine.schedules()}
        change = ScheduleChange(name, before.get(name, 0) + off, None)
        assert await engine.save_schedules([change]) == [None]
        return name in before and name not in {s.name for s in await engine.schedules()}

    return Step("remove_schedule", f"remove_schedule {name} off by {off}", call)


def fire(name: str, job: NewJob, now: int, late: int, off: int, missed: int | None) -> Step:
    """Fire the tick that a schedule expects, or one that is `late` or of a revision `off`.

    It counts as missed from `missed` on, seen from now; exactly now, it is a leap.
    """

    async def call(engine: Engine) -> Any:
        kept = {s.name: s for s in await engine.schedules()}
        schedule = kept.get(name)
        expected = None if schedule is None else schedule.next_at
        at = (now if expected is None else expected) + late
        revision = off if schedule is None else schedule.revision + off
        until = None if missed is None else now + missed
        leap = missed == 0
        tick = Tick(name, revision, at, at + 5 * SECOND, job, missed_from=until, leap=leap)
        return await engine.fire([tick], now=now)

    told = f"fire {name} off by {late}, {off}, {missed} with {job.id} at {now}"
    return Step("fire", told, call)


def append(names: Sequence[str], now: int) -> Step:
    events = [NewEvent(name=name, task="x", facts={"at": now}) for name in names]
    return Step("append", f"append {names}", lambda engine: engine.append(events, now=now))


def claim_step(claim: Claim, now: int) -> Step:
    return Step("claim", f"{claim} at {now}", lambda engine: engine.claim(claim, now=now))


FILTERS = (
    Filter(),
    Filter(states=(State.PENDING, State.FAILED)),
    Filter(tasks=("x", "y"), queues=("a",)),
    Filter(states=(State.RUNNING,), queues=("b", "a")),
    Filter(states=(State.COMPLETED, State.CANCELLED, State.EXPIRED), tasks=("z",)),
    Filter(keys=(KEYS[0],)),
    Filter(error="boom", tasks=("x", "z")),
)


def look(store: Store, turn: int) -> Step:
    """One question beside the rows themselves, another one each turn."""
    now, where = store.now, FILTERS[turn % len(FILTERS)]
    page = Page(turn % 7 + 1, None if turn % 2 else job_id(turn % (store.count + 1)))
    key, after = KEYS[turn % 2], turn % 4
    tasks = (None, ("x",), ("z", "y"))[turn % 3]

    async def read(engine: Engine) -> list[StoredEvent]:
        first = await engine.read(EventFilter(), limit=after + 1)
        where = EventFilter(names=("e",)) if turn % 2 else EventFilter()
        return first + await engine.read(where, first[-1].cursor if first else None)

    looks = (
        Step("find", f"{where} {page}", lambda engine: engine.find(where, page)),
        Step("stats", "", lambda engine: engine.stats(now=now)),
        Step("next_due", f"{tasks}", lambda engine: engine.next_due(QUEUES, tasks, now=now)),
        Step("workers", "", lambda engine: engine.workers(now=now)),
        Step("identity", key, lambda engine: engine.identity(key)),
        Step("read", f"{after}", read),
        Step("inspect", "", lambda engine: engine.inspect(now=store.latest)),
    )
    chosen = looks[turn % len(looks)]
    if chosen.name == "next_due" and now != store.latest:
        return looks[1]  # when a ready job is due is no question for a clock gone back
    return chosen
