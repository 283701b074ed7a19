"""An engine on a file of its own, and ways to look at that file."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

import tenure
from tenure.clock import IdSource
from tenure.core.job import NewJob
from tenure.engines.sqlite import SQLiteEngine

new_id = IdSource()


def make_job(**changes) -> NewJob:
    return NewJob(**{"id": new_id(), "task": "t", **changes})


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "jobs.db")


@pytest.fixture
async def engine(path: str) -> AsyncIterator[SQLiteEngine]:
    async with SQLiteEngine(path) as opened:
        yield opened


@pytest.fixture
def look(path: str) -> Iterator[sqlite3.Connection]:
    """A connection of somebody else to the engine's file."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=0)
    yield connection
    connection.close()


@pytest.fixture
def python() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts this Python on a script, with arguments; kills what still runs at the end."""
    started: list[subprocess.Popen[str]] = []
    source = Path(tenure.__file__).parent.parent

    def start(script: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            env=os.environ | {"PYTHONPATH": str(source), "PYTHONUNBUFFERED": "1"},
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
