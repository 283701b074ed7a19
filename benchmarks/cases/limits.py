"""The drain under limits: 1,000 keys of which one job each may run, and tenants that take turns.

Beside the same drain without limits and keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from benchmarks import work
from benchmarks.measure import Contestant, Sample, duel
from benchmarks.rows import Row, against
from benchmarks.setting import MEMORY, POSTGRESQL, SQLITE_FULL, SQLITE_NORMAL, Setting

ENGINES = (SQLITE_FULL, SQLITE_NORMAL, POSTGRESQL, MEMORY)
_KEYS, _TENANTS = 1000, 100


def run(setting: Setting) -> Iterator[Row]:
    samples = duel(
        {
            "free": _contestant(setting, work.drain),
            "limited": _contestant(setting, _limited),
            "shared": _contestant(setting, _shared),
        },
        setting.effort.rounds,
    )
    free = samples["free"]
    measure = f"drain of {_KEYS:,} keys with limit 1 / unlimited"
    yield against("limits", setting.engine, measure, samples["limited"], "unlimited", free)
    measure = f"drain of {_TENANTS} tenants that take turns / unshared"
    yield against("fair", setting.engine, measure, samples["shared"], "unshared", free)


def _contestant(setting: Setting, drain: Callable[[str, int], Sample]) -> Contestant:
    def contestant() -> Sample:
        with setting.place() as folder:
            return drain(setting.url(folder), setting.effort.jobs)

    return contestant


def _limited(url: str, count: int) -> Sample:
    async def run() -> Sample:
        async with work.opened(url) as ours:
            await ours.jobs.queues.limit("default", key_concurrency=1)
            ours.noop = ours.noop.options(concurrency_key=lambda i: f"key-{i % _KEYS}")
            return await ours.drain(count, float)

    return asyncio.run(run())


def _shared(url: str, count: int) -> Sample:
    async def run() -> Sample:
        async with work.opened(url) as ours:
            ours.noop = ours.noop.options(fair_key=lambda i: f"tenant-{i % _TENANTS}")
            return await ours.drain(count, float)

    return asyncio.run(run())
