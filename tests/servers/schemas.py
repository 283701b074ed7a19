"""Stores on one PostgreSQL server, each in a schema of its own, used again and again."""

from __future__ import annotations

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor

import psycopg
from psycopg import sql

from tenure.engines.postgres import PostgresEngine, place_of
from tests.servers.postgres import PostgresServer

TABLES = "jobs finished reservations queues workers schedules events".split()


class Schemas:
    """Creating the tables costs far more than emptying them."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._connection = psycopg.connect(server.url(), autocommit=True)
        self._names = (f"store{number}" for number in itertools.count())
        self._free: list[str] = []

    def take(self) -> str:
        """The name of a schema with empty tables."""
        if self._free:
            return self._free.pop()
        name = next(self._names)
        migrated(self.url(name))
        return name

    def give_back(self, name: str) -> None:
        """Nobody uses this schema any more."""
        for table in TABLES:
            statement = sql.SQL("DELETE FROM {}").format(sql.Identifier(name, table))
            self._connection.execute(statement)
        self._free.append(name)

    def url(self, name: str) -> str:
        """The URL of the store."""
        return f"{self._server.url()}?schema={name}"

    def close(self) -> None:
        self._connection.close()


def migrated(url: str) -> str:
    """The URL itself, with the tables created. Blocking, whatever loop runs in this thread."""
    engine = PostgresEngine(place_of(url))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, engine.migrate()).result()
    return url
