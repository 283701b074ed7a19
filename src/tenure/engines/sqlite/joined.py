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
from tenure.engines.protocol import Signal, Topic
from tenure.engines.signals import signals_of
from tenure.engines.sqlite import limiting, operations
from tenure.engines.sqlite.connection import APPLICATION_ID, is_busy
from tenure.engines.sqlite.operations import SQL
from tenure.engines.sqlite.thread import Transaction
from tenure.errors import ConfigurationError, EngineUnavailable, LeaseLost, SchemaError

T = TypeVar("T")
_BEGIN = "start it with `BEGIN IMMEDIATE`"


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
        self._connection = _checked(connection, path)
        self._publish = publish
        self._clock = clock
        self._max_payload = max_payload

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
        if not self._connection.in_transaction:
            signals, self._signals = self._signals, []
            self._publish(signals)

    def _now(self, now: int | None) -> int:
        return self._clock.time_us() if now is None else now

    def _run(self, work: Callable[[Transaction], T]) -> T:
        cursor = self._connection.cursor()
        cursor.row_factory = None
        tx = Transaction(cursor)
        try:
            cursor.execute("SAVEPOINT tenure_step")
            try:
                result = work(tx)
                limiting.pass_on(tx)
            except BaseException:
                if self._connection.in_transaction:
                    cursor.execute("ROLLBACK TO tenure_step")
                    cursor.execute("RELEASE tenure_step")
                raise
            cursor.execute("RELEASE tenure_step")
        except sqlite3.OperationalError as error:
            raise _explained(error) from error
        finally:
            cursor.close()
        self._signals += signals_of(tx.changes)
        self._signals += [Signal(Topic.CANCEL, job_id) for job_id in tx.hints]
        return result


def _checked(connection: object, path: str) -> sqlite3.Connection:
    """The connection, if a job can be written in its transaction."""
    if not isinstance(connection, sqlite3.Connection):
        raise ConfigurationError(
            f"this service keeps its jobs in a SQLite file, so the connection must be a "
            f"sqlite3.Connection, not {type(connection).__module__}.{type(connection).__qualname__}"
        )
    if not connection.in_transaction:
        raise ConfigurationError(f"the connection is not in a transaction; {_BEGIN}")
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
    return connection


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _explained(error: sqlite3.OperationalError) -> Exception:
    if is_busy(error):
        return ConfigurationError(
            f"the transaction only reads so far, and another one is writing; {_BEGIN} ({error})"
        )
    return EngineUnavailable(f"the caller's transaction: {error}")
