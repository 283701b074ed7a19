"""Inserting jobs: by one script, or, where a key or a tick is taken, by a plan of `core`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tenure.core import insertion
from tenure.core.columns import to_columns
from tenure.core.insertion import Inserted
from tenure.core.job import NewJob, new_row
from tenure.engines.redis.deciding import Plan, Question, Seen, decided
from tenure.engines.redis.link import Fate, Runs
from tenure.engines.redis.rows import to_item
from tenure.errors import ConfigurationError, PayloadError

_decode = msgspec.msgpack.Decoder(tuple[str, str, Any]).decode


def check(jobs: Iterable[NewJob], most: int) -> None:
    """Raise `PayloadError` for a payload of more than `most` bytes."""
    for job in jobs:
        if len(job.payload) > most:
            raise PayloadError(
                f"job {job.id} ({job.task}): the payload has {len(job.payload)} bytes; "
                f"at most {most} are allowed"
            )


def is_plain(job: NewJob) -> bool:
    """Whether nothing but its id decides if a job is new."""
    return job.unique_key is None and (job.schedule is None or job.tick is None)


async def insert(link: Runs, jobs: Sequence[NewJob], now: int | None) -> list[Inserted]:
    """See `Engine.insert`."""
    if not jobs:
        return []
    items = [[to_item(job) for job in jobs], False]
    fate = Fate()
    at, what, more = _decode(await link.run("insert", items, now, repeat=fate))
    if what == "done":
        # An id that is there after a lost answer was put there by the try whose answer was lost.
        return [
            Inserted(job.id, flag == "1" or fate.unsure)
            for job, flag in zip(jobs, more, strict=True)
        ]
    if what == "late":
        raise too_late(jobs[int(more)], int(at))
    return await _planned(link, jobs, now)


def too_late(job: NewJob, now: int) -> Exception:
    """What `core` raises for a job with a time past the calendar."""
    try:
        new_row(job, now)
    except ConfigurationError as error:
        return error
    raise AssertionError("the script and core agree on the calendar")


async def _planned(link: Runs, jobs: Sequence[NewJob], now: int | None) -> list[Inserted]:
    return await decided(
        link, "insert", question_of(jobs), lambda seen, plan: planned(jobs, seen, plan), now
    )


def question_of(jobs: Sequence[NewJob]) -> Question:
    """What has to be known to insert these jobs."""
    keys = {job.unique_key: None for job in jobs if job.unique_key is not None}
    ticks = {
        (job.schedule, job.tick): None
        for job in jobs
        if job.schedule is not None and job.tick is not None
    }
    turns = {
        (job.queue, job.fair_key, job.priority): None for job in jobs if job.fair_key is not None
    }
    ids = [job.id for job in jobs]
    return Question(keys=list(keys), ticks=list(ticks), known=ids, turns=list(turns))


def planned(jobs: Sequence[NewJob], seen: Seen, plan: Plan) -> list[Inserted]:
    """Plan what `core` says of these jobs; the answers."""
    found = insertion.plan(
        jobs,
        seen.now,
        known=seen.known,
        holders=seen.holders,
        ticks=seen.ticks,
        last=seen.last,
    )
    for row in found.rows:
        to_columns(row)  # first: what cannot be kept changes nothing
    twins = {
        holder.twin.id: holder.twin for holder in seen.holders.values() if holder.twin is not None
    }
    for job_id, values in found.updates.items():
        plan.change(twins[job_id], values)
    for row in found.rows:
        plan.put(row)
    for kept in found.reservations:
        plan.reserve(kept)
    return found.answers
