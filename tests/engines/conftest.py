"""The engines that every test of an engine runs on. One line each, in `ENGINES`."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tenure.engines.memory import MemoryEngine
from tenure.engines.open import open_engine as engine_of
from tenure.engines.postgres import PostgresEngine
from tenure.engines.protocol import Engine
from tenure.engines.sqlite import SQLiteEngine
from tenure.testing.conformance.kit import OpenEngine


Handles = Callable[[], Engine]


@pytest.fixture
def memory_store() -> Iterator[Handles]:
    yield MemoryEngine().side


@pytest.fixture
def sqlite_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Handles]:
    folder = tmp_path_factory.mktemp("store")
    # Each handle as of another process: nothing but the file is shared.
    yield lambda: SQLiteEngine(folder / "jobs.db")

def _memory(folder: Path) -> Callable[[], Engine]:
    first = MemoryEngine()
    return first.side


def _sqlite(folder: Path) -> Callable[[], Engine]:
    # Each handle as of another process: nothing but the file is shared.
    return lambda: SQLiteEngine(folder / "jobs.db")


ENGINES: dict[str, Callable[[Path], Callable[[], Engine]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
}
"""Name: from an empty folder, a factory of unopened handles on one fresh store."""


@pytest.fixture(params=list(ENGINES))
async def open_engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenEngine]:
    """What the suite asks for: each call opens a handle on the store of this test."""
    handle = ENGINES[request.param](tmp_path)
    async with AsyncExitStack() as stack:
        yield lambda: stack.enter_async_context(handle())


@pytest.fixture(params=list(ENGINES))
def fresh_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Engine]:
    """Each call gives an unopened engine on a new and empty store."""
    folders = (tmp_path / str(number) for number in itertools.count())

    def fresh() -> Engine:
        folder = next(folders)
        folder.mkdir()
        return ENGINES[request.param](folder)()

    return fresh
