"""What happened, kept: the history of a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something to be kept: a dotted name (`job.completed`) and its facts as a JSON object."""

    name: str
    job_id: str | None = None
    task: str | None = None
    queue: str | None = None
    facts: Mapping[str, Any] = {}


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as kept. `at` is microseconds since the epoch by the store's clock.

    `cursor` is opaque: reading after it gives what was kept later, and skips nothing.
    """

    cursor: str
    at: int
    name: str
    job_id: str | None = None
    task: str | None = None
    queue: str | None = None
    facts: Mapping[str, Any] = {}


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Events that match every given field; within a field, any of its values. Empty matches all."""

    names: tuple[str, ...] = ()
    job_ids: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()

    def matches(self, event: StoredEvent) -> bool:
        """Whether `event` passes; what an engine's own query must agree with."""
        return (
            (not self.names or event.name in self.names)
            and (not self.job_ids or event.job_id in self.job_ids)
            and (not self.tasks or event.task in self.tasks)
            and (not self.queues or event.queue in self.queues)
        )
