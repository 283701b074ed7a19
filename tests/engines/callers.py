"""The connections that callers have, of every library and kind, behind one face for tests."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar
from urllib.parse import urlsplit

import asyncpg
import django
import psycopg
import sqlalchemy
from django.conf import settings
from django.db import connections, transaction
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from tenure.engines.answers import awaited


class Own:
    """A connection of the caller, in a transaction from `begin` to `commit` or `rollback`."""

    blocking: ClassVar[bool] = True
    tells: ClassVar[bool] = False
    """Whether its library says when it has committed."""

    def __init__(self, url: str, **options: Any) -> None:
        """`options`: `autocommit`."""
        self.url = url
        self.options = options
        self.given: Any = None

    async def open(self) -> None:
        raise NotImplementedError

    async def begin(self) -> None:
        """What must be done besides writing."""

    async def execute(self, text: str) -> Any:
        """The first value of the first row, if there are rows."""
        raise NotImplementedError

    async def commit(self) -> None:
        await awaited(self.given.commit())

    async def rollback(self) -> None:
        await awaited(self.given.rollback())

    @asynccontextmanager
    async def savepoint(self, *, keep: bool) -> AsyncIterator[None]:
        """A savepoint for a block, released or rolled back after it."""
        async with self._savepoint() as point:
            yield
            if not keep:
                await awaited(point.rollback())

    def _savepoint(self) -> Any:
        return _entered(self.given.begin_nested())

    async def close(self) -> None:
        await awaited(self.given.close())


@asynccontextmanager
async def _entered(manager: Any) -> AsyncIterator[Any]:
    if hasattr(manager, "__aenter__"):
        async with manager as value:
            yield value
    else:
        with manager as value:
            yield value


class Psycopg(Own):
    async def open(self) -> None:
        self.given = psycopg.connect(self.url, **self.options)

    async def execute(self, text: str) -> Any:
        cursor = await awaited(self.given.execute(text))
        row = await awaited(cursor.fetchone()) if cursor.description else (None,)
        return row[0]

    @asynccontextmanager
    async def savepoint(self, *, keep: bool) -> AsyncIterator[None]:
        async with _entered(self.given.transaction()):
            yield
            if not keep:
                raise psycopg.Rollback


class AsyncPsycopg(Psycopg):
    blocking = False

    async def open(self) -> None:
        self.given = await psycopg.AsyncConnection.connect(self.url, **self.options)


class Asyncpg(Own):
    blocking = False

    async def open(self) -> None:
        self.given = await asyncpg.connect(self.url)

    async def begin(self) -> None:
        if not self.options.get("autocommit"):
            self._transaction = self.given.transaction()
            await self._transaction.start()

    async def execute(self, text: str) -> Any:
        return await self.given.fetchval(text)

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()

    @asynccontextmanager
    async def savepoint(self, *, keep: bool) -> AsyncIterator[None]:
        point = self.given.transaction()
        await point.start()
        yield
        await (point.commit() if keep else point.rollback())


class PooledAsyncpg(Asyncpg):
    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(self.url, min_size=1, max_size=1)
        self.given = await self._pool.acquire()

    async def close(self) -> None:
        if not self._pool.is_closing():
            await self._pool.release(self.given)
            await self._pool.close()


class Alchemy(Own):
    """A `sqlalchemy.Connection`."""

    driver: ClassVar[str] = "postgresql+psycopg"

    async def open(self) -> None:
        self.given = self._engine().connect()

    def _engine(self) -> sqlalchemy.Engine:
        return sqlalchemy.create_engine(self._url(), poolclass=NullPool, **self._options())

    def _url(self) -> str:
        if self.url.startswith("sqlite"):
            return self.url
        return self.url.replace("postgresql", self.driver, 1)

    def _options(self) -> dict[str, Any]:
        return {"isolation_level": "AUTOCOMMIT"} if self.options.get("autocommit") else {}

    async def begin(self) -> None:
        if self.url.startswith("sqlite"):
            await self.execute("BEGIN IMMEDIATE")

    async def execute(self, text: str) -> Any:
        result = await awaited(self.given.execute(sqlalchemy.text(text)))
        return result.scalar() if result.returns_rows else None


class AlchemySession(Alchemy):
    tells = True

    async def open(self) -> None:
        self.given = sessionmaker(self._engine())()


class ScopedSession(AlchemySession):
    async def open(self) -> None:
        self.given = scoped_session(sessionmaker(self._engine()))


class AsyncAlchemy(Alchemy):
    blocking = False

    async def open(self) -> None:
        self.given = await self._async_engine().connect()

    def _async_engine(self) -> Any:
        return create_async_engine(self._url(), poolclass=NullPool, **self._options())


class AsyncAlchemyOverAsyncpg(AsyncAlchemy):
    driver = "postgresql+asyncpg"


class AlchemyAsyncSession(AsyncAlchemy):
    tells = True

    async def open(self) -> None:
        self.given = AsyncSession(self._async_engine())


class SessionOverAsyncpg(AlchemyAsyncSession):
    driver = "postgresql+asyncpg"


class AsyncScopedSession(AlchemyAsyncSession):
    async def open(self) -> None:
        made = async_sessionmaker(self._async_engine())
        self.given = async_scoped_session(made, scopefunc=lambda: 1)


class Django(Own):
    """`connections[alias]`, in `transaction.atomic`."""

    tells = True

    async def open(self) -> None:
        if not settings.configured:
            settings.configure(USE_TZ=True, LOGGING_CONFIG=None)
            django.setup()
        configured = connections.configure_settings({"default": {}, "own": self._own})
        connections.settings.update(configured)
        # One of its own, which is what `connections` gives in this thread from now on.
        self.given = connections["own"] = connections.create_connection("own")
        if self.options.get("autocommit"):
            self.given.connect()

    @property
    def _own(self) -> dict[str, Any]:
        parts = urlsplit(self.url)
        if parts.scheme == "sqlite":
            return {"ENGINE": "django.db.backends.sqlite3", "NAME": parts.path[1:]}
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts.path[1:],
            "USER": parts.username,
            "PASSWORD": parts.password,
            "HOST": parts.hostname,
            "PORT": parts.port,
        }

    async def begin(self) -> None:
        if not self.options.get("autocommit"):
            self._atomic = transaction.atomic("own")
            self._atomic.__enter__()

    async def execute(self, text: str) -> Any:
        with self.given.cursor() as cursor:
            cursor.execute(text)
            return cursor.fetchone()[0] if cursor.description else None

    async def commit(self) -> None:
        self._atomic.__exit__(None, None, None)

    async def rollback(self) -> None:
        if self.given.in_atomic_block:
            self._atomic.__exit__(Undo, Undo(), None)

    @asynccontextmanager
    async def savepoint(self, *, keep: bool) -> AsyncIterator[None]:
        try:
            with transaction.atomic("own"):
                yield
                if not keep:
                    raise Undo
        except Undo:
            pass

    async def close(self) -> None:
        await self.rollback()
        self.given.close()


class Undo(Exception):
    """Leave a block without what it did."""


class Sqlite(Own):
    async def open(self) -> None:
        path = urlsplit(self.url).path[1:]
        self.given = sqlite3.connect(path, isolation_level=None)

    async def begin(self) -> None:
        if not self.options.get("autocommit"):
            self.given.execute("BEGIN IMMEDIATE")

    async def execute(self, text: str) -> Any:
        row = self.given.execute(text).fetchone()
        return None if row is None else row[0]

    @asynccontextmanager
    async def savepoint(self, *, keep: bool) -> AsyncIterator[None]:
        self.given.execute("SAVEPOINT mine")
        yield
        if not keep:
            self.given.execute("ROLLBACK TO mine")
        self.given.execute("RELEASE mine")


POSTGRES: dict[str, Callable[..., Own]] = {
    "psycopg": Psycopg,
    "psycopg_async": AsyncPsycopg,
    "asyncpg": Asyncpg,
    "asyncpg_pool": PooledAsyncpg,
    "connection": Alchemy,
    "session": AlchemySession,
    "scoped_session": ScopedSession,
    "async_connection": AsyncAlchemy,
    "async_connection_asyncpg": AsyncAlchemyOverAsyncpg,
    "async_session": AlchemyAsyncSession,
    "async_session_asyncpg": SessionOverAsyncpg,
    "async_scoped_session": AsyncScopedSession,
    "django": Django,
}
SQLITE: dict[str, Callable[..., Own]] = {
    "sqlite3": Sqlite,
    "connection": Alchemy,
    "session": AlchemySession,
    "scoped_session": ScopedSession,
    "django": Django,
}
