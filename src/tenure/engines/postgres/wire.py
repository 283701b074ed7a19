"""A connection of ours that blocks, none of whose calls lasts beyond a deadline."""

from __future__ import annotations

import math
import select
import time
from collections.abc import Callable, Generator
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

import psycopg

from tenure.engines.postgres import arrays, migrating
from tenure.engines.postgres.drivers import PsycopgDriver
from tenure.engines.postgres.link import (
    CANCEL_SECONDS,
    CONFLICTS,
    TRIES,
    adoption,
    check_server,
    translated,
)
from tenure.engines.postgres.place import Place, PlacedStatements
from tenure.engines.postgres.steps import Ask, Rows, Steps
from tenure.errors import EngineUnavailable, TenureError

T = TypeVar("T")

_LOOK = 0.1
"""Seconds between looks at the clock, while nothing comes."""


class Late(Exception):
    """The deadline has passed. What the server does with the statement is unknown."""


class Bounded(psycopg.Connection[tuple[Any, ...]]):
    """Gives up waiting at the deadline, in seconds of `time.monotonic`."""

    deadline = math.inf

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        kwargs["interval"] = min(_LOOK, max(0.001, self.deadline - time.monotonic()))
        return super().wait(self._until_late(gen), **kwargs)

    def _until_late(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() >= self.deadline:
                    raise Late
                wanted = gen.send(ready)
        except StopIteration as end:
            answer: T = end.value
            return answer


class Wire:
    """One connection, for one thread at a time. Made by `connect`."""

    def __init__(self, place: Place, statements: PlacedStatements) -> None:
        self._statements = statements
        self._connection = Bounded.connect(
            place.conninfo,
            autocommit=True,
            prepare_threshold=None,
            client_encoding="utf8",
            connect_timeout=math.ceil(place.timeout),
        )
        try:
            check_server(self._connection.info.server_version)
            arrays.teach(self._connection)
            self._driver = PsycopgDriver(self._connection)
            ours = self.ask(adoption(self._connection, place))[0][0]
            self._connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            if ours:
                self._connection.prepare_threshold = 0
            migrating.check_version(self.ask(Ask("schema_version")), place)
            self._poll = select.poll()
            self._poll.register(self._connection.fileno(), select.POLLIN)
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """See `Link.alive`."""
        return not self._connection.closed and not self._poll.poll(0)

    @property
    def clean(self) -> bool:
        """See `Link.clean`."""
        return not self._connection.closed and self._driver.over

    def run(self, steps: Steps[T], deadline: float, *, whole: bool) -> T:
        """As `Link.run`. Raises `Late` at the deadline."""
        self._connection.deadline = deadline
        if not whole:
            return self._drive(steps, retry=True)
        with self._connection.transaction():
            return self._drive(steps, retry=False)

    def ask(self, ask: Ask) -> Rows:
        """The rows of one statement."""
        return self._driver.run(self._statements[ask.name], ask.values, ask.many)

    def _drive(self, steps: Steps[T], *, retry: bool) -> T:
        try:
            ask = next(steps)
            while True:
                ask = steps.send(self._answer(ask, retry))
        except StopIteration as end:
            answer: T = end.value
            return answer
        finally:
            steps.close()

    def _answer(self, ask: Ask, retry: bool) -> Rows:
        for turn in range(TRIES):
            try:
                return self.ask(ask)
            except CONFLICTS:
                if not retry or turn == TRIES - 1:
                    raise
                time.sleep(0.001 * turn)
        raise AssertionError("the last turn returns or raises")

    def abandon(self) -> None:
        """Have the server stop what it does, if it can be reached; nobody waits for that."""
        Thread(target=self._cancel, name="tenure-postgres-cancel", daemon=True).start()

    def _cancel(self) -> None:
        try:
            self._connection.cancel_safe(timeout=CANCEL_SECONDS)
        except Exception:
            pass  # it is ended in any case
        finally:
            self.close()

    def close(self) -> None:
        self._connection.close()


def connect(place: Place, statements: PlacedStatements, deadline: float) -> Wire:
    """Connect until the deadline. Raises `EngineUnavailable`, or `SchemaError`.

    In a thread of its own: libpq asks for the addresses of names without a limit.
    """
    waiting = _Waiting(lambda: Wire(place, statements))
    Thread(target=waiting.work, name="tenure-postgres-connect", daemon=True).start()
    found = waiting.get(deadline - time.monotonic())
    if found is None:
        raise EngineUnavailable(f"{place.shown} gave no connection within {place.timeout:.3g} s")
    if isinstance(found, Wire):
        return found
    if isinstance(found, TenureError):
        raise found
    raise translated(found, "insert", place) from found


class _Waiting:
    """Somebody waits for a connection; one that comes later is closed."""

    def __init__(self, make: Callable[[], Wire]) -> None:
        self._make = make
        self._found: SimpleQueue[Wire | Exception] = SimpleQueue()
        self._lock = Lock()
        self._left = False

    def work(self) -> None:
        found: Wire | Exception
        try:
            found = self._make()
        except Exception as error:
            found = error
        with self._lock:
            if not self._left:
                self._found.put(found)
            elif isinstance(found, Wire):
                found.close()

    def get(self, seconds: float) -> Wire | Exception | None:
        try:
            return self._found.get(timeout=max(0.0, seconds))
        except Empty:
            with self._lock:
                self._left = True
                return None if self._found.empty() else self._found.get()
