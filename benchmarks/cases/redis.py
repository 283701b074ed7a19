"""Redis: drain, enqueueing in every way, a backlog, and the size of jobs.

Beside the same done by bare scripts and pipelines of the same driver, and by other queues. Nothing
is saved to disk, here or there; the server's CPU is not in the numbers.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks import peers, work
from benchmarks.measure import Contestant, Sample, Spread, Stopwatch, duel, repeat, repeat_async
from benchmarks.raw import redis as raw
from benchmarks.rows import Row, against, cpu_each, missing, short
from benchmarks.setting import REDIS, Setting
from tenure import TaskRef
from tests.servers.valkey import ValkeyServer, running

ENGINES = (REDIS,)
PEERS = ("huey", "dramatiq")
_CALLERS = 50
_CALLS = 2
_DAY = 86_400
_PAYLOAD = "x" * 88  # with its name and quotes about 100 bytes
_FEWER = 4
"""A peer gets this many times fewer jobs: it takes longer over each."""


def run(setting: Setting) -> Iterator[Row]:
    with running() as server:
        stores = _Stores(server)
        yield from _drain(setting, stores)
        yield from _enqueue(setting, stores)
        yield from _backlog(setting, stores)
        yield from _size(setting, stores)


class _Stores:
    """A new namespace each time; what was there is gone."""

    def __init__(self, server: ValkeyServer) -> None:
        self.server = server
        self._numbers = itertools.count()

    @contextmanager
    def url(self) -> Iterator[str]:
        with self.server.client() as client:
            client.flushall()
        yield self.server.url(namespace=f"bench{next(self._numbers)}", timeout="60")


def _peers(
    setting: Setting, stores: _Stores, stack: ExitStack, command: str
) -> dict[str, Contestant]:
    if not peers.installed():
        return {}

    def contestant(name: str) -> Contestant:
        child = stack.enter_context(peers.on_redis(name, stores.server.url()))
        return lambda: Sample(*child.ask(command))

    return {name: contestant(name) for name in PEERS}


def _drain(setting: Setting, stores: _Stores) -> Iterator[Row]:
    jobs, engine = setting.effort.jobs, setting.engine

    def tenure() -> Sample:
        with stores.url() as url:
            return work.drain(url, jobs)

    with ExitStack() as stack:
        command = f"drain {max(10, jobs // _FEWER)} {work.CONCURRENCY}"
        samples = duel(
            {
                "tenure": tenure,
                "ideal": lambda: raw.drain(stores.server.port, jobs),
                **_peers(setting, stores, stack, command),
            },
            setting.effort.rounds,
        )
    ours, bound = samples["tenure"], samples["ideal"]
    yield against("drain", engine, "drain / ideal loop", ours, "ideal", bound)
    beside = f"worker {cpu_each(ours)}, ideal {cpu_each(bound)}"
    for name in PEERS:
        label = f"drain-{name}"
        if name in samples:
            yield against(label, engine, f"drain / {name}", ours, name, samples[name], beside)
        else:
            yield missing(label, engine, f"drain / {name}", peers.NOT_INSTALLED)


def _enqueue(setting: Setting, stores: _Stores) -> Iterator[Row]:
    slot, rounds, engine = setting.effort.slot, setting.effort.rounds, setting.engine
    port = stores.server.port

    def awaited(at_once: int) -> Sample:
        async def measure() -> Sample:
            with stores.url() as url:
                async with work.opened(url) as ours:
                    enqueue, noop = ours.jobs.enqueue, ours.noop
                    return await repeat_async(lambda i: enqueue(noop, i), slot, at_once=at_once)

        return asyncio.run(measure())

    def blocking() -> Sample:
        with stores.url() as url:
            ours = work.Work(url)
            with ours.jobs.sync as jobs:
                return repeat(lambda i: jobs.enqueue(ours.noop, i), slot)

    def many() -> Sample:
        async def measure() -> Sample:
            with stores.url() as url:
                async with work.opened(url) as ours:
                    watch = Stopwatch()
                    for _ in range(_CALLS):
                        await ours.fill(count)
                    return watch.sample(_CALLS * count)

        return asyncio.run(measure())

    count = min(work.A_CALL, setting.effort.jobs * 5)
    samples = duel(
        {
            "one": lambda: awaited(1),
            "raw one": lambda: raw.inserts(port, slot, 1),
            "fifty": lambda: awaited(_CALLERS),
            "raw fifty": lambda: raw.inserts(port, slot, _CALLERS),
            "many": many,
            "raw many": lambda: raw.bulk(port, _CALLS, count),
        },
        rounds,
    )
    text = "enqueue, awaited one by one / raw script"
    yield against("enqueue", engine, text, samples["one"], "raw", samples["raw one"])
    text = "50 concurrent enqueues / one by one"
    beside = f"raw pipelines {short(sum(s.rate for s in samples['raw fifty']) / rounds)}/s"
    yield against(
        "enqueue-concurrent", engine, text, samples["fifty"], "one by one", samples["one"], beside
    )
    text = "enqueue_many, 5,000 a call / raw pipelines"
    yield against("enqueue-many", engine, text, samples["many"], "raw", samples["raw many"])
    with ExitStack() as stack:
        samples = duel(
            {
                "tenure": blocking,
                "raw": lambda: raw.sync_inserts(port, slot),
                **_peers(setting, stores, stack, f"enqueue {slot}"),
            },
            rounds,
        )
    ours = samples["tenure"]
    text = "sync enqueue, one by one / raw script"
    yield against("enqueue-sync", engine, text, ours, "raw", samples["raw"])
    for name in PEERS:
        text = f"sync enqueue, one by one / {name}"
        if name in samples:
            yield against(f"enqueue-sync-{name}", engine, text, ours, name, samples[name])
        else:
            yield missing(f"enqueue-sync-{name}", engine, text, peers.NOT_INSTALLED)


def _backlog(setting: Setting, stores: _Stores) -> Iterator[Row]:
    """The same drain with many other jobs present, in a namespace that stays."""
    jobs = setting.effort.jobs
    with running() as other:
        full = other.url(namespace="full", timeout="60")
        present = asyncio.run(_fill(full, setting.effort.backlog))

        def empty() -> Sample:
            with stores.url() as url:
                return work.drain(url, jobs)

        samples = duel(
            {"full": lambda: work.drain(full, jobs), "empty": empty}, setting.effort.rounds
        )
    text = f"drain with {present:,} jobs present / empty"
    yield against("backlog", setting.engine, text, samples["full"], "empty", samples["empty"])


async def _fill(url: str, count: int) -> int:
    """Due in other queues, of unknown names, planned for later, and ended: a quarter each."""
    async with work.opened(url) as ours:
        noop, jobs = ours.noop, ours.jobs
        kinds = (
            [TaskRef("unknown-a").bind(i=0), TaskRef("unknown-b").bind(i=0)],
            [noop.options(queue="other-a").bind(0), noop.options(queue="other-b").bind(0)],
            [noop.options(priority=p, delay=_DAY).bind(0) for p in (-10, 1_000)],
            [noop.options(delay=_DAY).bind(0)] * 2,
        )
        each = max(1, count // 8)
        for ending, pair in zip((False, False, False, True), kinds, strict=True):
            for start in range(0, each, 2500):
                part = min(2500, each - start)
                handles = await jobs.enqueue_many(pair * part)
                if ending:
                    await jobs.cancel(*(handle.id for handle in handles))
    return each * 8


def _size(setting: Setting, stores: _Stores) -> Iterator[Row]:
    """Bytes of the server's memory for a pending job with a payload of about 100 bytes."""
    count = min(20_000, setting.effort.jobs * 5)

    async def fill(url: str) -> None:
        async with work.opened(url) as ours:
            bound = [TaskRef("noop").bind(text=_PAYLOAD) for _ in range(count)]
            await ours.jobs.enqueue_many(bound)

    with stores.url() as url, stores.server.client() as client:
        before = client.info("memory")["used_memory"]
        asyncio.run(fill(url))
        each = (client.info("memory")["used_memory"] - before) / count
    yield Row(
        name="bytes-per-job",
        engine=setting.engine,
        measure="memory of the server for a pending job, payload 100 bytes",
        now=Spread(each, each, each),
        unit="B",
        ours=f"{short(each)} B",
    )
