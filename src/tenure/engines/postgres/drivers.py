"""Connections of the caller, by the driver they are of."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import psycopg
from psycopg.rows import tuple_row

from tenure.engines.callers import kind_of
from tenure.engines.postgres.steps import Rows
from tenure.errors import ConfigurationError

Values = Mapping[str, Any]
_IDLE = psycopg.pq.TransactionStatus.IDLE
_NAMED = re.compile(r"%\((\w+)\)s")


class Driver(Protocol):
    """Runs statements on a connection of the caller, blocking."""

    @property
    def session(self) -> object:
        """What stands for the session as long as that lasts."""
        ...

    @property
    def closed(self) -> bool: ...

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
    def session(self) -> object: ...

    @property
    def closed(self) -> bool: ...

    @property
    def begun(self) -> bool: ...

    @property
    def over(self) -> bool: ...

    async def run(self, text: str, values: Values, many: Sequence[Values] | None) -> Rows: ...


def driver_of(connection: Any) -> Driver:
    """The driver of a connection that blocks. Raises `ConfigurationError` for any other."""
    if isinstance(connection, psycopg.Connection):
        return PsycopgDriver(connection)
    if isinstance(connection, psycopg.AsyncConnection) or _is_asyncpg(connection):
        raise ConfigurationError(
            f"this blocks, but is over the awaited {kind_of(connection)}; give the "
            f"AsyncConnection or AsyncSession itself"
        )
    raise _unknown(connection)


def async_driver_of(connection: Any) -> AsyncDriver:
    """The driver of a connection that is awaited. Raises `ConfigurationError` for any other."""
    if isinstance(connection, psycopg.AsyncConnection):
        return AsyncPsycopgDriver(connection)
    if _is_asyncpg(connection):
        return AsyncpgDriver(connection)
    raise _unknown(connection)


def _is_asyncpg(connection: object) -> bool:
    return any(base.__module__.partition(".")[0] == "asyncpg" for base in type(connection).__mro__)


def _unknown(connection: object) -> ConfigurationError:
    return ConfigurationError(
        f"this service keeps its jobs in PostgreSQL, so the connection must be a "
        f"psycopg.Connection, a psycopg.AsyncConnection, an asyncpg.Connection, or one of "
        f"SQLAlchemy or Django over these, not {kind_of(connection)}"
    )


def has_rows(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> bool:
    """Whether the statement that was run answers with rows, of which there may be none."""
    # Not by `description`, which makes an object of each column.
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0


class PsycopgDriver:
    """psycopg 3, blocking."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    @property
    def session(self) -> object:
        return self._connection

    @property
    def closed(self) -> bool:
        return self._connection.closed

    @property
    def begun(self) -> bool:
        # Without autocommit the driver begins a transaction before the first statement.
        return not self._connection.autocommit or not self.over

    @property
    def over(self) -> bool:
        return self.closed or self._connection.info.transaction_status is _IDLE

    def run(self, text: str, values: Values, many: Sequence[Values] | None) -> Rows:
        # Not by the connection's own factories, which may make anything of a row.
        with psycopg.Cursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.format = psycopg.pq.Format.BINARY
            if many is not None:
                cursor.executemany(text, many)
                return []
            cursor.execute(text, values)
            return cursor.fetchall() if has_rows(cursor) else []


class AsyncPsycopgDriver:
    """psycopg 3, awaited."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    @property
    def session(self) -> object:
        return self._connection

    @property
    def closed(self) -> bool:
        return self._connection.closed

    @property
    def begun(self) -> bool:
        return not self._connection.autocommit or not self.over

    @property
    def over(self) -> bool:
        return self.closed or self._connection.info.transaction_status is _IDLE

    async def run(self, text: str, values: Values, many: Sequence[Values] | None) -> Rows:
        async with psycopg.AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.format = psycopg.pq.Format.BINARY
            if many is not None:
                await cursor.executemany(text, many)
                return []
            await cursor.execute(text, values)
            return await cursor.fetchall() if has_rows(cursor) else []


class Numbered(NamedTuple):
    """A statement with places for its values, as asyncpg takes it, and their names in order."""

    text: str
    names: tuple[str, ...]

    def placed(self, values: Values) -> tuple[Any, ...]:
        return tuple(values[name] for name in self.names)


@lru_cache(maxsize=256)
def numbered(text: str) -> Numbered:
    """A statement of psycopg's style, `%(name)s`, in PostgreSQL's own, `$1`."""
    names = tuple(dict.fromkeys(_NAMED.findall(text)))
    places = {name: f"${place}" for place, name in enumerate(names, 1)}
    return Numbered(_NAMED.sub(lambda match: places[match[1]], text), names)


class AsyncpgDriver:
    """asyncpg, known by what its connections and the proxies of its pools can do."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def session(self) -> object:
        # The proxy of a pool is a new one each time; what it stands for stays.
        return getattr(self._connection, "_con", self._connection)

    @property
    def closed(self) -> bool:
        try:
            return bool(self._connection.is_closed())
        except Exception:  # a proxy that went back to its pool refuses to answer
            return True

    @property
    def begun(self) -> bool:
        return not self.over

    @property
    def over(self) -> bool:
        return self.closed or not self._connection.is_in_transaction()

    async def run(self, text: str, values: Values, many: Sequence[Values] | None) -> Rows:
        statement = numbered(text)
        if many is not None:
            await self._connection.executemany(statement.text, map(statement.placed, many))
            return []
        rows = await self._connection.fetch(statement.text, *statement.placed(values))
        return [tuple(row) for row in rows]
