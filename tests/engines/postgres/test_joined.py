"""Working inside the caller's own transaction, on connections that block and that are awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

import psycopg
import pytest
from psycopg.rows import dict_row

from tenure import INJECTED, JobContext, QueueService
from tenure.core.job import JobRow
from tenure.core.outcomes import Completed, Verdict
from tenure.core.rules import decide
from tenure.core.states import State
from tenure.engines.answers import awaited
from tenure.engines.postgres import PostgresEngine, place_of
from tenure.engines.protocol import Claim, Signal, Topic
from tenure.errors import (
    ConfigurationError,
    DuplicateJob,
    EngineUnavailable,
    LeaseLost,
    PayloadError,
)
from tests.engines.postgres.conftest import make_job

pytestmark = pytest.mark.anyio


class Own(Protocol):
    """A connection of the caller, of either kind, and a table of its own."""

    connection: Any

    async def execute(self, text: str) -> Any: ...


class Blocking:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection: Any = connection

    async def execute(self, text: str) -> Any:
        return self.connection.execute(text)


class Awaited:
    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self.connection: Any = connection

    async def execute(self, text: str) -> Any:
        return await self.connection.execute(text)


@pytest.fixture(params=["blocking", "awaited"])
async def own(request: pytest.FixtureRequest, store: str) -> AsyncIterator[Own]:
    place = place_of(store)
    orders = f"{place.schema}.orders"
    with psycopg.connect(place.conninfo, autocommit=True) as maker:
        maker.execute(f"CREATE TABLE {orders} (id integer, token bigint)")
    if request.param == "blocking":
        with psycopg.connect(place.conninfo, row_factory=dict_row) as connection:
            connection.execute("SELECT set_config('search_path', %s, false)", (place.schema,))
            connection.commit()
            yield Blocking(connection)
            connection.rollback()
    else:
        async with await psycopg.AsyncConnection.connect(
            place.conninfo, row_factory=dict_row
        ) as awaiting:
            await awaiting.execute("SELECT set_config('search_path', %s, false)", (place.schema,))
            await awaiting.commit()
            yield Awaited(awaiting)
            await awaiting.rollback()
    with psycopg.connect(place.conninfo, autocommit=True) as maker:
        maker.execute(f"DROP TABLE {orders}")


@pytest.fixture
def other(store: str) -> Iterator[psycopg.Connection[Any]]:
    """Somebody else, in a transaction of his own."""
    place = place_of(store)
    with psycopg.connect(place.conninfo) as connection:
        yield connection
        connection.rollback()


async def insert(engine: PostgresEngine, own: Own, *jobs: Any) -> Any:
    return await awaited(engine.join(own.connection).insert(jobs))


async def settle(engine: PostgresEngine, own: Own, row: JobRow) -> Verdict:
    settlement = decide(row, Completed(b"1"), now=row.started_at or 0)
    [answer] = await awaited(engine.join(own.connection).settle([settlement]))
    return answer.verdict


async def claimed(engine: PostgresEngine) -> JobRow:
    await engine.insert([make_job()])
    [row] = await engine.claim(Claim(owner="w", limit=1, lease=60_000_000, tasks=("t",)))
    return row


async def orders(own: Own) -> int:
    found: Any = await own.execute("SELECT count(*) FROM orders")
    row = await awaited(found.fetchone())
    return int(row["count"])


async def test_an_order_and_its_job_are_committed_together(engine, own):
    await own.execute("INSERT INTO orders VALUES (1)")
    await insert(engine, own, make_job(id="a"), make_job(id="b", unique_key="k"))
    assert await engine.get(["a", "b"]) == [None, None]
    await own.execute("COMMIT")
    assert None not in await engine.get(["a", "b"])
    assert await orders(own) == 1


async def test_a_rollback_leaves_neither(engine, own):
    await own.execute("INSERT INTO orders VALUES (1)")
    await insert(engine, own, make_job(id="a"), make_job(id="b", unique_key="k"))
    await own.execute("ROLLBACK")
    assert await engine.get(["a", "b"]) == [None, None]
    assert await orders(own) == 0


async def test_the_callers_savepoint_counts(engine, own):
    await insert(engine, own, make_job(id="a"))
    await own.execute("SAVEPOINT mine")
    await insert(engine, own, make_job(id="b"))
    await own.execute("ROLLBACK TO mine")
    await own.execute("COMMIT")
    first, second = await engine.get(["a", "b"])
    assert first is not None
    assert second is None


async def test_what_is_refused_leaves_the_transaction_as_it_was(engine, own):
    await engine.insert([make_job(id="a", unique_key="k")])
    await own.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(DuplicateJob):
        await insert(engine, own, make_job(id="b"), make_job(unique_key="k", on_conflict="raise"))
    with pytest.raises(PayloadError):
        await insert(engine, own, make_job(id="c", payload=b"x" * 2_000_000))
    await own.execute("COMMIT")
    assert await engine.get(["b", "c"]) == [None, None]
    assert await orders(own) == 1


async def test_a_key_that_another_transaction_takes_meanwhile(engine, own):
    await own.execute("INSERT INTO orders VALUES (1)")
    taking = asyncio.create_task(engine.insert([make_job(id="a", unique_key="k")]))
    [answer] = await insert(engine, own, make_job(id="b", unique_key="k"))
    await own.execute("COMMIT")
    [theirs] = await taking
    assert theirs.created != answer.created
    assert theirs.id == answer.id == ("a" if theirs.created else "b")


async def test_a_result_and_an_effect_are_one(engine, own):
    row = await claimed(engine)
    await awaited(engine.join(own.connection).hold(row))
    await own.execute(f"INSERT INTO orders VALUES (1, {row.token})")
    assert await settle(engine, own, row) is Verdict.APPLIED
    [before] = await engine.get([row.id])
    assert before.state is State.RUNNING
    await own.execute("COMMIT")
    [after] = await engine.get([row.id])
    assert (after.state, after.result) == (State.COMPLETED, b"1")
    settlement = decide(row, Completed(b"1"), now=row.started_at or 0)
    [again] = await engine.settle([settlement])
    assert again.verdict is Verdict.ALREADY


async def test_after_a_rollback_the_job_still_runs_under_its_token(engine, own):
    row = await claimed(engine)
    assert await settle(engine, own, row) is Verdict.APPLIED
    await own.execute("ROLLBACK")
    settlement = decide(row, Completed(b"2"), now=row.started_at or 0)
    [answer] = await engine.settle([settlement])
    assert answer.verdict is Verdict.APPLIED


async def test_a_holder_that_lost_its_lease_gets_no_hold(engine, own):
    row = await claimed(engine)
    await engine.cancel([row.id], force=True)
    with pytest.raises(LeaseLost):
        await awaited(engine.join(own.connection).hold(row))
    assert await settle(engine, own, row) is Verdict.LOST
    await own.execute("COMMIT")


async def test_a_row_that_another_transaction_holds_is_told(engine, own, other, store):
    row = await claimed(engine)
    schema = place_of(store).schema
    other.execute(f"SELECT FROM {schema}.jobs WHERE id = %s FOR UPDATE", (row.id,))
    with pytest.raises(EngineUnavailable, match=row.id):
        await settle(engine, own, row)
    other.rollback()
    assert await settle(engine, own, row) is Verdict.APPLIED


async def test_listeners_are_told_after_the_commit(engine, own):
    async with engine.listen({Topic.QUEUE}) as listener:
        joined = engine.join(own.connection)
        await awaited(joined.insert([make_job(), make_job(queue="mail")]))
        joined.wake()
        assert await listener.wait(0) == frozenset()  # there is nothing to be seen yet
        await own.execute("COMMIT")
        joined.wake()
        told = {Signal(Topic.QUEUE, "default"), Signal(Topic.QUEUE, "mail")}
        assert told <= await listener.wait(5)


async def test_without_a_transaction_nothing_is_written(engine, own):
    await awaited(own.connection.set_autocommit(True))
    with pytest.raises(ConfigurationError, match="not in a transaction"):
        await insert(engine, own, make_job(id="a"))
    assert await engine.get(["a"]) == [None]


async def test_a_transaction_that_failed_is_told(engine, own):
    with pytest.raises(psycopg.Error):
        await own.execute("SELECT nonsense")
    with pytest.raises(ConfigurationError, match="transaction is aborted"):
        await insert(engine, own, make_job())


async def test_a_transaction_that_only_reads_is_told(engine, own):
    await own.execute("SET TRANSACTION READ ONLY")
    with pytest.raises(ConfigurationError, match="read-only"):
        await insert(engine, own, make_job())


async def test_another_database_is_told(own):
    elsewhere = PostgresEngine(place_of("postgresql://ann:hush@host/db?schema=nowhere"))
    with pytest.raises(ConfigurationError, match=r"'nowhere'.*ann:\*\*\*@host"):
        await insert(elsewhere, own, make_job())


@pytest.mark.parametrize("wrong", [None, "postgresql://", object()])
async def test_a_connection_of_another_kind_is_refused(engine, wrong):
    with pytest.raises(ConfigurationError, match=r"psycopg\.Connection"):
        engine.join(wrong)


# Through the service


@pytest.fixture
async def jobs(store: str) -> AsyncIterator[QueueService]:
    async with QueueService(store) as service:

        @service.task
        async def ship(order: int) -> int:
            return order

        yield service


async def test_a_service_enqueues_in_the_callers_transaction(jobs, own):
    async with jobs.using(own.connection) as joined:
        handle = await joined.enqueue("ship", 7)
        await own.execute("COMMIT")
    assert handle.created
    await jobs.worker(burst=True).run()
    assert await handle.result(10) == 7


async def test_leaving_the_block_after_the_commit_wakes_a_worker(jobs, own):
    worker = jobs.worker(poll_max=3600)
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(0.5)
    async with jobs.using(own.connection) as joined:
        handle = await joined.enqueue("ship", 1)
        await own.execute("COMMIT")
    assert await handle.result(20) == 1
    worker.stop()
    await running


async def test_the_blocking_face_takes_a_blocking_connection_only(jobs, own):
    with jobs.sync.using(own.connection) as joined:
        if isinstance(own, Blocking):
            assert joined.enqueue("ship", 1).created
        else:
            with pytest.raises(ConfigurationError, match="async"):
                joined.enqueue("ship", 1)


async def test_a_body_completes_itself_with_its_effect(jobs, own):
    @jobs.task
    async def pay(*, ctx: JobContext = INJECTED) -> str:
        await own.execute(f"INSERT INTO orders VALUES (1, {ctx.token})")
        await ctx.complete_in(own.connection, "paid")
        await own.execute("COMMIT")
        return "this is not stored"

    handle = await jobs.enqueue(pay)
    await jobs.worker(burst=True).run()
    assert await handle.result(10) == "paid"
    assert await orders(own) == 1


async def test_a_body_holds_its_row_for_longer_than_its_lease(jobs, own):
    """Nobody takes the job over, no other lease is delayed, and completion succeeds."""

    @jobs.task
    async def slow(*, ctx: JobContext = INJECTED) -> str:
        async with ctx.join(own.connection):
            await own.execute(f"INSERT INTO orders VALUES (1, {ctx.token})")
            await asyncio.sleep(2.5)
            await ctx.complete_in(own.connection, "held")
            await own.execute("COMMIT")
        return "this is not stored"

    @jobs.task
    async def other(*, ctx: JobContext = INJECTED) -> bool:
        await asyncio.sleep(2.0)
        ctx.check()
        return ctx.lease.lost

    held, free = await jobs.enqueue(slow), await jobs.enqueue(other)
    worker = jobs.worker(burst=True, lease=1)
    rival = jobs.worker(lease=1)
    running = asyncio.create_task(rival.run())
    started = time.monotonic()
    await worker.run()
    assert (await held.wait(10)).result == "held"
    assert time.monotonic() - started < 20
    assert await free.result(10) is False
    job = await held.job()
    assert (job.claims, job.lapses) == (1, 0)
    assert await orders(own) == 1
    rival.stop()
    await running
