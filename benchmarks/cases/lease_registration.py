"""Registering and removing leases, one by one and in bulk: beside one task per lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from benchmarks.holding import Keeper, NaiveKeeper, StubClient, leases
from benchmarks.measure import Contestant, Sample, Stopwatch, duel, ratio, spread
from benchmarks.rows import Row, per_second, short
from benchmarks.setting import ANY, Setting
from tenure.leases.keeper import LeaseKeeper

ENGINES = (ANY,)
_MOST_AT_ONCE = 2_000

Way = Callable[[Keeper, int], Awaitable[Sample]]


def run(setting: Setting) -> Iterator[Row]:
    count = min(setting.effort.leases, _MOST_AT_ONCE)
    ways: dict[str, tuple[str, Way]] = {
        "lease-one-by-one": ("register + remove, one by one", _one_by_one),
        "lease-in-bulk": (f"register + remove, {count:,} at once", _in_bulk),
    }
    for name, (measure, way) in ways.items():
        contestants = {
            "keeper": _of(LeaseKeeper, way, count),
            "naive": _of(NaiveKeeper, way, count),
        }
        samples = duel(contestants, setting.effort.rounds)
        ours, naive = samples["keeper"], samples["naive"]
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


def _of(keeper: Callable[[], Keeper], way: Way, count: int) -> Contestant:
    async def run() -> Sample:
        made, present = keeper(), leases(100, 60)
        # Some are there already, as in a busy worker; the first one starts what there is to start.
        made.register(StubClient(), present)
        await asyncio.sleep(0)
        sample = await way(made, count)
        made.remove(present)
        made.close()
        return sample

    return lambda: asyncio.run(run())


async def _one_by_one(keeper: Keeper, count: int) -> Sample:
    client, held = StubClient(), leases(count, 60)
    watch = Stopwatch()
    for lease in held:
        keeper.register(client, [lease])
        keeper.remove([lease])
    await _turn()
    return watch.sample(count)


async def _in_bulk(keeper: Keeper, count: int) -> Sample:
    client, held = StubClient(), leases(count, 60)
    watch = Stopwatch()
    keeper.register(client, held)
    await _turn()
    keeper.remove(held)
    await _turn()
    return watch.sample(count)


async def _turn() -> None:
    """What was left to the event loop belongs to the costs."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
