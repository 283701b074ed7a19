"""Houses on each engine, plain or in the hands of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tenure.engines.memory import MemoryEngine
from tenure.engines.open import open_engine
from tenure.engines.protocol import Engine
from tenure.engines.sqlite import SQLiteEngine
from tenure.worker import assessor, runner
from tests.worker.kit import House
from tests.worker.puppet import Strings, puppet


def _engine(request: pytest.FixtureRequest, folder: Path) -> Engine:
    if request.param == "memory":
        return MemoryEngine()
    if request.param == "redis":
        return open_engine(request.getfixturevalue("valkey_store"))
    return SQLiteEngine(folder / "jobs.db", synchronous="normal")


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    """A house on each engine."""
    async with _engine(request, tmp_path) as engine:
        house = House(engine)
        yield house
        house.keeper.close()


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def moved(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[House, Strings]]:
    """A house on each engine, whose calls are counted and fail as told."""
    async with _engine(request, tmp_path) as inner:
        engine, strings = puppet(inner)
        house = House(engine)
        yield house, strings
        house.keeper.close()


@pytest.fixture
async def memory() -> AsyncIterator[tuple[House, Strings]]:
    """The same on the engine in memory only, for what has nothing to do with the engine."""
    async with MemoryEngine() as inner:
        engine, strings = puppet(inner)
        house = House(engine)
        yield house, strings
        house.keeper.close()


@pytest.fixture(params=["async", "def"])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of a body."""
    return str(request.param)


@pytest.fixture
def short_snoozes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that a worker puts off by itself come back after 0.1 s instead of 1 s."""
    monkeypatch.setattr(runner, "_BUSY_BODY_SNOOZE", 100_000)
    monkeypatch.setattr(assessor, "NO_THREAD_SNOOZE", 100_000)
