"""The engines that every test of an engine runs on. One line each, in `ENGINES`."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import pytest

from tenure.engines.memory import MemoryEngine
from tenure.engines.postgres import PostgresEngine, place_of
from tenure.engines.protocol import Engine
from tenure.engines.redis import RedisEngine
from tenure.engines.redis import place_of as redis_place
from tenure.engines.sqlite import SQLiteEngine
from tenure.testing.conformance.kit import OpenEngine
from tests.servers.schemas import Borrowed, Schemas
from tests.servers.valkey import ValkeyServer

Handles = Callable[[], Engine]
"""Each call gives an unopened handle on one store."""

Request = pytest.FixtureRequest


def _memory(folder: Path, request: Request) -> Handles:
    return MemoryEngine().side


def _sqlite(folder: Path, request: Request) -> Handles:
    # Each handle as of another process: nothing but the file is shared.
    return lambda: SQLiteEngine(folder / "jobs.db", synchronous="normal")


class Counted(PostgresEngine):
    """Tells the store when its last handle is closed, so that its tables are used again at once.

    Its calls may take long, as they do on a machine that has too much to do.
    """

    def __init__(self, store: Borrowed, url: str) -> None:
        super().__init__(place_of(f"{url}&timeout=50"))
        self._store = store

    async def __aenter__(self) -> Self:
        self._store.handles += 1
        return await super().__aenter__()

    async def __aexit__(self, *exc: object) -> None:
        await super().__aexit__(*exc)
        self._store.handles -= 1
        if not self._store.handles:
            self._store.give_back()


def _postgres(folder: Path, request: Request) -> Handles:
    store = _borrowed(request)
    return lambda: Counted(store, store.url)


def _pooled(folder: Path, request: Request) -> Handles:
    store, pooler = _borrowed(request), request.getfixturevalue("postgres_pooler")
    return lambda: Counted(store, pooler.through(store.url))


def _bounced(folder: Path, request: Request) -> Handles:
    store, pooler = _borrowed(request), request.getfixturevalue("postgres_bouncer")
    return lambda: Counted(store, pooler.through(store.url))


def _borrowed(request: Request) -> Borrowed:
    schemas: Schemas = request.getfixturevalue("postgres_schemas")
    store = schemas.borrow()
    request.addfinalizer(store.give_back)
    return store


def _redis(folder: Path, request: Request) -> Handles:
    server: ValkeyServer = request.getfixturevalue("valkey_server")
    name = f"store-{secrets.token_hex(4)}"
    request.addfinalizer(lambda: server.forget(name))
    return lambda: RedisEngine(redis_place(server.url(namespace=name)))


ENGINES: dict[str, Callable[[Path, Request], Handles]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgres": _postgres,
    "pooled": _pooled,
    "redis": _redis,
    "bounced": _bounced,
}
"""Name: from an empty folder, a factory of unopened handles on one fresh store."""


SOAKED = {"bounced"}
"""Those that are as another is, but for whose double stands in between: not in every test run."""

LONG = {"pooled", "bounced"}
"""Those that are as others are, but for what is in between: random histories are for soaks."""


def _but(marked: set[str]) -> list[Any]:
    """The engines, some of them for soaks only."""
    return [
        pytest.param(name, marks=pytest.mark.soak) if name in marked else name for name in ENGINES
    ]


@pytest.fixture(params=_but(SOAKED))
async def open_engine(request: Request, tmp_path: Path) -> AsyncIterator[OpenEngine]:
    """What the suite asks for: each call opens a handle on the store of this test."""
    handle = ENGINES[request.param](tmp_path, request)
    async with AsyncExitStack() as stack:
        yield lambda: stack.enter_async_context(handle())


@pytest.fixture(params=_but(LONG))
def fresh_engine(request: Request, tmp_path: Path) -> Callable[[], Engine]:
    """Each call gives an unopened engine on a new and empty store."""
    folders = (tmp_path / str(number) for number in itertools.count())

    def fresh() -> Engine:
        folder = next(folders)
        folder.mkdir()
        return ENGINES[request.param](folder, request)()

    return fresh
