"""Enqueue one by one, awaited: beside raw inserts, and on PostgreSQL beside other queues."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks import peers
from benchmarks.measure import Contestant, Sample, duel, repeat_async
from benchmarks.raw import postgres, store
from benchmarks.raw.thread import raw_thread
from benchmarks.rows import Row, against, missing
from benchmarks.setting import POSTGRESQL, SQLITE_FULL, SQLITE_NORMAL, Setting
from benchmarks.work import opened

ENGINES = (SQLITE_FULL, SQLITE_NORMAL, POSTGRESQL)


def run(setting: Setting) -> Iterator[Row]:
    engine = setting.engine
    with ExitStack() as stack:
        contestants: dict[str, Contestant] = {
            "tenure": lambda: tenure(setting),
            "raw": lambda: raw(setting),
        }
        if engine == POSTGRESQL and peers.installed():
            contestants |= {peer: _peer(setting, stack, peer) for peer in peers.ON_POSTGRES}
        samples = duel(contestants, setting.effort.rounds)
    ours = samples["tenure"]
    way = "on one connection" if engine == POSTGRESQL else "through a thread"
    measure = f"enqueue, awaited one by one / raw insert {way}"
    yield against("enqueue", engine, measure, ours, "raw", samples["raw"])
    if engine == POSTGRESQL:
        for peer in peers.ON_POSTGRES:
            measure = f"enqueue, awaited one by one / {peer}"
            if peer in samples:
                yield against(f"enqueue-{peer}", engine, measure, ours, peer, samples[peer])
            else:
                yield missing(f"enqueue-{peer}", engine, measure, peers.NOT_INSTALLED)


def _peer(setting: Setting, stack: ExitStack, peer: str) -> Contestant:
    child = stack.enter_context(peers.on_postgres(peer, setting.database(peer)))
    return lambda: Sample(*child.ask(f"enqueue {setting.effort.slot}"))


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
