"""The engines that every test of an engine runs on. One line each, in `ENGINES`."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tenure.engines.memory import MemoryEngine
from tenure.engines.postgres import PostgresEngine, place_of
from tenure.engines.protocol import Engine
from tenure.engines.sqlite import SQLiteEngine
from tenure.testing.conformance.kit import OpenEngine
from tests.servers.schemas import Schemas

Handles = Callable[[], Engine]
"""Each call gives an unopened handle on one store."""

Request = pytest.FixtureRequest


def _memory(folder: Path, request: Request) -> Handles:
    return MemoryEngine().side


def _sqlite(folder: Path, request: Request) -> Handles:
    # Each handle as of another process: nothing but the file is shared.
    return lambda: SQLiteEngine(folder / "jobs.db", synchronous="normal")


def _postgres(folder: Path, request: Request) -> Handles:
    schemas: Schemas = request.getfixturevalue("postgres_schemas")
    name = schemas.take()
    request.addfinalizer(lambda: schemas.give_back(name))
    return lambda: PostgresEngine(place_of(schemas.url(name)))


ENGINES: dict[str, Callable[[Path, Request], Handles]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgres": _postgres,
}
"""Name: from an empty folder, a factory of unopened handles on one fresh store."""


@pytest.fixture(params=list(ENGINES))
async def open_engine(request: Request, tmp_path: Path) -> AsyncIterator[OpenEngine]:
    """What the suite asks for: each call opens a handle on the store of this test."""
    handle = ENGINES[request.param](tmp_path, request)
    async with AsyncExitStack() as stack:
        yield lambda: stack.enter_async_context(handle())


@pytest.fixture(params=list(ENGINES))
def fresh_engine(request: Request, tmp_path: Path) -> Callable[[], Engine]:
    """Each call gives an unopened engine on a new and empty store."""
    folders = (tmp_path / str(number) for number in itertools.count())

    def fresh() -> Engine:
        folder = next(folders)
        folder.mkdir()
        return ENGINES[request.param](folder, request)()

    return fresh
