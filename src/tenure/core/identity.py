"""Uniqueness: at most one job of a key, for as long as its policy says.

Uniqueness is derived from living rows and from reservations, never from locks: what cannot be
taken cannot leak. An engine looks up who holds a key; what follows is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

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


def resolve(
    job: NewJob, twin: JobRow | None, reservation: Reservation | None, now: int
) -> Resolution:
    """What to do with a keyed insert at the store's time `now`.

    `twin` is the pending or running job with this key, or the job that `reservation` names, if it
    is still there. Raises `DuplicateJob` or `UniquenessConflict`, with nothing to be written.
    """
    if reservation is None and twin is None:
        return Create()
    holder_id = reservation.job_id if reservation is not None else twin.id if twin else ""
    if holder_id == job.id:
        return Existing(job.id)
    held = UniqueUntil.FOREVER if reservation is not None else UniqueUntil.FINISHED
    if reservation is None and twin is not None and twin.unique_until is not None:
        held = UniqueUntil(twin.unique_until)
    if held != job.unique_until:
        raise UniquenessConflict(
            f"the key {job.unique_key!r} is taken until {held} by job {holder_id}; "
            f"it cannot be used until {job.unique_until} at the same time"
        )
    if reservation is None and twin is not None and _overdue(twin, now):
        return Create(overdue=twin.id)
    return _conflict(job, twin, holder_id, now)


def _conflict(job: NewJob, twin: JobRow | None, holder_id: str, now: int) -> Resolution:
    match job.on_conflict:
        case OnConflict.RETURN:
            return Existing(holder_id, twin is not None and twin.cancel_requested)
        case OnConflict.REPLACE if twin is not None and twin.state is State.PENDING:
            check(twin.state, Event.REARM, State.PENDING)
            return Rearm(twin.id, _rearmed(job, now))
        case _:
            raise DuplicateJob(job.unique_key or "", holder_id)


def _overdue(row: JobRow, now: int) -> bool:
    return row.state is State.PENDING and row.expires_at is not None and row.expires_at <= now


_KEPT = frozenset({"id", "token", "claims", "failures", "lapses", "releases", "created_at"})
_REARMED = tuple(
    name
    for name in NewJob.__struct_fields__
    if name in JobRow.__struct_fields__ and name not in _KEPT
)


def _rearmed(job: NewJob, now: int) -> dict[str, Any]:
    """The fields that debouncing writes: all that an enqueue says, and the times that follow."""
    row = new_row(job, now)
    names = (*_REARMED, "payload_size", "available_at", "queued_at", "rank", "ready")
    return {name: getattr(row, name) for name in names}
