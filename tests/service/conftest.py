"""Services on every engine, and the ends of jobs without a worker."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure import QueueService
from tenure.core.outcomes import Completed, Outcome
from tenure.core.rules import decide
from tenure.engines.protocol import Claim

End = Callable[..., Awaitable[None]]
HERE = Path(__file__).parent
LIMIT = 30.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not isinstance(item, pytest.Function) or HERE not in item.path.parents:
            continue
        if inspect.iscoroutinefunction(item.obj):
            item.obj = within_the_limit(item.obj)


def within_the_limit(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """A test that hangs is cancelled: stopped from outside it would hold up its fixtures' ends."""

    @functools.wraps(test)
    async def limited(**fixtures: Any) -> None:
        async with asyncio.timeout(LIMIT):
            await test(**fixtures)

    return limited


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees settings of its surroundings."""
    for name in ("URL", "LEASE", "CONCURRENCY", "LOG_SUCCESS"):
        monkeypatch.delenv(f"TENURE_{name}", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=["memory", "sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "redis":
        store: str = request.getfixturevalue("valkey_store")
        return store
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
async def jobs(url: str) -> AsyncIterator[QueueService]:
    """An open service."""
    async with QueueService(url) as jobs:
        yield jobs


@pytest.fixture
def service(url: str) -> Iterator[QueueService]:
    """A service that nobody has used yet."""
    jobs = QueueService(url)
    yield jobs
    jobs.sync.close()


@pytest.fixture
def end() -> End:
    """`await end(jobs, job_id, outcome)`: what a worker does, without one."""

    async def end(jobs: QueueService, job_id: str, outcome: Outcome | None = None) -> None:
        engine = jobs._life.engine
        claim = Claim(owner="test", limit=1, lease=60_000_000, ids=(job_id,))
        [row] = await engine.claim(claim)
        chosen = Completed(b'"done"') if outcome is None else outcome
        await engine.settle([decide(row, chosen, now=row.started_at or 0)])

    return end
