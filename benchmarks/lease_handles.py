"""What leases cost: 10,000 kept ones, and starting and stopping, beside one task per lease.

`python benchmarks/lease_handles.py [LEASES] [SECONDS]` prints a table. The naive design is an
asyncio task per lease that sleeps and renews. The client of both grants at once, so that only the
bookkeeping is measured.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import TypeVar

from tenure.core.lease import Beat, Extended, Extension, lease_times
from tenure.core.retry import RetryPolicy
from tenure.leases import LeaseKeeper, LeaseRenewal

T = TypeVar("T")

TIMES = lease_times(30)
ROUNDS = 5


class Grants:
    """A client that grants everything at once."""

    resolution = 0
    retry = RetryPolicy()

    def __init__(self) -> None:
        self.renewed = 0

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def extend(self, beats: Sequence[Beat], /) -> Sequence[Extension]:
        self.renewed += len(beats)
        return [Extended(beat.seconds) for beat in beats]


class NaiveRenewal:
    """One task per lease."""

    def __init__(self, client: Grants, receipt: str) -> None:
        self.client = client
        self.receipt = receipt
        self.deadline = time.monotonic() + TIMES.length
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = asyncio.get_running_loop().create_task(self._renew())

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        try:
            await self.task
        except asyncio.CancelledError:
            pass

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(TIMES.interval)
            await self.client.extend([Beat(self.receipt, 0, "", TIMES.length)])
            self.deadline = time.monotonic() + TIMES.length


def made(keeper: LeaseKeeper, client: Grants, count: int) -> list[LeaseRenewal]:
    return [LeaseRenewal(client, f"r{i}", times=TIMES, keeper=keeper) for i in range(count)]


def kept(count: int, seconds: float) -> tuple[float, float, int]:
    """CPU seconds a minute, bytes a lease, and renewals, of leases in the keeper."""
    keeper, client = LeaseKeeper(), Grants()
    with LeaseRenewal(client, "warm", times=TIMES, keeper=keeper):
        pass
    size, renewals = _size(lambda: _started(made(keeper, client, count)))
    cpu = _cpu(seconds, time.sleep)
    LeaseRenewal.stop_all(renewals)
    keeper.close()
    return cpu, size / count, client.renewed


def naive(count: int, seconds: float) -> tuple[float, float, int]:
    """The same of a task for each."""
    client = Grants()

    async def main() -> tuple[float, float]:
        def start() -> list[NaiveRenewal]:
            renewals = [NaiveRenewal(client, f"r{i}") for i in range(count)]
            for renewal in renewals:
                renewal.start()
            return renewals

        size, renewals = _size(start)
        began = time.process_time()
        await asyncio.sleep(seconds)
        cpu = (time.process_time() - began) * 60 / seconds
        for renewal in renewals:
            await renewal.stop()
        return cpu, size / count

    cpu, size = asyncio.run(main())
    return cpu, size, client.renewed


def one_by_one(count: int) -> float:
    """Handles started and stopped per second, each before the next."""
    keeper, client = LeaseKeeper(), Grants()

    def work(renewals: list[LeaseRenewal]) -> None:
        for renewal in renewals:
            renewal.start()
            renewal.stop()

    rate = _rate(lambda: made(keeper, client, count), work, count)
    keeper.close()
    return rate


def one_by_one_async(count: int) -> float:
    """The same on an event loop."""
    keeper, client = LeaseKeeper(), Grants()

    async def main() -> float:
        best = 0.0
        for _ in range(ROUNDS):
            renewals = made(keeper, client, count)
            began = time.perf_counter()
            for renewal in renewals:
                await renewal.astart()
                await renewal.astop()
            best = max(best, count / (time.perf_counter() - began))
        return best

    rate = asyncio.run(main())
    keeper.close()
    return rate


def in_bulk(count: int) -> float:
    """Handles started in one step and stopped in one, per second."""
    keeper, client = LeaseKeeper(), Grants()

    def work(renewals: list[LeaseRenewal]) -> None:
        LeaseRenewal.start_all(renewals)
        LeaseRenewal.stop_all(renewals)

    rate = _rate(lambda: made(keeper, client, count), work, count)
    keeper.close()
    return rate


def naive_one_by_one(count: int) -> float:
    """Tasks started and stopped per second."""

    async def main() -> float:
        client, best = Grants(), 0.0
        for _ in range(ROUNDS):
            renewals = [NaiveRenewal(client, f"r{i}") for i in range(count)]
            began = time.perf_counter()
            for renewal in renewals:
                renewal.start()
                await renewal.stop()
            best = max(best, count / (time.perf_counter() - began))
        return best

    return asyncio.run(main())


def _started(renewals: list[LeaseRenewal]) -> list[LeaseRenewal]:
    LeaseRenewal.start_all(renewals)
    return renewals


def _size(make: Callable[[], T]) -> tuple[int, T]:
    """Bytes that what is made takes, and it."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    result = make()
    size = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return size, result


def _cpu(seconds: float, wait: Callable[[float], None]) -> float:
    began = time.process_time()
    wait(seconds)
    return (time.process_time() - began) * 60 / seconds


def _rate(prepare: Callable[[], T], work: Callable[[T], None], count: int) -> float:
    best = 0.0
    for _ in range(ROUNDS):
        things = prepare()
        began = time.perf_counter()
        work(things)
        best = max(best, count / (time.perf_counter() - began))
    return best


def main(count: int = 10_000, seconds: float = 31.0) -> None:
    for name, measure in (("keeper", kept), ("a task each", naive)):
        cpu, size, renewed = measure(count, seconds)
        print(f"{name:<12} {count} leases: {cpu:6.2f} s CPU a minute, {size:6.0f} bytes each, "
              f"{renewed} renewals in {seconds:g} s")  # fmt: skip
    print(f"start + stop, one by one:          {one_by_one(count):>10,.0f} /s")
    print(f"start + stop, one by one, async:   {one_by_one_async(count):>10,.0f} /s")
    print(f"start + stop, in bulk:             {in_bulk(count):>10,.0f} /s")
    print(f"start + stop, a task each:         {naive_one_by_one(count):>10,.0f} /s")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
