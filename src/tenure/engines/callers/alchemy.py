"""Connections and sessions of SQLAlchemy 2, blocking and awaited."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tenure.engines.callers.base import AsyncCaller, Caller, Told
from tenure.errors import ConfigurationError, EngineUnavailable

_ADVICE = "take an isolation level other than AUTOCOMMIT"
_KEY = "tenure.after_commit"


class Connection(Caller):
    """A `sqlalchemy.Connection`. Begins by itself, as it does with any statement.

    Nothing tells of its commits: its own event comes before them.
    """

    advice = _ADVICE
    immediately = 'start it with `connection.exec_driver_sql("BEGIN IMMEDIATE")`'

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def opened(self) -> Any:
        """See `Caller.opened`."""
        with _translated():
            return _begun(self._connection)


class Session(Caller):
    """A `sqlalchemy.orm.Session`."""

    advice = _ADVICE
    immediately = 'start it with `session.connection().exec_driver_sql("BEGIN IMMEDIATE")`'

    def __init__(self, session: Any) -> None:
        self._session = session

    def opened(self) -> Any:
        """See `Caller.opened`."""
        with _translated():
            return _begun(self._session.connection())

    def after_commit(self, told: Told) -> bool:
        """See `Caller.after_commit`."""
        _commits(self._session).add(told)
        return True


class AsyncConnection(AsyncCaller):
    """A `sqlalchemy.ext.asyncio.AsyncConnection`."""

    advice = _ADVICE

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def opened(self) -> Any:
        """See `Caller.opened`."""
        with _translated():
            return await _begun_async(self._connection)


class AsyncSession(AsyncCaller):
    """A `sqlalchemy.ext.asyncio.AsyncSession`."""

    advice = _ADVICE

    def __init__(self, session: Any) -> None:
        self._session = session

    async def opened(self) -> Any:
        """See `Caller.opened`."""
        with _translated():
            return await _begun_async(await self._session.connection())

    def after_commit(self, told: Told) -> bool:
        """See `Caller.after_commit`."""
        _commits(self._session.sync_session).add(told)
        return True


def _begun(connection: Any) -> Any:
    # What is written past SQLAlchemy is committed by it only if it knows of a transaction.
    if not connection.in_transaction():
        connection.begin()
    return connection.connection.driver_connection


async def _begun_async(connection: Any) -> Any:
    if not connection.in_transaction():
        await connection.begin()
    driver = (await connection.get_raw_connection()).driver_connection
    # On asyncpg, SQLAlchemy puts the beginning off until its own first statement.
    begun = getattr(driver, "is_in_transaction", None)
    if begun is not None and not begun():
        await connection.exec_driver_sql("SELECT 1")
    return driver


@contextmanager
def _translated() -> Iterator[None]:
    """Errors of SQLAlchemy, which say what is wrong with the connection or session."""
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError, UnboundExecutionError

    try:
        yield
    except UnboundExecutionError as error:
        raise ConfigurationError(
            f"{error} Give a connection of the session: `session.connection(bind_arguments=...)`"
        ) from error
    except DBAPIError as error:
        raise EngineUnavailable(f"the caller's transaction: {error.orig}") from error
    except SQLAlchemyError as error:
        raise ConfigurationError(f"the caller's transaction cannot be used: {error}") from error


class _Commits:
    """What is to be told once a session has committed, by the transaction it was written in."""

    def __init__(self, session: Any) -> None:
        from sqlalchemy import event

        self._session = session
        self._kept: list[tuple[Any, Told]] = []
        event.listen(session, "after_commit", self._committed)
        event.listen(session, "after_soft_rollback", self._rolled_back)
        event.listen(session, "after_transaction_end", self._ended)

    def add(self, told: Told) -> None:
        transaction = self._session.get_nested_transaction() or self._session.get_transaction()
        self._kept.append((transaction, told))

    def _committed(self, session: Any) -> None:
        if not session.in_nested_transaction():  # else a savepoint was released
            kept, self._kept = self._kept, []
            for _, told in kept:
                told()

    def _rolled_back(self, session: Any, transaction: Any) -> None:
        self._kept = [kept for kept in self._kept if not _within(kept[0], transaction)]

    def _ended(self, session: Any, transaction: Any) -> None:
        if transaction.parent is None:  # closed, perhaps without a word of its rollback
            self._kept.clear()


def _within(transaction: Any, outer: Any) -> bool:
    while transaction is not None and transaction is not outer:
        transaction = transaction.parent
    return transaction is outer


def _commits(session: Any) -> _Commits:
    kept: _Commits = session.info.setdefault(_KEY, None) or _Commits(session)
    session.info[_KEY] = kept
    return kept
