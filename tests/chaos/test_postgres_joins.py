"""Effects in callers' transactions on PostgreSQL, and workers that die in the middle of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import psycopg
import pytest

from tenure import QueueService
from tests.chaos import bank
from tests.chaos.fleet import Fleet, until
from tests.engines.postgres.conftest import Look
from tests.servers.postgres import PostgresServer
from tests.servers.schemas import migrated

Scaled = Callable[[int, int], int]


@pytest.fixture
def url(postgres_server: PostgresServer) -> Iterator[str]:
    """A store in a database of its own."""
    yield migrated(postgres_server.create_database("bank"))
    postgres_server.drop_database("bank")


@pytest.fixture
def look(url: str) -> Iterator[Look]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def number(look: Look, query: str) -> int:
    found = look.execute(query).fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.timeout(300)
def test_effects_happen_exactly_once_wherever_a_worker_dies(
    tmp_path: Path, url: str, look: Look, scaled: Scaled
) -> None:
    look.execute("CREATE SCHEMA bank CREATE TABLE effects (job text, token bigint)")
    points = [point for point in get_args(bank.Point) if point]
    deaths = list(itertools.product(bank.TASKS, points)) * scaled(1, 10)
    deaths = deaths[:: scaled(2, 1)]  # of each task, and of each point
    plain = scaled(20, 300)
    with QueueService(url, tasks=bank.TASKS).sync as jobs:
        for task, point in deaths:
            jobs.enqueue_many([task.bind(n) for n in range(plain)])
            jobs.enqueue(task, 0, point)
    total = len(deaths) * (plain + 1)

    def finished() -> bool:
        fleet.revive()
        return number(look, "SELECT count(*) FROM tenure.finished") == total

    options = ("--lease", "1", "-c", "4")
    fleet = Fleet(tmp_path, 2, *options, app="tests.chaos.bank:jobs", CHAOS_URL=url)
    try:
        until(finished, 240, "every job ended")
    finally:
        fleet.end()
    assert len(list(tmp_path.glob("died-*"))) == len(deaths)
    assert "Traceback" not in fleet.said()
    assert number(look, "SELECT count(*) FROM tenure.finished WHERE state = 'completed'") == total
    assert number(look, "SELECT count(*) FROM bank.effects") == total
    assert (
        number(
            look,
            "SELECT count(*) FROM tenure.finished f JOIN bank.effects e"
            " ON e.job = f.id AND e.token = f.token",
        )
        == total
    )
