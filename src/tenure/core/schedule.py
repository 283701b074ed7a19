"""Recurring jobs: what a store keeps of a schedule, and the step from one tick to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from tenure.core.identity import overdue
from tenure.core.job import JobRow, NewJob


class Overlap(StrEnum):
    """What a tick does while a job of an earlier one is pending or running."""

    ALLOW = "allow"
    SKIP = "skip"
    """Insert nothing; the next tick is planned all the same."""

    CANCEL = "cancel"
    """Cancel the earlier ones (running ones are asked to stop), then insert."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """One recurring job. `next_at` (microseconds since the epoch) None: no further tick.

    `source` says who defined it: `code:<app>` or `api`. `definition` is what is needed to compute
    ticks and jobs; the store does not look into it.

    Two fields are the store's, whatever a save says: `revision`, drawn at each save, greater than
    every earlier one of this store; and `last_at`, the nominal instant of the last tick that was
    fired or skipped. No tick up to `last_at` is ever fired again.
    """

    name: str
    source: str
    task: str
    definition: Mapping[str, Any] = {}
    overlap: Overlap = Overlap.ALLOW
    next_at: int | None = None
    last_at: int | None = None
    paused: bool = False
    revision: int = 0


class ScheduleChange(msgspec.Struct, frozen=True):
    """Save `schedule` under `name`, or remove it (None), if its revision is `expected` (0: new)."""

    name: str
    expected: int
    schedule: Schedule | None


class Tick(msgspec.Struct, frozen=True):
    """Fire the tick at `at`: insert `job`, plan `next_at`.

    Done only if the schedule has this `revision`, is not paused, expects exactly this tick, and
    its time has come by the store's clock. From `missed_from` on, by that clock, the next tick is
    planned and nothing inserted. A `leap` inserts nothing at all, and is early until then.
    """

    name: str
    revision: int
    at: int
    next_at: int | None
    job: NewJob
    missed_from: int | None = None
    leap: bool = False


class Fired(StrEnum):
    """What became of one tick."""

    FIRED = "fired"
    """Its job was inserted, or took the place of a waiting one with the same unique key."""

    SKIPPED = "skipped"
    """Nothing was inserted, but the next tick is planned: an earlier job still lives and the
    schedule's `overlap` is `skip`, or the job's unique key is taken, or the tick was fired before
    (a clock or an edit went back), or it counts as missed by now."""

    EARLY = "early"
    """Its time has not come by the store's clock."""

    STALE = "stale"
    """Another fired it, or the schedule was edited, paused or removed."""


class Firing(NamedTuple):
    """What to do about a tick; `FIRED` may still turn into `SKIPPED` if the job's key is taken.

    `cancel` has the jobs to be cancelled (not by force) before the insert.
    """

    fired: Fired
    cancel: tuple[str, ...] = ()

    @property
    def advances(self) -> bool:
        """Whether the next tick is planned."""
        return self.fired in (Fired.FIRED, Fired.SKIPPED)


def firing(
    schedule: Schedule | None, tick: Tick, living: Sequence[JobRow], *, done: bool, now: int
) -> Firing:
    """What firing `tick` at the store's time `now` does.

    `living` has the pending and running jobs of the schedule; `done`: a job of this very tick is
    there, in any state. A pending job that may no longer start does not count as living.
    """
    if (
        schedule is None
        or schedule.paused
        or (schedule.revision, schedule.next_at) != (tick.revision, tick.at)
    ):
        return Firing(Fired.STALE)
    missed = tick.missed_from is not None and tick.missed_from <= now
    if tick.at > now or (tick.leap and not missed):
        return Firing(Fired.EARLY)
    if missed or done or (schedule.last_at is not None and tick.at <= schedule.last_at):
        return Firing(Fired.SKIPPED)
    living = [row for row in living if not overdue(row, now)]
    if living and schedule.overlap is Overlap.SKIP:
        return Firing(Fired.SKIPPED)
    cancelled = living if schedule.overlap is Overlap.CANCEL else ()
    return Firing(Fired.FIRED, tuple(row.id for row in cancelled))


def advanced(schedule: Schedule, tick: Tick) -> Schedule:
    """The schedule after `tick` was fired or skipped."""
    last = tick.at if schedule.last_at is None else max(schedule.last_at, tick.at)
    return msgspec.structs.replace(schedule, next_at=tick.next_at, last_at=last)


def tick_job(tick: Tick) -> NewJob:
    """The job of a tick, which bears the pair of schedule and nominal instant."""
    return msgspec.structs.replace(tick.job, schedule=tick.name, tick=tick.at)


def accepts(kept: Schedule | None, change: ScheduleChange) -> bool:
    """Whether a change may be made to what is `kept` under its name (None: nothing)."""
    return change.expected == (0 if kept is None else kept.revision)


def saved(kept: Schedule | None, change: ScheduleChange, revision: int) -> Schedule | None:
    """What is kept after a change that was accepted; None: nothing any more."""
    if change.schedule is None:
        return None
    last = None if kept is None else kept.last_at
    return msgspec.structs.replace(
        change.schedule, name=change.name, revision=revision, last_at=last
    )
