"""Starting and stopping renewals by their handles, one by one and in bulk: beside tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from benchmarks.holding import StubClient
from benchmarks.measure import Contestant, Sample, Stopwatch, duel, ratio, spread
from benchmarks.rows import Row, per_second, short
from benchmarks.setting import ANY, Setting
from tenure.core.lease import Beat, lease_times
from tenure.leases import LeaseKeeper, LeaseRenewal

ENGINES = (ANY,)
_MOST_AT_ONCE = 2_000
_TIMES = lease_times(60)


class NaiveRenewal:
    """A task that sleeps and renews."""

    def __init__(self, client: StubClient, receipt: str) -> None:
        self._client = client
        self._receipt = receipt
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._renew())

    async def stop(self) -> None:
        """Cancel the task, and see that it has ended."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(_TIMES.interval)
            await self._client.extend([Beat(self._receipt, 0, "", _TIMES.length)])


Way = Callable[[LeaseKeeper, int], Awaitable[Sample]]
NaiveWay = Callable[[int], Awaitable[Sample]]


def run(setting: Setting) -> Iterator[Row]:
    count = min(setting.effort.leases, _MOST_AT_ONCE)
    ways: dict[str, tuple[str, Way, NaiveWay]] = {
        "renewal-one-by-one": ("start + stop, one by one", _one_by_one, _naive_one_by_one),
        "renewal-async": ("start + stop, one by one, async", _async, _naive_one_by_one),
        "renewal-in-bulk": (f"start + stop, {count:,} at once", _in_bulk, _naive_in_bulk),
    }
    for name, (measure, way, naive_way) in ways.items():
        contestants = {"ours": _kept(way, count), "naive": _alone(naive_way, count)}
        samples = duel(contestants, setting.effort.rounds)
        ours, naive = samples["ours"], samples["naive"]
        times = ratio([s.rate for s in ours], [s.rate for s in naive]).median
        yield Row(
            name=name,
            engine=setting.engine,
            measure=measure,
            now=spread(sample.rate for sample in ours),
            unit="/s",
            ours=per_second(ours),
            beside=f"a task per lease {per_second(naive)} ({short(times)}x)",
        )


def _kept(way: Way, count: int) -> Contestant:
    async def run() -> Sample:
        keeper = LeaseKeeper()
        async with LeaseRenewal(StubClient(), "first", times=_TIMES, keeper=keeper):
            sample = await way(keeper, count)
        keeper.close()
        return sample

    return lambda: asyncio.run(run())


def _alone(way: NaiveWay, count: int) -> Contestant:
    return lambda: asyncio.run(_awaited(way, count))


async def _awaited(way: NaiveWay, count: int) -> Sample:
    return await way(count)


def _made(keeper: LeaseKeeper, count: int) -> list[LeaseRenewal]:
    client = StubClient()
    return [LeaseRenewal(client, f"r{i}", times=_TIMES, keeper=keeper) for i in range(count)]


async def _one_by_one(keeper: LeaseKeeper, count: int) -> Sample:
    renewals = _made(keeper, count)
    watch = Stopwatch()
    for renewal in renewals:
        renewal.start()
        renewal.stop()
    return watch.sample(count)


async def _async(keeper: LeaseKeeper, count: int) -> Sample:
    renewals = _made(keeper, count)
    watch = Stopwatch()
    for renewal in renewals:
        await renewal.astart()
        await renewal.astop()
    return watch.sample(count)


async def _in_bulk(keeper: LeaseKeeper, count: int) -> Sample:
    renewals = _made(keeper, count)
    watch = Stopwatch()
    LeaseRenewal.start_all(renewals)
    LeaseRenewal.stop_all(renewals)
    return watch.sample(count)


async def _naive_one_by_one(count: int) -> Sample:
    client = StubClient()
    renewals = [NaiveRenewal(client, f"r{i}") for i in range(count)]
    watch = Stopwatch()
    for renewal in renewals:
        renewal.start()
        await renewal.stop()
    return watch.sample(count)


async def _naive_in_bulk(count: int) -> Sample:
    client = StubClient()
    renewals = [NaiveRenewal(client, f"r{i}") for i in range(count)]
    watch = Stopwatch()
    for renewal in renewals:
        renewal.start()
    await asyncio.gather(*(renewal.stop() for renewal in renewals))
    return watch.sample(count)
