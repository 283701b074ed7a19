"""Inserting jobs: plain ones by one statement, those with a key or a tick by a plan of `core`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from tenure.core import insertion
from tenure.core.columns import to_column_values
from tenure.core.identity import Holder, Reservation
from tenure.core.insertion import Inserted, TickKey
from tenure.core.job import JobRow, NewJob, new_row
from tenure.core.states import State
from tenure.engines.postgres import limiting, rows
from tenure.engines.postgres.arrays import Bigints, Blobs, Doubles, Flags, Integers, Texts, sparse
from tenure.engines.postgres.rows import to_row
from tenure.engines.postgres.steps import Ask, Effects, Steps
from tenure.errors import PayloadError

CHUNK = 1000
"""How many jobs one statement inserts."""

_FAR = 10**15
"""Microseconds, about 30 years: only what lies further ahead may lead past the calendar."""
_PLAIN: Mapping[str, type[list[Any]]] = {
    **dict.fromkeys("id task queue codec retry tags headers metadata".split(), Texts),
    **dict.fromkeys("description actor on_shutdown concurrency_key rate_key".split(), Texts),
    **dict.fromkeys("priority max_attempts max_lapses max_interruptions".split(), Integers),
    "log_level": Integers,
    "log_success": Flags,
    **dict.fromkeys("delay run_at expires_in expires_at".split(), Bigints),
    "payload": Blobs,
    "timeout": Doubles,
}
_STRUCTURED = frozenset("retry tags headers metadata".split())


def check(jobs: Iterable[NewJob], most: int, about_now: int) -> None:
    """Raise `PayloadError` for a payload of more than `most` bytes, and what `new_row` raises."""
    for job in jobs:
        if len(job.payload) > most:
            raise PayloadError(
                f"job {job.id} ({job.task}): the payload has {len(job.payload)} bytes; "
                f"at most {most} are allowed"
            )
        if job.delay > _FAR or (job.run_at or 0) > _FAR or (job.expires_in or 0) > _FAR:
            new_row(job, about_now)


def is_plain(job: NewJob) -> bool:
    """Whether nothing but its id decides if a job is new, and nobody else where it stands."""
    alone = job.unique_key is None and job.fair_key is None
    return alone and (job.schedule is None or job.tick is None)


def insert_plain(out: Effects, jobs: Sequence[NewJob]) -> Steps[set[str]]:
    """Insert jobs whose ids are different; the ids of those that are new."""
    created: set[str] = set()
    for start in range(0, len(jobs), CHUNK):
        found = yield Ask("insert_plain", _arrays(jobs[start : start + CHUNK]) | {"now": out.now})
        created.update(row[0] for row in found)
    # One change of each queue is enough to tell who waits for its jobs.
    first = {job.queue: job for job in jobs if job.id in created}.values()
    out.changes += [(job.id, job.queue, State.PENDING, True) for job in first]
    return created


def answers(jobs: Iterable[NewJob], created: set[str]) -> list[Inserted]:
    """What to answer, in order; `created` loses the ids that are answered as new."""
    found = []
    for job in jobs:
        new = job.id in created
        created.discard(job.id)
        found.append(Inserted(job.id, new))
    return found


def insert(out: Effects, jobs: Sequence[NewJob]) -> Steps[list[Inserted]]:
    """See `Engine.insert`, for any jobs. A key that another takes meanwhile fails the statement."""
    if all(map(is_plain, jobs)):
        distinct = list({job.id: job for job in reversed(jobs)}.values())[::-1]
        return answers(jobs, (yield from insert_plain(out, distinct)))
    now = yield from rows.clock(out)
    known = yield Ask("known_ids", {"ids": [job.id for job in jobs]})
    keys = {job.unique_key for job in jobs if job.unique_key is not None}
    held = yield from holders(keys)
    turns = {(job.queue, job.fair_key, job.priority) for job in jobs if job.fair_key is not None}
    last = yield from limiting.last_turns(turns)
    plan = insertion.plan(
        jobs,
        now,
        known={row[0] for row in known},
        holders=held,
        ticks=(yield from _jobs_of_ticks(jobs)),
        last=last,
    )
    if plan.updates:
        twins = {holder.twin.id: holder.twin for holder in held.values() if holder.twin is not None}
        changed = [(twins[job_id], values) for job_id, values in plan.updates.items()]
        yield from rows.relock([row for row, _ in changed])
        yield from rows.write(out, changed)
    # In one order everywhere: who wants the same keys then waits, and does not deadlock.
    ordered = sorted(plan.rows, key=lambda row: (row.unique_key or "", row.id))
    yield from rows.insert_rows(ordered)
    if plan.reservations:
        kept = [{"key": r.key, "job_id": r.job_id, "at": r.at} for r in plan.reservations]
        yield Ask("reserve", many=kept)
    rows.note(out, {row.queue: row for row in plan.rows if not row.state.final}.values())
    rows.note(out, (row for row in plan.rows if row.state.final))
    return plan.answers


def holders(keys: Collection[str]) -> Steps[dict[str, Holder]]:
    """Who has each of these unique keys; left out: nobody."""
    if not keys:
        return {}
    asked = {"keys": list(keys)}
    found: dict[str, Holder] = {}
    for values in (yield Ask("twins", asked)):
        row = to_row(values)
        found[row.unique_key or ""] = Holder(row)
    reserved = [Reservation(*values) for values in (yield Ask("reservations", asked))]
    named: dict[str, JobRow] = yield from rows.read([kept.job_id for kept in reserved])
    found |= {kept.key: Holder(named.get(kept.job_id), kept) for kept in reserved}
    return found


def job_of_tick(schedule: str, tick: int) -> Steps[str | None]:
    """The id of the job of a tick, whatever became of it."""
    found = yield Ask("jobs_of_ticks", {"schedules": [schedule], "ticks": [tick]})
    return found[0][2] if found else None


def _jobs_of_ticks(jobs: Sequence[NewJob]) -> Steps[dict[TickKey, str]]:
    pairs = {(j.schedule, j.tick) for j in jobs if j.schedule is not None and j.tick is not None}
    if not pairs:
        return {}
    schedules, ticks = zip(*pairs, strict=True)
    found = yield Ask("jobs_of_ticks", {"schedules": list(schedules), "ticks": list(ticks)})
    return {(schedule, tick): job_id for schedule, tick, job_id in found}


def _arrays(jobs: Sequence[NewJob]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, kind in _PLAIN.items():
        values = [getattr(job, name) for job in jobs]
        if name in _STRUCTURED:
            values = [to_column_values({name: v})[name] if v else None for v in values]
        found[name] = sparse(kind, values)
    return found
