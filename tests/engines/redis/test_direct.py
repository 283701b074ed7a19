"""Inserting without an event loop."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from tenure.core.query import Filter, Page
from tenure.engines.optional import Direct, direct_of
from tenure.engines.protocol import Signal, Topic
from tenure.engines.redis import RedisEngine, place_of
from tenure.errors import DuplicateJob, EngineUnavailable, PayloadError, SchemaError
from tests.engines.redis.conftest import make_job
from tests.servers.proxy import Proxy
from tests.servers.valkey import ValkeyServer

pytestmark = pytest.mark.anyio


@pytest.fixture
def direct(valkey_store: str):
    opened = RedisEngine(place_of(valkey_store)).direct()
    yield opened
    opened.close()


def test_it_is_always_the_same(valkey_store: str):
    engine = RedisEngine(place_of(valkey_store))
    assert direct_of(engine) is engine.direct() is engine.direct()


def test_it_needs_no_open_engine(direct: Direct):
    [answer] = direct.insert([make_job(id="a")])
    assert (answer.id, answer.created) == ("a", True)
    assert [answer.created for answer in direct.insert([make_job(id="a"), make_job()])] == [
        False,
        True,
    ]
    assert direct.insert([]) == []


def test_keys_are_decided_by_core(direct: Direct):
    direct.insert([make_job(id="a", unique_key="k")])
    [answer] = direct.insert([make_job(unique_key="k")])
    assert (answer.id, answer.created) == ("a", False)
    with pytest.raises(DuplicateJob):
        direct.insert([make_job(unique_key="k", on_conflict="raise")])
    with pytest.raises(PayloadError):
        direct.insert([make_job(payload=b"x" * 2_000_000)])


async def test_who_listens_is_told(direct: Direct, engine: RedisEngine):
    async with engine.listen({Topic.QUEUE}) as listener:
        thread = threading.Thread(target=direct.insert, args=([make_job()],))
        thread.start()
        assert Signal(Topic.QUEUE, "default") in await listener.wait(10)
        thread.join()


async def test_threads_do_not_wait_for_one_another(direct: Direct, engine: RedisEngine):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: direct.insert([make_job(id=str(n))]), range(200)))
    assert all(answer.created for [answer] in answers)
    assert len(await engine.find(Filter(), Page(1000))) == 200


def test_an_interrupted_call_leaves_no_answer_for_the_next(valkey_server, valkey_store):
    with Proxy(valkey_server.port) as proxy:
        direct = RedisEngine(place_of(proxy.through(valkey_store))).direct()
        direct.insert([make_job()])
        proxy.stall()

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGUSR1, interrupted)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        try:
            with pytest.raises(KeyboardInterrupt):
                direct.insert([make_job(), make_job()])
        finally:
            signal.signal(signal.SIGUSR1, before)
        proxy.flow()
        assert len(direct.insert([make_job()])) == 1
        direct.close()


def test_a_store_of_a_newer_library_is_refused_each_time(valkey_store, look):
    place = place_of(valkey_store)
    look.hset(f"{place.prefix}meta", mapping={"version": "9", "min_library": "2"})
    direct = RedisEngine(place).direct()
    for _ in range(2):
        with pytest.raises(SchemaError):
            direct.insert([make_job()])


def test_a_forgotten_script_is_told_again(direct: Direct, look: redis.Redis):
    direct.insert([make_job()])
    look.script_flush()
    assert direct.insert([make_job()])[0].created


def test_broken_connections_are_made_again(valkey_server: ValkeyServer, valkey_store: str):
    with Proxy(valkey_server.port) as proxy:
        direct = RedisEngine(place_of(proxy.through(valkey_store))).direct()
        for n in range(5):
            [answer] = direct.insert([make_job(id=str(n))])
            assert answer.created
            proxy.cut()
        direct.close()


def test_a_server_that_is_away_is_told(valkey_store: str, valkey_server: ValkeyServer):
    with Proxy(valkey_server.port) as proxy:
        direct = RedisEngine(place_of(proxy.through(valkey_store) + "&timeout=0.5")).direct()
        direct.insert([make_job()])
        proxy.refuse()
        with pytest.raises(EngineUnavailable, match="insert"):
            direct.insert([make_job()])
        proxy.refuse(False)
        proxy.stall()
        with pytest.raises(EngineUnavailable, match="insert"):
            direct.insert([make_job()])
        proxy.flow()
        assert direct.insert([make_job()])[0].created
        direct.close()
