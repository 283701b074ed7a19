"""Which kind of connection a caller gave, told by the names of its classes.

Nothing is imported for that: whoever has a connection of a library has imported the library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tenure.engines.callers import alchemy, django
from tenure.engines.callers.base import AsyncCaller, AsyncGiven, Caller, Given
from tenure.errors import ConfigurationError

_BLOCKING: Mapping[str, Callable[[Any], Caller]] = {
    "sqlalchemy.engine.base.Connection": alchemy.Connection,
    "sqlalchemy.orm.session.Session": alchemy.Session,
    "sqlalchemy.orm.scoping.scoped_session": lambda scoped: alchemy.Session(scoped()),
    "django.db.backends.base.base.BaseDatabaseWrapper": django.Connection,
    "django.utils.connection.ConnectionProxy": django.Connection,
    "psycopg.Connection": Given,
}
_AWAITED: Mapping[str, Callable[[Any], AsyncCaller]] = {
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": alchemy.AsyncConnection,
    "sqlalchemy.ext.asyncio.session.AsyncSession": alchemy.AsyncSession,
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": (
        lambda scoped: alchemy.AsyncSession(scoped())
    ),
    "psycopg.AsyncConnection": AsyncGiven,
    "asyncpg.connection.Connection": AsyncGiven,
    "asyncpg.pool.PoolConnectionProxy": AsyncGiven,
}
_INSTEAD: Mapping[str, str] = {
    "sqlalchemy.engine.base.Engine": "with engine.begin() as connection",
    "sqlalchemy.ext.asyncio.engine.AsyncEngine": "async with engine.begin() as connection",
    "sqlalchemy.orm.session.sessionmaker": "with make_session.begin() as session",
    "sqlalchemy.ext.asyncio.session.async_sessionmaker": (
        "async with make_session.begin() as session"
    ),
    "asyncpg.pool.Pool": "async with pool.acquire() as connection, connection.transaction()",
    "django.utils.connection.BaseConnectionHandler": 'connections["default"]',
}


def caller_of(connection: object) -> Caller | AsyncCaller:
    """What the caller gave, as one of the kinds known here, or else as it is.

    Raises `ConfigurationError` for what only makes connections, saying how to get one.
    """
    for base in type(connection).__mro__:
        name = f"{base.__module__}.{base.__qualname__}"
        make = _BLOCKING.get(name) or _AWAITED.get(name)
        if make is not None:
            return make(connection)
        if name in _INSTEAD:
            raise ConfigurationError(
                f"{kind_of(connection)} is in no transaction; give what `{_INSTEAD[name]}` gives"
            )
    return Given(connection)


def kind_of(connection: object) -> str:
    """The class of an object, for messages."""
    return f"{type(connection).__module__}.{type(connection).__qualname__}"
