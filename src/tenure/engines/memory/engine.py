"""Jobs in the memory of one process: for tests, and the yardstick of every other engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Self

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.core.event import EventFilter, NewEvent, StoredEvent
from tenure.core.fleet import Inspection, QueueChange, QueueSettings, WorkerInfo
from tenure.core.identity import Reservation
from tenure.core.job import JobRow, NewJob
from tenure.core.lease import Beat, Extension
from tenure.core.outcomes import Settled, Settlement
from tenure.core.query import (
    PAGE_MAX,
    PRUNE_MAX,
    CancelResult,
    Filter,
    Found,
    Page,
    QueueStats,
    RequeueResult,
    Swept,
)
from tenure.core.schedule import Fired, Schedule, ScheduleChange, Tick
from tenure.engines.memory.store import MemoryStore
from tenure.engines.protocol import (
    ALL_FACETS,
    Claim,
    Facet,
    Inserted,
    Joined,
    Listener,
    Prunable,
    Signal,
    Topic,
    Traits,
)
from tenure.errors import ConfigurationError, EngineUnavailable

_TRAITS = Traits(
    name="memory",
    durable=False,
    shared=False,
    push=True,
    facets=ALL_FACETS - {Facet.TRANSACTIONS},
)


class MemoryEngine:
    """An engine whose jobs live as long as it and its `side()` handles do.

    Handles may be used from several threads and event loops. Jobs are kept as column values, like
    everywhere else, so no live object is shared with a caller. An operation never waits for more
    than another one's work in memory, so there is no deadline.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, *, store: MemoryStore | None = None) -> None:
        self._clock = clock
        self._store = MemoryStore(_TRAITS.max_payload) if store is None else store
        self._open = False

    @property
    def traits(self) -> Traits:
        return _TRAITS

    @property
    def url(self) -> str:
        return "memory://"

    async def __aenter__(self) -> Self:
        self._open = True
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._open = False

    def side(self) -> MemoryEngine:
        """See `Engine.side`."""
        return MemoryEngine(self._clock, store=self._store)

    async def migrate(self) -> int:
        """See `Engine.migrate`; there is nothing to do."""
        return 1

    async def insert(self, jobs: Sequence[NewJob], *, now: int | None = None) -> list[Inserted]:
        await self._turn()
        return self._store.insert(jobs, self._time(now))

    async def claim(self, claim: Claim, *, now: int | None = None) -> list[JobRow]:
        await self._turn()
        return self._store.claim(claim, self._time(now))

    async def extend(self, beats: Sequence[Beat], *, now: int | None = None) -> list[Extension]:
        await self._turn()
        return self._store.extend(beats, self._time(now))

    async def settle(
        self, settlements: Sequence[Settlement], *, now: int | None = None
    ) -> list[Settled]:
        await self._turn()
        return self._store.settle(settlements, self._time(now))

    async def sweep(self, limit: int, *, now: int | None = None) -> list[Swept]:
        await self._turn()
        return self._store.sweep(limit, self._time(now))

    async def get(self, ids: Sequence[str]) -> list[JobRow | None]:
        await self._turn()
        return self._store.get(ids)

    async def next_due(
        self,
        queues: Sequence[str],
        tasks: Sequence[str] | None = None,
        *,
        now: int | None = None,
    ) -> int | None:
        await self._turn()
        return self._store.next_due(queues, tasks, self._time(now))

    async def notify(self, signals: Iterable[Signal]) -> None:
        self._store.hub.publish(signals)

    @asynccontextmanager
    async def listen(
        self, topics: Iterable[Topic], queues: Iterable[str] | None = None
    ) -> AsyncIterator[Listener]:
        """See `Engine.listen`."""
        async with self._store.hub.listen(topics, queues) as listener:
            yield listener

    async def cancel(
        self, ids: Sequence[str], *, force: bool = False, now: int | None = None
    ) -> CancelResult:
        await self._turn()
        return self._store.cancel(ids, force, self._time(now))

    async def requeue(
        self, ids: Sequence[str], *, payload: bytes | None = None, now: int | None = None
    ) -> RequeueResult:
        await self._turn()
        return self._store.requeue(ids, payload, self._time(now))

    async def prune(
        self, kind: Prunable, before: int, *, where: Filter | None = None, limit: int = 1000
    ) -> int:
        await self._turn()
        _check_limit(limit, PRUNE_MAX)
        return self._store.prune(kind, before, where or Filter(), limit)

    async def configure(self, change: QueueChange) -> QueueSettings:
        await self._turn()
        return self._store.configure(change)

    async def inspect(self, *, now: int | None = None) -> Inspection:
        await self._turn()
        return self._store.inspect(self._time(now))

    async def find(self, where: Filter, page: Page) -> Found:
        await self._turn()
        _check_limit(page.limit, PAGE_MAX)
        return self._store.find(where, page)

    async def stats(
        self, queues: Sequence[str] = (), *, now: int | None = None
    ) -> list[QueueStats]:
        await self._turn()
        return self._store.stats(queues, self._time(now))

    async def announce(self, worker: WorkerInfo, ttl: int, *, now: int | None = None) -> None:
        await self._turn()
        self._store.announce(worker, ttl, self._time(now))

    async def workers(self, *, now: int | None = None) -> list[WorkerInfo]:
        await self._turn()
        return self._store.workers(self._time(now))

    async def save_schedules(self, changes: Sequence[ScheduleChange]) -> list[Schedule | None]:
        await self._turn()
        return self._store.save_schedules(changes)

    async def schedules(self) -> list[Schedule]:
        await self._turn()
        return self._store.schedules()

    async def fire(self, ticks: Sequence[Tick], *, now: int | None = None) -> list[Fired]:
        await self._turn()
        return self._store.fire(ticks, self._time(now))

    async def identity(self, key: str) -> Reservation | None:
        await self._turn()
        return self._store.identity(key)

    async def release_identity(self, key: str, owner: str | None = None) -> bool:
        await self._turn()
        return self._store.release_identity(key, owner)

    async def append(self, events: Sequence[NewEvent], *, now: int | None = None) -> None:
        await self._turn()
        self._store.append(events, self._time(now))

    async def read(
        self, where: EventFilter, after: str | None = None, limit: int = 100
    ) -> list[StoredEvent]:
        await self._turn()
        _check_limit(limit, PAGE_MAX)
        return self._store.read(where, after, limit)

    def join(self, connection: object) -> Joined:
        """See `Engine.join`; there is no transaction in memory that could be joined."""
        raise ConfigurationError(
            "memory:// cannot work inside a transaction; use the engine of that database"
        )

    async def _turn(self) -> None:
        """Let other tasks run once: a loop that only works on this engine must not starve them.

        Also where a cancelled caller stops, which is before its operation took effect.
        """
        if not self._open:
            raise EngineUnavailable("memory:// is not open; use it in `async with engine:`")
        await asyncio.sleep(0)

    def _time(self, now: int | None) -> int:
        return self._clock.time_us() if now is None else now


def _check_limit(limit: int, most: int) -> None:
    if not 1 <= limit <= most:
        raise ConfigurationError(f"limit must be from 1 to {most}, not {limit}")
