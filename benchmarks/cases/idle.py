"""CPU and memory of an idle worker: beside an idle process with an event loop and SQLite."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

from benchmarks.children import child
from benchmarks.measure import Spread, spread
from benchmarks.rows import Row, short
from benchmarks.setting import POSTGRESQL, SQLITE_FULL, Setting

ENGINES = (SQLITE_FULL, POSTGRESQL)
_PARTS = 4
_SETTLE = 0.25
"""The part of the time that a worker gets to become idle."""


def run(setting: Setting) -> Iterator[Row]:
    idle = setting.effort.idle
    with (
        setting.place() as folder,
        child("worker", setting.url(folder)) as worker,
        child("plain") as plain,
    ):
        worker.ask("go")
        time.sleep(idle * _SETTLE)
        both = (worker, plain)
        usages = [[process.ask("usage") for process in both]]
        for _ in range(_PARTS):
            time.sleep(idle / _PARTS)
            usages.append([process.ask("usage") for process in both])
    ours, bare = (_percent([usage[i][0] for usage in usages], idle / _PARTS) for i in (0, 1))
    memory, bare_memory = (usages[-1][i][1] / 1e6 for i in (0, 1))
    yield Row(
        name="idle-cpu",
        engine=setting.engine,
        measure="CPU of an idle worker, part of one core",
        now=ours,
        unit="%",
        ours=f"{short(ours.median)}%",
        beside=f"plain process {short(bare.median)}%",
    )
    yield Row(
        name="idle-memory",
        engine=setting.engine,
        measure="resident memory of an idle worker",
        now=Spread(memory, memory, memory),
        unit="MB",
        ours=f"{short(memory)} MB",
        beside=f"plain process {short(bare_memory)} MB ({short(memory / bare_memory)}x)",
    )


def _percent(cpu: list[float], seconds: float) -> Spread:
    return spread(100 * (after - before) / seconds for before, after in pairwise(cpu))
