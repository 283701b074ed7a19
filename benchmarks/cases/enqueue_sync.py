"""Enqueue one by one from plain code without an event loop: beside the raw driver, and huey."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks import peers
from benchmarks.measure import Contestant, Sample, duel, repeat
from benchmarks.raw import store
from benchmarks.rows import Row, against, missing
from benchmarks.setting import SQLITE_FULL, SQLITE_NORMAL, Setting
from benchmarks.work import Work

ENGINES = (SQLITE_FULL, SQLITE_NORMAL)


def run(setting: Setting) -> Iterator[Row]:
    engine, slot = setting.engine, setting.effort.slot
    with ExitStack() as stack:
        contestants: dict[str, Contestant] = {
            "tenure": lambda: _tenure(setting),
            "raw": lambda: _raw(setting),
        }
        if engine == SQLITE_FULL and peers.installed():
            child = stack.enter_context(peers.huey(stack.enter_context(setting.place())))
            contestants["huey"] = lambda: Sample(*child.ask(f"enqueue {slot}"))
        samples = duel(contestants, setting.effort.rounds)
    ours = samples["tenure"]
    measure = "sync enqueue, one by one / raw driver"
    yield against("enqueue-sync", engine, measure, ours, "raw", samples["raw"])
    if engine == SQLITE_FULL:
        measure = "sync enqueue, one by one / huey"
        if "huey" in samples:
            yield against("enqueue-sync-peer", engine, measure, ours, "huey", samples["huey"])
        else:
            yield missing("enqueue-sync-peer", engine, measure, peers.NOT_INSTALLED)


def _tenure(setting: Setting) -> Sample:
    with setting.place() as folder:
        work = Work(setting.url(folder))
        with work.jobs.sync as jobs:
            return repeat(lambda i: jobs.enqueue(work.noop, i), setting.effort.slot)


def _raw(setting: Setting) -> Sample:
    with setting.place() as folder:
        connection = store.create(folder / "raw.db", setting.synchronous)
        try:
            return repeat(
                lambda i: connection.execute(store.INSERT, store.new_row(i)), setting.effort.slot
            )
        finally:
            connection.close()
