"""Fair share: jobs of different keys take turns."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.core.durations import HOUR, SECOND
from tenure.core.fleet import QueueChange
from tenure.core.job import RANK_STEP, JobRow, NewJob
from tenure.core.limits import Limits
from tenure.core.outcomes import Errored
from tenure.engines.protocol import Engine, Facet
from tenure.testing.conformance.kit import (
    NOW,
    PROMOTE,
    REPLACE,
    Conformance,
    boom,
    finish,
    ids,
    job_id,
    new,
    numbered,
    stored,
    take,
    take_one,
)


def of(n: int, key: str | None, **fields: object) -> NewJob:
    """The job number `n` with a fair key."""
    return new(n, fair_key=key, **fields)


async def put(engine: Engine, *jobs: NewJob, now: int = NOW) -> None:
    assert all(answer.created for answer in await engine.insert(jobs, now=now))


async def order(engine: Engine, *, now: int = NOW) -> list[str]:
    """The ids of all that are ready, in claim order, one claim at a time."""
    found: list[str] = []
    while rows := await take(engine, 1, now=now):
        found += ids(rows)
    return found


def keys(rows: Sequence[JobRow]) -> str:
    return "".join(row.fair_key or "-" for row in rows)


class TestFairShare(Conformance):
    """`NewJob.fair_key`"""

    async def test_two_backlogs_take_turns(self, engine: Engine) -> None:
        await put(engine, *(of(n, "a") for n in range(5)), *(of(n, "b") for n in range(5, 8)))
        assert keys(await take(engine, 9)) == "abababaa"

    async def test_it_is_the_same_however_they_came(self, engine: Engine) -> None:
        for n in range(5):
            await put(engine, of(n, "a"))
        await put(engine, *(of(n, "b") for n in range(5, 8)))
        assert await order(engine) == numbered(0, 5, 1, 6, 2, 7, 3, 4)

    async def test_a_newcomer_waits_for_one_turn_of_each_key(self, engine: Engine) -> None:
        await put(engine, *(of(n, "ab"[n % 2]) for n in range(200)))
        await put(engine, of(500, "c"), now=NOW + 60 * SECOND)
        rows = await take(engine, 4, now=NOW + 60 * SECOND)
        assert keys(rows) == "abca"

    async def test_jobs_of_a_key_keep_their_order(self, engine: Engine) -> None:
        await put(engine, *(of(n, "ab"[n % 2]) for n in range(20)))
        rows = await take(engine, 20)
        for key in "ab":
            mine = [row.id for row in rows if row.fair_key == key]
            assert mine == sorted(mine)

    async def test_without_a_key_or_a_backlog_the_rank_is_as_ever(self, engine: Engine) -> None:
        await put(engine, new(0), new(1), of(2, "a"), of(3, "b", priority=2), new(4))
        ranks = [(await stored(engine, n)).rank for n in range(5)]
        assert ranks == [NOW, NOW, NOW, NOW - 2 * RANK_STEP, NOW]

    async def test_each_that_waits_costs_the_next_one_a_step(self, engine: Engine) -> None:
        await put(engine, *(of(n, "a") for n in range(3)))
        await put(engine, of(3, "a"), now=NOW + SECOND)
        await put(engine, of(4, "a"), now=NOW + 9 * HOUR)
        ranks = [(await stored(engine, n)).rank - NOW for n in range(5)]
        assert ranks == [0, RANK_STEP, 2 * RANK_STEP, 3 * RANK_STEP, 9 * HOUR]

    async def test_once_nobody_waits_it_begins_anew(self, engine: Engine) -> None:
        await put(engine, *(of(n, "a") for n in range(5)))
        await take(engine, 9)
        await put(engine, of(6, "a"), now=NOW + 1)
        assert (await stored(engine, 6)).rank == NOW + 1

    async def test_priorities_hold_and_turns_are_taken_among_equals(self, engine: Engine) -> None:
        await put(engine, *(of(n, "a") for n in range(4)), *(of(n, "b") for n in range(4, 6)))
        await put(engine, *(of(n, "a", priority=9) for n in range(10, 13)))
        await put(engine, *(of(n, "b", priority=9) for n in range(13, 15)))
        assert await order(engine) == numbered(10, 13, 11, 14, 12, 0, 4, 1, 5, 2, 3)

    async def test_priorities_of_one_batch_do_not_mix(self, engine: Engine) -> None:
        await put(engine, of(0, "a"), of(1, "a", priority=3), of(2, "a"), of(3, "a", priority=3))
        ranks = [(await stored(engine, n)).rank - NOW for n in range(4)]
        assert ranks == [0, -3 * RANK_STEP, RANK_STEP, -2 * RANK_STEP]

    async def test_nobody_waits_for_ever(self, engine: Engine) -> None:
        """The last of a long backlog is not passed by what comes after the time of its rank."""
        await put(engine, *(of(n, "a") for n in range(5)))
        last = await stored(engine, 4)
        await put(engine, *(of(n, f"new{n}") for n in range(10, 14)), now=last.rank + 1)
        assert await order(engine, now=last.rank + 1) == numbered(0, 1, 2, 3, 4, 10, 11, 12, 13)

    async def test_the_same_key_of_another_queue_is_another_one(self, engine: Engine) -> None:
        await put(engine, of(0, "a", queue="q"), of(1, "a", queue="r"), of(2, "a", queue="q"))
        ranks = [(await stored(engine, n)).rank - NOW for n in range(3)]
        assert ranks == [0, 0, RANK_STEP]

    async def test_a_scheduled_job_takes_its_turn_when_it_is_due(self, engine: Engine) -> None:
        await put(engine, *(of(n, "a", delay=5) for n in range(3)), of(3, "b", delay=7))
        assert (await stored(engine, 2)).rank == NOW + 5
        await put(engine, of(4, "a"), now=NOW + 1)
        assert (await stored(engine, 4)).rank == NOW + 1
        await take(engine, 9, now=NOW + 7, arms=PROMOTE)
        ranks = [(await stored(engine, n)).rank - NOW for n in range(4)]
        assert ranks == [1 + step * RANK_STEP for step in (1, 2, 3)] + [7]

    async def test_a_job_that_comes_back_at_once_has_had_its_turn(self, engine: Engine) -> None:
        await put(engine, *(of(n, "a", max_attempts=2) for n in range(3)))
        row = await take_one(engine)
        await finish(engine, row, Errored(boom(), after=0), now=NOW + 1)
        assert (await stored(engine, 0)).rank == NOW + 1

    async def test_a_job_that_comes_back_later_takes_turns_again(self, engine: Engine) -> None:
        await put(engine, *(of(n, "a", max_attempts=2) for n in range(3)))
        row = await take_one(engine)
        await finish(engine, row, Errored(boom(), after=SECOND))
        await take(engine, 9, now=NOW + SECOND, arms=PROMOTE)
        assert (await stored(engine, 0)).rank == NOW + 3 * RANK_STEP

    async def test_a_debounced_job_does_not_fall_behind_itself(self, engine: Engine) -> None:
        for n in range(3):
            job = of(n, "a", unique_key="k", on_conflict=REPLACE)
            await engine.insert([job], now=NOW + n)
        assert (await stored(engine, 0)).rank == NOW + 2

    async def test_a_claim_takes_turns_across_tasks(self, engine: Engine) -> None:
        await put(engine, *(of(n, "a", task=f"t{n % 2}") for n in range(4)), of(9, "b", task="t0"))
        rows = await take(engine, 9, tasks=("t0", "t1"))
        assert ids(rows) == numbered(0, 9, 1, 2, 3)


class TestFairShareAndOperations(Conformance):
    """`NewJob.fair_key`, and what people and limits do"""

    facet = Facet.OPERATE

    async def test_requeued_jobs_take_turns(self, engine: Engine) -> None:
        await put(engine, *(of(n, "a") for n in range(3)))
        for row in await take(engine, 9):
            await finish(engine, row)
        await put(engine, of(8, "b"), now=NOW + 1)
        await engine.requeue(numbered(0, 1, 2), now=NOW + 2)
        assert await order(engine, now=NOW + 2) == numbered(8, 0, 1, 2)
        ranks = [(await stored(engine, n)).rank - NOW - 2 for n in range(3)]
        assert ranks == [0, RANK_STEP, 2 * RANK_STEP]

    async def test_blocked_jobs_count_as_waiting(self, engine: Engine) -> None:
        await engine.configure(QueueChange("default", limits=Limits(key_concurrency=1)))
        await put(engine, *(of(n, "a", concurrency_key="a") for n in range(4)))
        row = await take_one(engine)
        await take(engine, 9)
        await put(engine, of(5, "a"))
        assert (await stored(engine, 5)).rank == NOW + 4 * RANK_STEP
        await finish(engine, row)
        assert (await take_one(engine)).id == job_id(1)

    async def test_a_backlog_behind_a_limit_keeps_nobody_else_waiting(self, engine: Engine) -> None:
        await engine.configure(QueueChange("default", limits=Limits(key_concurrency=1)))
        big = [of(n, "big", concurrency_key="big") for n in range(50)]
        await put(engine, *big, *(of(100 + n, f"t{n}") for n in range(5)))
        rows = await take(engine, 6)
        assert keys(rows) == "bigt0t1t2t3t4"
