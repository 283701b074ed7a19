"""The engine on a SQLite file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from threading import Lock
from typing import Any, Self
from urllib.parse import quote

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.core.event import EventFilter, NewEvent, StoredEvent
from tenure.core.fleet import Finding, Inspection, QueueChange, QueueSettings, WorkerInfo
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
from tenure.engines.signals import LocalListener
from tenure.engines.sqlite import claiming, fleet, health, history, operations, queries, schedules
from tenure.engines.sqlite.connection import Place, schema_version
from tenure.engines.sqlite.database import Database, ReadOnly
from tenure.engines.sqlite.direct import DirectInserts
from tenure.engines.sqlite.exchange import Exchange
from tenure.engines.sqlite.joined import JoinedTransaction
from tenure.engines.sqlite.reader import Reader
from tenure.engines.sqlite.thread import Answer, Call, ConnectionThread, Work, in_thread
from tenure.engines.sqlite.watch import Watch
from tenure.engines.sqlite.writer import Writer
from tenure.errors import ConfigurationError, EngineUnavailable

TRAITS = Traits(name="sqlite", durable=True, shared=True, push=False)


class SQLiteEngine:
    """Keeps jobs in one file, shared by the processes of one machine.

    `synchronous="full"` (the default): what was acknowledged survives a power cut; with `"normal"`
    it survives a crash of the process. `timeout`: seconds until a call gives up. `clock` is the
    store's clock. Can be opened again after it was closed, and awaited from any event loop of the
    process that opened it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: str = "full",
        timeout: float = 10.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        # Fixed now: a later change of the working directory must not lead to another file. Without
        # links, since all who use one file must find the same files beside it.
        self._place = Place(os.path.realpath(path), synchronous, float(timeout))
        self._clock = clock
        self._exchange = Exchange(self._place.path)
        self._traits = msgspec.structs.replace(TRAITS, push=self._exchange.reaches_others)
        self._pid = 0
        self._writer: Writer | None = None
        self._reader: Reader | None = None
        self._listening = 0
        self._direct: DirectInserts | None = None
        self._lock = Lock()

    @property
    def traits(self) -> Traits:
        return self._traits

    @property
    def url(self) -> str:
        """The file as an absolute URL."""
        return f"sqlite:///{quote(self._place.path)}"

    def side(self) -> SQLiteEngine:
        """See `Engine.side`. Hears at once what this one writes, and the other way round."""
        place = self._place
        other = SQLiteEngine(
            place.path, synchronous=place.synchronous, timeout=place.timeout, clock=self._clock
        )
        other._exchange = self._exchange
        return other

    async def __aenter__(self) -> Self:
        if self._writer is not None and self._pid == os.getpid():
            raise ConfigurationError(f"the engine on {self._place.path} is open already")
        self._pid = os.getpid()
        self._writer = Writer(
            lambda: Database(self._place),
            self._clock.time_us,
            self._place.timeout,
            told=self._exchange.tell,
            look=Watch(self._exchange.hub).look,
        )
        self._writer.start()
        try:
            await self._call(self._writer, "open", lambda tx, now: None, None)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        threads = [thread for thread in (self._reader, self._writer) if thread is not None]
        self._reader = self._writer = None
        if self._pid != os.getpid():
            return  # forked: neither threads nor connections are ours to end
        for thread in threads:
            await self._end(thread)
        if self._direct is not None:
            await in_thread(self._direct.close, self._place.timeout)
        self._exchange.close()

    async def _end(self, thread: ConnectionThread[Any]) -> None:
        """Stop a thread, once it has done what is queued; leave it behind if that never ends."""
        closing = thread.stop().future
        await asyncio.wait([closing], timeout=self._place.timeout)
        if closing.done():
            thread.join()

    async def migrate(self) -> int:
        """See `Engine.migrate`. Opening does the same; so this works on a closed engine, too."""
        if self._writer is None:
            async with self:
                pass
        return schema_version()

    async def insert(self, jobs: Sequence[NewJob], *, now: int | None = None) -> list[Inserted]:
        """See `Engine.insert`."""
        operations.check_sizes(jobs, TRAITS.max_payload)
        return await self._write(
            "insert", lambda tx, at: operations.insert(tx, jobs, at), now, len(jobs)
        )

    async def claim(self, claim: Claim, *, now: int | None = None) -> list[JobRow]:
        """See `Engine.claim`."""
        return await self._write(
            "claim", lambda tx, at: claiming.claim(tx, claim, at), now, claim.limit
        )

    async def extend(self, beats: Sequence[Beat], *, now: int | None = None) -> list[Extension]:
        """See `Engine.extend`."""
        return await self._write(
            "extend", lambda tx, at: operations.extend(tx, beats, at), now, len(beats)
        )

    async def settle(
        self, settlements: Sequence[Settlement], *, now: int | None = None
    ) -> list[Settled]:
        """See `Engine.settle`."""
        return await self._write(
            "settle", lambda tx, at: operations.settle(tx, settlements, at), now, len(settlements)
        )

    async def sweep(self, limit: int, *, now: int | None = None) -> list[Swept]:
        """See `Engine.sweep`."""
        return await self._write(
            "sweep", lambda tx, at: operations.sweep(tx, limit, at), now, limit
        )

    async def cancel(
        self, ids: Sequence[str], *, force: bool = False, now: int | None = None
    ) -> CancelResult:
        """See `Engine.cancel`."""
        return await self._write(
            "cancel", lambda tx, at: operations.cancel(tx, ids, force, at), now, len(ids)
        )

    async def requeue(
        self, ids: Sequence[str], *, payload: bytes | None = None, now: int | None = None
    ) -> RequeueResult:
        """See `Engine.requeue`."""
        check_payload(payload, self.traits.max_payload)
        return await self._write(
            "requeue", lambda tx, at: operations.requeue(tx, ids, payload, at), now, len(ids)
        )

    async def get(self, ids: Sequence[str]) -> list[JobRow | None]:
        """See `Engine.get`."""
        return await self._read("get", lambda tx, at: queries.get(tx, ids), None)

    async def next_due(
        self, queues: Sequence[str], tasks: Sequence[str] | None = None, *, now: int | None = None
    ) -> int | None:
        """See `Engine.next_due`."""
        return await self._read(
            "next_due", lambda tx, at: queries.next_due(tx, queues, tasks, at), now
        )

    async def find(self, where: Filter, page: Page) -> Found:
        """See `Engine.find`."""
        _check_limit(page.limit, PAGE_MAX)
        return await self._read("find", lambda tx, at: queries.find(tx, where, page), None)

    async def stats(
        self, queues: Sequence[str] = (), *, now: int | None = None
    ) -> list[QueueStats]:
        """See `Engine.stats`."""
        return await self._read("stats", lambda tx, at: queries.stats(tx, queues, at), now)

    async def prune(
        self, kind: Prunable, before: int, *, where: Filter | None = None, limit: int = 1000
    ) -> int:
        """See `Engine.prune`."""
        _check_limit(limit, PRUNE_MAX)
        if kind is Prunable.EVENTS:
            return await self._write(
                "prune", lambda tx, at: history.prune(tx, before, limit), None, limit
            )
        chosen = where or Filter()
        return await self._write(
            "prune", lambda tx, at: operations.prune_jobs(tx, before, chosen, limit), None, limit
        )

    async def configure(self, change: QueueChange) -> QueueSettings:
        """See `Engine.configure`."""
        return await self._write("configure", lambda tx, at: fleet.configure(tx, change), None, 1)

    async def inspect(self, *, now: int | None = None) -> Inspection:
        """See `Engine.inspect`."""
        return await self._read(
            "inspect", lambda tx, at: fleet.inspect(tx, self._place.path, at), now
        )

    async def check(self) -> list[Finding]:
        """See `engines.optional.Checkable`. Reads beside whatever else goes on."""
        self._opened("check", self._writer)
        return await health.check(self._place)

    async def announce(self, worker: WorkerInfo, ttl: int, *, now: int | None = None) -> None:
        """See `Engine.announce`."""
        await self._write("announce", lambda tx, at: fleet.announce(tx, worker, ttl, at), now, 1)

    async def workers(self, *, now: int | None = None) -> list[WorkerInfo]:
        """See `Engine.workers`."""
        return await self._read("workers", fleet.workers, now)

    async def save_schedules(self, changes: Sequence[ScheduleChange]) -> list[Schedule | None]:
        """See `Engine.save_schedules`."""
        return await self._write(
            "save_schedules", lambda tx, at: schedules.save(tx, changes), None, len(changes)
        )

    async def schedules(self) -> list[Schedule]:
        """See `Engine.schedules`."""
        return await self._read("schedules", lambda tx, at: schedules.all_schedules(tx), None)

    async def fire(self, ticks: Sequence[Tick], *, now: int | None = None) -> list[Fired]:
        """See `Engine.fire`."""
        operations.check_sizes([tick.job for tick in ticks], TRAITS.max_payload)
        return await self._write(
            "fire", lambda tx, at: schedules.fire(tx, ticks, at), now, len(ticks)
        )

    async def identity(self, key: str) -> Reservation | None:
        """See `Engine.identity`."""
        return await self._read("identity", lambda tx, at: queries.reservation(tx, key), None)

    async def release_identity(self, key: str, owner: str | None = None) -> bool:
        """See `Engine.release_identity`."""
        values = {"key": key, "owner": owner}
        released = await self._write(
            "release_identity",
            lambda tx, at: tx.write(operations.SQL["release_reservation"], values),
            None,
            1,
        )
        return released > 0

    async def append(self, events: Sequence[NewEvent], *, now: int | None = None) -> None:
        """See `Engine.append`."""
        await self._write("append", lambda tx, at: history.append(tx, events, at), now, len(events))

    async def read(
        self, where: EventFilter, after: str | None = None, limit: int = 100
    ) -> list[StoredEvent]:
        """See `Engine.read`."""
        _check_limit(limit, PAGE_MAX)
        return await self._read("read", lambda tx, at: history.read(tx, where, after, limit), None)

    def direct(self) -> DirectInserts:
        """See `engines.optional.Blocking`."""
        with self._lock:
            if self._direct is None:
                self._direct = DirectInserts(
                    self._place, self._clock.time_us, self._exchange.tell, TRAITS.max_payload
                )
            return self._direct

    def join(self, connection: object) -> JoinedTransaction:
        """See `Engine.join`: on a `sqlite3.Connection` to the same file, after BEGIN IMMEDIATE.

        Works on an engine that is not open, too: it uses the caller's connection only.
        """
        return JoinedTransaction(
            connection, self._place.path, self._clock, TRAITS.max_payload, self._wake
        )

    async def notify(self, signals: Iterable[Signal]) -> None:
        """See `Engine.notify`."""
        self._wake(signals)

    def _wake(self, signals: Iterable[Signal]) -> None:
        if self._pid not in (0, os.getpid()):
            return  # a forked child may have inherited a lock that is held
        self._exchange.publish(signals)
        if self._writer is not None:
            self._writer.stir()

    @asynccontextmanager
    async def listen(
        self, topics: Iterable[Topic], queues: Iterable[str] | None = None
    ) -> AsyncIterator[LocalListener]:
        """See `Engine.listen`. Writes of other processes are heard within about 0.25 s at worst."""
        writer = self._opened("listen", self._writer)
        async with self._exchange.listen(topics, queues) as listener:
            self._count_listeners(writer, 1)
            try:
                yield listener
            finally:
                self._count_listeners(writer, -1)

    def _count_listeners(self, writer: Writer, step: int) -> None:
        with self._lock:
            self._listening += step
            writer.watch = self._listening > 0
        if step > 0:
            writer.nudge()

    async def _write(self, name: str, work: Work[Answer], now: int | None, rows: int) -> Answer:
        writer = self._opened(name, self._writer)
        return await self._call(writer, name, work, now, rows)

    async def _read(self, name: str, work: Work[Answer], now: int | None) -> Answer:
        self._opened(name, self._writer)
        return await self._call(self._started_reader(), name, work, now)

    def _started_reader(self) -> Reader:
        with self._lock:
            if self._reader is None:
                self._reader = Reader(
                    lambda: ReadOnly(self._place),
                    self._clock.time_us,
                    self._place.timeout,
                )
                self._reader.start()
            return self._reader

    def _opened(self, name: str, writer: Writer | None) -> Writer:
        if writer is None:
            raise EngineUnavailable(f"{name}: the engine on {self._place.path} is not open")
        if self._pid != os.getpid():
            raise EngineUnavailable(
                f"{name}: the engine on {self._place.path} was opened by process {self._pid}; "
                f"SQLite does not survive a fork: open it after forking only, or start processes "
                f"by spawn"
            )
        return writer

    async def _call(
        self,
        thread: ConnectionThread[Any],
        name: str,
        work: Work[Answer],
        now: int | None,
        rows: int = 1,
    ) -> Answer:
        call = Call(name, work, now, rows)
        if not thread.submit(call):
            raise EngineUnavailable(f"{name}: the engine on {self._place.path} is closing")
        # A timer of our own: asyncio.timeout() costs twice as much, on the path of every call.
        timer = call.loop.call_later(self._place.timeout, self._give_up, call)
        try:
            answer: Answer = await call.future
            return answer
        finally:
            timer.cancel()

    def _give_up(self, call: Call) -> None:
        if not call.future.done():
            text = f"{self._place.path} did not answer within {self._place.timeout:g} s"
            call.future.set_exception(EngineUnavailable(f"{call.name}: {text}"))


def _check_limit(limit: int, most: int) -> None:
    if not 1 <= limit <= most:
        raise ConfigurationError(f"limit must be from 1 to {most}, not {limit}")
