"""A clock turned by hand, a client that does what a test says, and bounded waiting."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Awaitable, Callable, Sequence

import anyio

from tenure.core.lease import Beat, Extended, Extension, lease_times
from tenure.core.retry import RetryPolicy
from tenure.leases.book import Book
from tenure.leases.keeper import LeaseKeeper
from tenure.leases.lease import Lease
from tenure.observe.hooks import Happening, Hooks

STEADY = RetryPolicy(base=0.5, factor=2.0, cap=10.0, jitter=0.0)
Answer = Callable[[Sequence[Beat]], Awaitable[Sequence[Extension]]]


class ManualClock:
    """Time stands still until a test moves it."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.ahead = 0.0  # the wall clock's lead, to make it jump
        self.on_advance: Callable[[], object] = lambda: None

    def time_us(self) -> int:
        return int((1e9 + self.now + self.ahead) * 1e6)

    def monotonic(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.on_advance()


async def grant(beats: Sequence[Beat]) -> list[Extension]:
    return [Extended(beat.seconds) for beat in beats]


async def hang(beats: Sequence[Beat]) -> list[Extension]:
    await anyio.sleep_forever()
    return []


async def opened(gate: threading.Event) -> None:
    """Wait in the keeper's loop for a test that runs in another thread."""
    while not gate.is_set():  # noqa: ASYNC110 (an anyio event is of one loop only)
        await anyio.sleep(0.002)


class Client:
    """Grants everything unless `answer` is replaced; remembers all calls and their threads."""

    def __init__(self, answer: Answer = grant, retry: RetryPolicy = STEADY) -> None:
        self.resolution = 0.0
        self.retry = retry
        self.answer = answer
        self.batches: list[list[Beat]] = []
        self.opened = 0
        self.closed = 0
        self.threads: set[str] = set()
        self.flying: set[str] = set()
        self.overlaps = 0

    async def open(self) -> None:
        self.opened += 1

    async def close(self) -> None:
        assert not self.flying
        self.closed += 1

    async def extend(self, beats: Sequence[Beat], /) -> Sequence[Extension]:
        ids = {beat.id for beat in beats}
        self.threads.add(threading.current_thread().name)
        self.overlaps += bool(ids & self.flying)
        self.flying |= ids
        self.batches.append(list(beats))
        try:
            return await self.answer(beats)
        finally:
            self.flying -= ids

    @property
    def beats(self) -> list[Beat]:
        return [beat for batch in self.batches for beat in batch]


class Desk:
    """What most tests need: a keeper on a manual clock, its happenings, and leases."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.happenings: list[Happening] = []
        self.hooks = Hooks(self.happenings.append)
        # A clock moved by hand makes every watcher look late: stalls have tests of their own.
        self.keeper = LeaseKeeper(self.clock, self.hooks, stall_warn=math.inf)
        self.clock.on_advance = self.look
        self.keeper._book._jitter = 0.0
        self.signals: list[tuple[str, str | None, bool, str]] = []

    def look(self) -> None:
        """Time moved: do not make the test wait for the keeper's next look."""
        runner = self.keeper._runner
        if runner is not None:
            runner.wake()

    def lease(self, id: str = "j1", length: float = 30.0, **options) -> Lease:
        options.setdefault("sent_at", self.clock.now)
        options.setdefault("on_signal", self.signal)
        return Lease(id, 1, "me", lease_times(length), clock=self.clock, **options)

    def leases(self, count: int, length: float = 30.0) -> list[Lease]:
        return [self.lease(f"j{i}", length) for i in range(count)]

    def signal(self, lease: Lease) -> None:
        thread = threading.current_thread().name
        self.signals.append((lease.id, lease.reason, lease.cancel_requested, thread))

    def named(self, name: str) -> list[Happening]:
        return [happening for happening in self.happenings if happening.name == name]

    def settled(self) -> bool:
        """Whether nothing is due and nothing is in flight."""
        book = self.keeper._book
        with self.keeper._guard:
            wake = book.next_wake()
            quiet = not any(entry.flight for entry in book._entries.values())
            return quiet and (wake is None or wake > self.clock.now)


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for something another thread does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.002)


def make_lease(id: str, now: float, length: float = 30.0, **options) -> Lease:
    options.setdefault("clock", ManualClock(now))
    return Lease(id, 1, "me", lease_times(length), sent_at=now, **options)


def make_book(jitter: float = 0.0) -> Book:
    return Book(jitter, lambda: 0.0)
