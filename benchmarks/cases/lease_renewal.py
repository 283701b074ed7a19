"""CPU of keeping 10,000 leases of 30 s for a minute: beside one task per lease.

The minute is shortened: the leases are shorter, so that each is renewed as often as in a minute,
and what is reported is the CPU per renewal times the renewals of that minute.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from benchmarks.holding import CountingLeases, NaiveKeeper, StubClient, leases, size_of
from benchmarks.measure import Spread, Stopwatch
from benchmarks.raw import store
from benchmarks.rows import Row, short
from benchmarks.setting import ANY, POSTGRESQL, SQLITE_FULL, Setting
from benchmarks.work import A_CALL
from tenure.clock import SYSTEM_CLOCK
from tenure.core.job import NewJob
from tenure.core.lease import lease_times
from tenure.engines.open import open_engine
from tenure.engines.protocol import Arm, Claim, Engine
from tenure.leases.keeper import LeaseKeeper
from tenure.leases.lease import Lease

ENGINES = (ANY, SQLITE_FULL, POSTGRESQL)
_A_MINUTE = 10_000 * 6
"""Renewals in a minute: a lease of 30 s is renewed every 10 s."""


def run(setting: Setting) -> Iterator[Row]:
    if setting.engine == SQLITE_FULL:
        kept, raw = asyncio.run(_on_engine(setting)), _raw(setting)
        beside = f"raw updates, 1,000 a commit {short(raw)} s"
        yield _row(setting, "on SQLite", kept, f"{short(kept)} s", beside)
        return
    if setting.engine == POSTGRESQL:
        kept = asyncio.run(_on_engine(setting))
        yield _row(setting, "with the server's", kept, f"{short(kept)} s", "")
        return
    kept, naive = _kept(setting), asyncio.run(_naive(setting))
    each, naive_each = size_of(LeaseKeeper, 1_000), size_of(NaiveKeeper, 1_000)
    yield _row(
        setting,
        "with a client that grants all",
        kept,
        f"{short(kept)} s, {short(each)} B each",
        f"a task per lease {short(naive)} s, {short(naive_each)} B each",
    )


def _row(setting: Setting, where: str, seconds: float, ours: str, beside: str) -> Row:
    return Row(
        name="lease-cpu",
        engine=setting.engine,
        measure=f"CPU to renew 10,000 leases of 30 s for a minute, {where}",
        now=Spread(seconds, seconds, seconds),
        unit="s",
        ours=ours,
        beside=beside,
    )


def _window(setting: Setting) -> float:
    return lease_times(setting.effort.lease).interval * setting.effort.renewals


def _per_minute(watch: Stopwatch, renewed: int, elsewhere: float = 0.0) -> float:
    """Seconds of CPU for the renewals of a minute; `elsewhere`: those of a server."""
    if not renewed:
        raise AssertionError("no lease was renewed")
    return (watch.sample(renewed).cpu + elsewhere) / renewed * _A_MINUTE


def _kept(setting: Setting) -> float:
    client, keeper = StubClient(), LeaseKeeper()
    held = leases(setting.effort.leases, setting.effort.lease)
    keeper.register(client, held)
    watch = Stopwatch()
    time.sleep(_window(setting))
    seconds = _per_minute(watch, client.renewed)
    keeper.remove(held)
    keeper.close()
    return seconds


async def _naive(setting: Setting) -> float:
    client, keeper = StubClient(), NaiveKeeper()
    keeper.register(client, leases(setting.effort.leases, setting.effort.lease))
    await asyncio.sleep(0)
    watch = Stopwatch()
    await asyncio.sleep(_window(setting))
    seconds = _per_minute(watch, client.renewed)
    keeper.close()
    return seconds


async def _on_engine(setting: Setting) -> float:
    """Leases of claimed jobs, renewed by the engine; its CPU counts."""
    count = setting.effort.leases
    with setting.place() as folder:
        async with open_engine(setting.url(folder)) as engine:
            await _insert(engine, count)
            client, keeper = CountingLeases(engine, SYSTEM_CLOCK), LeaseKeeper()
            while keeper.active < count:
                keeper.register(client, await _claim(engine, setting.effort.lease))
            before, elsewhere, watch = client.renewed, setting.elsewhere(), Stopwatch()
            await asyncio.sleep(_window(setting))
            spent = setting.elsewhere() - elsewhere
            seconds = _per_minute(watch, client.renewed - before, spent)
            if keeper.active != count:
                raise AssertionError(f"{count - keeper.active} leases were lost")
            await asyncio.to_thread(keeper.discard, client)
            await asyncio.to_thread(keeper.close)
    return seconds


def _raw(setting: Setting) -> float:
    """The same renewals as bare updates, a thousand in each transaction."""
    count = setting.effort.leases
    with setting.place() as folder:
        connection = store.create(folder / "raw.db", setting.synchronous)
        store.insert_many(connection, range(count))
        jobs = store.claim(connection, count)
        watch = Stopwatch()
        for start in range(0, count, 1_000):
            store.renew(connection, jobs[start : start + 1_000])
        seconds = _per_minute(watch, count)
        connection.close()
    return seconds


async def _insert(engine: Engine, count: int) -> None:
    for start in range(0, count, A_CALL):
        numbers = range(start, min(count, start + A_CALL))
        await engine.insert([NewJob(id=f"{i:08d}", task="noop") for i in numbers])


async def _claim(engine: Engine, length: float) -> list[Lease]:
    times = lease_times(length)
    sent_at = SYSTEM_CLOCK.monotonic()
    claim = Claim(
        owner="bench",
        limit=1_000,
        lease=round(length * 1e6),
        queues=("default",),
        tasks=("noop",),
        arms=frozenset({Arm.DUE}),
    )
    rows = await engine.claim(claim)
    return [Lease(row.id, row.token, "bench", times, sent_at=sent_at) for row in rows]
