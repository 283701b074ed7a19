"""Behind a transaction pooler everything works, but for wake-ups."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import psycopg
import pytest

from tenure import QueueService
from tenure.core.outcomes import Completed
from tenure.core.query import QueueStats
from tenure.core.rules import decide
from tenure.engines.postgres import PostgresEngine, place_of
from tenure.engines.protocol import Claim, Topic
from tenure.errors import EngineUnavailable
from tests.chaos.fleet import until
from tests.engines.postgres.conftest import make_job
from tests.servers.pgbouncer import PgBouncer
from tests.servers.pooler import Pooler

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["postgres_pooler", "postgres_bouncer"], ids=["double", "pgbouncer"])
def pooler(request: pytest.FixtureRequest) -> Pooler | PgBouncer:
    found: Pooler | PgBouncer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def pooled(pooler: Pooler | PgBouncer, store: str) -> str:
    """The URL of the store behind the pooler."""
    return pooler.through(store)


@pytest.fixture
async def engine(pooled: str) -> AsyncIterator[PostgresEngine]:
    async with PostgresEngine(place_of(pooled)) as opened:
        yield opened


def test_the_double_lends_sessions_for_transactions(pooler, store):
    """It does what makes poolers hard: the tests below would otherwise show nothing."""
    url = place_of(pooler.through(store)).conninfo
    with psycopg.connect(url, autocommit=True) as one, psycopg.connect(url, autocommit=True) as two:
        sessions = {
            connection.execute("SELECT pg_backend_pid()").fetchone()
            for connection in (one, two, one, two, one, two)
        }
        assert len(sessions) > 2
        with one.transaction():
            pids = {one.execute("SELECT pg_backend_pid()").fetchone() for _ in range(5)}
        assert len(pids) == 1

        def prepare() -> None:
            for _ in range(20):
                one.execute("SELECT %s", (1,), prepare=True)

        with pytest.raises(psycopg.errors.InvalidSqlStatementName):
            prepare()


async def test_jobs_are_inserted_claimed_renewed_and_settled(engine, pooler):
    await asyncio.gather(*(engine.insert([make_job(), make_job()]) for _ in range(50)))
    claims = [
        engine.claim(Claim(owner=f"w{n}", limit=9, lease=60_000_000, tasks=("t",)))
        for n in range(20)
    ]
    rows = [row for batch in await asyncio.gather(*claims) for row in batch]
    assert len({row.id for row in rows}) == len(rows) == 100
    answers = await asyncio.gather(
        *(engine.settle([decide(row, Completed(), now=row.started_at or 0)]) for row in rows)
    )
    assert {answer.verdict for (answer,) in answers} == {"applied"}
    assert pooler.transactions > 20


async def test_a_claim_and_settlements_of_one_moment_share_a_transaction(engine, look):
    await engine.insert([make_job() for _ in range(40)])
    claim = Claim(owner="w", limit=10, lease=60_000_000, tasks=("t",))
    rows = await engine.claim(claim)
    while rows:
        settlements = [decide(row, Completed(), now=row.started_at or 0) for row in rows]
        answers, rows = await asyncio.gather(engine.settle(settlements), engine.claim(claim))
        assert {answer.verdict for answer in answers} == {"applied"}
        found = look.execute("SELECT count(*) FROM jobs j JOIN finished f ON f.xmin = j.xmin")
        assert found.fetchone() == (len(rows) * len(answers),)
    assert (await engine.stats())[0].completed == 40


async def test_nothing_is_left_behind_in_sessions_of_others(engine, pooler, store):
    for _ in range(20):
        await engine.insert([make_job(), make_job(unique_key="k")])
        await engine.stats()
    url = place_of(pooler.through(store)).conninfo
    found = set()
    for _ in range(12):  # once around all sessions, and more
        with psycopg.connect(url, autocommit=True) as other:
            row = other.execute(
                "SELECT current_setting('plan_cache_mode'), current_setting('enable_seqscan'),"
                " (SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE %s), "
                " (SELECT count(*) FROM pg_listening_channels())",
                ("%finished%",),
            ).fetchone()
            found.add(row)
    assert found == {("auto", "on", 0, 0)}


async def test_signals_are_not_heard_and_that_is_told_once(engine, caplog):
    with caplog.at_level(logging.WARNING, "tenure.postgres"):
        for _ in range(2):
            async with engine.listen({Topic.QUEUE}) as listener:
                await engine.insert([make_job()])
                assert await listener.wait(5)  # of this process all the same
    assert [record.message.count("pooler") for record in caplog.records] == [1]
    assert {finding.code for finding in (await engine.inspect()).findings} == {"pooler"}


async def test_migrating_through_it_is_safe(pooler, postgres_server):
    url = pooler.through(f"{postgres_server.url()}?schema=pooled")
    versions = await asyncio.gather(*(PostgresEngine(place_of(url)).migrate() for _ in range(6)))
    assert len(set(versions)) == 1
    async with PostgresEngine(place_of(url)) as engine:
        await engine.insert([make_job()])


async def test_a_statement_that_waits_too_long_is_ended_at_the_server(pooled, look):
    """In a session that is not ours nothing may be set; so it is cancelled."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid IN"
        " (SELECT pid FROM pg_locks WHERE relation = 'jobs'::regclass AND NOT granted)"
    )
    async with PostgresEngine(place_of(f"{pooled}&timeout=0.5")) as engine:
        look.execute("BEGIN")
        look.execute("LOCK TABLE jobs")
        with pytest.raises(EngineUnavailable, match=r"within 0\.5 s"):
            await engine.stats()
        await asyncio.to_thread(
            until, lambda: look.execute(waiting).fetchone() == (0,), 20, "it was ended"
        )
        look.execute("COMMIT")
        assert await engine.stats() == []


async def test_workers_go_on_through_cuts_and_stalls(pooled, pooler, scaled):
    total = scaled(200, 5000)
    async with QueueService(f"{pooled}&timeout=2") as jobs:
        ran: list[int] = []

        @jobs.task(max_attempts=5, max_lapses=100)
        async def note(n: int) -> None:
            ran.append(n)

        await jobs.enqueue_many([note.bind(n) for n in range(total)])
        workers = [jobs.worker(concurrency=5, lease=2, poll_max=0.2) for _ in range(2)]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        for turn in range(6):
            await asyncio.sleep(0.15)
            if turn % 3 == 2:
                await asyncio.to_thread(pooler.stall)
                await asyncio.sleep(0.3)
                await asyncio.to_thread(pooler.flow)
            else:
                await asyncio.to_thread(pooler.cut)
        async with asyncio.timeout(40):
            while True:
                [queue] = await patient(jobs)
                if queue.completed == total:
                    break
                await asyncio.sleep(0.1)
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)
    assert set(ran) == set(range(total))


async def patient(jobs: QueueService) -> list[QueueStats]:
    while True:
        try:
            return await jobs._run(lambda engine: engine.stats(["default"]))
        except EngineUnavailable:
            await asyncio.sleep(0.1)
