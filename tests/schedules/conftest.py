"""Worlds on each engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engines.conftest import ENGINES
from tests.schedules.kit import World


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A store on each engine, and its time."""
    async with ENGINES[request.param](tmp_path, request)() as engine:
        yield World(engine)


@pytest.fixture
async def memory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """The same in memory only, for what has nothing to do with the engine."""
    async with ENGINES["memory"](tmp_path, request)() as engine:
        yield World(engine)
