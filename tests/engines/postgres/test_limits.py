"""Limits where several write at once: no slot is counted twice, and no wake-up is lost."""

from __future__ import annotations

import asyncio
from collections import Counter

import psycopg
import pytest

from tenure.core.fleet import QueueChange
from tenure.core.job import JobRow
from tenure.core.limits import Blocked, Limits
from tenure.core.outcomes import Completed, Settlement, Verdict
from tenure.core.rules import decide
from tenure.engines.postgres import PostgresEngine, place_of
from tenure.engines.protocol import Claim
from tests.engines.postgres.conftest import Look, make_job

pytestmark = pytest.mark.anyio

LEASE = 60_000_000
PARK = "UPDATE jobs SET ready = false, blocked = 'concurrency' WHERE id = %s"


async def claim(engine: PostgresEngine, limit: int = 9, owner: str = "w") -> list[JobRow]:
    return await engine.claim(Claim(owner=owner, limit=limit, lease=LEASE, tasks=("t",)))


def done(row: JobRow) -> Settlement:
    return decide(row, Completed(b"1"), now=row.started_at or 0)


async def blocked(engine: PostgresEngine, job_id: str) -> str | None:
    [row] = await engine.get([job_id])
    assert row is not None
    return row.blocked


async def ended(engine: PostgresEngine, job_id: str) -> bool:
    [row] = await engine.get([job_id])
    return row is not None and row.state.final


@pytest.fixture
async def limited(engine: PostgresEngine) -> PostgresEngine:
    """An engine whose queue runs one job of a key at a time."""
    await engine.configure(QueueChange("default", limits=Limits(key_concurrency=1)))
    return engine


async def test_claims_at_once_never_count_a_slot_twice(limited: PostgresEngine, store: str):
    limits = Limits(concurrency=12, key_concurrency=2)
    await limited.configure(QueueChange("default", limits=limits))
    await limited.insert([make_job(concurrency_key=f"k{n % 8}") for n in range(80)])
    async with PostgresEngine(place_of(store)) as other:
        engines = (limited, other) * 4
        rows: list[JobRow] = []
        for found in await asyncio.gather(
            *(claim(engine, 5, f"w{n}") for n, engine in enumerate(engines))
        ):
            rows += found
    assert len(rows) == 12
    assert max(Counter(row.concurrency_key for row in rows).values()) <= 2


async def test_no_wake_up_is_lost_between_a_claim_and_an_end(limited: PostgresEngine, look: Look):
    """B025: a claim blocks a job on a slot that is freed at the same moment."""
    first, second = make_job(concurrency_key="k"), make_job(concurrency_key="k")
    await limited.insert([first])
    [row] = await claim(limited)
    await limited.insert([second])
    look.execute("BEGIN")  # a claim that has counted, and not committed yet
    look.execute("SELECT FROM queues WHERE queue = 'default' FOR NO KEY UPDATE")
    ending = asyncio.create_task(limited.settle([done(row)]))
    async with asyncio.timeout(30):
        while not await ended(limited, row.id):  # noqa: ASYNC110 (no event tells)
            await asyncio.sleep(0.01)
    look.execute(PARK, (second.id,))
    look.execute("COMMIT")
    assert [answer.verdict for answer in await ending] == [Verdict.APPLIED]
    assert await blocked(limited, second.id) is None
    assert [taken.id for taken in await claim(limited)] == [second.id]


async def test_a_sweep_finds_a_free_slot_that_nobody_passed_on(limited: PostgresEngine, look: Look):
    """As if a process had died between the end of an attempt and its next step."""
    jobs = [make_job(concurrency_key=f"k{n % 3}") for n in range(6)]
    await limited.insert(jobs)
    for job in jobs:
        look.execute(PARK, (job.id,))
    assert await claim(limited) == []
    await limited.sweep(10)
    assert [await blocked(limited, job.id) for job in jobs[:3]] == [None] * 3
    assert [await blocked(limited, job.id) for job in jobs[3:]] == [Blocked.CONCURRENCY] * 3
    await limited.sweep(10)  # the slots are spoken for by now
    assert len(await claim(limited)) == 3


async def test_a_sweep_leaves_alone_who_waits_for_a_slot_that_is_taken(limited: PostgresEngine):
    jobs = [make_job(concurrency_key="k") for _ in range(3)]
    await limited.insert(jobs)
    await claim(limited)
    await claim(limited)
    await limited.sweep(10)
    assert [await blocked(limited, job.id) for job in jobs[1:]] == [Blocked.CONCURRENCY] * 2


async def test_a_transaction_of_the_caller_passes_its_slot_on_at_the_end(
    limited: PostgresEngine, store: str
):
    """And meanwhile it holds up no claim."""
    jobs = [make_job(concurrency_key="k"), make_job(concurrency_key="k"), make_job()]
    await limited.insert(jobs[:2])
    [row] = await claim(limited)
    await claim(limited)
    place = place_of(store)
    connection = await psycopg.AsyncConnection.connect(place.conninfo)
    try:
        joined = limited.join(connection)
        async with connection.transaction():
            [answer] = await joined.settle([done(row)])  # type: ignore[misc]
            assert answer.verdict is Verdict.APPLIED
            await limited.insert(jobs[2:])
            assert [taken.id for taken in await claim(limited)] == [jobs[2].id]
    finally:
        await connection.close()
    assert await blocked(limited, jobs[1].id) == Blocked.CONCURRENCY
    [answer] = await limited.settle([done(row)])  # as every worker does in the end
    assert answer.verdict is Verdict.ALREADY
    assert [taken.id for taken in await claim(limited)] == [jobs[1].id]
    [answer] = await limited.settle([done(row)])
    assert await claim(limited) == []
