"""An engine on a store of its own, and ways to look at that store and to stand in its way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import tenure
from tenure.clock import IdSource
from tenure.core.job import NewJob
from tenure.engines.postgres import PostgresEngine, place_of
from tests.servers.postgres import PostgresServer, running
from tests.servers.schemas import Schemas, migrated

new_id = IdSource()
Look = psycopg.Connection[Any]


def make_job(**changes: Any) -> NewJob:
    return NewJob(**{"id": new_id(), "task": "t", **changes})


@pytest.fixture
def store(postgres_schemas: Schemas) -> Iterator[str]:
    """The URL of an empty store."""
    borrowed = postgres_schemas.borrow()
    yield borrowed.url
    borrowed.give_back()


@pytest.fixture
async def engine(store: str) -> AsyncIterator[PostgresEngine]:
    async with PostgresEngine(place_of(store)) as opened:
        yield opened


@pytest.fixture
def look(store: str) -> Iterator[Look]:
    """A connection of somebody else to the same store, in no transaction."""
    place = place_of(store)
    with psycopg.connect(place.conninfo, autocommit=True) as connection:
        connection.execute("SELECT set_config('search_path', %s, false)", (place.schema,))
        yield connection


@pytest.fixture(scope="module")
def restless_server() -> Iterator[PostgresServer]:
    """A server that the tests of a module may stop and start."""
    with running() as server:
        yield server


@pytest.fixture
def restless(restless_server: PostgresServer) -> str:
    """The URL of a store on that server; tests of a module share it."""
    return migrated(f"{restless_server.url()}?timeout=5")


@pytest.fixture
def python() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts this Python on a script, with arguments; kills what still runs at the end."""
    started: list[subprocess.Popen[str]] = []
    source = Path(tenure.__file__).parent.parent

    def start(script: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            env=os.environ | {"PYTHONPATH": str(source), "PYTHONUNBUFFERED": "1"} | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
