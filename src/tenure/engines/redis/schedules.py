"""Recurring jobs: what is kept of them, and the firing of ticks. What a tick does, `core` says."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenure.core import codec
from tenure.core.columns import to_columns
from tenure.core.identity import Holder
from tenure.core.job import JobRow, new_row
from tenure.core.schedule import (
    Fired,
    Schedule,
    ScheduleChange,
    Tick,
    accepts,
    advanced,
    firing,
    saved,
    tick_job,
)
from tenure.engines.redis.deciding import Plan, Question, Seen, decided
from tenure.engines.redis.inserting import planned, question_of
from tenure.engines.redis.link import Link
from tenure.engines.redis.operating import cancel_row
from tenure.errors import DuplicateJob, UniquenessConflict

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Schedule).decode


async def save(link: Link, changes: Sequence[ScheduleChange]) -> list[Schedule | None]:
    """See `Engine.save_schedules`."""
    plain = [_plain(change) for change in changes]  # first: what cannot be kept changes nothing
    names = list(dict.fromkeys(change.name for change in plain))

    def decide(seen: Seen, plan: Plan) -> list[Schedule | None]:
        kept = {
            name: _decode(text)
            for name, text in zip(names, seen.schedules, strict=True)
            if text is not None
        }
        revision, answers = seen.revision, []
        for change in plain:
            before = kept.get(change.name)
            new = saved(before, change, revision + 1) if accepts(before, change) else None
            if new is not None:
                revision += 1
                kept[change.name] = new
                plan.keep("schedules", change.name, _encode(new).decode())
                plan.keep("meta", "revision", str(revision))
            elif change.schedule is None and accepts(before, change):
                kept.pop(change.name, None)
                plan.keep("schedules", change.name, None)
            answers.append(new)
        return answers

    if not plain:
        return []
    return await decided(link, "save_schedules", Question(schedules=names), decide, None)


async def all_schedules(link: Link) -> list[Schedule]:
    """See `Engine.schedules`."""
    found = await link.command(b"HVALS", f"{link.place.prefix}schedules".encode())
    return sorted(map(_decode, found), key=lambda schedule: schedule.name)


async def fire(link: Link, ticks: Sequence[Tick], now: int | None, about_now: int) -> list[Fired]:
    """See `Engine.fire`. Each tick is one step."""
    for tick in ticks:  # first: a job that cannot be kept changes nothing
        to_columns(new_row(tick_job(tick), about_now))
    return [await _fire(link, tick, now) for tick in ticks]


async def _fire(link: Link, tick: Tick, now: int | None) -> Fired:
    question = msgspec.structs.replace(
        question_of([tick_job(tick)]), living=[tick.name], schedules=[tick.name]
    )
    return await decided(link, "fire", question, lambda seen, plan: _decided(tick, seen, plan), now)


def _decided(tick: Tick, seen: Seen, plan: Plan) -> Fired:
    [text], [living] = seen.schedules, seen.living
    schedule = None if text is None else _decode(text)
    done = (tick.name, tick.at) in seen.ticks
    step = firing(schedule, tick, living, done=done, now=seen.now)
    if step.advances and schedule is not None:
        plan.keep("schedules", tick.name, _encode(advanced(schedule, tick)).decode())
    for row in living:
        if row.id in step.cancel:
            _, changed = cancel_row(row, seen.now, force=False, plan=plan)
            _note(seen, changed)
    if step.fired is not Fired.FIRED:
        return step.fired
    written = plan.writes
    try:
        planned([tick_job(tick)], seen, plan)
    except (DuplicateJob, UniquenessConflict):  # decided before anything is planned
        return Fired.SKIPPED
    return Fired.FIRED if plan.writes > written else Fired.SKIPPED


def _note(seen: Seen, row: JobRow) -> None:
    """Have a row that was changed known to what is decided next."""
    for key, holder in seen.holders.items():
        if holder.twin is not None and holder.twin.id == row.id:
            gone = row.state.final and holder.reservation is None
            seen.holders[key] = Holder(None if gone else row, holder.reservation)


def _plain(change: ScheduleChange) -> ScheduleChange:
    if change.schedule is None:
        return change
    definition = codec.decode(codec.encode(change.schedule.definition, "definition"))
    plain = msgspec.structs.replace(change.schedule, definition=definition)
    return msgspec.structs.replace(change, schedule=plain)
