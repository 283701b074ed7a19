"""Services on every engine: several on one store, and with faults on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tenure import QueueService
from tenure.engines.memory import MemoryEngine
from tenure.engines.open import open_engine
from tenure.engines.protocol import Engine
from tenure.lifetime import Lifetime
from tenure.testing.flaky import Flaky


class Store:
    """One fresh store. Each `service` shares nothing but the store with the others.

    `url` leads to it from other processes too; None in memory.
    """

    def __init__(self, url: str | None) -> None:
        self.url = url
        memory = MemoryEngine()
        self._handle: Callable[[], Engine] = memory.side
        if url is not None:
            self._handle = lambda: open_engine(url)

    def service(self, *, tasks: Iterable[Any] = (), **settings: Any) -> QueueService:
        """A service on this store."""
        return self._with(self._handle, tasks, settings)

    def flaky(self, *, tasks: Iterable[Any] = (), **settings: Any) -> tuple[QueueService, Flaky]:
        """A service on this store, and the engine that goes wrong as it is told."""
        flaky = Flaky(self._handle())
        return self._with(lambda: flaky, tasks, settings), flaky

    def _with(
        self, make: Callable[[], Engine], tasks: Iterable[Any], settings: dict[str, Any]
    ) -> QueueService:
        jobs = QueueService(self.url or "memory://", tasks=tasks, **settings)
        life = Lifetime(make, jobs._at_exit)
        life.before_close = jobs._life.before_close
        life.companion = jobs._life.companion
        jobs._life = life
        return jobs


ENGINES = ("memory", "sqlite", "postgres", "redis")


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store on every engine."""
    return store_on(request.param, request, tmp_path)


@pytest.fixture(params=[name for name in ENGINES if name != "memory"])
def shared_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store on every engine that several processes may use."""
    return store_on(request.param, request, tmp_path)


def store_on(name: str, request: pytest.FixtureRequest, folder: Path) -> Store:
    if name == "memory":
        return Store(None)
    if name == "sqlite":
        return Store(f"sqlite:///{folder}/jobs.db")
    if name == "redis":
        return Store(request.getfixturevalue("valkey_store"))
    borrowed = request.getfixturevalue("postgres_schemas").borrow()
    request.addfinalizer(borrowed.give_back)
    return Store(borrowed.url)
