"""One connection of ours, and how an operation runs on it."""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import Coroutine
from typing import Any, TypeVar

import psycopg
from psycopg import errors

from tenure.engines.postgres import arrays
from tenure.engines.postgres.drivers import has_rows
from tenure.engines.postgres.place import Place, PlacedStatements
from tenure.engines.postgres.steps import Again, Ask, Rows, Steps
from tenure.errors import EngineUnavailable, PayloadError, SchemaError

T = TypeVar("T")

TRIES = 20
"""How often a step that another transaction got in the way of is done once more."""

CONFLICTS = (
    Again,
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.UniqueViolation,
)
STALE = (errors.FeatureNotSupported, errors.InvalidSqlStatementName)
"""What a prepared statement raises after a change of the schema, or behind a pooler."""

OLDEST_SERVER = 140_000
CANCEL_SECONDS = 1.0
"""How long is waited for a server to take note that nobody waits for its answer."""


class Link:
    """A connection of one event loop, for one operation at a time.

    `ours`: the session is ours alone. Behind a transaction pooler it is not, so nothing may be
    prepared or set in it.
    """

    def __init__(
        self, connection: psycopg.AsyncConnection[Any], statements: PlacedStatements
    ) -> None:
        self.connection = connection
        self.ours = True
        self._abandoned = False
        self._statements = statements
        arrays.teach(connection)
        self._cursor = connection.cursor(binary=True)
        self._beside = connection.cursor(binary=True)
        self._poll = select.poll()
        self._poll.register(connection.fileno(), select.POLLIN)

    @classmethod
    async def open(cls, place: Place, statements: PlacedStatements, seconds: float) -> Link:
        """Connect within `seconds`. Raises `EngineUnavailable`."""
        try:
            async with asyncio.timeout(seconds):
                connection = await psycopg.AsyncConnection.connect(
                    place.conninfo,
                    autocommit=True,
                    prepare_threshold=None,
                    client_encoding="utf8",
                )
                try:
                    check_server(connection.info.server_version)
                    link = cls(connection, statements)
                    await link._adopt(place)
                    return link
                except BaseException:
                    await connection.close()
                    raise
        except TimeoutError:
            raise EngineUnavailable(
                f"{place.shown} gave no connection within {seconds:.3g} s"
            ) from None
        except psycopg.Error as error:
            raise EngineUnavailable(f"{place.shown}: {summary(error)}") from error

    async def _adopt(self, place: Place) -> None:
        self.ours = bool((await self.ask(adoption(self.connection, place)))[0][0])
        await self.connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        if self.ours:
            self.connection.prepare_threshold = 0

    @property
    def alive(self) -> bool:
        """Whether the server is still there, as far as the socket knows.

        An idle session has nothing to say, but about its end (or a setting that was changed, which
        a new session has as well).
        """
        return not self.connection.closed and not self._poll.poll(0)

    @property
    def clean(self) -> bool:
        """Whether the next operation may use it."""
        idle = psycopg.pq.TransactionStatus.IDLE
        usable = not self._abandoned and not self.connection.closed
        return usable and self.connection.info.transaction_status is idle

    async def run(self, steps: Steps[T], *, whole: bool) -> T:
        """Run an operation; `whole` in one transaction, else each statement in its own."""
        if not whole:
            return await self._drive(steps, retry=True)
        async with self.connection.transaction():
            return await self._drive(steps, retry=False)

    async def ask_both(self, first: Ask, second: Ask) -> tuple[Rows, Rows]:
        """The rows of two statements, in one message and one transaction.

        If it raises and the connection is `clean`, the second has not taken effect, and the first
        neither, unless the second could not be sent.
        """
        async with self.connection.pipeline():
            await self._cursor.execute(self._statements[first.name], first.values)
            await self._beside.execute(self._statements[second.name], second.values)
        return await self._cursor.fetchall(), await self._beside.fetchall()

    async def go_on(self, steps: Steps[T], rows: Rows) -> T:
        """The rest of an operation whose first statement was answered with these rows."""
        return await self._drive(steps, retry=True, rows=rows)

    async def ask(self, ask: Ask) -> Rows:
        """The rows of one statement."""
        text = self._statements[ask.name]
        cursor = self._cursor
        if ask.many is not None:
            await cursor.executemany(text, ask.many)
            return []
        await cursor.execute(text, ask.values)
        return await cursor.fetchall() if has_rows(cursor) else []

    async def _drive(self, steps: Steps[T], *, retry: bool, rows: Rows | None = None) -> T:
        try:
            ask = next(steps) if rows is None else steps.send(rows)
            while True:
                ask = steps.send(await self._answer(ask, retry))
        except StopIteration as end:
            answer: T = end.value
            return answer
        finally:
            steps.close()

    async def _answer(self, ask: Ask, retry: bool) -> Rows:
        for turn in range(TRIES):
            try:
                return await self.ask(ask)
            except CONFLICTS:
                if not retry or turn == TRIES - 1:
                    raise
                await asyncio.sleep(0.001 * turn)
        raise AssertionError("the last turn returns or raises")

    def sever(self) -> None:
        """End whatever it waits for. What the server does with the statement is unknown."""
        if not self.connection.closed:
            with socket.socket(fileno=os.dup(self.connection.fileno())) as copy:
                try:
                    copy.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it has ended by itself

    def abandon(self) -> Coroutine[object, object, None]:
        """Have the server stop what it does, if it can be reached; then end the connection.

        From the call on it is not clean any more, whatever answer may still come.
        """
        self._abandoned = True
        return self._end()

    async def _end(self) -> None:
        try:
            await self.connection.cancel_safe(timeout=CANCEL_SECONDS)
        except Exception:
            pass  # it is ended in any case
        finally:
            self.sever()

    async def close(self) -> None:
        await self.connection.close()


def adoption(
    connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any], place: Place
) -> Ask:
    """What makes a session ours. The first value of the answer is whether it is."""
    # Somewhat later than the caller gives up: who still waits hears of it from us.
    milliseconds = str(round((place.timeout + CANCEL_SECONDS) * 1000))
    return Ask("adopt", {"pid": connection.info.backend_pid, "timeout": milliseconds})


def check_server(version: int) -> None:
    """Raise `SchemaError` for a server that is too old."""
    if version < OLDEST_SERVER:
        raise SchemaError(
            f"PostgreSQL {OLDEST_SERVER // 10_000} or newer is needed; this is {version // 10_000}"
        )


def translated(error: Exception, name: str, place: Place) -> Exception:
    """An error of the driver as one of tenure, naming the operation; others as they are."""
    if isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName):
        return SchemaError(no_schema(place))
    if isinstance(error, psycopg.DataError | UnicodeEncodeError):
        return PayloadError(f"{name}: PostgreSQL cannot hold this: {summary(error)}")
    if isinstance(error, psycopg.Error | OSError):
        return EngineUnavailable(f"{name}: {summary(error)}")
    if isinstance(error, Again):
        return EngineUnavailable(f"{name}: others kept changing the same jobs")
    return error


def no_schema(place: Place) -> str:
    """What to say where the tables are missing."""
    return f"{place.shown} has no schema of tenure yet; run `tenure migrate` first"


def summary(error: BaseException) -> str:
    """The first line of an error of the driver; the others may show parts of statements."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
