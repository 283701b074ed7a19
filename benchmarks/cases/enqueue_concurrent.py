"""Fifty callers enqueue side by side: beside raw inserts grouped into common commits."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.cases import enqueue
from benchmarks.measure import duel
from benchmarks.rows import Row, against
from benchmarks.setting import POSTGRESQL, SQLITE_FULL, SQLITE_NORMAL, Setting

ENGINES = (SQLITE_FULL, SQLITE_NORMAL, POSTGRESQL)
CALLERS = 50


def run(setting: Setting) -> Iterator[Row]:
    samples = duel(
        {
            "tenure": lambda: enqueue.tenure(setting, CALLERS),
            "raw": lambda: enqueue.raw(setting, CALLERS),
        },
        setting.effort.rounds,
    )
    yield against(
        "enqueue-concurrent",
        setting.engine,
        "50 concurrent enqueues / raw grouped commits",
        samples["tenure"],
        "raw",
        samples["raw"],
    )
