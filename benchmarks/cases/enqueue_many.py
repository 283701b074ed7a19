"""Enqueue 5,000 jobs a call, their arguments bound within it: beside raw bulk inserts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from benchmarks.measure import Sample, Stopwatch, duel
from benchmarks.raw import postgres, store
from benchmarks.rows import Row, against
from benchmarks.setting import POSTGRESQL, SQLITE_FULL, SQLITE_NORMAL, Setting
from benchmarks.work import A_CALL, opened

ENGINES = (SQLITE_FULL, SQLITE_NORMAL, POSTGRESQL)
_CALLS = 2


def run(setting: Setting) -> Iterator[Row]:
    count = min(A_CALL, setting.effort.jobs * 5)
    samples = duel(
        {"tenure": lambda: _tenure(setting, count), "raw": lambda: _raw(setting, count)},
        setting.effort.rounds,
    )
    yield against(
        "enqueue-many",
        setting.engine,
        "enqueue_many, 5,000 a call / raw bulk insert",
        samples["tenure"],
        "raw",
        samples["raw"],
    )


def _tenure(setting: Setting, count: int) -> Sample:
    async def measure() -> Sample:
        with setting.place() as folder:
            async with opened(setting.url(folder)) as work:
                watch = Stopwatch()
                for _ in range(_CALLS):
                    await work.fill(count)
                return watch.sample(_CALLS * count)

    return asyncio.run(measure())


def _raw(setting: Setting, count: int) -> Sample:
    if setting.engine == POSTGRESQL:
        with setting.place() as folder:
            return postgres.bulk(setting.url(folder), _CALLS, count)
    with setting.place() as folder:
        connection = store.create(folder / "raw.db", setting.synchronous)
        try:
            watch = Stopwatch()
            for _ in range(_CALLS):
                store.insert_many(connection, range(count))
            return watch.sample(_CALLS * count)
        finally:
            connection.close()
