"""What to look for, and what the answers look like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from tenure.core.job import JobRow
from tenure.core.states import State

PAGE_MAX = 1000
PRUNE_MAX = 10_000


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that match every given field; within a field, any of its values. Empty matches all."""

    ids: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()

    def matches(self, row: JobRow) -> bool:
        """Whether `row` passes; what an engine's own query must agree with."""
        return (
            (not self.ids or row.id in self.ids)
            and (not self.states or row.state in self.states)
            and (not self.tasks or row.task in self.tasks)
            and (not self.queues or row.queue in self.queues)
            and (not self.schedules or row.schedule in self.schedules)
        )


class Page(msgspec.Struct, frozen=True):
    """The newest `limit` jobs (1 to 1,000), by id, that are older than the job with id `before`."""

    limit: int = 100
    before: str | None = None


class QueueStats(msgspec.Struct, frozen=True):
    """The depth of one queue.

    `pending` counts what is due, `scheduled` what waits for its `available_at`. `running` includes
    `lapsed`: those whose lease ran out. `oldest_due`: microseconds since the first due job became
    due; None when none is.
    """

    queue: str
    pending: int = 0
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


class RequeueResult(msgspec.Struct, frozen=True):
    """What a requeue did: ids of each kind, in the order met."""

    requeued: tuple[str, ...] = ()
    not_final: tuple[str, ...] = ()
    not_found: tuple[str, ...] = ()
    taken: Mapping[str, str] = {}
    """Jobs that stayed as they are because another has their unique key: id, and that other's."""


class Swept(NamedTuple):
    """One job that a sweep moved."""

    id: str
    state: State
