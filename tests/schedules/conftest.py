"""Worlds on each engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.engines.conftest import ENGINES
from tests.schedules.kit import World
from tests.servers.schemas import Schemas


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A store on each engine, and its time."""
    async with ENGINES[request.param](tmp_path, request)() as engine:
        yield World(engine)


@pytest.fixture
async def memory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """The same in memory only, for what has nothing to do with the engine."""
    async with ENGINES["memory"](tmp_path, request)() as engine:
        yield World(engine)


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a store that processes share."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
        return
    if request.param == "redis":
        yield request.getfixturevalue("valkey_store")
        return
    schemas: Schemas = request.getfixturevalue("postgres_schemas")
    store = schemas.borrow()
    yield store.url
    store.give_back()
