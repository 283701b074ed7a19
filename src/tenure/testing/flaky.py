"""Faults on demand: an engine whose operations fail, stall, or lose their reply."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from threading import Lock
from typing import Self, TypeVar

import msgspec

from tenure.core.event import EventFilter, NewEvent, StoredEvent
from tenure.core.fleet import Inspection, QueueChange, QueueSettings, WorkerInfo
from tenure.core.identity import Reservation
from tenure.core.job import JobRow, NewJob
from tenure.core.lease import Beat, Extension
from tenure.core.outcomes import Settled, Settlement
from tenure.core.query import CancelResult, Filter, Found, Page, QueueStats, RequeueResult, Swept
from tenure.core.schedule import Fired, Schedule, ScheduleChange, Tick
from tenure.engines.protocol import (
    AsyncJoined,
    Claim,
    Engine,
    Inserted,
    Joined,
    Listener,
    Prunable,
    Signal,
    Topic,
    Traits,
)
from tenure.errors import ConfigurationError, EngineUnavailable

T = TypeVar("T")
OPERATIONS = frozenset(
    """migrate insert claim extend settle sweep get next_due notify cancel requeue prune configure
    inspect find stats announce workers save_schedules schedules fire identity release_identity
    append read""".split()
)
"""What can be made to fail: every operation that answers later."""


class Gate:
    """Where an operation stands still until it is let go. Usable from any thread and loop."""

    def __init__(self) -> None:
        self._reached: Future[None] = Future()
        self._open: Future[None] = Future()

    async def reached(self) -> None:
        """Wait until an operation stands here."""
        await asyncio.shield(asyncio.wrap_future(self._reached))

    def let_go(self) -> None:
        """Let it go on. To be called once."""
        self._open.set_result(None)

    async def stand(self) -> None:
        if not self._reached.done():
            self._reached.set_result(None)
        await asyncio.shield(asyncio.wrap_future(self._open))


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """How often an operation that is not scripted goes wrong: probabilities from 0 to 1.

    `fail`: it does nothing and raises. `lose`: it takes effect, and its reply is lost. `delay`: it
    takes up to `longest` seconds more, before or after its effect.
    """

    fail: float = 0.0
    lose: float = 0.0
    delay: float = 0.0
    longest: float = 0.01


class _Fault(msgspec.Struct, frozen=True):
    """What happens to one call: `act` is awaited before or after its effect."""

    after: bool
    act: Callable[[], Awaitable[None]]


class _Script:
    """The faults to come; shared by the handles of one store."""

    def __init__(self, seed: int, rates: Mapping[str, Rates]) -> None:
        self.calls: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self._lock = Lock()
        self._random = random.Random(seed)
        self._rates = dict(rates)
        self._scripted: dict[str, list[_Fault]] = {}

    def add(self, operation: str, fault: _Fault, times: int) -> None:
        _check(operation)
        with self._lock:
            self._scripted.setdefault(operation, []).extend([fault] * times)

    def clear(self) -> None:
        with self._lock:
            self._scripted.clear()
            self._rates.clear()

    def next(self, operation: str) -> _Fault | None:
        """What happens to the call that begins now."""
        with self._lock:
            self.calls[operation] += 1
            waiting = self._scripted.get(operation)
            fault = waiting.pop(0) if waiting else self._drawn(operation)
            if fault is not None:
                self.faults[operation] += 1
            return fault

    def _drawn(self, operation: str) -> _Fault | None:
        rates = self._rates.get(operation)
        if rates is None:
            return None
        roll = self._random.random()
        if roll < rates.fail:
            return _Fault(False, _raising(operation))
        if roll < rates.fail + rates.lose:
            return _Fault(True, _raising(operation))
        if roll < rates.fail + rates.lose + rates.delay:
            wait = self._random.random() * rates.longest
            return _Fault(self._random.random() < 0.5, lambda: asyncio.sleep(wait))
        return None


def _check(operation: str) -> None:
    if operation not in OPERATIONS:
        raise ConfigurationError(
            f"{operation!r} cannot be made to fail; one of: {', '.join(sorted(OPERATIONS))}"
        )


def _raising(operation: str, error: Exception | None = None) -> Callable[[], Awaitable[None]]:
    async def act() -> None:
        raise error or EngineUnavailable(f"{operation}: no reply (a fault on purpose)")

    return act


class Flaky:
    """An engine that goes wrong where it is told to, and else is the one it was given.

    Faults are scripted per operation, by its name, and used up in the order given; a call for which
    nothing is scripted may go wrong at random, by `rates`, the same way for the same `seed` and
    order of calls. `side()` handles share script and counts. `calls` and `faults` count by
    operation.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        seed: int = 0,
        rates: Mapping[str, Rates] | None = None,
    ) -> None:
        for operation in rates or ():
            _check(operation)
        self._engine = engine
        self._script = _Script(seed, rates or {})

    def fail(
        self,
        operation: str,
        *,
        times: int = 1,
        after: bool = False,
        error: Exception | None = None,
    ) -> None:
        """Let the next `times` calls raise `error` (default: `EngineUnavailable`).

        `after`: the operation takes effect first, so that only its reply is lost.
        """
        self._script.add(operation, _Fault(after, _raising(operation, error)), times)

    def delay(self, operation: str, seconds: float, *, times: int = 1, after: bool = False) -> None:
        """Let the next `times` calls take longer, before or `after` they took effect."""
        self._script.add(operation, _Fault(after, lambda: asyncio.sleep(seconds)), times)

    def hold(self, operation: str, *, after: bool = False) -> Gate:
        """Let the next call stand still, before or `after` it took effect, until it is let go."""
        gate = Gate()
        self._script.add(operation, _Fault(after, gate.stand), 1)
        return gate

    def heal(self) -> None:
        """Forget all faults to come, scripted and random."""
        self._script.clear()

    @property
    def calls(self) -> Mapping[str, int]:
        return self._script.calls

    @property
    def faults(self) -> Mapping[str, int]:
        return self._script.faults

    async def _run(self, operation: str, call: Callable[[], Awaitable[T]]) -> T:
        fault = self._script.next(operation)
        if fault is not None and not fault.after:
            await fault.act()
        answer = await call()
        if fault is not None and fault.after:
            await fault.act()
        return answer

    @property
    def traits(self) -> Traits:
        return self._engine.traits

    @property
    def url(self) -> str:
        return self._engine.url

    async def __aenter__(self) -> Self:
        await self._engine.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._engine.__aexit__(*exc)

    def side(self) -> Flaky:
        side = Flaky(self._engine.side())
        side._script = self._script
        return side

    def join(self, connection: object) -> Joined | AsyncJoined:
        return self._engine.join(connection)

    def listen(
        self, topics: Iterable[Topic], queues: Iterable[str] | None = None
    ) -> AbstractAsyncContextManager[Listener]:
        return self._engine.listen(topics, queues)

    async def migrate(self) -> int:
        return await self._run("migrate", lambda: self._engine.migrate())

    async def insert(self, jobs: Sequence[NewJob], *, now: int | None = None) -> list[Inserted]:
        return await self._run("insert", lambda: self._engine.insert(jobs, now=now))

    async def claim(self, claim: Claim, *, now: int | None = None) -> list[JobRow]:
        return await self._run("claim", lambda: self._engine.claim(claim, now=now))

    async def extend(self, beats: Sequence[Beat], *, now: int | None = None) -> list[Extension]:
        return await self._run("extend", lambda: self._engine.extend(beats, now=now))

    async def settle(
        self, settlements: Sequence[Settlement], *, now: int | None = None
    ) -> list[Settled]:
        return await self._run("settle", lambda: self._engine.settle(settlements, now=now))

    async def sweep(self, limit: int, *, now: int | None = None) -> list[Swept]:
        return await self._run("sweep", lambda: self._engine.sweep(limit, now=now))

    async def get(self, ids: Sequence[str]) -> list[JobRow | None]:
        return await self._run("get", lambda: self._engine.get(ids))

    async def next_due(
        self, queues: Sequence[str], tasks: Sequence[str] | None = None, *, now: int | None = None
    ) -> int | None:
        return await self._run("next_due", lambda: self._engine.next_due(queues, tasks, now=now))

    async def notify(self, signals: Iterable[Signal]) -> None:
        try:
            await self._run("notify", lambda: self._engine.notify(signals))
        except EngineUnavailable:
            pass  # it never raises: what fails here is a hint that is lost

    async def cancel(
        self, ids: Sequence[str], *, force: bool = False, now: int | None = None
    ) -> CancelResult:
        return await self._run("cancel", lambda: self._engine.cancel(ids, force=force, now=now))

    async def requeue(
        self, ids: Sequence[str], *, payload: bytes | None = None, now: int | None = None
    ) -> RequeueResult:
        return await self._run(
            "requeue", lambda: self._engine.requeue(ids, payload=payload, now=now)
        )

    async def prune(
        self, kind: Prunable, before: int, *, where: Filter | None = None, limit: int = 1000
    ) -> int:
        return await self._run(
            "prune", lambda: self._engine.prune(kind, before, where=where, limit=limit)
        )

    async def configure(self, change: QueueChange) -> QueueSettings:
        return await self._run("configure", lambda: self._engine.configure(change))

    async def inspect(self, *, now: int | None = None) -> Inspection:
        return await self._run("inspect", lambda: self._engine.inspect(now=now))

    async def find(self, where: Filter, page: Page) -> Found:
        return await self._run("find", lambda: self._engine.find(where, page))

    async def stats(
        self, queues: Sequence[str] = (), *, now: int | None = None
    ) -> list[QueueStats]:
        return await self._run("stats", lambda: self._engine.stats(queues, now=now))

    async def announce(self, worker: WorkerInfo, ttl: int, *, now: int | None = None) -> None:
        return await self._run("announce", lambda: self._engine.announce(worker, ttl, now=now))

    async def workers(self, *, now: int | None = None) -> list[WorkerInfo]:
        return await self._run("workers", lambda: self._engine.workers(now=now))

    async def save_schedules(self, changes: Sequence[ScheduleChange]) -> list[Schedule | None]:
        return await self._run("save_schedules", lambda: self._engine.save_schedules(changes))

    async def schedules(self) -> list[Schedule]:
        return await self._run("schedules", lambda: self._engine.schedules())

    async def fire(self, ticks: Sequence[Tick], *, now: int | None = None) -> list[Fired]:
        return await self._run("fire", lambda: self._engine.fire(ticks, now=now))

    async def identity(self, key: str) -> Reservation | None:
        return await self._run("identity", lambda: self._engine.identity(key))

    async def release_identity(self, key: str, owner: str | None = None) -> bool:
        return await self._run(
            "release_identity", lambda: self._engine.release_identity(key, owner)
        )

    async def append(self, events: Sequence[NewEvent], *, now: int | None = None) -> None:
        return await self._run("append", lambda: self._engine.append(events, now=now))

    async def read(
        self, where: EventFilter, after: str | None = None, limit: int = 100
    ) -> list[StoredEvent]:
        return await self._run("read", lambda: self._engine.read(where, after, limit))
