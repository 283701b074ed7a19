"""Stores on one PostgreSQL server, each in a schema of its own, used again and again."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
from psycopg import sql

from tenure.engines.postgres import PostgresEngine, place_of
from tests.servers.postgres import PostgresServer

TABLES = "jobs finished reservations queues rates workers schedules events".split()


class Borrowed:
    """A store that belongs to one test for a while."""

    def __init__(self, url: str, returned: Callable[[], None]) -> None:
        self.url = url
        self.handles = 0
        self._returned: Callable[[], None] | None = returned

    def give_back(self) -> None:
        """Nobody uses it any more. Doing so twice does nothing."""
        returned, self._returned = self._returned, None
        if returned is not None:
            returned()


class Schemas:
    """Creating the tables costs far more than emptying them."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._connection = psycopg.connect(server.url(), autocommit=True)
        self._names = (f"store{number}" for number in itertools.count())
        self._free: list[str] = []

    def borrow(self) -> Borrowed:
        """A store with empty tables, until it is given back."""
        name = self._free.pop() if self._free else None
        if name is None:
            name = next(self._names)
            migrated(self._url(name))
        return Borrowed(self._url(name), lambda: self._take_back(name))

    def _take_back(self, name: str) -> None:
        for table in TABLES:
            statement = sql.SQL("DELETE FROM {}").format(sql.Identifier(name, table))
            self._connection.execute(statement)
        self._free.append(name)

    def _url(self, name: str) -> str:
        return f"{self._server.url()}?schema={name}"

    def close(self) -> None:
        self._connection.close()


def migrated(url: str) -> str:
    """The URL itself, with the tables created. Blocking, whatever loop runs in this thread."""
    engine = PostgresEngine(place_of(url))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, engine.migrate()).result()
    return url
