"""Threads that own a connection and answer calls; what a call is.

A connection lives in the frame of its thread and nowhere else. So a forked child, which has the
object but not the thread, can neither use nor close it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Generic, Protocol, TypeVar

from tenure.core.limits import Key
from tenure.core.states import State
from tenure.errors import EngineUnavailable

LOCK_SHARE = 0.9
"""The part of a call's time that is spent on retries at a lock, so that its caller hears of it."""


class Closable(Protocol):
    """What a thread owns."""

    def close(self) -> None: ...


Connection = TypeVar("Connection", bound=Closable)


class Transaction:
    """What an operation works with: statements, and what to tell when they took effect."""

    __slots__ = ("_cursor", "changes", "crowd", "freed", "hints", "left")

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor
        self.changes: list[tuple[str, str, State, bool]] = []
        """Rows written as (id, queue, new state, ready)."""
        self.hints: list[str] = []
        """Ids of running jobs whose holder should look at its lease."""
        self.crowd = False
        """Whether more jobs became pending than `changes` has rows for."""
        self.freed: Counter[Key] = Counter()
        """How many slots of each key the operation at work has freed so far."""
        self.left: set[str] = set()
        """The queues in which it ended attempts."""

    def execute(self, statement: str, values: Any = ()) -> list[Any]:
        """All rows that a statement gives."""
        return self._cursor.execute(statement, values).fetchall()

    def write(self, statement: str, values: Any = ()) -> int:
        """How many rows a statement changed."""
        return self._cursor.execute(statement, values).rowcount

    def execute_many(self, statement: str, rows: Iterable[Any]) -> int:
        """How many rows a statement changed, run once per item."""
        return max(0, self._cursor.executemany(statement, rows).rowcount)


Answer = TypeVar("Answer")
Work = Callable[[Transaction, int], Answer]
"""An operation: gets the transaction and the store's time."""


class Request:
    """One operation that somebody waits for, and what became of it."""

    __slots__ = ("answer", "error", "name", "now", "rows", "work")

    def __init__(self, name: str, work: Work[Any], now: int | None, rows: int) -> None:
        self.name = name
        self.work = work
        self.now = now
        self.rows = rows
        self.answer: Any = None
        self.error: Exception | None = None

    def fail(self, error: Exception) -> None:
        """Each one gets an error of its own that names it, whatever else was in the group."""
        if isinstance(error, sqlite3.Error):
            self.error = EngineUnavailable(f"{self.name}: {error}")
            self.error.__cause__ = error
        else:
            self.error = error


class Call(Request):
    """A request from an event loop, which its future belongs to."""

    __slots__ = ("future", "loop")

    def __init__(self, name: str, work: Work[Any], now: int | None, rows: int) -> None:
        super().__init__(name, work, now, rows)
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()


class ConnectionThread(Generic[Connection]):
    """A daemon thread that owns one connection and answers calls until it is stopped."""

    def __init__(self, name: str, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._lock = Lock()
        self._closing: Call | None = None
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, call: Call) -> bool:
        """Queue a call; False if the thread is stopping, so that nobody would answer it."""
        with self._lock:
            if self._closing is not None:
                return False
            self._calls.put(call)
            return True

    def stop(self) -> Call:
        """Answer what is queued, then close; the call is answered when that is done."""
        with self._lock:
            if self._closing is None:
                self._closing = Call("close", lambda tx, now: None, None, 0)
                self._calls.put(self._closing)
            return self._closing

    def join(self) -> None:
        """Wait for the thread, which ends right after it has answered `stop`."""
        self._thread.join()

    def _run(self) -> None:
        try:
            connection = self._connect()
        except Exception as error:
            self._refuse_all(error)
            return
        while (first := self._first(connection)) is not self._closing:
            if not first.future.done():  # else its caller left before its turn came
                deliver(self._serve(connection, first))
        connection.close()
        self._finish()

    def _first(self, connection: Connection) -> Call:
        """The next call, as soon as there is one."""
        raise NotImplementedError

    def _serve(self, connection: Connection, first: Call) -> list[Call]:
        """Do this call, and others if it suits; all that were done. Never raises."""
        raise NotImplementedError

    def _refuse_all(self, error: Exception) -> None:
        """The connection could not be made: that is the answer to every call."""
        while (call := self._calls.get()) is None or call is not self._closing:
            if call is not None:
                call.fail(error)
                deliver([call])
        self._finish()

    def _finish(self) -> None:
        if self._closing is not None:
            deliver([self._closing])


async def in_thread(work: Callable[[], None], seconds: float) -> None:
    """Do what may block in a thread of its own; leave it behind if that never ends."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def run() -> None:
        work()
        with suppress(RuntimeError):  # the loop is closed, so nobody waits any more
            loop.call_soon_threadsafe(done.set)

    Thread(target=run, name="tenure-sqlite-close", daemon=True).start()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await done.wait()


def deliver(calls: Iterable[Call]) -> None:
    """Answer these calls, with one wake-up of each event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[Call]] = {}
    for call in calls:
        loops.setdefault(call.loop, []).append(call)
    for loop, waiting in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve, waiting)
        except RuntimeError:
            pass  # the loop is closed, so nobody waits any more


def _resolve(calls: list[Call]) -> None:
    for call in calls:
        if call.future.done():
            continue
        if call.error is not None:
            call.future.set_exception(call.error)
        else:
            call.future.set_result(call.answer)
