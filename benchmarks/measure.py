"""Rounds, samples and spreads: what turns noisy seconds into a ratio that can be trusted.

The contestants of a comparison take turns, in many short rounds, so that whatever else the machine
does falls on all of them; a ratio is taken within each round, and the median round counts.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Sample:
    """One slot of one contestant: operations, wall-clock seconds, seconds of CPU."""

    count: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.count / self.seconds

    @property
    def cpu_us(self) -> float:
        """Microseconds of CPU per operation."""
        return self.cpu / self.count * 1e6


class Spread(NamedTuple):
    """The median of several values, and the middle half of them."""

    median: float
    low: float
    high: float


Contestant = Callable[[], Sample]


def spread(values: Iterable[float]) -> Spread:
    """The spread of at least one value."""
    ordered = sorted(values)
    if len(ordered) < 4:
        return Spread(statistics.median(ordered), ordered[0], ordered[-1])
    low, _, high = statistics.quantiles(ordered, n=4, method="inclusive")
    return Spread(statistics.median(ordered), low, high)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def ratio(ours: Sequence[float], others: Sequence[float]) -> Spread:
    """The spread of the ratios, taken round by round."""
    return spread(a / b for a, b in zip(ours, others, strict=True))


def duel(contestants: Mapping[str, Contestant], rounds: int) -> dict[str, list[Sample]]:
    """Every contestant once per round, each round beginning with another one.

    A first round warms up and is dropped.
    """
    names = list(contestants)
    samples: dict[str, list[Sample]] = {name: [] for name in names}
    for number in range(rounds + 1):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            gc.collect()
            sample = contestants[name]()
            if number:
                samples[name].append(sample)
    return samples


class Stopwatch:
    """Time and CPU (of all threads of this process) since it was made."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._start = time.perf_counter()

    def sample(self, count: int) -> Sample:
        """What has passed, for `count` operations."""
        return Sample(
            count, time.perf_counter() - self._start, max(time.process_time() - self._cpu, 1e-9)
        )

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start


def repeat(step: Callable[[int], object], seconds: float) -> Sample:
    """As many calls of `step(i)` as fit."""
    watch = Stopwatch()
    count = 0
    while count == 0 or watch.seconds < seconds:
        step(count)
        count += 1
    return watch.sample(count)


async def repeat_async(
    step: Callable[[int], Awaitable[object]], seconds: float, *, at_once: int = 1
) -> Sample:
    """As many awaited calls of `step(i)` as fit, by `at_once` callers side by side."""
    count = 0
    watch = Stopwatch()

    async def caller() -> None:
        nonlocal count
        first = True
        while first or watch.seconds < seconds:
            first = False
            count += 1
            await step(count)

    if at_once == 1:
        await caller()
    else:
        await asyncio.gather(*(caller() for _ in range(at_once)))
    return watch.sample(count)
