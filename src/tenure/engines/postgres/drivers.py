"""Connections of the caller, by the driver they are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import psycopg
from psycopg.rows import tuple_row

from tenure.engines.postgres.steps import Rows
from tenure.errors import ConfigurationError

Values = Mapping[str, Any]
_IDLE = psycopg.pq.TransactionStatus.IDLE


class Driver(Protocol):
    """Runs statements on a connection of the caller, blocking."""

    @property
    def begun(self) -> bool:
        """Whether what is written now waits for a commit of the caller."""
        ...

    @property
    def over(self) -> bool:
        """Whether no transaction is open at this moment."""
        ...

    def run(self, text: str, values: Values, many: Sequence[Values] | None) -> Rows: ...


class AsyncDriver(Protocol):
    """The same for a connection that is awaited."""

    @property
    def begun(self) -> bool: ...

    @property
    def over(self) -> bool: ...

    async def run(self, text: str, values: Values, many: Sequence[Values] | None) -> Rows: ...


def driver_of(connection: object) -> PsycopgDriver | AsyncPsycopgDriver:
    """The driver of a connection. Raises `ConfigurationError` saying which ones there are."""
    if isinstance(connection, psycopg.Connection):
        return PsycopgDriver(connection)
    if isinstance(connection, psycopg.AsyncConnection):
        return AsyncPsycopgDriver(connection)
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    raise ConfigurationError(
        f"this service keeps its jobs in PostgreSQL, so the connection must be a "
        f"psycopg.Connection or psycopg.AsyncConnection, not {kind}"
    )


class PsycopgDriver:
    """psycopg 3, blocking."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    @property
    def begun(self) -> bool:
        # Without autocommit the driver begins a transaction before the first statement.
        return not self._connection.autocommit or not self.over

    @property
    def over(self) -> bool:
        return self._connection.info.transaction_status is _IDLE

    def run(self, text: str, values: Values, many: Sequence[Values] | None) -> Rows:
        # Not by the connection's own factories, which may make anything of a row.
        with psycopg.Cursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.format = psycopg.pq.Format.BINARY
            if many is not None:
                cursor.executemany(text, many)
                return []
            cursor.execute(text, values)
            return cursor.fetchall() if cursor.description else []


class AsyncPsycopgDriver:
    """psycopg 3, awaited."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    @property
    def begun(self) -> bool:
        return not self._connection.autocommit or not self.over

    @property
    def over(self) -> bool:
        return self._connection.info.transaction_status is _IDLE

    async def run(self, text: str, values: Values, many: Sequence[Values] | None) -> Rows:
        async with psycopg.AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.format = psycopg.pq.Format.BINARY
            if many is not None:
                await cursor.executemany(text, many)
                return []
            await cursor.execute(text, values)
            return await cursor.fetchall() if cursor.description else []
