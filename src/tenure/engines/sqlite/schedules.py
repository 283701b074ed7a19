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
from tenure.engines.sqlite.operations import SQL, cancel_one, insert, job_of_tick, to_row
from tenure.engines.sqlite.thread import Transaction
from tenure.errors import DuplicateJob, UniquenessConflict

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def save(tx: Transaction, changes: Sequence[ScheduleChange]) -> list[Schedule | None]:
    """See `Engine.save_schedules`."""
    return [_save(tx, change) for change in changes]


def all_schedules(tx: Transaction) -> list[Schedule]:
    """See `Engine.schedules`."""
    return [_from_columns(values) for values in tx.execute(SQL["all_schedules"])]


def fire(tx: Transaction, ticks: Sequence[Tick], now: int) -> list[Fired]:
    """See `Engine.fire`."""
    return [_fire(tx, tick, now) for tick in ticks]


def _save(tx: Transaction, change: ScheduleChange) -> Schedule | None:
    kept = _schedule(tx, change.name)
    if change.schedule is not None:  # first: what cannot be kept changes nothing
        definition = codec.encode(change.schedule.definition, "definition")
        plain = msgspec.structs.replace(change.schedule, definition=codec.decode(definition))
        change = msgspec.structs.replace(change, schedule=plain)
    if not accepts(kept, change):
        return None
    if change.schedule is None:
        tx.write(SQL["remove_schedule"], {"name": change.name})
        return None
    ((revision,),) = tx.execute(SQL["draw_revision"])
    new = saved(kept, change, revision)
    if new is not None:
        _write(tx, new)
    return new


def _fire(tx: Transaction, tick: Tick, now: int) -> Fired:
    schedule = _schedule(tx, tick.name)
    living = [to_row(v) for v in tx.execute(SQL["living_of_schedule"], {"schedule": tick.name})]
    done = job_of_tick(tx, tick.name, tick.at) is not None
    plan = firing(schedule, tick, living, done=done, now=now)
    if plan.advances and schedule is not None:
        _write(tx, advanced(schedule, tick))
    for job_id in plan.cancel:
        cancel_one(tx, job_id, now, force=False)
    if plan.fired is Fired.FIRED and not _insert(tx, tick, now):
        return Fired.SKIPPED
    return plan.fired


def _insert(tx: Transaction, tick: Tick, now: int) -> bool:
    """Insert the job of a tick; whether anything was written."""
    written = len(tx.changes)
    try:
        insert(tx, [tick_job(tick)], now)
    except (DuplicateJob, UniquenessConflict):  # decided before anything is written
        return False
    return len(tx.changes) > written


def _schedule(tx: Transaction, name: str) -> Schedule | None:
    found = tx.execute(SQL["schedule"], {"name": name})
    return _from_columns(found[0]) if found else None


def _write(tx: Transaction, schedule: Schedule) -> None:
    definition = codec.encode(schedule.definition, "definition").decode()
    values = {**msgspec.structs.asdict(schedule), "definition": definition}
    values["overlap"] = str(schedule.overlap)
    values["paused"] = int(schedule.paused)
    tx.write(SQL["write_schedule"], tuple(values.values()))


def _from_columns(values: Sequence[Any]) -> Schedule:
    kept = dict(zip(Schedule.__struct_fields__, values, strict=True))
    kept["definition"] = _decode(kept["definition"])
    kept["overlap"] = Overlap(kept["overlap"])
    kept["paused"] = bool(kept["paused"])
    return Schedule(**kept)
