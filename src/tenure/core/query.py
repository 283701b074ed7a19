"""What to look for, and what the answers look like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from tenure.core.job import JobRow
from tenure.core.reports import JobError
from tenure.core.states import State

PAGE_MAX = 1000
PRUNE_MAX = 10_000
SCAN_MAX = 5_000
"""How many jobs one `find` looks at, at most."""

Scalar: TypeAlias = str | int | bool | None


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that match every given field; within a field, any of its values. Empty matches all.

    `keys` are unique keys. Of `metadata` every entry must be there with that value; numbers are
    compared by value, and a bool is no number. `error` is a part of the last error's kind or
    message, in upper or lower case. Of two instants (microseconds) `from` belongs to the range and
    `to` does not; a job that has not ended is in no range of `finished`.
    """

    ids: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()
    actors: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Scalar] = {}
    error: str | None = None
    created_from: int | None = None
    created_to: int | None = None
    finished_from: int | None = None
    finished_to: int | None = None

    def matches(self, row: JobRow) -> bool:
        """Whether `row` passes; what an engine's own query must agree with."""
        return (
            (not self.ids or row.id in self.ids)
            and (not self.states or row.state in self.states)
            and (not self.tasks or row.task in self.tasks)
            and (not self.queues or row.queue in self.queues)
            and (not self.keys or row.unique_key in self.keys)
            and (not self.schedules or row.schedule in self.schedules)
            and (not self.actors or row.actor in self.actors)
            and within(row.created_at, self.created_from, self.created_to)
            and within(row.finished_at, self.finished_from, self.finished_to)
            and (not self.looks_inside or self.matches_inside(row.tags, row.metadata, row.error))
        )

    @property
    def looks_inside(self) -> bool:
        """Whether it asks for more than whole columns tell: see `matches_inside`."""
        return bool(self.tags or self.metadata or self.error)

    def matches_inside(
        self, tags: Iterable[str], metadata: Mapping[str, object], error: JobError | None
    ) -> bool:
        """Whether these structured values of a row pass. The other fields are not looked at."""
        if self.tags and not set(self.tags).intersection(tags):
            return False
        for name, wanted in self.metadata.items():
            if name not in metadata or not _same(metadata[name], wanted):
                return False
        if not self.error:
            return True
        text = "" if error is None else f"{error.kind}: {error.message}"
        return self.error.casefold() in text.casefold()


def within(value: int | None, start: int | None, end: int | None) -> bool:
    """Whether an instant is in a range of which each end may be open."""
    if value is None:
        return start is None and end is None
    return (start is None or value >= start) and (end is None or value < end)


def _same(value: object, wanted: Scalar) -> bool:
    """Whether two JSON values are one; in Python True is 1, in JSON it is not."""
    return isinstance(value, bool) == isinstance(wanted, bool) and value == wanted


class Found(list[JobRow]):
    """Jobs that were found, and where to go on: `next` is the `before` of the next page.

    A page may be short, or empty, and not be the last: one call looks at `SCAN_MAX` jobs at most.
    `next` is None when there is nothing more to be found.
    """

    def __init__(self, rows: Iterable[JobRow] = (), next: str | None = None) -> None:
        super().__init__(rows)
        self.next = next


class Page(msgspec.Struct, frozen=True):
    """The newest `limit` jobs (1 to 1,000), by id, that are older than the job with id `before`."""

    limit: int = 100
    before: str | None = None


class QueueStats(msgspec.Struct, frozen=True):
    """The depth of one queue.

    `pending` counts what is due, `scheduled` what waits for its `available_at`; `blocked` are those
    of them that a claim has met and a limit holds back. `running` includes `lapsed`: those whose
    lease ran out. `oldest_due`: microseconds since the first due job became due; None when none is.
    """

    queue: str
    pending: int = 0
    blocked: int = 0
    scheduled: int = 0
    running: int = 0
    lapsed: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    oldest_due: int | None = None


class CancelResult(msgspec.Struct, frozen=True):
    """What a cancel did: ids of each kind, in the order met."""

    cancelled: tuple[str, ...] = ()
    requested: tuple[str, ...] = ()
    already_final: tuple[str, ...] = ()
    not_found: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    """Jobs that stayed as they are because a transaction of their holder has them: try again."""

    def and_then(self, more: CancelResult) -> CancelResult:
        """Both, as one."""
        both = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(more), strict=True)
        return CancelResult(*(one + other for one, other in both))


class RequeueResult(msgspec.Struct, frozen=True):
    """What a requeue did: ids of each kind, in the order met."""

    requeued: tuple[str, ...] = ()
    not_final: tuple[str, ...] = ()
    not_found: tuple[str, ...] = ()
    taken: Mapping[str, str] = {}
    """Jobs that stayed as they are because another has their unique key: id, and that other's."""

    def and_then(self, more: RequeueResult) -> RequeueResult:
        """Both, as one."""
        return RequeueResult(
            self.requeued + more.requeued,
            self.not_final + more.not_final,
            self.not_found + more.not_found,
            {**self.taken, **more.taken},
        )


class Swept(NamedTuple):
    """One job that a sweep moved."""

    id: str
    state: State
