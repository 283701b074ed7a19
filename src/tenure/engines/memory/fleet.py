"""What is known of queues and workers."""

from __future__ import annotations

from collections import Counter

import msgspec

from tenure.core.fleet import Flaw, QueueChange, QueueSettings, WorkerInfo, flaw_of
from tenure.core.states import State
from tenure.engines.memory.rows import Rows

_LIVING = (State.PENDING, State.RUNNING)


class Fleet:
    """The settings of queues, and the workers that announced themselves."""

    def __init__(self) -> None:
        self._settings: dict[str, QueueSettings] = {}
        self._workers: dict[str, tuple[int, WorkerInfo]] = {}  # until when, and what was said

    @property
    def paused(self) -> frozenset[str]:
        """The queues that are paused."""
        return frozenset(queue for queue, settings in self._settings.items() if settings.paused)

    @property
    def settings(self) -> tuple[QueueSettings, ...]:
        """All that were ever given, sorted by queue."""
        return tuple(self._settings[queue] for queue in sorted(self._settings))

    def configure(self, change: QueueChange) -> QueueSettings:
        settings = self._settings[change.queue] = change.of(self._settings.get(change.queue))
        return settings

    def announce(self, worker: WorkerInfo, ttl: int, now: int) -> None:
        gone = [name for name, (until, _) in self._workers.items() if until <= now]
        for name in (*gone, worker.id):
            self._workers.pop(name, None)
        if ttl > 0:
            seen = msgspec.structs.replace(worker, seen_at=now)
            self._workers[worker.id] = (now + ttl, seen)

    def workers(self, now: int) -> list[WorkerInfo]:
        found = [worker for until, worker in self._workers.values() if until > now]
        return sorted(found, key=lambda worker: worker.id)


def flawed(rows: Rows, now: int) -> dict[Flaw, list[str]]:
    """The jobs in an impossible condition, by what is wrong with them."""
    found: dict[Flaw, list[str]] = {}
    for row in rows.values():
        flaw = flaw_of(
            state=row["state"],
            ready=bool(row["ready"]),
            available_at=row["available_at"],
            owner=row["owner"],
            lease_until=row["lease_until"],
            finished_at=row["finished_at"],
            now=now,
        )
        if flaw is not None:
            found.setdefault(flaw, []).append(row["id"])
    return found


def living_tasks(rows: Rows) -> dict[str, int]:
    """How many jobs wait or run, by the task's name."""
    return Counter(row["task"] for row in rows.values() if row["state"] in _LIVING)
