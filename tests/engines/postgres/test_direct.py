"""Inserting without an event loop."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tenure import QueueService
from tenure.core.job import NewJob
from tenure.engines.optional import Blocking, direct_of
from tenure.engines.postgres import PostgresEngine, place_of
from tenure.engines.postgres.direct import DirectInserts
from tenure.engines.protocol import Signal, Topic
from tenure.errors import DuplicateJob, EngineUnavailable, PayloadError, SchemaError
from tests.engines.postgres.conftest import Look, make_job
from tests.engines.sqlite.test_processes import fork
from tests.servers.pooler import Pooler
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.anyio

HEARD = {Signal(Topic.QUEUE, "default")}


@pytest.fixture
def direct(store: str) -> Iterator[DirectInserts]:
    opened = PostgresEngine(place_of(store)).direct()
    yield opened
    opened.close()


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[Proxy]:
    with Proxy(postgres_server.port) as proxy:
        yield proxy


def ids(look: Look) -> list[str]:
    return [row[0] for row in look.execute("SELECT id FROM jobs ORDER BY id")]


def patiently(direct: DirectInserts, job: NewJob) -> None:
    """Insert, however slow the machine, where a call may take a short time only."""
    while True:
        try:
            direct.insert([job])
            return
        except EngineUnavailable:
            time.sleep(0.05)


def idle(direct: DirectInserts) -> list[Any]:
    return direct._counter._idle


def test_it_is_always_the_same(store):
    engine = PostgresEngine(place_of(store))
    assert isinstance(engine, Blocking)
    assert direct_of(engine) is engine.direct()
    assert not engine.direct().in_use


def test_it_needs_no_open_engine(direct, look):
    [answer] = direct.insert([make_job(id="a")])
    assert (answer.id, answer.created) == ("a", True)
    again = direct.insert([make_job(id="a"), make_job(id="b", unique_key="k")])
    assert [answer.created for answer in again] == [False, True]
    assert direct.insert([]) == []
    assert ids(look) == ["a", "b"]
    assert len(idle(direct)) <= 2  # one of them for what is told


def test_all_or_nothing(direct, look):
    direct.insert([make_job(id="a", unique_key="k")])
    with pytest.raises(DuplicateJob):
        direct.insert([make_job(id="b"), make_job(id="c", unique_key="k", on_conflict="raise")])
    with pytest.raises(PayloadError):
        direct.insert([make_job(id="b"), make_job(id="d", payload=b"1" * 2_000_000)])
    with pytest.raises(PayloadError, match="insert: "):
        direct.insert([*(make_job() for _ in range(1500)), make_job(description="\0")])
    assert ids(look) == ["a"]
    direct.insert([make_job(id="e")])
    assert ids(look) == ["a", "e"]


async def test_listeners_of_this_process_and_of_others_hear_at_once(store):
    for opened in (True, False):
        engine = PostgresEngine(place_of(store))
        if opened:
            await engine.__aenter__()
        async with (
            PostgresEngine(place_of(store)) as other,
            engine._hub.listen({Topic.QUEUE}) as here,
            other.listen({Topic.QUEUE}) as there,
        ):
            engine.direct().insert([make_job()])
            assert await here.wait(20) == HEARD
            assert await there.wait(20) == HEARD
        if opened:
            await engine.__aexit__()
            assert not engine.direct().in_use
        engine.direct().close()


async def test_what_is_to_be_told_is_told_before_it_closes(store):
    async with PostgresEngine(place_of(store)) as other, other.listen({Topic.QUEUE}) as there:
        direct = PostgresEngine(place_of(store)).direct()
        direct.insert([make_job()])
        direct.close()
        assert not direct.in_use
        assert await there.wait(20) == HEARD


def test_many_threads_at_once_share_a_few_connections(store, look):
    direct = PostgresEngine(place_of(f"{store}&connections=3")).direct()
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(direct.insert, [make_job(id=f"{n:03}")]) for n in range(200)]
        assert all(call.result(50)[0].created for call in calls)
    assert 1 <= len(idle(direct)) <= 3
    direct.close()
    assert ids(look) == [f"{n:03}" for n in range(200)]


def test_threads_that_want_the_same_key_get_one_job(direct, look):
    with ThreadPoolExecutor(6) as pool:
        calls = [pool.submit(direct.insert, [make_job(unique_key="k")]) for _ in range(30)]
        answers = [call.result(50)[0] for call in calls]
    assert len({answer.id for answer in answers}) == 1
    assert sum(answer.created for answer in answers) == 1
    assert len(ids(look)) == 1


def test_a_call_ends_while_all_connections_are_in_use(store):
    direct = PostgresEngine(place_of(f"{store}&connections=1&timeout=0.3")).direct()
    direct._counter._room.acquire()
    with pytest.raises(EngineUnavailable, match=r"all 1 connections to .* are in use by other"):
        direct.insert([make_job()])
    direct._counter._room.release()
    direct.close()


def test_a_call_ends_while_the_table_is_locked_and_so_does_its_statement(store, look):
    direct = PostgresEngine(place_of(f"{store}&timeout=0.5")).direct()
    patiently(direct, make_job(id="a"))
    with psycopg.connect(place_of(store).conninfo) as other:
        other.execute(f"LOCK TABLE {place_of(store).schema}.jobs")
        for job in (make_job(id="b"), make_job(id="c", unique_key="k")):
            with pytest.raises(EngineUnavailable, match=r"insert: .* within 0\.5 s"):
                direct.insert([job])
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while look.execute(waiting).fetchone() != (0,):
            time.sleep(0.01)
    patiently(direct, make_job(id="d"))
    assert ids(look) == ["a", "d"]
    direct.close()


def test_a_call_ends_while_nothing_answers(store, proxy, look):
    direct = PostgresEngine(place_of(proxy.through(f"{store}&timeout=0.5"))).direct()
    patiently(direct, make_job(id="a"))
    direct._counter.teller.drain(20)
    proxy.stall()
    said = ""
    for _ in range(3):  # as there may be two connections that were open
        with pytest.raises(EngineUnavailable) as refused:
            direct.insert([make_job(id="b")])
        said += str(refused.value)
    assert "insert: " in said
    assert "did not answer within 0.5 s" in said
    assert "gave no connection within 0.5 s" in said
    proxy.flow()
    patiently(direct, make_job(id="c"))
    direct.close()
    assert {"a", "c"} <= set(ids(look))


def test_a_connection_that_was_cut_while_idle_fails_no_call(store, proxy):
    direct = PostgresEngine(place_of(proxy.through(store))).direct()
    for _ in range(3):
        direct.insert([make_job()])
        direct._counter.teller.drain(20)
        waiting = [wire._connection.fileno() for wire in idle(direct)]
        proxy.cut()
        for wire in list(idle(direct)):
            while wire.alive:
                time.sleep(0.001)
        assert waiting
    direct.close()


def test_behind_a_pooler_nothing_is_left_in_sessions(store, postgres_pooler: Pooler, look):
    url = postgres_pooler.through(store)
    direct = PostgresEngine(place_of(url)).direct()
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(direct.insert, [make_job(), make_job()]) for _ in range(40)]
        calls += [pool.submit(direct.insert, [make_job(unique_key=f"{n}")]) for n in range(20)]
        assert all(answer.created for call in calls for answer in call.result(50))
    direct.close()
    assert len(ids(look)) == 100
    found = set()
    for _ in range(12):
        with psycopg.connect(place_of(url).conninfo, autocommit=True) as other:
            found.add(other.execute("SELECT count(*) FROM pg_prepared_statements").fetchone())
    assert found == {(0,)}


def test_what_opening_says_is_raised(postgres_server):
    nowhere = PostgresEngine(place_of(f"{postgres_server.url()}?schema=nobody")).direct()
    for _ in range(2):
        with pytest.raises(SchemaError, match="tenure migrate"):
            nowhere.insert([make_job()])
    nobody = PostgresEngine(place_of("postgresql://127.0.0.1:1/none")).direct()
    with pytest.raises(EngineUnavailable, match="refused"):
        nobody.insert([make_job()])
    nowhere.close()
    nobody.close()


def test_closing_and_using_it_again(direct, look):
    direct.close()
    direct.insert([make_job(id="a")])
    direct.close()
    direct.close()
    direct.insert([make_job(id="b")])
    assert ids(look) == ["a", "b"]


def test_what_is_in_use_while_it_closes_is_closed_afterwards(direct):
    direct.insert([make_job()])
    counter = direct._counter
    with counter._wire("insert", time.monotonic() + 30) as wire:
        direct.close()
        assert wire.alive
    assert not wire.alive


def test_it_closes_when_it_is_forgotten(store, look):
    direct = PostgresEngine(place_of(store)).direct()
    direct.insert([make_job()])
    direct._counter.teller.drain(20)
    wires = list(idle(direct))
    assert wires
    del direct
    gc.collect()
    assert not any(wire.alive for wire in wires)


def test_a_forked_child_has_connections_of_its_own(direct, look):
    direct.insert([make_job(id="a")])
    direct._counter.teller.drain(20)
    direct._counter._lock.acquire()  # as by a thread that the child does not have

    def use() -> str:
        with ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(direct.insert, [make_job(id=f"b{n}")]) for n in range(8)]
            created = all(call.result(30)[0].created for call in calls)
        direct.close()
        return str(created)

    try:
        assert fork(use) == "True"
    finally:
        direct._counter._lock.release()
    wires = list(idle(direct))
    direct.insert([make_job(id="c")])
    assert set(wires) <= set(idle(direct)) | {None}, "the parent's connection was ended"
    assert len(ids(look)) == 10


def test_a_child_that_ends_in_order_leaves_the_connections_of_its_parent_alone(store, python):
    script = """
