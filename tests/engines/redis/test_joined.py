"""Enqueueing in a MULTI of the caller."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
from redis.asyncio import Redis as AsyncRedis

from tenure import QueueService
from tenure.core.query import Filter, Page
from tenure.core.states import State
from tenure.engines.protocol import Claim, Signal, Topic
from tenure.engines.redis import RedisEngine
from tenure.errors import ConfigurationError, JobNotFound, PayloadError
from tests.engines.redis.conftest import make_job
from tests.servers.valkey import ValkeyServer

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(valkey_server: ValkeyServer):
    async with AsyncRedis(port=valkey_server.port, protocol=2) as opened:
        yield opened


@pytest.fixture
def jobs(valkey_store: str) -> QueueService:
    service = QueueService(valkey_store)

    @service.task
    async def ship(order: int) -> int:
        return order

    return service


async def test_what_is_put_into_a_pipeline_is_done_with_it(jobs, client):
    async with jobs, client.pipeline(transaction=True) as pipe:
        pipe.set("orders:7", "new")
        handle = await jobs.using(pipe).enqueue("ship", 7)
        with pytest.raises(ConfigurationError, match="pipeline"):
            _ = handle.created
        with pytest.raises(JobNotFound):
            await handle.job()
        await pipe.execute()
        assert (await handle.job()).arguments == {"order": 7}
        await jobs.worker(burst=True).run()
        assert await handle.result(5) == 7
    await client.delete("orders:7")


async def test_a_pipeline_that_is_not_executed_leaves_nothing(jobs, client):
    async with jobs:
        async with client.pipeline(transaction=True) as pipe:
            handle = await jobs.using(pipe).enqueue("ship", 7)
        with pytest.raises(JobNotFound):
            await handle.job()


async def test_watched_keys_that_changed_leave_nothing(jobs, client):
    async with jobs, client.pipeline(transaction=True) as pipe:
        await pipe.watch("stock")
        with pytest.raises(ConfigurationError, match=r"multi\(\)"):
            jobs.using(pipe)
        pipe.multi()
        handle = await jobs.using(pipe).enqueue("ship", 1)
        await client.set("stock", "1")
        with pytest.raises(redis.WatchError):
            await pipe.execute()
        with pytest.raises(JobNotFound):
            await handle.job()
    await client.delete("stock")


def test_the_blocking_face_does_the_same(jobs, look):
    with look.pipeline(transaction=True) as pipe:
        many = jobs.sync.using(pipe).enqueue_many([jobs.tasks.get("ship").bind(n) for n in (1, 2)])
        pipe.execute()
    assert [handle.job().arguments["order"] for handle in many] == [1, 2]
    jobs.sync.close()


async def test_a_worker_is_told_by_the_script_itself(engine: RedisEngine, look: redis.Redis):
    async with engine.listen({Topic.QUEUE}, ["default"]) as listener:
        pipe = look.pipeline(transaction=True)
        engine.join(pipe).insert([make_job()])
        await asyncio.to_thread(pipe.execute)
        assert Signal(Topic.QUEUE, "default") in await listener.wait(10)


async def test_the_server_need_not_know_the_script(engine: RedisEngine, look: redis.Redis):
    job = make_job()
    pipe = look.pipeline(transaction=True)
    engine.join(pipe).insert([job])
    look.script_flush()
    pipe.execute()
    assert (await engine.get([job.id]))[0] is not None


async def test_a_taken_key_leaves_the_job_out(engine: RedisEngine, look: redis.Redis):
    first = make_job(unique_key="k")
    await engine.insert([first])
    kept = make_job(unique_key="f", unique_until="forever")
    pipe = look.pipeline(transaction=True)
    joined = engine.join(pipe)
    twins = [make_job(unique_key="k"), kept, make_job(unique_key="f", unique_until="forever")]
    joined.insert(twins)
    joined.insert([make_job(id=kept.id)])
    pipe.execute()
    rows = await engine.get([job.id for job in twins])
    assert [row is not None for row in rows] == [False, True, False]
    assert (await engine.identity("f")).job_id == kept.id  # type: ignore[union-attr]


async def test_an_overdue_job_gives_its_key_up(engine: RedisEngine, look: redis.Redis):
    old = make_job(unique_key="k", expires_in=5)
    await engine.insert([old], now=100)
    pipe = look.pipeline(transaction=True)
    new, late = make_job(unique_key="k"), make_job(unique_key="k")
    engine.join(pipe).insert([new, late], now=105)
    pipe.execute()
    before, after, none = await engine.get([old.id, new.id, late.id])
    assert before is not None
    assert (before.state, before.finished_at) == (State.EXPIRED, 105)
    assert after is not None
    assert none is None
    twin = make_job(unique_key="k")
    [answer] = await engine.insert([twin], now=106)
    assert (answer.id, answer.created) == (new.id, False)


async def test_a_key_that_is_reserved_for_ever_is_not_given_up(
    engine: RedisEngine, look: redis.Redis
):
    old = make_job(unique_key="k", unique_until="forever", expires_in=5)
    await engine.insert([old], now=100)
    pipe = look.pipeline(transaction=True)
    new = make_job(unique_key="k", unique_until="forever")
    engine.join(pipe).insert([new], now=200)
    pipe.execute()
    before, none = await engine.get([old.id, new.id])
    assert before is not None
    assert (before.state, none) == (State.PENDING, None)


async def test_a_running_job_keeps_its_key(engine: RedisEngine, look: redis.Redis):
    await engine.insert([make_job(unique_key="k", expires_in=5)], now=100)
    await engine.claim(Claim(owner="w", limit=1, lease=10**6), now=100)
    pipe = look.pipeline(transaction=True)
    engine.join(pipe).insert([make_job(unique_key="k")], now=200)
    pipe.execute()
    assert len(await engine.find(Filter(), Page())) == 1


@pytest.mark.parametrize("policy", ["raise", "replace"])
async def test_what_may_have_to_raise_is_refused(engine, look, policy):
    pipe = look.pipeline(transaction=True)
    with pytest.raises(ConfigurationError, match="on_conflict"):
        engine.join(pipe).insert([make_job(unique_key="k", on_conflict=policy)])
    assert len(pipe) == 0


async def test_what_cannot_be_stored_is_refused_at_once(engine, look):
    pipe = look.pipeline(transaction=True)
    with pytest.raises(PayloadError):
        engine.join(pipe).insert([make_job(payload=b"x" * (engine.traits.max_payload + 1))])
    with pytest.raises(ConfigurationError, match="delay"):
        engine.join(pipe).insert([make_job(delay=2**62)])
    assert len(pipe) == 0


async def test_other_things_than_a_transaction_are_refused(engine, look, valkey_server):
    for thing, word in (
        (look, "pipeline"),
        (look.pipeline(transaction=False), "not a transaction"),
        (object(), "pipeline"),
        (redis.Redis(port=valkey_server.port, db=3).pipeline(), "database 3"),
    ):
        with pytest.raises(ConfigurationError, match=word):
            engine.join(thing)


async def test_settling_and_holding_are_refused(engine: RedisEngine, look: redis.Redis):
    await engine.insert([make_job()])
    [row] = await engine.claim(Claim(owner="w", limit=1, lease=10**6))
    joined: Any = engine.join(look.pipeline(transaction=True))
    with pytest.raises(ConfigurationError, match="after the pipeline"):
        joined.hold(row)
    with pytest.raises(ConfigurationError, match="after the pipeline"):
        joined.settle([])
