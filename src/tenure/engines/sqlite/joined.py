"""Working inside a transaction of the caller, on the caller's connection and thread."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from tenure.clock import Clock
from tenure.core.insertion import Inserted
from tenure.core.job import JobRow, NewJob
from tenure.core.outcomes import Settled, Settlement
from tenure.engines.callers import AsyncCaller, Caller, Given, caller_of, kind_of
from tenure.engines.protocol import Signal, Topic
from tenure.engines.signals import signals_of
from tenure.engines.sqlite import limiting, operations
from tenure.engines.sqlite.connection import APPLICATION_ID, is_busy
from tenure.engines.sqlite.operations import SQL
from tenure.engines.sqlite.thread import Transaction
from tenure.errors import ConfigurationError, EngineUnavailable, LeaseLost, SchemaError

T = TypeVar("T")


class JoinedTransaction:
    """See `engines.protocol.Joined`.

    While it is open, the caller's write transaction holds the whole file: nobody else can enqueue,
    claim or renew, so it should be over well within a lease. Each operation takes effect whole, or
    leaves the transaction as it was. Checkpoints are left to the engine: `wal_autocheckpoint` of
    the caller's connection is set to 0.
    """

    def __init__(
        self,
        connection: object,
        path: str,
        clock: Clock,
        max_payload: int,
        publish: Callable[[Iterable[Signal]], None],
    ) -> None:
        self._signals: list[Signal] = []
        self._caller = _blocking(connection)
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._publish = publish
        self._clock = clock
        self._max_payload = max_payload
        if isinstance(self._caller, Given):
            self._opened()  # of a connection itself it is known now whether it will do

    def insert(self, jobs: Sequence[NewJob], *, now: int | None = None) -> list[Inserted]:
        """As `Engine.insert`."""
        operations.check_sizes(jobs, self._max_payload)
        return self._run(lambda tx: operations.insert(tx, jobs, self._now(now)))

    def hold(self, row: JobRow) -> None:
        """Lock the row of a job that its holder runs; raises `LeaseLost` if it is not held."""
        fence = {"id": row.id, "token": row.token, "owner": row.owner}
        if not self._run(lambda tx: tx.write(SQL["hold"], fence)):
            raise LeaseLost(f"job {row.id} is no longer held under this token")

    def settle(self, settlements: Sequence[Settlement], *, now: int | None = None) -> list[Settled]:
        """As `Engine.settle`."""
        return self._run(lambda tx: operations.settle(tx, settlements, self._now(now)))

    def wake(self) -> None:
        """See `Joined.wake`. Does nothing while the transaction is open."""
        if self._connection is not None and _over(self._connection):
            signals, self._signals = self._signals, []
            self._publish(signals)

    def _now(self, now: int | None) -> int:
        return self._clock.time_us() if now is None else now

    def _run(self, work: Callable[[Transaction], T]) -> T:
        connection = self._opened()
        cursor = connection.cursor()
        cursor.row_factory = None
        tx = Transaction(cursor)
        try:
            cursor.execute("SAVEPOINT tenure_step")
            try:
                result = work(tx)
                limiting.pass_on(tx)
            except BaseException:
                if connection.in_transaction:
                    cursor.execute("ROLLBACK TO tenure_step")
                    cursor.execute("RELEASE tenure_step")
                raise
            cursor.execute("RELEASE tenure_step")
        except sqlite3.OperationalError as error:
            raise _explained(error, self._caller.immediately) from error
        finally:
            cursor.close()
        signals = signals_of(tx.changes)
        signals += [Signal(Topic.CANCEL, job_id) for job_id in tx.hints]
        if signals and not self._caller.after_commit(lambda: self._publish(signals)):
            self._signals += signals
        return result

    def _opened(self) -> sqlite3.Connection:
        """The connection, which is in a transaction."""
        connection = self._caller.opened()
        if not isinstance(connection, sqlite3.Connection):
            raise _unknown(connection)
        try:
            begun = connection.in_transaction
            if begun and connection is not self._connection:
                _check(connection, self._path)
        except sqlite3.ProgrammingError as error:  # closed, or of another thread
            raise ConfigurationError(f"the connection cannot be used: {error}") from error
        if not begun:
            raise ConfigurationError(
                f"the connection is not in a transaction; {self._caller.immediately}"
            )
        self._connection = connection
        return connection


def _over(connection: sqlite3.Connection) -> bool:
    try:
        return not connection.in_transaction
    except sqlite3.ProgrammingError:
        return True  # it is closed


def _blocking(connection: object) -> Caller:
    caller = caller_of(connection)
    if isinstance(caller, AsyncCaller):
        raise _unknown(connection)
    return caller


def _unknown(connection: object) -> ConfigurationError:
    return ConfigurationError(
        f"this service keeps its jobs in a SQLite file, so the connection must be a "
        f"sqlite3.Connection, or a blocking one of SQLAlchemy or Django over that, "
        f"not {kind_of(connection)}"
    )


def _check(connection: sqlite3.Connection, path: str) -> None:
    """Raise unless a job can be written in the transaction of this connection."""
    if connection.text_factory is not str:
        raise ConfigurationError("the connection's text_factory must be str")
    cursor = connection.cursor()
    cursor.row_factory = None
    files = {name: file for _, name, file in cursor.execute("PRAGMA database_list")}
    if not files["main"] or not _same(files["main"], path):
        raise ConfigurationError(
            f"the connection is to {files['main'] or 'a database in memory'}, but the jobs of this "
            f"service are in {path}"
        )
    (application,) = cursor.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        raise SchemaError(f"{path} has no schema of tenure yet; run `tenure migrate` first")
    cursor.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    cursor.close()


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _explained(error: sqlite3.OperationalError, immediately: str) -> Exception:
    if is_busy(error):
        return ConfigurationError(
            f"the transaction only reads so far, and another one is writing; {immediately} "
            f"({error})"
        )
    return EngineUnavailable(f"the caller's transaction: {error}")
