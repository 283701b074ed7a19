"""Enqueue one by one, awaited: beside raw inserts through an own thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from benchmarks.measure import Sample, duel, repeat_async
from benchmarks.raw import postgres, store
from benchmarks.raw.thread import raw_thread
from benchmarks.rows import Row, against
from benchmarks.setting import POSTGRESQL, SQLITE_FULL, SQLITE_NORMAL, Setting
from benchmarks.work import opened

ENGINES = (SQLITE_FULL, SQLITE_NORMAL, POSTGRESQL)


def run(setting: Setting) -> Iterator[Row]:
    samples = duel(
        {"tenure": lambda: tenure(setting), "raw": lambda: raw(setting)}, setting.effort.rounds
    )
    yield against(
        "enqueue",
        setting.engine,
        "enqueue, awaited one by one / raw insert through a thread",
        samples["tenure"],
        "raw",
        samples["raw"],
    )


def tenure(setting: Setting, at_once: int = 1) -> Sample:
    """Enqueues by `at_once` callers side by side."""

    async def measure() -> Sample:
        with setting.place() as folder:
            async with opened(setting.url(folder)) as work:
                enqueue, noop = work.jobs.enqueue, work.noop
                return await repeat_async(
                    lambda i: enqueue(noop, i), setting.effort.slot, at_once=at_once
                )

    return asyncio.run(measure())


def raw(setting: Setting, at_once: int = 1) -> Sample:
    """The same as bare inserts: grouped into one commit where several wait."""
    if setting.engine == POSTGRESQL:
        with setting.place() as folder:
            return postgres.inserts(setting.url(folder), setting.effort.slot, at_once)

    async def measure() -> Sample:
        with setting.place() as folder:
            connection = store.create(folder / "raw.db", setting.synchronous)
            with raw_thread(connection, grouped=at_once > 1) as thread:
                return await repeat_async(
                    lambda i: thread.call(lambda c: c.execute(store.INSERT, store.new_row(i))),
                    setting.effort.slot,
                    at_once=at_once,
                )

    return asyncio.run(measure())
