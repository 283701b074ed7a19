"""One worker drains no-op jobs at concurrency 50: leased, fenced, settled.

Beside the ideal loop on the same engine; on SQLite beside huey with as many threads and with one,
which is its fastest way; on PostgreSQL beside other queues, with as many jobs at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks import peers, work
from benchmarks.measure import Contestant, Sample, duel, spread
from benchmarks.raw import ideal, postgres
from benchmarks.rows import Row, against, cpu_each, missing
from benchmarks.setting import MEMORY, POSTGRESQL, SQLITE_FULL, SQLITE_NORMAL, Setting

ENGINES = (SQLITE_FULL, SQLITE_NORMAL, POSTGRESQL, MEMORY)
_PEERS = {"huey, 1 thread": ("drain-peer", 1), "huey, 50 threads": ("drain-peer-same", 50)}
_FEWER = {"huey": 4, "pgqueuer": 1, "procrastinate": 10, "saq": 4}
"""A peer gets this many times fewer jobs: it takes longer over each."""


def run(setting: Setting) -> Iterator[Row]:
    engine = setting.engine
    with ExitStack() as stack:
        contestants: dict[str, Contestant] = {
            "tenure": lambda: _tenure(setting),
            "ideal": lambda: _ideal(setting),
        }
        if engine == SQLITE_FULL and peers.installed():
            contestants |= _huey(setting, stack)
        if engine == POSTGRESQL and peers.installed():
            contestants |= _on_postgres(setting, stack)
        samples = duel(contestants, setting.effort.rounds)
    ours, bound = samples["tenure"], samples["ideal"]
    yield against("drain", engine, "drain / ideal loop", ours, "ideal", bound)
    yield Row(
        name="cpu-per-job",
        engine=engine,
        measure="CPU of worker and engine per job",
        now=spread(sample.cpu_us for sample in ours),
        unit="us",
        ours=cpu_each(ours),
        beside=f"ideal {cpu_each(bound)}",
    )
    if engine == SQLITE_FULL:
        for peer, (name, _) in _PEERS.items():
            measure = f"drain / {peer}"
            if peer in samples:
                yield against(name, engine, measure, ours, "huey", samples[peer])
            else:
                yield missing(name, engine, measure, peers.NOT_INSTALLED)
    if engine == POSTGRESQL:
        for peer in peers.ON_POSTGRES:
            name = "drain-peer" if peer == peers.ON_POSTGRES[0] else f"drain-{peer}"
            if peer in samples:
                yield against(name, engine, f"drain / {peer}", ours, peer, samples[peer])
            else:
                yield missing(name, engine, f"drain / {peer}", peers.NOT_INSTALLED)


def _tenure(setting: Setting) -> Sample:
    with setting.place() as folder:
        return work.drain(setting.url(folder), setting.effort.jobs, setting.elsewhere)


def _ideal(setting: Setting) -> Sample:
    if setting.engine == MEMORY:
        return ideal.drain_memory(setting.effort.jobs)
    if setting.engine == POSTGRESQL:
        with setting.place() as folder:
            return postgres.drain(setting.url(folder), setting.effort.jobs, setting.elsewhere)
    with setting.place() as folder:
        return ideal.drain_sqlite(folder, setting.synchronous, setting.effort.jobs)


def _huey(setting: Setting, stack: ExitStack) -> dict[str, Contestant]:
    child = stack.enter_context(peers.huey(stack.enter_context(setting.place())))
    jobs = max(10, setting.effort.jobs // _FEWER["huey"])

    def contestant(workers: int) -> Contestant:
        return lambda: Sample(*child.ask(f"drain {jobs} {workers}"))

    return {peer: contestant(workers) for peer, (_, workers) in _PEERS.items()}


def _on_postgres(setting: Setting, stack: ExitStack) -> dict[str, Contestant]:
    def contestant(peer: str) -> Contestant:
        child = stack.enter_context(peers.on_postgres(peer, setting.database(peer)))
        jobs = max(10, setting.effort.jobs // _FEWER[peer])
        return lambda: Sample(*child.ask(f"drain {jobs} {work.CONCURRENCY}"))

    return {peer: contestant(peer) for peer in peers.ON_POSTGRES}
