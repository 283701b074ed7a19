"""From an enqueue in one process to the start of the body in another, idle one.

Beside the least that could do it: a raw insert, a datagram or a NOTIFY, a raw claim.
"""

from __future__ import annotations

import random
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.children import Child, child
from benchmarks.measure import Spread, percentile, spread
from benchmarks.raw import postgres, store
from benchmarks.rows import Row, short
from benchmarks.setting import POSTGRESQL, SQLITE_FULL, Setting
from benchmarks.work import Work

ENGINES = (SQLITE_FULL, POSTGRESQL)
_PAUSE = (0.1, 0.6)
"""Seconds between two; long enough for a worker to call itself idle."""
_PARTS = 5
"""Percentiles are taken of each of so many parts, for their spread."""

Enqueue = Callable[[int], object]


def run(setting: Setting) -> Iterator[Row]:
    with ExitStack() as stack:
        folder = stack.enter_context(setting.place())
        bare = _raw_postgres if setting.engine == POSTGRESQL else _raw
        pairs = {"tenure": _tenure(setting, folder, stack), "raw": bare(setting, folder, stack)}
        delays: dict[str, list[float]] = {name: [] for name in pairs}
        for i in range(setting.effort.wakeups + 1):
            for name, (enqueue, other) in pairs.items():
                delay = _one(enqueue, other, i)
                if i:  # the first one opens what is opened late
                    delays[name].append(delay)
    for percent in (50, 99):
        ours, raw = (_percentile(delays[name], percent) for name in ("tenure", "raw"))
        yield Row(
            name=f"wakeup-p{percent}",
            engine=setting.engine,
            measure=f"enqueue to start in another process, p{percent}",
            now=ours,
            unit="ms",
            ours=f"{short(ours.median)} ms",
            beside=f"raw {short(raw.median)} ms ({short(ours.median / raw.median)}x)",
        )


def _percentile(delays: list[float], percent: int) -> Spread:
    parts = [delays[i::_PARTS] for i in range(min(_PARTS, len(delays)))]
    whole = percentile(delays, percent) * 1e3
    return spread(percentile(part, percent) * 1e3 for part in parts)._replace(median=whole)


def _one(enqueue: Enqueue, other: Child, i: int) -> float:
    time.sleep(random.uniform(*_PAUSE))
    before = time.perf_counter()
    enqueue(i)
    seen, at = other.read()
    if seen != i:
        raise AssertionError(f"job {seen} was run in place of {i}")
    return float(at) - before


def _tenure(setting: Setting, folder: Path, stack: ExitStack) -> tuple[Enqueue, Child]:
    url = setting.url(folder)
    work = Work(url)
    jobs = stack.enter_context(work.jobs.sync)
    other = stack.enter_context(child("worker", url, "telling"))
    other.ask("go")
    return lambda i: jobs.enqueue(work.noop, i), other


def _raw(setting: Setting, folder: Path, stack: ExitStack) -> tuple[Enqueue, Child]:
    path, address = folder / "raw.db", str(folder / "mailbox")
    connection: sqlite3.Connection = store.create(path, setting.synchronous)
    stack.callback(connection.close)
    other = stack.enter_context(child("waker", str(path), setting.synchronous, address))
    bell = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    stack.callback(bell.sendto, b"end", address)

    def enqueue(i: int) -> None:
        connection.execute(store.INSERT, store.new_row(i))
        bell.sendto(b"wake", address)

    return enqueue, other


def _raw_postgres(setting: Setting, folder: Path, stack: ExitStack) -> tuple[Enqueue, Child]:
    url = setting.url(folder)
    connection = stack.enter_context(postgres.created(url))
    other = stack.enter_context(child("waker-postgres", url))
    stack.callback(connection.execute, "NOTIFY raw_jobs, 'end'")
    return lambda i: postgres.wake(connection, i), other
