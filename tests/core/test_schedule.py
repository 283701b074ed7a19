"""core/schedule.py: what a tick does; every case in a table."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from tenure.core.job import NewJob
from tenure.core.schedule import (
    Fired,
    Firing,
    Overlap,
    Schedule,
    ScheduleChange,
    Tick,
    accepts,
    advanced,
    firing,
    saved,
    tick_job,
)
from tests.core.rows import NOW, pending, running

KEPT = Schedule(name="s", source="api", task="work", next_at=NOW, revision=4)
TICK = Tick("s", 4, NOW, NOW + 60, NewJob(id="j", task="work"))
WAITS, RUNS = pending(id="waits"), running(id="runs")
LATE = pending(id="late", expires_at=NOW)


def kept(**changes) -> Schedule:
    return msgspec.structs.replace(KEPT, **changes)


@pytest.mark.parametrize(
    "schedule",
    [
        None,
        kept(paused=True),
        kept(revision=3),
        kept(revision=5),
        kept(next_at=None),
        kept(next_at=NOW - 1),
        kept(next_at=NOW + 60, last_at=NOW),
    ],
)
@pytest.mark.parametrize("done", [False, True])
def test_a_stale_tick_does_nothing(schedule, done):
    plan = firing(schedule, TICK, [WAITS], done=done, now=NOW + 99)
    assert (plan, plan.advances) == (Firing(Fired.STALE), False)


def test_a_tick_is_early_until_its_very_instant():
    plan = firing(KEPT, TICK, [], done=False, now=NOW - 1)
    assert (plan, plan.advances) == (Firing(Fired.EARLY), False)
    plan = firing(KEPT, TICK, [], done=False, now=NOW)
    assert (plan, plan.advances) == (Firing(Fired.FIRED), True)


@pytest.mark.parametrize(
    ("overlap", "living", "last_at", "done"),
    list(
        itertools.product(
            Overlap,
            ([], [LATE], [WAITS], [RUNS], [WAITS, LATE, RUNS]),
            (None, NOW - 60, NOW, NOW + 60),
            (False, True),
        )
    ),
)
def test_every_case_of_a_due_tick(overlap, living, last_at, done):
    plan = firing(kept(overlap=overlap, last_at=last_at), TICK, living, done=done, now=NOW)
    alive = tuple(row.id for row in living if row is not LATE)
    if done or (last_at is not None and last_at >= NOW) or (overlap is Overlap.SKIP and alive):
        assert plan == Firing(Fired.SKIPPED)
    else:
        assert plan == Firing(Fired.FIRED, alive if overlap is Overlap.CANCEL else ())
    assert plan.advances


@pytest.mark.parametrize(("last_at", "after"), [(None, NOW), (NOW - 9, NOW), (NOW + 9, NOW + 9)])
def test_what_was_last_never_goes_back(last_at, after):
    assert advanced(kept(last_at=last_at), TICK) == kept(next_at=NOW + 60, last_at=after)


def test_a_job_bears_its_tick():
    assert tick_job(TICK) == NewJob(id="j", task="work", schedule="s", tick=NOW)


@pytest.mark.parametrize(
    ("there", "expected", "wanted"),
    [(None, 0, True), (None, 4, False), (KEPT, 4, True), (KEPT, 0, False), (KEPT, 5, False)],
)
def test_a_change_needs_the_revision(there, expected, wanted):
    assert accepts(there, ScheduleChange("s", expected, KEPT)) == wanted


def test_what_is_kept_of_a_save():
    given = kept(name="other", revision=99, last_at=1, next_at=5)
    there = kept(last_at=NOW)
    after = saved(there, ScheduleChange("s", 4, given), 7)
    assert after == kept(revision=7, last_at=NOW, next_at=5)
    assert saved(None, ScheduleChange("s", 0, given), 1) == kept(revision=1, next_at=5)
    assert saved(there, ScheduleChange("s", 4, None), 7) is None
