"""Houses, services, sites and folders for the tests of what goes wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cli.conftest import tenure
from tests.service.conftest import jobs, url
from tests.worker.conftest import house, kind, memory, moved
from tests.worker.site import Site, open_site

__all__ = ["house", "jobs", "kind", "memory", "moved", "tenure", "url"]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees settings of its surroundings."""
    for name in ("URL", "LEASE", "CONCURRENCY", "LOG_SUCCESS"):
        monkeypatch.delenv(f"TENURE_{name}", raising=False)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """A file and the worker processes on it."""
    async with open_site(tmp_path) as site:
        yield site
