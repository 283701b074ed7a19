"""Many jobs on one server that is killed, over connections that are cut: all end, once each.

No worker process is restarted: they wait for the server, and go on.
"""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tenure import QueueService
from tenure.engines.postgres import PostgresEngine, place_of
from tenure.engines.protocol import Signal, Topic
from tests.chaos import shop
from tests.chaos.fleet import Fleet, assert_no_problem, until
from tests.servers.postgres import PostgresServer, running
from tests.servers.proxy import Proxy
from tests.servers.schemas import migrated

Scaled = Callable[[int, int], int]

LISTENERS = "SELECT count(*) FROM pg_stat_activity WHERE query ~ '^(LISTEN|SELECT$)'"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server that is killed."""
    with running() as server:
        migrated(server.url())
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("CREATE TABLE effects (job text, token bigint)")
        yield server


@pytest.fixture
def place(
    tmp_path: Path, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Proxy, dict[str, str]]]:
    """What is told to the workers; they reach the server through a proxy."""
    with Proxy(server.port) as proxy:
        ledger = str(tmp_path / "ledger.db")
        url = f"{proxy.through(server.url())}?timeout=5"
        monkeypatch.setattr(shop, "LEDGER", ledger)
        yield proxy, {"CHAOS_URL": url, "CHAOS_LEDGER": ledger}


def enqueue(url: str, **counts: int) -> None:
    service = QueueService(url, tasks=[shop.effect, shop.exactly_once_there])
    with service.sync as jobs:
        bound = [service.tasks.get(name).bind(n) for name in counts for n in range(counts[name])]
        random.Random(3).shuffle(bound)
        for start in range(0, len(bound), 5000):
            jobs.enqueue_many(bound[start : start + 5000])


def count(server: PostgresServer, sql: str) -> int:
    """One number, asked for by a connection of its own."""
    with psycopg.connect(server.url()) as connection:
        found = connection.execute(sql).fetchone()
        assert found is not None
        return int(found[0])


def has_ended(server: PostgresServer, number: int) -> bool:
    """Whether so many jobs are final."""
    return count(server, "SELECT count(*) FROM tenure.finished") >= number


@contextmanager
def cuts(proxy: Proxy, dice: random.Random) -> Iterator[None]:
    """Break connections at random, now one, now all, for the time of a block."""
    over = threading.Event()

    def cut() -> None:
        while not over.wait(dice.uniform(0.05, 0.4)):
            if dice.random() < 0.8:
                proxy.cut_one(dice)
            else:
                proxy.cut()

    thread = threading.Thread(target=cut)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def disturb(server: PostgresServer, total: int, kills: int, dice: random.Random) -> None:
    """Kill the server each time another share of the jobs has ended; start it again."""
    ways = [server.behead, server.kill, server.stop]
    for number in range(1, kills + 1):
        mark = total * number // (kills + 2)
        until(partial(has_ended, server, mark), 120, f"{mark} jobs ended")
        ways[number % len(ways)]()
        time.sleep(dice.uniform(0, 0.5))  # not to wait for anything: this is how long it is away
        server.start()
    until(partial(has_ended, server, total), 240, "every job ended")


@pytest.mark.anyio
@pytest.mark.timeout(3000)
async def test_killed_servers_and_cut_connections_lose_nothing(
    tmp_path: Path,
    server: PostgresServer,
    place: tuple[Proxy, dict[str, str]],
    scaled: Scaled,
) -> None:
    proxy, told = place
    effects, once = scaled(4_500, 45_000), scaled(500, 5_000)
    total, kills, dice = effects + once, scaled(3, 10), random.Random(7)
    shop.create_ledger()
    fleet = Fleet(tmp_path, 4, "--lease", "2", "-c", "20", **told)
    try:
        until(lambda: count(server, LISTENERS) == 4, 60, "four workers listen")
        enqueue(server.url(), effect=effects, exactly_once_there=once)
        with cuts(proxy, dice):
            disturb(server, total, kills, dice)
        assert fleet.alive == 4
        await assert_that_signals_are_heard(server)
    finally:
        fleet.end()
    assert "Traceback" not in fleet.said()
    check_store(server, total + 1)
    check_effects(server, told["CHAOS_LEDGER"], once)


async def assert_that_signals_are_heard(server: PostgresServer) -> None:
    """Every worker listens again, and what one of them does is heard."""
    until(lambda: count(server, LISTENERS) >= 4, 60, "four workers listen")
    place = place_of(server.url())
    async with PostgresEngine(place) as engine, engine.listen({Topic.DONE}) as listener:
        async with QueueService(server.url(), tasks=[shop.effect]) as jobs:
            handle = await jobs.enqueue(shop.effect, -1)
        while Signal(Topic.DONE, handle.id) not in (heard := await listener.wait(30)):
            assert heard, "the end of a job was not heard"


def check_store(server: PostgresServer, total: int) -> None:
    """Every job completed, and nothing is stuck."""
    assert count(server, "SELECT count(*) FROM tenure.jobs") == 0
    completed = "SELECT count(*) FROM tenure.finished WHERE state = 'completed'"
    assert count(server, completed) == total
    assert count(server, f"{completed} AND claims > 1") > 0, "no kill met a job"
    assert_no_problem(server.url())


def check_effects(server: PostgresServer, ledger: str, once: int) -> None:
    """The last accepted effect of a job has the token that it was settled under."""
    with psycopg.connect(server.url()) as connection:
        settled = "SELECT id, token FROM tenure.finished WHERE task = "
        tokens: dict[str, int] = dict(connection.execute(f"{settled} 'effect'").fetchall())
        there: dict[str, int] = dict(
            connection.execute(f"{settled} 'exactly_once_there'").fetchall()
        )
        own = connection.execute("SELECT job, token FROM effects").fetchall()
    accepted = sqlite3.connect(ledger)
    assert dict(accepted.execute("SELECT job, token FROM effects").fetchall()) == tokens
    accepted.close()
    assert len(own) == once
    assert dict(own) == there
