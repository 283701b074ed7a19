"""Rows that somebody else's transaction has locked: they hold up nobody but themselves."""

from __future__ import annotations

import asyncio
import time

import pytest

from tenure.core.job import JobRow
from tenure.core.lease import Beat, Busy, Extended
from tenure.core.outcomes import Completed, Verdict
from tenure.core.rules import decide
from tenure.core.states import State
from tenure.engines.postgres import PostgresEngine, place_of
from tenure.engines.protocol import Claim
from tenure.errors import EngineUnavailable
from tests.engines.postgres.conftest import Look, make_job

pytestmark = pytest.mark.anyio

LEASE = 60_000_000


async def running(engine: PostgresEngine, count: int) -> list[JobRow]:
    await engine.insert([make_job() for _ in range(count)])
    return await engine.claim(Claim(owner="w", limit=count, lease=LEASE, tasks=("t",)))


def hold(look: Look, row: JobRow) -> None:
    """As `ctx.join` does: the holder's own transaction."""
    look.execute("BEGIN")
    look.execute("SELECT FROM jobs WHERE id = %s FOR NO KEY UPDATE", (row.id,))


def beat(row: JobRow) -> Beat:
    return Beat(row.id, row.token, "w", 30.0)


def done(row: JobRow):
    return decide(row, Completed(b"1"), now=row.started_at or 0)


async def test_a_held_row_delays_no_other_lease(engine, look):
    rows = await running(engine, 20)
    hold(look, rows[7])
    started = time.monotonic()
    answers = await engine.extend([beat(row) for row in rows])
    assert time.monotonic() - started < 5
    for row, answer in zip(rows, answers, strict=True):
        assert answer == (Busy() if row is rows[7] else Extended(30.0))
    look.execute("COMMIT")
    assert await engine.extend([beat(rows[7])]) == [Extended(30.0)]


async def test_a_held_row_delays_no_other_settlement(engine, look):
    rows = await running(engine, 20)
    hold(look, rows[7])
    answers = await engine.settle([done(row) for row in rows])
    verdicts = [answer.verdict for answer in answers]
    assert verdicts == [Verdict.BUSY if row is rows[7] else Verdict.APPLIED for row in rows]
    look.execute("COMMIT")
    assert [a.verdict for a in await engine.settle([done(rows[7])])] == [Verdict.APPLIED]


async def test_a_row_that_is_let_go_soon_is_waited_for(engine, look):
    [row] = await running(engine, 1)
    hold(look, row)
    settling = asyncio.create_task(engine.settle([done(row)]))
    await asyncio.sleep(0.02)
    look.execute("ROLLBACK")
    assert [answer.verdict for answer in await settling] == [Verdict.APPLIED]


async def test_a_job_whose_holder_has_a_transaction_is_never_taken_over(engine, look):
    """Its lease runs out under an open transaction, which ends the job in the end."""
    held, free = await running(engine, 2)
    hold(look, held)
    later = (held.lease_until or 0) + 1
    taken = await engine.claim(Claim(owner="other", limit=5, lease=LEASE, tasks=("t",)), now=later)
    assert [row.id for row in taken] == [free.id]
    assert await engine.sweep(10, now=later) == []
    assert await engine.extend([beat(held)], now=later) == [Busy()]
    assert (await engine.cancel([held.id], force=True)).busy == (held.id,)
    look.execute("COMMIT")
    [answer] = await engine.settle([done(held)], now=later)
    assert answer.verdict is Verdict.APPLIED


async def test_cancelling_is_done_as_soon_as_the_row_is_free(engine, look):
    held, free = await running(engine, 2)
    hold(look, held)
    result = await engine.cancel([held.id, free.id])
    assert (result.busy, result.requested) == ((held.id,), (free.id,))
    look.execute("COMMIT")
    assert (await engine.cancel([held.id])).requested == (held.id,)


async def test_a_foreign_key_to_a_job_holds_up_nothing_but_its_end(engine, look):
    [row] = await running(engine, 1)
    look.execute('CREATE TABLE mine (job text COLLATE "C" REFERENCES jobs (id))')
    try:
        look.execute("BEGIN")
        look.execute("INSERT INTO mine VALUES (%s)", (row.id,))
        assert await engine.extend([beat(row)]) == [Extended(30.0)]
        [answer] = await engine.settle([done(row)])
        assert answer.verdict is Verdict.BUSY
    finally:
        look.execute("ROLLBACK")
        look.execute("DROP TABLE mine")


async def test_a_key_in_an_open_transaction_makes_its_twin_wait_and_nobody_else(
    engine, look, store
):
    look.execute("BEGIN")
    look.execute(
        "INSERT INTO jobs (id, task, queue, priority, rank, ready, state, token, claims, failures,"
        " max_attempts, lapses, max_lapses, releases, max_interruptions, available_at,"
        " cancel_requested, payload, codec, payload_size, created_at, queued_at, unique_key)"
        " VALUES ('x', 't', 'default', 0, 1, true, 'pending', 0, 0, 0, 1, 0, 3, 0, 3, 1, false,"
        " '{}', 'json', 2, 1, 1, 'k')"
    )
    twin = asyncio.create_task(engine.insert([make_job(unique_key="k")]))
    async with asyncio.timeout(5):
        await asyncio.sleep(0.05)
        await engine.insert([make_job(), make_job()])
        await engine.insert([make_job(unique_key="other")])
    assert not twin.done()
    look.execute("COMMIT")
    [answer] = await twin
    assert (answer.id, answer.created) == ("x", False)


async def test_a_statement_that_waits_too_long_is_given_up(store, look):
    place = place_of(f"{store}&timeout=0.5&connections=2")
    async with PostgresEngine(place) as engine:
        await engine.insert([make_job()])
        look.execute("BEGIN")
        look.execute("LOCK TABLE jobs")
        for _ in range(4):  # more than there are connections: none of them is lost for ever
            with pytest.raises(EngineUnavailable, match=r"within 0\.5 s|connections"):
                await engine.stats()
        look.execute("COMMIT")
        [queue] = await engine.stats()
        assert queue.pending == 1
        found = look.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%%both_kinds%%'"
            " AND state = 'active' AND pid <> pg_backend_pid()"
        ).fetchone()
        assert found == (0,)


async def test_the_server_ends_what_nobody_waits_for_any_more(engine):
    """Also if we are gone, or cannot be reached: a little later than our own deadline."""
    async with engine._handle._pool.link(asyncio.get_running_loop().time() + 60) as link:
        for name in ("statement_timeout", "idle_in_transaction_session_timeout"):
            cursor = await link.connection.execute(f"SHOW {name}")
            assert await cursor.fetchone() == ("11s",)


async def test_batches_in_any_order_do_not_deadlock(engine, store):
    rows = await running(engine, 200)
    async with engine.side() as side:
        calls = []
        for n in range(30):
            handle = (engine, side)[n % 2]
            part = rows[n::3] if n % 2 else rows[::-1][n::3]
            calls.append(handle.extend([beat(row) for row in part]))
        answers = await asyncio.gather(*calls)
    assert {type(answer) for batch in answers for answer in batch} <= {Extended, Busy}
    [queue] = await engine.stats()
    assert queue.running == 200
    assert State.RUNNING in {row.state for row in await engine.get([rows[0].id]) if row}
