"""Uniqueness: at most one job of a key, for as long as its policy says.

Uniqueness is derived from living rows and from reservations, never from locks: what cannot be
taken cannot leak. An engine looks up who holds a key; what follows is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from tenure.core.durations import moment
from tenure.core.job import JobRow, NewJob, new_row
from tenure.core.states import Event, State, check
from tenure.errors import DuplicateJob, UniquenessConflict


class UniqueUntil(StrEnum):
    """How long a key is taken."""

    STARTED = "started"
    """Until the first claim; it never comes back."""

    FINISHED = "finished"
    """While the job is pending or running."""

    FOREVER = "forever"
    """By a reservation, which survives the job and its pruning."""


class UniqueBy(StrEnum):
    """What a key is made of, where none is given."""

    TASK = "task"
    """The task alone: one job of it at a time."""

    ARGUMENTS = "arguments"
    """The task and its arguments, with defaults applied."""


class OnConflict(StrEnum):
    """What an insert does when its key is taken."""

    RETURN = "return"
    """Answer with the job that has the key."""

    REPLACE = "replace"
    """Give the waiting job the new arguments and times; a running one raises `DuplicateJob`."""

    RAISE = "raise"
    """Raise `DuplicateJob`."""


class Reservation(msgspec.Struct, frozen=True):
    """A key that is taken for ever, and the job that took it. `at` is the instant of that."""

    key: str
    job_id: str
    at: int

    @property
    def reserved_at(self) -> datetime:
        """When the key was taken."""
        return moment(self.at)


class Create(msgspec.Struct, frozen=True):
    """Insert the new job; first expire `overdue`, a twin whose time to start has passed."""

    overdue: str | None = None


class Existing(msgspec.Struct, frozen=True):
    """Insert nothing: this job has the key. `cancelling`: it was asked to stop."""

    id: str
    cancelling: bool = False


class Rearm(msgspec.Struct, frozen=True):
    """Insert nothing: write these fields to the waiting job that has the key."""

    id: str
    values: Mapping[str, Any]


Resolution = Create | Existing | Rearm


class Holder(NamedTuple):
    """Who has a unique key, as far as a store knows.

    `twin` is the pending or running job with the key, or the job that `reservation` names, if it
    is still there.
    """

    twin: JobRow | None = None
    reservation: Reservation | None = None


FREE = Holder()


def resolve(
    job: NewJob, twin: JobRow | None, reservation: Reservation | None, now: int
) -> Resolution:
    """What to do with a keyed insert at the store's time `now`; who has the key, see `Holder`.

    A pending twin whose time to start has passed counts as gone, as if a sweep had come before.
    Raises `DuplicateJob` or `UniquenessConflict`, with nothing to be written.
    """
    if reservation is not None:
        holder_id, held = reservation.job_id, UniqueUntil.FOREVER
    elif twin is not None:
        holder_id, held = twin.id, _until(twin)
    else:
        return Create()
    if holder_id == job.id:
        return Existing(job.id)
    if reservation is None and twin is not None and overdue(twin, now):
        return Create(overdue=twin.id)
    if held != _until(job):
        raise UniquenessConflict(
            f"the key {job.unique_key!r} is taken until {held} by job {holder_id}; "
            f"it cannot be used until {_until(job)} at the same time"
        )
    return _conflict(job, twin, holder_id, now)


def reservation_of(job: NewJob, now: int) -> Reservation | None:
    """What a new job reserves for ever, if it does."""
    if job.unique_key is None or _until(job) is not UniqueUntil.FOREVER:
        return None
    return Reservation(job.unique_key, job.id, now)


def taken_by(row: JobRow, holder: Holder) -> str | None:
    """The other job because of which the final `row` cannot be requeued: it has the key by now."""
    if row.unique_key is None:
        return None
    if holder.reservation is not None and holder.reservation.job_id != row.id:
        return holder.reservation.job_id
    twin = holder.twin
    return twin.id if twin is not None and twin.id != row.id else None


def overdue(row: JobRow, now: int) -> bool:
    """Whether a pending job may no longer start."""
    return row.state is State.PENDING and row.expires_at is not None and row.expires_at <= now


def _until(job: NewJob | JobRow) -> UniqueUntil:
    return UniqueUntil(job.unique_until or UniqueUntil.FINISHED)


def _conflict(job: NewJob, twin: JobRow | None, holder_id: str, now: int) -> Resolution:
    match job.on_conflict:
        case OnConflict.RETURN:
            return Existing(holder_id, twin is not None and twin.cancel_requested)
        case OnConflict.REPLACE if twin is not None and twin.state is State.PENDING:
            check(twin.state, Event.REARM, State.PENDING)
            return Rearm(twin.id, _rearmed(job, now))
        case _:
            raise DuplicateJob(job.unique_key or "", holder_id)


_KEPT = frozenset({"id", "schedule", "tick"})
_REARMED = tuple(
    name
    for name in NewJob.__struct_fields__
    if name in JobRow.__struct_fields__ and name not in _KEPT
)


def _rearmed(job: NewJob, now: int) -> dict[str, Any]:
    """The fields that debouncing writes: all that an enqueue says, and the times that follow."""
    row = new_row(job, now)
    names = (*_REARMED, "payload_size", "available_at", "queued_at", "rank", "ready", "blocked")
    return {name: getattr(row, name) for name in names}
