"""The engine on a PostgreSQL database."""

from __future__ import annotations

import asyncio
import os
import secrets
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableSet, Sequence
from contextlib import asynccontextmanager
from typing import Self, TypeVar

import msgspec
import psycopg

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.core.event import EventFilter, NewEvent, StoredEvent
from tenure.core.fleet import Inspection, QueueChange, QueueSettings, WorkerInfo
from tenure.core.identity import Reservation
from tenure.core.insertion import Inserted
from tenure.core.job import JobRow, NewJob, check_payload
from tenure.core.lease import Beat, Busy, Extension
from tenure.core.outcomes import Settled, Settlement, Verdict
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
from tenure.engines.callers import AsyncCaller, caller_of
from tenure.engines.postgres import (
    claiming,
    fleet,
    health,
    history,
    inserting,
    migrating,
    operating,
    queries,
    schedules,
)
from tenure.engines.postgres.direct import DirectInserts
from tenure.engines.postgres.handle import Handle, Work
from tenure.engines.postgres.joined import AsyncJoinedTransaction, JoinedTransaction, Store
from tenure.engines.postgres.link import translated
from tenure.engines.postgres.place import Place, PlacedStatements
from tenure.engines.protocol import (
    Claim,
    Prunable,
    Signal,
    Topic,
    Traits,
)
from tenure.engines.signals import LocalListener, SignalHub
from tenure.errors import ConfigurationError, EngineUnavailable

TRAITS = Traits(name="postgresql", durable=True, shared=True, push=True)

_BUSY_WAITS = (0.001, 0.004, 0.015, 0.04)
"""Seconds between looks at a locked row: most locks last as long as one statement of ours."""

T = TypeVar("T")
Item = TypeVar("Item")
Answer = TypeVar("Answer")


