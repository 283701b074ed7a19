"""Jobs that ended are removed by cheap steps; neither sizes nor times grow with what has passed.

By hand: `make pytest ARGS="tests/engines/postgres/test_retention.py"` takes a few seconds,
`make soak` with the same words a few minutes; `--junitxml=FILE -o junit_family=xunit1` tells the
rates and sizes.
"""

from __future__ import annotations

import time

import pytest

from tenure.core.outcomes import Completed
from tenure.core.rules import decide
from tenure.engines.postgres import PostgresEngine
from tenure.engines.protocol import Claim, Prunable
from tests.conftest import SOAK
from tests.engines.postgres.conftest import Look, make_job

pytestmark = pytest.mark.anyio

STEP = 1000
PARTS = 10
CLAIM = Claim(owner="w", limit=500, lease=60_000_000, tasks=("t",))


async def pass_through(engine: PostgresEngine, count: int) -> float:
    """Insert, claim and settle so many jobs; jobs per second."""
    started = time.perf_counter()
    for _ in range(count // STEP):
        await engine.insert([make_job() for _ in range(STEP)])
        for _ in range(STEP // CLAIM.limit):
            rows = await engine.claim(CLAIM)
            assert len(rows) == CLAIM.limit
            answers = await engine.settle(
                [decide(row, Completed(b"1"), now=row.started_at or 0) for row in rows]
            )
            assert {answer.verdict for answer in answers} == {"applied"}
    return count / (time.perf_counter() - started)


async def prune(engine: PostgresEngine, before: int) -> int:
    """Remove what ended before an instant, step by step; how many steps that took."""
    steps = 0
    while await engine.prune(Prunable.JOBS, before, limit=STEP):
        steps += 1
    return steps


def number(look: Look, statement: str, *values: str) -> int:
    found = look.execute(statement, values).fetchone()
    assert found is not None
    return int(found[0])


def now_of(look: Look) -> int:
    return number(look, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")


def size(look: Look, table: str) -> int:
    """Bytes of a table with its indexes."""
    return number(look, "SELECT pg_total_relation_size(%s::regclass)", table)


@pytest.mark.timeout(3000)
async def test_what_has_passed_costs_nothing(engine, look, scaled, record_property):
    """B045: a part is a tenth; what ended two parts ago is removed. Rates are judged in soaks.

    How large the tables become meanwhile is for autovacuum to say. Once they are vacuumed, as many
    jobs again find room in what is there.
    """
    part = scaled(1000, 100_000)
    rates, instants, sizes = [], [0, now_of(look)], []

    async def pass_a_part() -> None:
        rates.append(await pass_through(engine, part))
        instants.append(now_of(look))
        assert await prune(engine, instants[-3]) <= part // STEP + 1

    def vacuumed() -> tuple[int, int]:
        look.execute("VACUUM jobs")
        look.execute("VACUUM finished")
        return size(look, "jobs"), size(look, "finished")

    for _ in range(PARTS):
        await pass_a_part()
        sizes.append((size(look, "jobs"), size(look, "finished")))
    bounds = vacuumed()
    await pass_a_part()
    sizes += bounds, vacuumed()
    record_property("rates", [round(rate) for rate in rates])
    record_property("MB of jobs and finished", [(a >> 20, b >> 20) for a, b in sizes])
    [queue] = await engine.stats()
    assert (queue.completed, queue.pending, queue.running) == (2 * part, 0, 0)
    for grown, bound in zip(sizes[-1], bounds, strict=True):
        assert grown <= 1.2 * bound + (2 << 20)
    if SOAK:
        assert rates[PARTS - 1] >= 0.6 * rates[0]


async def test_a_step_touches_no_more_than_it_may(engine, look):
    """The cost of a step is that of its rows, however many ended before and after."""
    await pass_through(engine, 3000)
    look.execute("ANALYZE finished")
    assert await engine.prune(Prunable.JOBS, now_of(look), limit=7) == 7
    [queue] = await engine.stats()
    assert queue.completed == 2993
