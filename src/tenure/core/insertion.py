"""What an insert writes: decided for the whole batch before anything is written."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tenure.core import rules
from tenure.core.fair import FairKey, Turns, fair_key_of
from tenure.core.identity import (
    FREE,
    Create,
    Existing,
    Holder,
    Rearm,
    Reservation,
    reservation_of,
    resolve,
)
from tenure.core.job import JobRow, NewJob, new_row

TickKey = tuple[str, int]
"""A schedule's name and a nominal instant."""


class Inserted(NamedTuple):
    """The answer to one insert.

    `created` is False when nothing was inserted: this very id was there already, or a job `id` has
    the unique key, or is the job of the same tick; None where that is not known yet. `cancelling`:
    the job that has the key was asked to stop, so it may not do what is wanted.
    """

    id: str
    created: bool | None
    cancelling: bool = False


class Insertion(NamedTuple):
    """All that a batch writes: first `updates` (by id, to rows that are there), then the rest."""

    answers: list[Inserted]
    updates: dict[str, dict[str, Any]]
    rows: list[JobRow]
    reservations: list[Reservation]


def plan(
    jobs: Sequence[NewJob],
    now: int,
    *,
    known: Container[str],
    holders: Mapping[str, Holder],
    ticks: Mapping[TickKey, str],
    last: Mapping[FairKey, int],
) -> Insertion:
    """What inserting `jobs` at the store's time `now` does.

    Of what the batch is about, `known` has the ids that are there, `holders` who has each unique
    key (left out: nobody), `ticks` the jobs of ticks, and `last` the highest ranks of those who
    take turns. Ids, keys, ticks and turns are compared within the batch too. Raises `DuplicateJob`,
    `UniquenessConflict`, and what `new_row` raises; then nothing is to be written.
    """
    batch = _Batch(now, known, holders, ticks, last)
    answers = [batch.add(job) for job in jobs]
    return Insertion(answers, batch.updates, list(batch.rows.values()), batch.reservations)


class _Batch:
    """The store as it would be after the jobs so far."""

    def __init__(
        self,
        now: int,
        known: Container[str],
        holders: Mapping[str, Holder],
        ticks: Mapping[TickKey, str],
        last: Mapping[FairKey, int],
    ) -> None:
        self._now = now
        self._known = known
        self._holders = dict(holders)
        self._ticks = dict(ticks)
        self._turns = Turns(last)
        self.rows: dict[str, JobRow] = {}
        self.updates: dict[str, dict[str, Any]] = {}
        self.reservations: list[Reservation] = []

    def add(self, job: NewJob) -> Inserted:
        if job.id in self.rows or job.id in self._known:
            return Inserted(job.id, False)
        tick = None if job.schedule is None or job.tick is None else (job.schedule, job.tick)
        if tick is not None and tick in self._ticks:
            return Inserted(self._ticks[tick], False)
        if job.unique_key is not None:
            twin, reservation = self._holders.get(job.unique_key, FREE)
            match resolve(job, twin, reservation, self._now):
                case Existing(job_id, cancelling):
                    return Inserted(job_id, False, cancelling)
                case Rearm(job_id, values):
                    self._change(job.unique_key, job_id, values)
                    return Inserted(job_id, False)
                case Create(overdue) if overdue is not None:
                    self._change(job.unique_key, overdue, rules.expired_values(self._now))
        self._create(job, tick)
        return Inserted(job.id, True)

    def _create(self, job: NewJob, tick: TickKey | None) -> None:
        row = self.rows[job.id] = self._in_turn(new_row(job, self._now))
        if tick is not None:
            self._ticks[tick] = job.id
        if job.unique_key is not None:
            reservation = reservation_of(job, self._now)
            self._holders[job.unique_key] = Holder(row, reservation)
            if reservation is not None:
                self.reservations.append(reservation)

    def _in_turn(self, row: JobRow) -> JobRow:
        """The row, ranked by its turn if it is due and takes turns."""
        key = fair_key_of(row)
        if key is None or not row.ready:
            return row
        rank = self._turns.rank(key, row.queued_at, row.priority)
        return msgspec.structs.replace(row, rank=rank)

    def _change(self, key: str, job_id: str, values: Mapping[str, Any]) -> None:
        """Write to the twin that has the key, which may be of this very batch."""
        twin, reservation = self._holders[key]
        assert twin is not None, "only a twin that is there is changed"
        changed = msgspec.structs.replace(twin, **values)
        self._holders[key] = Holder(changed, reservation)
        if job_id in self.rows:
            self.rows[job_id] = changed
        else:
            self.updates.setdefault(job_id, {}).update(values)
