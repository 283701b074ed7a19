"""Jobs in the memory of one process: for tests, and the yardstick of every other engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Self

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.core.job import JobRow, NewJob
from tenure.core.lease import Beat, Extension
from tenure.core.outcomes import Settled, Settlement
from tenure.core.query import (
    PAGE_MAX,
    CancelResult,
    Filter,
    Page,
    QueueStats,
    RequeueResult,
    Swept,
)
from tenure.engines.memory_store import MemoryStore
from tenure.engines.protocol import Claim, Inserted, Listener, Signal, Topic, Traits
from tenure.errors import ConfigurationError, EngineUnavailable

_TRAITS = Traits(name="memory", durable=False, shared=False, push=True)


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
    async def listen(self, topics: Iterable[Topic]) -> AsyncIterator[Listener]:
        """See `Engine.listen`."""
        async with self._store.hub.listen(topics) as listener:
            yield listener

    async def cancel(
        self, ids: Sequence[str], *, force: bool = False, now: int | None = None
    ) -> CancelResult:
        await self._turn()
        return self._store.cancel(ids, force, self._time(now))

    async def requeue(self, ids: Sequence[str], *, now: int | None = None) -> RequeueResult:
        await self._turn()
        return self._store.requeue(ids, self._time(now))

    async def find(self, where: Filter, page: Page) -> list[JobRow]:
        await self._turn()
        if not 1 <= page.limit <= PAGE_MAX:
            raise ConfigurationError(f"limit must be from 1 to {PAGE_MAX}, not {page.limit}")
        return self._store.find(where, page)

    async def stats(
        self, queues: Sequence[str] = (), *, now: int | None = None
    ) -> list[QueueStats]:
        await self._turn()
        return self._store.stats(queues, self._time(now))

    async def _turn(self) -> None:
        """Let other tasks run once: a loop that only works on this engine must not starve them.

        Also where a cancelled caller stops, which is before its operation took effect.
        """
        if not self._open:
            raise EngineUnavailable("memory:// is not open; use it in `async with engine:`")
        await asyncio.sleep(0)

    def _time(self, now: int | None) -> int:
        return self._clock.time_us() if now is None else now
