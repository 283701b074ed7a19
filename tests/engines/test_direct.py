"""Inserting without an event loop is inserting: the shipped cases, on engines that can."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tenure.core.insertion import Inserted
from tenure.core.job import NewJob
from tenure.engines.optional import direct_of
from tenure.engines.protocol import Engine
from tenure.testing.conformance.insert import TestInsert
from tenure.testing.conformance.kit import OpenEngine
from tenure.testing.conformance.unique import TestReplace, TestUniqueKeys
from tenure.testing.conformance.unique_batch import TestUniqueBatch, TestUniqueRaces
from tests.engines.conftest import ENGINES

__all__ = ["TestInsert", "TestReplace", "TestUniqueBatch", "TestUniqueKeys", "TestUniqueRaces"]


def directly(engine: Engine) -> Engine:
    """The engine, but inserting on another thread and another connection."""
    direct = direct_of(engine)
    assert direct is not None

    async def insert(jobs: Sequence[NewJob], *, now: int | None = None) -> list[Inserted]:
        return await asyncio.to_thread(direct.insert, jobs, now=now)

    engine.insert = insert  # type: ignore[method-assign]
    return engine


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.soak), "postgres"])
async def open_engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenEngine]:
    handle = ENGINES[request.param](tmp_path, request)
    async with AsyncExitStack() as stack:
        yield lambda: stack.enter_async_context(directly(handle()))
