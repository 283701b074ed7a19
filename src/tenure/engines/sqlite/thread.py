"""The threads that own connections: one that writes, with group commit, and one that reads.

A connection lives in the frame of its thread and nowhere else. So a forked child, which has the
object but not the thread, can neither use nor close it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

from tenure.core.states import State
from tenure.engines.sqlite.connection import begin
from tenure.errors import EngineUnavailable

GROUP_CALLS, GROUP_ROWS = 512, 5_000
"""A group takes no further call once it has this many, or this many rows."""

LOCK_SHARE = 0.9
"""The part of a call's time that is spent waiting for a lock, so that its caller hears of it."""

Connect = Callable[[], sqlite3.Connection]


class Transaction:
    """What an operation works with: statements, and what to tell when they took effect."""

    __slots__ = ("_cursor", "changes", "hints")

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor
        self.changes: list[tuple[str, str, State, bool]] = []
        """Rows written as (id, queue, new state, ready)."""
        self.hints: list[str] = []
        """Ids of running jobs whose holder should look at its lease."""

    def execute(self, statement: str, values: Any = ()) -> list[Any]:
        """All rows that a statement gives."""
        return self._cursor.execute(statement, values).fetchall()

    def write(self, statement: str, values: Any = ()) -> int:
        """How many rows a statement changed."""
        return self._cursor.execute(statement, values).rowcount

    def execute_many(self, statement: str, rows: Sequence[Any]) -> int:
        """How many rows a statement changed, run once per item."""
        if not rows:
            return 0
        return max(0, self._cursor.executemany(statement, rows).rowcount)


Answer = TypeVar("Answer")
Work = Callable[[Transaction, int], Answer]
"""An operation: gets the transaction and the store's time."""

Told = Callable[[Transaction], None]


class Call:
    """One operation that somebody waits for. Its future belongs to the loop of the caller."""

    __slots__ = ("answer", "error", "future", "loop", "name", "now", "rows", "work")

    def __init__(self, name: str, work: Work[Any], now: int | None, rows: int) -> None:
        self.name = name
        self.work = work
        self.now = now
        self.rows = rows
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.answer: Any = None
        self.error: Exception | None = None

    def fail(self, error: Exception) -> None:
        """Each call gets an error of its own that names it, whatever else was in the group."""
        if isinstance(error, sqlite3.Error):
            self.error = EngineUnavailable(f"{self.name}: {error}")
            self.error.__cause__ = error
        else:
            self.error = error


class ConnectionThread:
    """A daemon thread that owns one connection and answers calls until it is stopped."""

    def __init__(self, name: str, connect: Connect, time_us: Callable[[], int]) -> None:
        self._connect = connect
        self._time_us = time_us
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
        while (calls := self._next(connection)) is not None:
            self._serve(connection, calls)
            deliver(calls)
        connection.close()
        self._finish()

    def _next(self, connection: sqlite3.Connection) -> list[Call] | None:
        """What to do now; None at the end."""
        raise NotImplementedError

    def _serve(self, connection: sqlite3.Connection, calls: list[Call]) -> None:
        raise NotImplementedError

    def _refuse_all(self, error: Exception) -> None:
        while True:
            call = self._calls.get()
            if call is None:
                continue
            if call is self._closing:
                break
            call.error = error
            deliver([call])
        self._finish()

    def _finish(self) -> None:
        if self._closing is not None:
            deliver([self._closing])


class Writer(ConnectionThread):
    """Writes. Calls that wait while a transaction runs go into the next one together.

    While `watch` is true, `look` is called with the connection about every `LOOK_EVERY` seconds.
    """

    LOOK_EVERY = 0.25

    def __init__(
        self,
        name: str,
        connect: Connect,
        time_us: Callable[[], int],
        *,
        timeout: float,
        told: Told,
        look: Callable[[sqlite3.Connection], None],
    ) -> None:
        super().__init__(name, connect, time_us)
        self._timeout = timeout
        self._told = told
        self._look = look
        self._looked = 0.0
        self._ahead: Call | None = None
        self.watch = False

    def nudge(self) -> None:
        """Have `watch` read again."""
        self._calls.put(None)

    def _next(self, connection: sqlite3.Connection) -> list[Call] | None:
        call = self._first(connection)
        if call is self._closing:
            return None
        group, rows = [call], call.rows
        while len(group) < GROUP_CALLS and rows < GROUP_ROWS:
            try:
                more = self._calls.get_nowait()
            except Empty:
                break
            if more is None:
                continue
            if more is self._closing or rows + more.rows > GROUP_ROWS:
                self._ahead = more
                break
            group.append(more)
            rows += more.rows
        # Whoever was cancelled while waiting wants nothing any more; this is a hint, as the caller
        # may leave at any later moment just as well.
        return [call for call in group if not call.future.done()]

    def _first(self, connection: sqlite3.Connection) -> Call:
        call, self._ahead = self._ahead, None
        while True:
            if self.watch and time.monotonic() >= self._looked + self.LOOK_EVERY:
                self._looked = time.monotonic()
                self._look(connection)
            if call is not None:
                return call
            try:
                call = self._calls.get(timeout=self.LOOK_EVERY if self.watch else None)
            except Empty:
                pass

    def _serve(self, connection: sqlite3.Connection, calls: list[Call]) -> None:
        if not calls:
            return
        try:
            begin(connection, self._timeout * LOCK_SHARE)
        except sqlite3.Error as error:
            for call in calls:
                call.fail(error)
            return
        tx = Transaction(connection.cursor())
        try:
            for call in calls:
                now = self._time_us() if call.now is None else call.now
                call.answer = call.work(tx, now)
            connection.execute("COMMIT")
        except Exception as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._serve_apart(connection, calls, error)
        else:
            self._told(tx)

    def _serve_apart(
        self, connection: sqlite3.Connection, calls: list[Call], error: Exception
    ) -> None:
        """After an error: each call in its own transaction, so that it fails its caller only."""
        if len(calls) == 1:
            calls[0].fail(error)
            return
        for call in calls:
            self._serve(connection, [call])


class Reader(ConnectionThread):
    """Reads, one call at a time, beside the writer: a long read delays no claim."""

    STEPS_BETWEEN_LOOKS = 100_000

    def __init__(
        self, name: str, connect: Connect, time_us: Callable[[], int], *, timeout: float
    ) -> None:
        super().__init__(name, connect, time_us)
        self._timeout = timeout

    def _next(self, connection: sqlite3.Connection) -> list[Call] | None:
        call = self._calls.get()
        return None if call is self._closing or call is None else [call]

    def _serve(self, connection: sqlite3.Connection, calls: list[Call]) -> None:
        (call,) = calls
        if call.future.done():
            return
        deadline = time.monotonic() + self._timeout
        # A read that nobody waits for any more must not hold up those behind it.
        connection.set_progress_handler(
            lambda: call.future.done() or time.monotonic() > deadline, self.STEPS_BETWEEN_LOOKS
        )
        try:
            now = self._time_us() if call.now is None else call.now
            call.answer = call.work(Transaction(connection.cursor()), now)
        except Exception as error:
            call.fail(error)


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
