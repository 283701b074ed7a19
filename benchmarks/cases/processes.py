"""Four worker processes on one store: their rate beside one, and how long a writer beside waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks.children import Child, child
from benchmarks.measure import Sample, ratio, spread
from benchmarks.rows import Row, per_second, short
from benchmarks.setting import POSTGRESQL, SQLITE_FULL, Setting
from benchmarks.work import CONCURRENCY, Work, judged, opened

ENGINES = (SQLITE_FULL, POSTGRESQL)
_ROUNDS = 3
_MORE = 3
_PATIENCE = 120.0


def run(setting: Setting) -> Iterator[Row]:
    rates: dict[int, list[Sample]] = {1: [], 4: []}
    waits: dict[int, list[float]] = {0: [], 1: [], 4: []}
    for _ in range(min(_ROUNDS, setting.effort.rounds)):
        waits[0].append(_alone(setting))
        for workers, samples in rates.items():
            sample, wait = _drain(setting, workers)
            samples.append(sample)
            waits[workers].append(wait)
    one, four = ([s.rate for s in rates[workers]] for workers in (1, 4))
    yield Row(
        name="processes",
        engine=setting.engine,
        measure="rate of four worker processes / one",
        now=ratio(four, one),
        ours=per_second(rates[4]),
        beside=f"one {per_second(rates[1])}",
    )
    longest = {workers: spread(found) for workers, found in waits.items()}
    yield Row(
        name="lock-wait",
        engine=setting.engine,
        measure="longest single enqueue beside four busy workers",
        now=longest[4],
        unit="ms",
        ours=f"{short(longest[4].median)} ms",
        beside=f"beside one {short(longest[1].median)} ms, none {short(longest[0].median)} ms",
    )


def _drain(setting: Setting, workers: int) -> tuple[Sample, float]:
    """The rate of so many workers together, and the longest enqueue (ms) beside them."""
    count = setting.effort.jobs * _MORE
    with setting.place() as folder, ExitStack() as stack:
        url = setting.url(folder)
        children = [stack.enter_context(child("worker", url)) for _ in range(workers)]
        waits = asyncio.run(_beside(url, count, children))
        seen = [(i, at) for each in children for i, at in each.ask("seen")]
    return judged(seen, count, 1e-9), max(waits) * 1e3


async def _beside(url: str, count: int, children: list[Child]) -> list[float]:
    """Fill the store, let the children go, and enqueue elsewhere now and then until they end."""
    async with opened(url) as work:
        await work.fill(count)
        for process in children:
            process.ask("go")
        waits = []
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            waits.append(await _enqueue(work))
            await asyncio.sleep(0.002)
            if len(waits) % 20 == 0 and not await _left(work):
                return waits
    raise AssertionError(f"{count} jobs were not run within {_PATIENCE:g} s")


async def _left(work: Work) -> int:
    [depth] = await work.jobs.queues.stats("default")
    return depth.pending + depth.running


async def _enqueue(work: Work) -> float:
    before = time.perf_counter()
    await work.jobs.enqueue(work.noop.options(queue="beside"), 0)
    return time.perf_counter() - before


def _alone(setting: Setting) -> float:
    async def measure() -> float:
        with setting.place() as folder:
            async with opened(setting.url(folder)) as work:
                await _enqueue(work)
                return max([await _enqueue(work) for _ in range(CONCURRENCY)]) * 1e3

    return asyncio.run(measure())
