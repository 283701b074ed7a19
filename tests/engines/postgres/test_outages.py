"""Servers that are killed, connections that are cut, callers that leave: nothing is lost."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import psycopg
import pytest

from tenure import QueueService
from tenure.core.outcomes import Completed
from tenure.core.query import Filter, Page
from tenure.core.rules import decide
from tenure.core.states import State
from tenure.engines.postgres import PostgresEngine, place_of
from tenure.engines.protocol import Claim, Signal, Topic
from tenure.errors import EngineUnavailable
from tests.engines.postgres.conftest import Look, make_job
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.anyio

Given = TypeVar("Given")
T = TypeVar("T")
CLAIM = Claim(owner="w", limit=5, lease=60_000_000, tasks=("t",))


@pytest.fixture
def admin(restless_server: PostgresServer, restless: str) -> Iterator[Look]:
    with psycopg.connect(restless_server.url(), autocommit=True) as connection:
        yield connection


def cut(admin: Look) -> int:
    """End every other session, as an administrator or a failing network would; how many."""
    found = admin.execute(
        "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
        " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    ).fetchone()
    assert found is not None
    return int(found[0])


async def test_a_server_that_was_restarted_is_found_again(restless_server, restless):
    async with PostgresEngine(place_of(restless)) as engine:
        job = make_job()
        await asyncio.gather(*(engine.insert([make_job()]) for _ in range(3)), engine.stats())
        await engine.insert([job])
        async with engine.listen({Topic.QUEUE}) as listener:
            await listener.wait(0.2)
            restless_server.kill()
            started = time.monotonic()
            with pytest.raises(EngineUnavailable):
                await engine.insert([make_job()])
            assert time.monotonic() - started < 3, "a refused connection is no reason to wait"
            restless_server.start()
            [row] = await engine.get([job.id])  # the very first call
            assert row is not None
            while Signal(Topic.ANY) not in await listener.wait(20):
                pass  # it hears again, and what it missed is unknown
            async with PostgresEngine(place_of(restless)) as other:
                await other.insert([make_job(queue="news")])
                while Signal(Topic.QUEUE, "news") not in (heard := await listener.wait(10)):
                    assert heard, "it does not hear"


def test_it_is_found_again_by_inserts_without_an_event_loop(restless_server, restless):
    direct = PostgresEngine(place_of(restless)).direct()
    direct.insert([make_job(id="a")])
    restless_server.kill()
    with pytest.raises(EngineUnavailable, match="insert: "):
        direct.insert([make_job()])
    restless_server.start()
    assert direct.insert([make_job(id="a")])[0].created is False  # the very first call
    direct.close()


async def test_sessions_that_were_ended_while_idle_fail_no_call(restless, admin):
    async with PostgresEngine(place_of(restless)) as engine:
        await asyncio.gather(*(engine.stats() for _ in range(5)))
        for _ in range(5):
            assert cut(admin) >= 1
            await engine.insert([make_job()])
            await asyncio.gather(*(engine.stats() for _ in range(5)))


async def test_a_session_that_is_ended_within_a_call_fails_that_call(restless, admin):
    async with PostgresEngine(place_of(restless)) as engine:
        admin.execute("BEGIN")
        admin.execute("LOCK TABLE tenure.jobs")
        waiting = asyncio.create_task(engine.stats())
        await asyncio.sleep(0.1)
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        )
        with pytest.raises(EngineUnavailable, match="stats: "):
            await waiting
        admin.execute("COMMIT")
        await engine.stats()


async def test_work_goes_on_through_random_cuts(restless, admin, scaled):
    """Each job ends once, whatever is cut when: replies are lost, leases and tokens are not."""
    total, done = scaled(300, 5000), set[str]()
    jobs = [make_job(queue="cuts") for _ in range(total)]
    dice = random.Random(5)

    async def cutting() -> None:
        while len(done) < total:
            await asyncio.sleep(dice.uniform(0.02, 0.1))
            await asyncio.to_thread(cut, admin)

    async def work(engine: PostgresEngine, owner: str) -> None:
        while len(done) < total:
            claim = Claim(
                owner=owner, limit=5, lease=60_000_000, queues=("cuts",), tasks=("t",), held=()
            )
            rows = await again(engine.claim, claim)
            assert all((row.claims, row.lapses) == (1, 0) for row in rows)
            settlements = [decide(row, Completed(), now=row.started_at or 0) for row in rows]
            for answer in await again(engine.settle, settlements):
                assert answer.verdict in ("applied", "already")
                assert answer.id not in done
                done.add(answer.id)

    async with PostgresEngine(place_of(restless)) as engine, engine.side() as side:
        for start in range(0, total, 50):
            await again(engine.insert, jobs[start : start + 50])
        async with asyncio.timeout(50), asyncio.TaskGroup() as group:
            group.create_task(cutting())
            for n, handle in enumerate([engine, side, engine, side]):
                group.create_task(work(handle, f"w{n}"))
        [queue] = await engine.stats(["cuts"])
    assert (queue.completed, queue.pending, queue.running) == (total, 0, 0)
    assert done == {job.id for job in jobs}


async def again(call: Callable[[Given], Awaitable[T]], given: Given) -> T:
    """Until the store is there."""
    while True:
        try:
            return await call(given)
        except EngineUnavailable:
            await asyncio.sleep(0.01)


async def test_a_network_that_stalls_ends_calls_in_time_and_nothing_else(store, postgres_server):
    with Proxy(postgres_server.port) as proxy:
        url = f"{proxy.through(store)}&timeout=1"
        async with PostgresEngine(place_of(url)) as engine, engine.side() as side:
            await asyncio.gather(engine.insert([make_job()]), side.stats())
            await asyncio.to_thread(proxy.stall)
            started = time.monotonic()
            calls = [engine.stats(), engine.insert([make_job()]), engine.claim(CLAIM), side.stats()]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(answer, EngineUnavailable) for answer in answers), answers
            assert time.monotonic() - started < 4
            await asyncio.to_thread(proxy.flow)
            await engine.insert([make_job()])
            [queue] = await side.stats()
            assert queue.pending + queue.running >= 2


async def test_a_connection_that_is_left_in_a_transaction_is_not_used_again(engine):
    pool = engine._handle._pool
    deadline = asyncio.get_running_loop().time() + 60
    async with pool.link(deadline) as left:
        await left.connection.execute("BEGIN")
    async with pool.link(deadline) as other:
        assert other is not left


async def test_an_answer_at_the_deadline_leaves_no_connection_that_is_being_ended(engine):
    pool = engine._handle._pool
    deadline = asyncio.get_running_loop().time() + 60
    async with pool.link(deadline) as late:
        pool.end(late)  # as its timer does
    async with pool.link(deadline) as other:
        assert other is not late
    assert await engine.stats() == []


async def test_a_server_that_is_away_for_a_while_costs_workers_time_only(
    restless_server, restless, scaled
):
    total, ran = scaled(200, 5000), list[int]()
    async with QueueService(restless) as jobs:

        @jobs.task(queue="away", max_lapses=100)
        async def note(n: int) -> None:
            await asyncio.sleep(0.01)
            ran.append(n)

        workers = [
            jobs.worker(queues=("away",), concurrency=4, lease=2, poll_max=0.5) for _ in range(2)
        ]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        handles = await jobs.enqueue_many([note.bind(n) for n in range(total)])
        for _ in range(scaled(2, 10)):
            await asyncio.sleep(0.1)
            await asyncio.to_thread(restless_server.kill)
            await asyncio.sleep(0.2)
            await asyncio.to_thread(restless_server.start)
        async with asyncio.timeout(scaled(40, 600)):
            ended = [await again(jobs.wait, handle.id) for handle in handles]
            late = await again(lambda task: jobs.enqueue(task), note.bind(-1))
            await again(jobs.wait, late.id)
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)
    assert {job.state for job in ended} == {State.COMPLETED}
    assert set(ran) == {*range(total), -1}


async def test_callers_that_leave_disturb_nobody(engine, scaled):
    """B123: replies match what was asked, and no connection is lost."""
    dice = random.Random(7)
    mine = [make_job(queue=f"q{n}") for n in range(8)]
    await engine.insert(mine)

    async def one(n: int) -> None:
        match dice.randrange(4):
            case 0:
                [row] = await engine.get([mine[n].id])
                assert row.queue == f"q{n}"
            case 1:
                [row] = await engine.find(Filter(queues=(f"q{n}",)), Page(1))
                assert row.id == mine[n].id
            case 2:
                [queue] = await engine.stats([f"q{n}"])
                assert (queue.queue, queue.pending) == (f"q{n}", 1)
            case 3:
                assert await engine.next_due([f"q{n}"]) == 0

    async def leaving(n: int) -> None:
        task = asyncio.create_task(one(n))
        await asyncio.sleep(dice.choice((0, 0, 0.0005, 0.002)))
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass

    for _ in range(scaled(60, 2500)):
        await asyncio.gather(*(leaving(n % 8) if n % 2 else one(n % 8) for n in range(8)))
    handle = engine._handle
    assert handle is not None
    assert handle._pool._open <= 8
    await asyncio.gather(*(one(n % 8) for n in range(40)))
