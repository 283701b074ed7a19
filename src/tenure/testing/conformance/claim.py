"""Claiming due jobs: which ones, in which order, and what a claim writes."""

from __future__ import annotations

import random

import pytest

from tenure.core.durations import SECOND
from tenure.core.job import PRIORITY_MAX, PRIORITY_MIN, RANK_STEP
from tenure.core.outcomes import Completed, Errored, Outcome, Released, ReleaseReason, Snoozed
from tenure.core.states import State
from tenure.engines.protocol import Engine
from tenure.testing.conformance.insert import FULL
from tenure.testing.conformance.kit import (
    DUE,
    LEASE,
    NOW,
    OTHER,
    OWNER,
    Conformance,
    boom,
    changed,
    finish,
    ids,
    job_id,
    new,
    numbered,
    put,
    running,
    snapshot,
    stored,
    take,
    take_one,
)


class TestClaim(Conformance):
    """`claim(Claim)`, due arm"""

    async def test_an_empty_store_gives_nothing(self, engine: Engine) -> None:
        assert await take(engine, 10) == []

    async def test_what_a_claim_writes(self, engine: Engine) -> None:
        (row,) = await put(engine, new(1, **{**FULL, "delay": 0}))
        claimed = await take_one(engine, now=NOW + 5, queues=(row.queue,))
        assert claimed == changed(
            row,
            state=State.RUNNING,
            ready=False,
            token=NOW + 5,
            owner=OWNER,
            lease_until=NOW + 5 + LEASE,
            claims=1,
            started_at=NOW + 5,
        )
        assert await stored(engine, 1) == claimed

    async def test_a_claim_after_a_retry_writes_the_same(self, engine: Engine) -> None:
        first = await running(engine, max_attempts=3)
        await finish(engine, first, Errored(boom(), after=0), now=NOW + 1)
        before = await stored(engine, 1)
        assert await take_one(engine, now=NOW + 2, owner=OTHER) == changed(
            before,
            state=State.RUNNING,
            ready=False,
            token=NOW + 2,
            owner=OTHER,
            lease_until=NOW + 2 + LEASE,
            claims=2,
            started_at=NOW + 2,
        )

    async def test_a_held_job_is_not_given_again(self, engine: Engine) -> None:
        row = await running(engine)
        assert await take(engine, 10, now=NOW + LEASE - 1, owner=OTHER) == []
        assert await stored(engine, 1) == row

    async def test_order_is_rank_then_id(self, engine: Engine) -> None:
        priorities = [0, 1, -1, PRIORITY_MAX, PRIORITY_MIN, 5, 5, 0, -7, 0]
        jobs = [new(n, priority=p) for n, p in enumerate(priorities)]
        shuffled = random.Random(1).sample(jobs, len(jobs))
        rows = await put(engine, *shuffled)
        wanted = [row.id for row in sorted(rows, key=lambda row: (row.rank, row.id))]
        assert wanted[0] == job_id(3)
        assert wanted[-1] == job_id(4)
        assert ids(await take(engine, 4)) == wanted[:4]
        assert ids(await take(engine, 100)) == wanted[4:]

    async def test_of_equal_rank_the_lower_id_is_first(self, engine: Engine) -> None:
        await put(engine, *(new(n) for n in (5, 3, 9, 1, 7)))
        assert ids(await take(engine, 10)) == numbered(1, 3, 5, 7, 9)

    async def test_older_jobs_are_first(self, engine: Engine) -> None:
        await put(engine, new(1), now=NOW + 2)
        await put(engine, new(2), now=NOW + 1)
        assert ids(await take(engine, 10, now=NOW + 3)) == numbered(2, 1)

    async def test_a_unit_of_priority_is_worth_one_step_of_waiting(self, engine: Engine) -> None:
        await put(engine, new(1), new(2), now=NOW)
        await put(engine, new(3, priority=1), now=NOW + RANK_STEP - 1)
        await put(engine, new(4, priority=1), now=NOW + RANK_STEP + 1)
        rows = await take(engine, 10, now=NOW + 2 * RANK_STEP)
        assert ids(rows) == numbered(3, 1, 2, 4)

    async def test_order_holds_across_tasks_and_queues(self, engine: Engine) -> None:
        names = [("a", "x"), ("b", "y"), ("a", "y"), ("b", "x")]
        jobs = [
            new(n, queue=names[n % 4][0], task=names[n % 4][1], priority=(n * 7) % 5)
            for n in range(24)
        ]
        rows = await put(engine, *jobs)
        wanted = [row.id for row in sorted(rows, key=lambda row: (row.rank, row.id))]
        got = await take(engine, 24, queues=("b", "a"), tasks=("y", "x"))
        assert ids(got) == wanted

    @pytest.mark.parametrize("limit", [0, 1, 2, 5, 6, 100])
    async def test_the_limit_is_kept(self, engine: Engine, limit: int) -> None:
        await put(engine, *(new(n) for n in range(6)))
        assert ids(await take(engine, limit)) == numbered(*range(min(limit, 6)))
        assert len(await take(engine, 100)) == 6 - min(limit, 6)

    async def test_unknown_names_are_never_touched(self, engine: Engine) -> None:
        await put(engine, *(new(n, task="unknown", priority=9) for n in range(5)), new(9))
        before = await snapshot(engine, range(5))
        assert ids(await take(engine, 100, tasks=("mail",))) == [job_id(9)]
        assert await take(engine, 100, tasks=("mail", "never-seen")) == []
        assert await snapshot(engine, range(5)) == before

    async def test_without_names_nothing_is_claimed(self, engine: Engine) -> None:
        await put(engine, new(1))
        assert await take(engine, 10, tasks=()) == []

    async def test_any_name_is_claimed_when_none_are_given(self, engine: Engine) -> None:
        await put(engine, new(1, task="a"), new(2, task="b"))
        assert ids(await take(engine, 10, tasks=None)) == numbered(1, 2)

    async def test_other_queues_are_never_touched(self, engine: Engine) -> None:
        await put(engine, new(1, queue="a"), new(2, queue="b"), new(3, queue="c"))
        before = await snapshot(engine, [2])
        assert ids(await take(engine, 10, queues=("a", "c"))) == numbered(1, 3)
        assert await snapshot(engine, [2]) == before
        assert await take(engine, 10, queues=()) == []

    async def test_names_given_twice_give_no_job_twice(self, engine: Engine) -> None:
        await put(engine, *(new(n) for n in range(4)))
        rows = await take(engine, 10, queues=("default", "default"), tasks=("mail", "mail"))
        assert ids(rows) == numbered(0, 1, 2, 3)

    async def test_ids_restrict_the_claim(self, engine: Engine) -> None:
        await put(engine, *(new(n, priority=n) for n in range(5)))
        wanted = tuple(numbered(1, 3, 4, 77, 3))
        assert ids(await take(engine, 2, ids=wanted)) == numbered(4, 3)
        assert ids(await take(engine, 10, ids=wanted)) == numbered(1)
        assert await take(engine, 10, ids=tuple(numbered(77))) == []

    async def test_ids_of_other_queues_or_names_are_not_claimed(self, engine: Engine) -> None:
        await put(engine, new(1, queue="other"), new(2, task="unknown"), new(3))
        before = await snapshot(engine, [1, 2])
        rows = await take(engine, 10, tasks=("mail",), ids=tuple(numbered(1, 2, 3)))
        assert ids(rows) == [job_id(3)]
        assert await snapshot(engine, [1, 2]) == before

    async def test_ids_do_not_open_what_is_held_or_waits(self, engine: Engine) -> None:
        await running(engine, 1)
        await put(engine, new(2, delay=10))
        assert await take(engine, 10, ids=tuple(numbered(1, 2)), owner=OTHER) == []

    async def test_a_job_in_the_future_is_not_due(self, engine: Engine) -> None:
        await put(engine, new(1, delay=10 * SECOND), new(2, run_at=NOW + 10 * SECOND))
        assert await take(engine, 10, now=NOW + 10 * SECOND - 1) == []
        assert ids(await take(engine, 10, now=NOW + 10 * SECOND)) == numbered(1, 2)

    async def test_finished_jobs_are_not_claimed(self, engine: Engine) -> None:
        row = await running(engine)
        await finish(engine, row)
        assert await take(engine, 10, now=NOW + 10 * LEASE) == []

    @pytest.mark.parametrize("late", [0, 1, 100])
    async def test_an_overdue_job_is_never_claimed(self, engine: Engine, late: int) -> None:
        await put(engine, *(new(n, expires_in=50) for n in range(4)), new(9, expires_in=500))
        rows = await take(engine, 10, now=NOW + 50 + late, arms=DUE)
        assert ids(rows) == [job_id(9)]
        assert (await stored(engine, 0)).state is State.PENDING

    async def test_a_job_is_claimed_until_it_expires(self, engine: Engine) -> None:
        await put(engine, new(1, expires_in=50))
        assert ids(await take(engine, now=NOW + 49)) == numbered(1)

    async def test_overdue_ids_are_not_claimed(self, engine: Engine) -> None:
        await put(engine, new(1, expires_in=50))
        assert await take(engine, now=NOW + 50, ids=(job_id(1),), arms=DUE) == []

    async def test_a_released_job_is_claimed_again(self, engine: Engine) -> None:
        row = await running(engine)
        await finish(engine, row, Released(ReleaseReason.UNSTARTED), now=NOW)
        again = await take_one(engine, now=NOW)
        assert (again.id, again.claims, again.token) == (row.id, 2, row.token + 1)

    @pytest.mark.parametrize("way", ["retried", "released", "snoozed", "swept", "requeued"])
    async def test_a_job_that_comes_back_keeps_its_priority(self, engine: Engine, way: str) -> None:
        """B096: it does not queue up behind all that have a lower one."""
        await put(engine, *(new(n, priority=1) for n in range(10, 60)), now=NOW - SECOND)
        row = await running(engine, 1, priority=9, max_attempts=2)
        later = NOW + LEASE
        outcomes: dict[str, Outcome] = {
            "retried": Errored(boom(), after=0),
            "released": Released(ReleaseReason.SHUTDOWN),
            "snoozed": Snoozed(0),
            "requeued": Completed(),
        }
        if way == "swept":
            await engine.sweep(10, now=later)
        else:
            await finish(engine, row, outcomes[way], now=later)
        if way == "requeued":
            await engine.requeue([row.id], now=later)
        assert ids(await take(engine, 2, now=later)) == numbered(1, 10)