import os, sys
from tenure.core.job import NewJob
from tenure.engines.postgres import PostgresEngine, place_of

direct = PostgresEngine(place_of(sys.argv[1])).direct()
direct.insert([NewJob(id="a", task="t")])
direct._counter.teller.drain(20)
wires = list(direct._counter._idle)
if os.fork() == 0:
    del direct, wires
    sys.exit(0)  # frees whatever it has
os.wait()
print(direct.insert([NewJob(id="b", task="t")])[0].created, wires == direct._counter._idle)
"""
    process = python(script, store)
    assert process.communicate()[0] == "True True\n"
    assert process.returncode == 0


def test_blocking_code_enqueues_without_an_event_loop(store, look):
    jobs = QueueService(store)

    @jobs.task
    def ship(order: int) -> int:
        return order

    assert jobs.sync.enqueue(ship, 7).created
    assert not [thread.name for thread in threading.enumerate() if "portal" in thread.name]
    jobs.sync.close()
    assert not jobs._life.engine.direct().in_use  # type: ignore[attr-defined]
    assert len(ids(look)) == 1


def test_a_script_that_ends_at_once_has_told_its_jobs(store, python):
    script = """
import sys
from tenure import QueueService
from tenure.core.job import NewJob

jobs = QueueService(sys.argv[1])

@jobs.task
def ship(): ...

jobs.sync.enqueue(ship)
"""
    with psycopg.connect(place_of(store).conninfo, autocommit=True) as look:
        look.execute(f"LISTEN {place_of(store).channel}")
        assert python(script, store).wait(30) == 0
        heard = [notice.payload for notice in look.notifies(timeout=20, stop_after=1)]
    assert len(heard) == 1
    assert "default" in heard[0]
