"""Holders of leases to measure: what the keeper is given, and the naive design beside it."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from tenure.clock import SYSTEM_CLOCK
from tenure.core.lease import Beat, Extended, Extension, lease_times
from tenure.core.retry import RetryPolicy
from tenure.leases.lease import Lease
from tenure.worker.renewal import EngineLeases


class StubClient:
    """Grants everything at once."""

    retry = RetryPolicy()
    resolution = 0.0

    def __init__(self) -> None:
        self.renewed = 0

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def extend(self, beats: Sequence[Beat]) -> Sequence[Extension]:
        self.renewed += len(beats)
        return [Extended(beat.seconds) for beat in beats]


class CountingLeases(EngineLeases):
    """The worker's own client, with a count of what it renewed."""

    renewed = 0

    async def extend(self, beats: Sequence[Beat]) -> Sequence[Extension]:
        self.renewed += len(beats)
        return await super().extend(beats)


class Keeper(Protocol):
    """What both designs can do."""

    def register(self, client: StubClient, leases: Sequence[Lease]) -> None: ...

    def remove(self, leases: Iterable[Lease]) -> None: ...

    def close(self) -> None: ...


class NaiveKeeper:
    """One asyncio task per lease, which sleeps and renews. Must be used on an event loop."""

    def __init__(self) -> None:
        self._tasks: dict[Lease, asyncio.Task[None]] = {}

    def register(self, client: StubClient, leases: Sequence[Lease]) -> None:
        for lease in leases:
            self._tasks[lease] = asyncio.create_task(_keep(client, lease))

    def remove(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            self._tasks.pop(lease).cancel()

    def close(self) -> None:
        self.remove(list(self._tasks))


async def _keep(client: StubClient, lease: Lease) -> None:
    while True:
        await asyncio.sleep(lease.times.interval)
        beat = Beat(lease.id, lease.token, lease.owner, lease.times.length)
        await client.extend([beat])


def leases(count: int, length: float) -> list[Lease]:
    """New leases, claimed now."""
    times, now = lease_times(length), SYSTEM_CLOCK.monotonic()
    return [Lease(f"job-{i}", 1, "bench", times, sent_at=now) for i in range(count)]


def size_of(keeper: Callable[[], Keeper], count: int) -> float:
    """Bytes that keeping one lease takes, the lease included."""

    async def measure() -> float:
        client, made = StubClient(), keeper()
        first = leases(1, 60)
        made.register(client, first)  # starts what there is to start
        gc.collect()
        tracemalloc.start()
        held = leases(count, 60)
        made.register(client, held)
        await asyncio.sleep(0)  # tasks come to their first wait
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        made.remove(held + first)
        made.close()
        return used / count

    return asyncio.run(measure())
