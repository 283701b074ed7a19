"""The engine on Redis or Valkey."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from threading import Lock
from typing import Self, TypeVar

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.core.event import EventFilter, NewEvent, StoredEvent
from tenure.core.fleet import Inspection, QueueChange, QueueSettings, WorkerInfo
from tenure.core.identity import Reservation
from tenure.core.insertion import Inserted
from tenure.core.job import JobRow, NewJob, check_payload
from tenure.core.lease import Beat, Extension
from tenure.core.outcomes import Settled, Settlement
from tenure.core.query import (
    PAGE_MAX,
    PRUNE_MAX,
    CancelResult,
    Filter,
    Found,
    Page,
    QueueStats,
    RequeueResult,
    Swept,
)
from tenure.core.schedule import Fired, Schedule, ScheduleChange, Tick
from tenure.engines.protocol import Claim, Prunable, Signal, Topic, Traits
from tenure.engines.redis import (
    claiming,
    fleet,
    health,
    history,
    inserting,
    limiting,
    opening,
    operating,
    queries,
    schedules,
)
from tenure.engines.redis.direct import DirectInserts
from tenure.engines.redis.handle import Handle
from tenure.engines.redis.joined import JoinedPipeline
from tenure.engines.redis.link import Link
from tenure.engines.redis.place import Place
from tenure.engines.signals import LocalListener, SignalHub
from tenure.errors import ConfigurationError, EngineUnavailable, TenureError

log = logging.getLogger("tenure.redis")

TRAITS = Traits(name="redis", durable=True, shared=True, push=True)

T = TypeVar("T")


class RedisEngine:
    """Keeps jobs in Redis or Valkey, shared by any number of machines.

    The store's clock is the server's; `clock` is used for nothing that is stored. Can be opened
    again after it was closed. May be awaited from any event loop while the one that opened it runs.
    """

    def __init__(self, place: Place, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._place = place
        self._clock = clock
        self._traits = msgspec.structs.replace(TRAITS, name=place.kind)
        self._hub = SignalHub()
        self._pid = 0
        self._handle: Handle | None = None
        self._direct: DirectInserts | None = None
        self._warned = False
        self._lock = Lock()

    @property
    def traits(self) -> Traits:
        return self._traits

    @property
    def url(self) -> str:
        """The address without secrets."""
        return self._place.shown

    def side(self) -> RedisEngine:
        """See `Engine.side`."""
        other = RedisEngine(self._place, clock=self._clock)
        other._warned = True
        return other

    async def __aenter__(self) -> Self:
        if self._handle is not None and self._pid == os.getpid():
            raise ConfigurationError(f"the engine on {self.url} is open already")
        self._pid = os.getpid()
        self._handle = Handle(self._place, self._hub)
        try:
            await opening.make(self._handle.link)
            await self._warn(self._handle.link)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._direct is not None:
            self._direct.close()
        handle, self._handle = self._handle, None
        if handle is not None and self._pid == os.getpid():
            if handle.loop is asyncio.get_running_loop():
                await handle.close()
            elif handle.loop.is_running():
                await asyncio.wrap_future(
                    asyncio.run_coroutine_threadsafe(handle.close(), handle.loop)
                )

    async def migrate(self) -> int:
        """See `Engine.migrate`. Opening does the same; so this works on a closed engine, too."""
        link = Link(self._place)
        try:
            return await opening.make(link)
        finally:
            await link.close()

    async def insert(self, jobs: Sequence[NewJob], *, now: int | None = None) -> list[Inserted]:
        """See `Engine.insert`."""
        inserting.check(jobs, TRAITS.max_payload)
        if not jobs:
            return []
        if not all(map(inserting.is_plain, jobs)):
            return await self._ask("insert", lambda link: inserting.insert(link, jobs, now))
        size = sum(len(job.payload) for job in jobs)
        return await self._at_home(
            "insert", lambda h: h.flow("insert", h.inserts.submit(jobs, now, size))
        )

    async def claim(self, claim: Claim, *, now: int | None = None) -> list[JobRow]:
        """See `Engine.claim`."""
        if claim.limit <= 0:
            return []
        return await self._at_home(
            "claim", lambda h: claiming.claim(h.link, claim, h.ear.registered, now)
        )

    async def extend(self, beats: Sequence[Beat], *, now: int | None = None) -> list[Extension]:
        """See `Engine.extend`. Never `Busy`: nobody can hold a job in a transaction here."""
        if not beats:
            return []
        return await self._at_home(
            "extend", lambda h: h.flow("extend", h.extends.submit(beats, now))
        )

    async def settle(
        self, settlements: Sequence[Settlement], *, now: int | None = None
    ) -> list[Settled]:
        """See `Engine.settle`. Never `BUSY`."""
        if not settlements:
            return []
        return await self._at_home(
            "settle", lambda h: h.flow("settle", h.settles.submit(settlements, now))
        )

    async def sweep(self, limit: int, *, now: int | None = None) -> list[Swept]:
        """See `Engine.sweep`."""
        return await self._ask("sweep", lambda link: operating.sweep(link, limit, now))

    async def cancel(
        self, ids: Sequence[str], *, force: bool = False, now: int | None = None
    ) -> CancelResult:
        """See `Engine.cancel`."""
        return await self._ask("cancel", lambda link: operating.cancel(link, ids, force, now))

    async def requeue(
        self, ids: Sequence[str], *, payload: bytes | None = None, now: int | None = None
    ) -> RequeueResult:
        """See `Engine.requeue`."""
        check_payload(payload, TRAITS.max_payload)
        return await self._ask("requeue", lambda link: operating.requeue(link, ids, payload, now))

    async def get(self, ids: Sequence[str]) -> list[JobRow | None]:
        """See `Engine.get`."""
        return await self._ask("get", lambda link: queries.get(link, ids))

    async def next_due(
        self, queues: Sequence[str], tasks: Sequence[str] | None = None, *, now: int | None = None
    ) -> int | None:
        """See `Engine.next_due`."""
        return await self._ask("next_due", lambda link: queries.next_due(link, queues, tasks, now))

    async def find(self, where: Filter, page: Page) -> Found:
        """See `Engine.find`."""
        _check_limit(page.limit, PAGE_MAX)
        return await self._ask("find", lambda link: queries.find(link, where, page))

    async def stats(
        self, queues: Sequence[str] = (), *, now: int | None = None
    ) -> list[QueueStats]:
        """See `Engine.stats`."""
        return await self._ask("stats", lambda link: queries.stats(link, queues, now))

    async def prune(
        self, kind: Prunable, before: int, *, where: Filter | None = None, limit: int = 1000
    ) -> int:
        """See `Engine.prune`."""
        _check_limit(limit, PRUNE_MAX)
        if kind is Prunable.EVENTS:
            return await self._ask("prune", lambda link: history.prune(link, before, limit))
        chosen = where or Filter()
        return await self._ask(
            "prune", lambda link: operating.prune_jobs(link, before, chosen, limit)
        )

    async def configure(self, change: QueueChange) -> QueueSettings:
        """See `Engine.configure`."""
        return await self._ask("configure", lambda link: limiting.configure(link, change))

    async def inspect(self, *, now: int | None = None) -> Inspection:
        """See `Engine.inspect`."""
        found = await self._ask("inspect", lambda link: fleet.inspect(link, now))
        host_now = self._clock.time_us()
        more = await self._ask("inspect", lambda link: health.examine(link, host_now))
        return msgspec.structs.replace(found, findings=(*found.findings, *more))

    async def announce(self, worker: WorkerInfo, ttl: int, *, now: int | None = None) -> None:
        """See `Engine.announce`."""
        await self._ask("announce", lambda link: fleet.announce(link, worker, ttl, now))

    async def workers(self, *, now: int | None = None) -> list[WorkerInfo]:
        """See `Engine.workers`."""
        return await self._ask("workers", lambda link: fleet.workers(link, now))

    async def save_schedules(self, changes: Sequence[ScheduleChange]) -> list[Schedule | None]:
        """See `Engine.save_schedules`."""
        return await self._ask("save_schedules", lambda link: schedules.save(link, changes))

    async def schedules(self) -> list[Schedule]:
        """See `Engine.schedules`."""
        return await self._ask("schedules", schedules.all_schedules)

    async def fire(self, ticks: Sequence[Tick], *, now: int | None = None) -> list[Fired]:
        """See `Engine.fire`."""
        inserting.check([tick.job for tick in ticks], TRAITS.max_payload)
        about_now = self._clock.time_us() if now is None else now
        return await self._ask("fire", lambda link: schedules.fire(link, ticks, now, about_now))

    async def identity(self, key: str) -> Reservation | None:
        """See `Engine.identity`."""
        return await self._ask("identity", lambda link: operating.reservation(link, key))

    async def release_identity(self, key: str, owner: str | None = None) -> bool:
        """See `Engine.release_identity`."""
        return await self._ask("release_identity", lambda link: operating.release(link, key, owner))

    async def append(self, events: Sequence[NewEvent], *, now: int | None = None) -> None:
        """See `Engine.append`."""
        await self._ask("append", lambda link: history.append(link, events, now))

    async def read(
        self, where: EventFilter, after: str | None = None, limit: int = 100
    ) -> list[StoredEvent]:
        """See `Engine.read`."""
        _check_limit(limit, PAGE_MAX)
        return await self._ask("read", lambda link: history.read(link, where, after, limit))

    def join(self, connection: object) -> JoinedPipeline:
        """See `Engine.join`: in a pipeline of redis-py, blocking or async, that is a transaction.

        Works on an engine that is not open, too: it uses the caller's connection only.
        """
        return JoinedPipeline(connection, self._place, TRAITS.max_payload, self._clock.time_us())

    def direct(self) -> DirectInserts:
        """See `engines.optional.Blocking`."""
        if self._direct is None:
            with self._lock:
                if self._direct is None:
                    self._direct = DirectInserts(self._place, TRAITS.max_payload)
        return self._direct

    async def notify(self, signals: Iterable[Signal]) -> None:
        """See `Engine.notify`."""
        told = [(str(signal.topic), signal.key) for signal in signals]
        if told:
            with suppress(TenureError):
                await self._ask("notify", lambda link: link.run("notify", told, repeat=True))

    @asynccontextmanager
    async def listen(
        self, topics: Iterable[Topic], queues: Iterable[str] | None = None
    ) -> AsyncIterator[LocalListener]:
        """See `Engine.listen`."""
        topics = frozenset(topics)
        queues = None if queues is None else frozenset(queues)
        handle = self._opened("listen")
        async with self._hub.listen(topics, queues) as listener, handle.heard(topics, queues):
            yield listener

    async def _warn(self, link: Link) -> None:
        """Say once what endangers the jobs on this server."""
        if not self._warned:
            self._warned = True
            for finding in await health.at_start(link):
                log.warning("%s: %s; %s", self.url, finding.text, finding.remedy)

    async def _ask(self, name: str, work: Callable[[Link], Awaitable[T]]) -> T:
        """Run an operation on the connection."""
        return await self._at_home(name, lambda handle: work(handle.link))

    async def _at_home(self, name: str, work: Callable[[Handle], Awaitable[T]]) -> T:
        """Await `work` on the loop that the connections belong to."""
        handle = self._opened(name)
        if handle.loop is asyncio.get_running_loop():
            return await work(handle)

        async def there() -> T:
            return await work(handle)

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(there(), handle.loop))

    def _opened(self, name: str) -> Handle:
        if self._handle is None:
            raise EngineUnavailable(f"{name}: the engine on {self.url} is not open")
        if self._pid != os.getpid():
            raise EngineUnavailable(
                f"{name}: the engine on {self.url} was opened by process {self._pid}; connections "
                f"do not survive a fork: open it after forking"
            )
        if not self._handle.loop.is_running():
            # A new connection is made here when it is needed; the old one is closed there, if that
            # loop ever goes on.
            self._handle.leave()
            self._handle = Handle(self._place, self._hub)
        return self._handle


def _check_limit(limit: int, most: int) -> None:
    if not 1 <= limit <= most:
        raise ConfigurationError(f"limit must be from 1 to {most}, not {limit}")
