"""What every test can use: how long to search, which loop to run on, how large to be."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import settings

SOAK = bool(os.environ.get("TENURE_SOAK"))

# A test run decides the same way each time; searching new ground is what a soak is for.
settings.register_profile(
    "test", max_examples=100, deadline=None, derandomize=True, database=None, print_blob=True
)
settings.register_profile("soak", max_examples=10_000, deadline=None, print_blob=True)
settings.load_profile("soak" if SOAK else "test")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if SOAK:
        return
    skip = pytest.mark.skip(reason="runs under `make soak`")
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(skip)


@pytest.fixture
def anyio_backend() -> str:
    """Async tests (marked ``anyio``) run on asyncio unless they ask for another loop."""
    return "asyncio"


@pytest.fixture(scope="session")
def scaled() -> Callable[[int, int], int]:
    """``scaled(small, large)``: a number for every test run, or the one for a soak."""
    return lambda small, large: large if SOAK else small