class PostgresEngine:
    """Keeps jobs in a PostgreSQL database, shared by any number of machines.

    The store's clock is the server's; `clock` is used for nothing that is stored. Can be opened
    again after it was closed. May be awaited from any event loop while the one that opened it runs.
    """

    def __init__(self, place: Place, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._place = place
        self._clock = clock
        self._statements = PlacedStatements(place)
        self._hub = SignalHub()
        self._sender = secrets.token_hex(8)
        self._pid = 0
        self._handle: Handle | None = None
        self._proven: MutableSet[object] = weakref.WeakSet()
        self._direct = self._new_direct()

    @property
    def traits(self) -> Traits:
        return TRAITS

    @property
    def url(self) -> str:
        """The address without secrets."""
        return self._place.shown

    def side(self) -> PostgresEngine:
        """See `Engine.side`. Hears at once what this one writes, and the other way round."""
        other = PostgresEngine(self._place, clock=self._clock)
        other._hub, other._sender = self._hub, self._sender
        other._direct = other._new_direct()
        return other

    async def __aenter__(self) -> Self:
        if self._handle is not None and self._pid == os.getpid():
            raise ConfigurationError(f"the engine on {self.url} is open already")
        self._pid = os.getpid()
        self._handle = Handle(self._place, self._statements, self._hub, self._sender)
        try:
            await self._handle.open()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        handle, self._handle = self._handle, None
        if self._direct.in_use:
            await asyncio.to_thread(self._direct.close)
        if handle is not None and self._pid == os.getpid():
            if handle.loop is asyncio.get_running_loop():
                await handle.close()
            elif handle.loop.is_running():
                await asyncio.wrap_future(
                    asyncio.run_coroutine_threadsafe(handle.close(), handle.loop)
                )

    async def migrate(self) -> int:
        """See `Engine.migrate`. The one operation for which the engine need not be open."""
        try:
            return await migrating.migrate(self._place, self._statements)
        except psycopg.Error as error:
            raise translated(error, "migrate", self._place) from error

    async def insert(self, jobs: Sequence[NewJob], *, now: int | None = None) -> list[Inserted]:
        """See `Engine.insert`."""
        inserting.check(jobs, TRAITS.max_payload, self._clock.time_us() if now is None else now)
        if not jobs:
            return []
        if not all(map(inserting.is_plain, jobs)):
            return await self._whole("insert", lambda out: inserting.insert(out, jobs), now)
        size = sum(len(job.payload) for job in jobs)
        return await self._at_home(
            "insert", lambda h: h.flow("insert", h.inserts.submit(jobs, now, size))
        )

    async def claim(self, claim: Claim, *, now: int | None = None) -> list[JobRow]:
        """See `Engine.claim`."""
        if claim.limit <= 0:
            return []
        floors = self._opened("claim").floors
        if claiming.is_simple(claim, floors):
            taken = await self._at_home(
                "claim", lambda h: h.claim(lambda out: claiming.claim_due(out, claim, floors), now)
            )
            if taken is not None:
                return taken
        return await self._whole("claim", lambda out: claiming.claim(out, claim, floors), now)

    async def extend(self, beats: Sequence[Beat], *, now: int | None = None) -> list[Extension]:
        """See `Engine.extend`. `Busy`: a transaction of somebody else holds the job's row."""

        async def once(handle: Handle, items: Sequence[Beat]) -> list[Extension]:
            return await handle.flow("extend", handle.extends.submit(items, now))

        def busy(answer: Extension) -> bool:
            return isinstance(answer, Busy)

        return await self._at_home("extend", lambda h: _patiently(h, once, beats, busy))

    async def settle(
        self, settlements: Sequence[Settlement], *, now: int | None = None
    ) -> list[Settled]:
        """See `Engine.settle`. `BUSY`: a transaction of somebody else holds the job's row."""

        async def once(handle: Handle, items: Sequence[Settlement]) -> list[Settled]:
            return await handle.flow("settle", handle.settles.submit(items, now))

        def busy(answer: Settled) -> bool:
            return answer.verdict is Verdict.BUSY

        return await self._at_home("settle", lambda h: _patiently(h, once, settlements, busy))

    async def sweep(self, limit: int, *, now: int | None = None) -> list[Swept]:
        """See `Engine.sweep`."""
        return await self._whole("sweep", lambda out: operating.sweep(out, limit), now)

    async def cancel(
        self, ids: Sequence[str], *, force: bool = False, now: int | None = None
    ) -> CancelResult:
        """See `Engine.cancel`."""
        return await self._whole("cancel", lambda out: operating.cancel(out, ids, force), now)

    async def requeue(
        self, ids: Sequence[str], *, payload: bytes | None = None, now: int | None = None
    ) -> RequeueResult:
        """See `Engine.requeue`."""
        check_payload(payload, self.traits.max_payload)
        return await self._whole("requeue", lambda out: operating.requeue(out, ids, payload), now)

    async def get(self, ids: Sequence[str]) -> list[JobRow | None]:
        """See `Engine.get`."""
        return await self._apart("get", lambda out: queries.get(ids))

    async def next_due(
        self, queues: Sequence[str], tasks: Sequence[str] | None = None, *, now: int | None = None
    ) -> int | None:
        """See `Engine.next_due`."""
        return await self._apart("next_due", lambda out: queries.next_due(out, queues, tasks), now)

    async def find(self, where: Filter, page: Page) -> Found:
        """See `Engine.find`."""
        _check_limit(page.limit, PAGE_MAX)
        return await self._apart("find", lambda out: queries.find(where, page))

    async def stats(
        self, queues: Sequence[str] = (), *, now: int | None = None
    ) -> list[QueueStats]:
        """See `Engine.stats`."""
        return await self._apart("stats", lambda out: queries.stats(out, queues), now)

    async def prune(
        self, kind: Prunable, before: int, *, where: Filter | None = None, limit: int = 1000
    ) -> int:
        """See `Engine.prune`."""
        _check_limit(limit, PRUNE_MAX)
        if kind is Prunable.EVENTS:
            return await self._apart("prune", lambda out: operating.prune_events(before, limit))
        chosen = where or Filter()
        return await self._apart("prune", lambda out: operating.prune_jobs(before, chosen, limit))

    async def configure(self, change: QueueChange) -> QueueSettings:
        """See `Engine.configure`."""
        return await self._whole("configure", lambda out: fleet.configure(out, change))

    async def inspect(self, *, now: int | None = None) -> Inspection:
        """See `Engine.inspect`."""
        found = await self._apart("inspect", fleet.inspect, now)
        ours = await self._at_home("inspect", lambda handle: handle.ours())
        host_now = self._clock.time_us()
        more = await self._apart(
            "inspect", lambda out: health.examine(self._place, host_now, ours=ours)
        )
        return msgspec.structs.replace(found, findings=(*found.findings, *more))

    async def announce(self, worker: WorkerInfo, ttl: int, *, now: int | None = None) -> None:
        """See `Engine.announce`."""
        await self._whole("announce", lambda out: fleet.announce(out, worker, ttl), now)

    async def workers(self, *, now: int | None = None) -> list[WorkerInfo]:
        """See `Engine.workers`."""
        return await self._apart("workers", fleet.workers, now)

    async def save_schedules(self, changes: Sequence[ScheduleChange]) -> list[Schedule | None]:
        """See `Engine.save_schedules`."""
        return await self._whole("save_schedules", lambda out: schedules.save(changes))

    async def schedules(self) -> list[Schedule]:
        """See `Engine.schedules`."""
        return await self._apart("schedules", lambda out: schedules.all_schedules())

    async def fire(self, ticks: Sequence[Tick], *, now: int | None = None) -> list[Fired]:
        """See `Engine.fire`."""
        about_now = self._clock.time_us() if now is None else now
        inserting.check([tick.job for tick in ticks], TRAITS.max_payload, about_now)
        return await self._whole("fire", lambda out: schedules.fire(out, ticks), now)

    async def identity(self, key: str) -> Reservation | None:
        """See `Engine.identity`."""
        return await self._apart("identity", lambda out: queries.reservation(key))

    async def release_identity(self, key: str, owner: str | None = None) -> bool:
        """See `Engine.release_identity`."""
        return await self._apart("release_identity", lambda out: operating.release(key, owner))

    async def append(self, events: Sequence[NewEvent], *, now: int | None = None) -> None:
        """See `Engine.append`."""
        await self._apart("append", lambda out: history.append(out, events), now)

    async def read(
        self, where: EventFilter, after: str | None = None, limit: int = 100
    ) -> list[StoredEvent]:
        """See `Engine.read`."""
        _check_limit(limit, PAGE_MAX)
        return await self._apart("read", lambda out: history.read(where, after, limit))

    def join(self, connection: object) -> JoinedTransaction | AsyncJoinedTransaction:
        """See `Engine.join`: on what `engines.callers` knows, over psycopg 3 or asyncpg.

        Works on an engine that is not open, too: it uses the caller's connection only. That there
        is a transaction, and to which database, is checked by the operations.
        """
        caller = caller_of(connection)
        store = Store(
            self._place,
            self._statements,
            TRAITS.max_payload,
            self._clock.time_us,
            self._publish,
            None if self._handle is None else self._handle.identity,
            self._proven,
        )
        if isinstance(caller, AsyncCaller):
            return AsyncJoinedTransaction(caller, store)
        return JoinedTransaction(caller, store)

    async def notify(self, signals: Iterable[Signal]) -> None:
        """See `Engine.notify`."""
        self._publish(signals)

    def direct(self) -> DirectInserts:
        """See `engines.optional.Blocking`. Its connections are others, again as many at most."""
        return self._direct

    def _new_direct(self) -> DirectInserts:
        return DirectInserts(
            self._place,
            self._statements,
            self._sender,
            self._clock.time_us,
            self._publish,
            TRAITS.max_payload,
        )

    def _publish(self, signals: Iterable[Signal]) -> None:
        """Tell this process and the others; from any thread."""
        told = list(signals)
        if not told:
            return
        self._hub.publish(told)
        handle = self._handle
        if handle is not None and self._pid == os.getpid():
            try:
                handle.loop.call_soon_threadsafe(handle.tell, told)
                return
            except RuntimeError:
                pass  # the loop is closed
        self._direct.tell(told)

    @asynccontextmanager
    async def listen(
        self, topics: Iterable[Topic], queues: Iterable[str] | None = None
    ) -> AsyncIterator[LocalListener]:
        """See `Engine.listen`. Hears other processes at once, unless a pooler is in between."""
        async with self._hub.listen(topics, queues) as listener:
            await self._at_home("listen", lambda handle: handle.hear())
            yield listener

    async def _apart(self, name: str, work: Work[T], now: int | None = None) -> T:
        """Run an operation whose statements may take effect one by one."""
        return await self._at_home(name, lambda h: h.run(name, work, now, whole=False))

    async def _whole(self, name: str, work: Work[T], now: int | None = None) -> T:
        """Run an operation in one transaction."""
        return await self._at_home(name, lambda h: h.run(name, work, now, whole=True))

    async def _at_home(self, name: str, work: Callable[[Handle], Awaitable[T]]) -> T:
        """Await `work` on the loop that the connections belong to."""
        handle = self._opened(name)
        if handle.loop is asyncio.get_running_loop():
            return await work(handle)

        async def there() -> T:
            return await work(handle)

        if not handle.loop.is_running():
            raise EngineUnavailable(f"{name}: the loop that opened {self.url} has ended")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(there(), handle.loop))

    def _opened(self, name: str) -> Handle:
        if self._handle is None:
            raise EngineUnavailable(f"{name}: the engine on {self.url} is not open")
        if self._pid != os.getpid():
            raise EngineUnavailable(
                f"{name}: the engine on {self.url} was opened by process {self._pid}; connections "
                f"do not survive a fork: open it after forking"
            )
        return self._handle


async def _patiently(
    handle: Handle,
    once: Callable[[Handle, Sequence[Item]], Awaitable[list[Answer]]],
    items: Sequence[Item],
    busy: Callable[[Answer], bool],
) -> list[Answer]:
    """The answers, after a few looks at rows that are locked for a moment."""
    if not items:
        return []
    answers = await once(handle, items)
    for wait in _BUSY_WAITS:
        places = [place for place, answer in enumerate(answers) if busy(answer)]
        if not places:
            break
        await asyncio.sleep(wait)
        again = await once(handle, [items[place] for place in places])
        for place, answer in zip(places, again, strict=True):
            answers[place] = answer
    return answers


def _check_limit(limit: int, most: int) -> None:
    if not 1 <= limit <= most:
        raise ConfigurationError(f"limit must be from 1 to {most}, not {limit}")
