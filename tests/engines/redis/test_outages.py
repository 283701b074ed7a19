"""Servers that are killed, full, or replicas; connections that are cut; scripts that are forgotten:
nothing is lost, nothing half written, and no restart of ours is needed."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

import msgspec
import pytest
import redis

from tenure.core.durations import SECOND
from tenure.core.lease import Extended
from tenure.core.outcomes import Completed, Errored, Outcome, Verdict
from tenure.core.query import Filter, Page
from tenure.core.reports import JobError
from tenure.core.rules import decide
from tenure.core.states import State
from tenure.engines.protocol import Claim, Signal, Topic
from tenure.engines.redis import RedisEngine, place_of
from tenure.errors import EngineUnavailable
from tenure.testing.conformance.kit import beat
from tests.engines.redis.conftest import keys_of, make_job
from tests.servers.proxy import Proxy
from tests.servers.valkey import ValkeyServer, running

pytestmark = pytest.mark.anyio

CLAIM = Claim(owner="w", limit=5, lease=60 * SECOND, tasks=("t",))


async def test_what_was_acknowledged_survives_the_death_of_the_server(restless: ValkeyServer):
    async with RedisEngine(place_of(restless.url(timeout="5"))) as engine:
        jobs = [make_job() for _ in range(50)]
        await engine.insert(jobs)
        rows = await engine.claim(CLAIM)
        await engine.settle([decide(row, Completed(b"1"), now=0) for row in rows[:2]])
        before = await engine.get([job.id for job in jobs])
        async with engine.listen({Topic.QUEUE}) as listener:
            restless.kill()
            started = time.monotonic()
            with pytest.raises(EngineUnavailable):
                await engine.insert([make_job()])
            assert time.monotonic() - started < 4, "a refused connection is no reason to wait"
            restless.start()
            assert await engine.get([job.id for job in jobs]) == before  # the very first call
            while Signal(Topic.ANY) not in await listener.wait(20):
                pass  # it hears again, and what it missed is unknown
            with restless.client() as other:
                other.publish(f"{engine._place.prefix}!queue", "news")
            while Signal(Topic.QUEUE, "news") not in (heard := await listener.wait(10)):
                assert heard, "it does not hear"
        answers = await engine.settle([decide(row, Completed(b"1"), now=0) for row in rows])
        assert [a.verdict for a in answers] == [Verdict.ALREADY] * 2 + [Verdict.APPLIED] * 3


async def test_connections_that_are_killed_fail_no_call_that_may_be_repeated(
    engine: RedisEngine, look: redis.Redis, scaled: Callable[[int, int], int]
):
    """CLIENT KILL at random, while jobs are inserted, claimed, prolonged and settled."""
    dice, total = random.Random(5), scaled(300, 5000)
    stop = asyncio.Event()
    settled: list[str] = []
    lost = 0

    async def kill() -> None:
        while not stop.is_set():
            await asyncio.sleep(dice.random() * 0.02)
            for client in look.client_list():
                if client["cmd"] not in ("client|list", "client|kill") and dice.random() < 0.7:
                    try:
                        look.client_kill(client["addr"])
                    except redis.ResponseError:
                        pass  # it left by itself

    async def put() -> None:
        for _ in range(total):
            [answer] = await engine.insert([make_job()])
            assert answer.created

    async def work() -> None:
        nonlocal lost
        unsure = False
        while len(settled) < total:
            held = () if unsure else None
            try:
                rows = await engine.claim(Claim(owner="w", limit=5, lease=60 * SECOND, held=held))
                unsure = False
            except EngineUnavailable:
                unsure, lost = True, lost + 1
                continue
            assert all(isinstance(e, Extended) for e in await engine.extend(list(map(beat, rows))))
            answers = await engine.settle([decide(row, Completed(), now=0) for row in rows])
            assert {a.verdict for a in answers} <= {Verdict.APPLIED, Verdict.ALREADY}
            settled.extend(a.id for a in answers)

    async with asyncio.timeout(50), asyncio.TaskGroup() as group:
        killing = group.create_task(kill())
        try:
            await asyncio.gather(put(), work())
        finally:
            stop.set()
            await killing
    assert len(set(settled)) == total
    [stats] = await engine.stats()
    assert (stats.completed, stats.pending, stats.running) == (total, 0, 0)


async def test_scripts_that_are_forgotten_are_told_again(engine: RedisEngine, look: redis.Redis):
    for _ in range(3):
        look.script_flush()
        [answer] = await engine.insert([make_job()])
        look.script_flush()
        [row] = await engine.claim(CLAIM)
        look.script_flush()
        assert answer.created
        await engine.settle([decide(row, Completed(), now=0)])
    [stats] = await engine.stats()
    assert stats.completed == 3


async def test_a_full_server_takes_no_job_and_ends_all_that_it_has(restless: ValkeyServer):
    """B122: what is enqueued is whole or not at all; what runs is prolonged, retried and ended."""
    url = restless.url(timeout="5")
    async with RedisEngine(place_of(url)) as engine:
        await engine.insert([make_job(max_attempts=3, unique_key=f"k{n}") for n in range(20)])
        await engine.insert([make_job(delay=1), make_job(expires_in=1)])
        first = await engine.claim(CLAIM)
        with restless.client() as admin:
            admin.config_set("maxmemory", "1")
            before = keys_of(admin, url)
            for jobs in ([make_job()], [make_job(unique_key="x"), make_job(unique_key="x")]):
                with pytest.raises(EngineUnavailable, match="maxmemory"):
                    await engine.insert(jobs)
            assert keys_of(admin, url) == before
            assert await engine.extend([beat(row) for row in first]) == [Extended(30.0)] * 5
            error = JobError(kind="E", message="boom")
            outcomes: list[Outcome] = [
                Completed(b"1"),
                Errored(error, after=0),
                Errored(error, after=SECOND),
            ]
            settled = [decide(r, o, now=0) for r, o in zip(first, outcomes, strict=False)]
            answers = await engine.settle(settled)
            assert [a.verdict for a in answers] == [Verdict.APPLIED] * 3
            rest = await engine.claim(Claim(owner="v", limit=50, lease=60 * SECOND))
            assert len(rest) >= 16
            await engine.cancel([first[3].id])
            await engine.cancel([first[4].id], force=True)
            await engine.sweep(10)
            admin.config_set("maxmemory", "0")
        assert (await engine.insert([make_job()]))[0].created
        found = await engine.inspect()
        assert [f for f in found.findings if f.problem] == []


async def test_a_full_server_is_no_reason_to_write_half_of_a_large_batch():
    with running(maxmemory="6mb", maxmemory_policy="noeviction") as server:
        async with RedisEngine(place_of(server.url(timeout="5"))) as engine:
            inserted, problem = 0, ""
            while not problem:
                jobs = [make_job(payload=b"x" * 200) for _ in range(1000)]
                try:
                    await engine.insert(jobs)
                    inserted += 1000
                except EngineUnavailable as error:
                    problem = str(error)
            assert "maxmemory" in problem
            [stats] = await engine.stats()
            assert stats.pending == inserted > 0
            assert await engine.get([jobs[0].id, jobs[-1].id]) == [None, None]
            found = await engine.inspect()
            assert "memory-nearly-full" in [f.code for f in found.findings]


async def test_a_server_that_became_a_replica_is_waited_for(restless: ValkeyServer):
    """B039: it is asked again until it takes writes, within the deadline."""
    async with RedisEngine(place_of(restless.url(timeout="5"))) as engine:
        await engine.insert([make_job()])
        with restless.client() as admin, running() as master:
            admin.replicaof("127.0.0.1", master.port)
            assert admin.info("replication")["role"] == "slave"
            writing = asyncio.create_task(engine.insert([make_job()]))
            await asyncio.sleep(0.2)  # not to wait for anything: this is how long it is refused
            assert not writing.done()
            admin.execute_command("REPLICAOF", "NO", "ONE")
            [answer] = await writing
            assert answer.created


async def test_a_stalled_server_is_given_up_in_time(valkey_server, valkey_store):
    with Proxy(valkey_server.port) as proxy:
        url = proxy.through(valkey_store) + "&timeout=0.6"
        async with RedisEngine(place_of(url)) as engine:
            await engine.insert([make_job()])
            proxy.stall()
            started = time.monotonic()
            with pytest.raises(EngineUnavailable, match=r"0\.6 s"):
                await engine.claim(CLAIM)
            assert time.monotonic() - started < 5
            with pytest.raises(EngineUnavailable):
                await engine.insert([make_job()])
            proxy.flow()
            assert await engine.claim(CLAIM) is not None
            assert len(await engine.find(Filter(), Page())) >= 1


async def test_an_insert_whose_answer_was_lost_says_created(valkey_server, valkey_store):
    with Proxy(valkey_server.port) as proxy:
        async with RedisEngine(place_of(proxy.through(valkey_store))) as engine:
            await engine.insert([make_job()])
            job = make_job()
            proxy.delay = 0.15
            writing = asyncio.create_task(engine.insert([job]))
            async with RedisEngine(place_of(valkey_store)) as other:
                while (await other.get([job.id]))[0] is None:
                    pass
            proxy.cut()  # it was done, and the answer is on its way
            proxy.delay = 0.0
            assert (await writing)[0].created
            assert not (await engine.insert([job]))[0].created


async def test_a_claim_whose_answer_was_lost_is_not_repeated(valkey_server, valkey_store):
    """It would take other jobs; the next claim of its owner asks for those that it was given."""
    with Proxy(valkey_server.port) as proxy:
        async with RedisEngine(place_of(proxy.through(valkey_store))) as engine:
            await engine.insert([make_job(), make_job()])
            one = Claim(owner="w", limit=1, lease=60 * SECOND)
            proxy.delay = 0.15
            claiming = asyncio.create_task(engine.claim(one))
            async with RedisEngine(place_of(valkey_store)) as other:
                while not (await other.stats())[0].running:
                    pass
                proxy.cut()
                proxy.delay = 0.0
                with pytest.raises(EngineUnavailable, match="claim"):
                    await claiming
                assert (await other.stats())[0].running == 1
            [row] = await engine.claim(msgspec.structs.replace(one, held=()))
            assert row.claims == 1


async def test_a_caller_that_leaves_disturbs_nobody(engine: RedisEngine):
    jobs = [make_job() for _ in range(100)]
    calls = [asyncio.create_task(engine.insert([job])) for job in jobs]
    claims = [asyncio.create_task(engine.claim(CLAIM)) for _ in range(10)]
    await asyncio.sleep(0)
    for task in (*calls[::2], *claims[::2]):
        task.cancel()
    done = await asyncio.gather(*calls, *claims, return_exceptions=True)
    assert not [
        d for d in done if isinstance(d, Exception) and not isinstance(d, asyncio.CancelledError)
    ]
    assert [row is not None for row in await engine.get([job.id for job in jobs[1::2]])] == [
        True
    ] * 50


async def test_pub_sub_that_is_away_costs_latency_only(engine: RedisEngine, look: redis.Redis):
    async with engine.listen({Topic.QUEUE}, ["default"]) as listener:
        look.client_kill_filter(_type="pubsub")
        await engine.insert([make_job()])
        assert len(await engine.claim(CLAIM)) == 1
        while Signal(Topic.ANY) not in await listener.wait(20):
            pass
        await engine.insert([make_job()])
        assert Signal(Topic.QUEUE, "default") in await listener.wait(10)
        rows = await engine.get([row.id for row in await engine.claim(CLAIM)])
        assert [row.state for row in rows if row] == [State.RUNNING]
