"""Recurring jobs: what is kept of them, and the firing of ticks. What a tick does, `core` says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tenure.core import codec
from tenure.core.schedule import (
    Fired,
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
from tenure.engines.postgres import rows
from tenure.engines.postgres.inserting import insert, job_of_tick
from tenure.engines.postgres.operating import cancel_each
from tenure.engines.postgres.rows import to_row
from tenure.engines.postgres.steps import Ask, Effects, Steps
from tenure.errors import DuplicateJob, UniquenessConflict

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def save(changes: Sequence[ScheduleChange]) -> Steps[list[Schedule | None]]:
    """See `Engine.save_schedules`."""
    plain = [_plain(change) for change in changes]  # first: what cannot be kept changes nothing
    kept = yield from _locked([change.name for change in plain])
    answers = []
    for change in plain:
        new = yield from _save(kept.get(change.name), change)
        if new is not None:
            kept[change.name] = new
        elif change.schedule is None and accepts(kept.get(change.name), change):
            kept.pop(change.name, None)
        answers.append(new)
    return answers


def _save(kept: Schedule | None, change: ScheduleChange) -> Steps[Schedule | None]:
    if not accepts(kept, change):
        return None
    if change.schedule is None:
        yield Ask("remove_schedule", {"name": change.name})
        return None
    ((revision,),) = yield Ask("draw_revision")
    new = saved(kept, change, revision)
    if new is not None:
        yield Ask("insert_schedule" if kept is None else "write_schedule", _values(new))
    return new


def _plain(change: ScheduleChange) -> ScheduleChange:
    if change.schedule is None:
        return change
    definition = codec.decode(codec.encode(change.schedule.definition, "definition"))
    plain = msgspec.structs.replace(change.schedule, definition=definition)
    return msgspec.structs.replace(change, schedule=plain)


def all_schedules() -> Steps[list[Schedule]]:
    """See `Engine.schedules`."""
    return [_from_columns(values) for values in (yield Ask("all_schedules"))]


def fire(out: Effects, ticks: Sequence[Tick]) -> Steps[list[Fired]]:
    """See `Engine.fire`. Whoever fires or edits one of these schedules meanwhile waits."""
    now = yield from rows.clock(out)
    kept = yield from _locked([tick.name for tick in ticks])
    answers = []
    for tick in ticks:
        asked = {"schedule": tick.name}
        living = [to_row(values) for values in (yield Ask("living_of_schedule", asked))]
        done = (yield from job_of_tick(tick.name, tick.at)) is not None
        schedule = kept.get(tick.name)
        plan = firing(schedule, tick, living, done=done, now=now)
        if plan.advances and schedule is not None:
            kept[tick.name] = advanced(schedule, tick)
            yield Ask("write_schedule", _values(kept[tick.name]))
        if plan.cancel:
            yield from cancel_each(out, plan.cancel, force=False)
        fired = plan.fired
        if fired is Fired.FIRED and not (yield from _insert(out, tick, now)):
            fired = Fired.SKIPPED
        answers.append(fired)
    return answers


def _insert(out: Effects, tick: Tick, now: int) -> Steps[bool]:
    """Insert the job of a tick; whether anything was written."""
    written = len(out.changes)
    given, out.now = out.now, now
    try:
        yield from insert(out, [tick_job(tick)])
    except (DuplicateJob, UniquenessConflict):  # decided before anything is written
        return False
    finally:
        out.now = given
    return len(out.changes) > written


def _locked(names: Sequence[str]) -> Steps[dict[str, Schedule]]:
    found = yield Ask("lock_schedules", {"names": list(dict.fromkeys(names))})
    return {values[0]: _from_columns(values) for values in found}


def _values(schedule: Schedule) -> dict[str, Any]:
    values = msgspec.structs.asdict(schedule)
    values["definition"] = codec.encode(schedule.definition, "definition").decode()
    values["overlap"] = str(schedule.overlap)
    return values


def _from_columns(values: Sequence[Any]) -> Schedule:
    kept = dict(zip(Schedule.__struct_fields__, values, strict=True))
    kept["definition"] = _decode(kept["definition"])
    kept["overlap"] = Overlap(kept["overlap"])
    return Schedule(**kept)
