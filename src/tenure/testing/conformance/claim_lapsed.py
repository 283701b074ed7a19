"""Taking over jobs whose lease ran out."""

from __future__ import annotations

import pytest

from tenure.core.job import JobRow
from tenure.core.outcomes import Cancelled, Errored, Expired, Outcome
from tenure.core.rules import admit
from tenure.core.states import State
from tenure.engines.protocol import Engine
from tenure.testing.conformance.kit import (
    DUE,
    LAPSED,
    LEASE,
    NOW,
    OTHER,
    Conformance,
    beat,
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

LATE = NOW + LEASE


class TestLapsed(Conformance):
    """`claim(Claim)`, lapsed arm"""

    async def test_what_a_takeover_writes(self, engine: Engine) -> None:
        row = await running(engine, max_attempts=3)
        taken = await take_one(engine, now=LATE, owner=OTHER)
        assert taken == changed(
            row,
            token=LATE,
            owner=OTHER,
            lease_until=LATE + LEASE,
            claims=2,
            lapses=1,
            started_at=LATE,
        )
        assert await stored(engine, 1) == taken

    async def test_a_lease_lapses_at_the_very_instant(self, engine: Engine) -> None:
        await running(engine)
        assert await take(engine, 10, now=LATE - 1, owner=OTHER) == []
        assert ids(await take(engine, 10, now=LATE, owner=OTHER)) == numbered(1)

    async def test_lapses_add_up(self, engine: Engine) -> None:
        await running(engine)
        for n in range(1, 6):
            row = await take_one(engine, now=NOW + n * LEASE)
            assert (row.lapses, row.claims) == (n, n + 1)

    async def test_a_takeover_at_the_same_instant_draws_a_new_token(self, engine: Engine) -> None:
        row = await running(engine)
        await engine.extend([beat(row, 0.0)], now=NOW)
        assert (await take_one(engine, now=NOW, owner=OTHER)).token == row.token + 1

    async def test_lapsed_jobs_come_before_due_ones(self, engine: Engine) -> None:
        await running(engine, 8)
        await running(engine, 9)
        await put(engine, new(1, priority=99), new(2, priority=99))
        assert ids(await take(engine, 3, now=LATE)) == numbered(8, 9, 1)
        assert ids(await take(engine, 3, now=LATE)) == numbered(2)

    async def test_the_limit_counts_both_arms(self, engine: Engine) -> None:
        for n in range(4):
            await running(engine, n)
        await put(engine, new(9))
        assert ids(await take(engine, 2, now=LATE)) == numbered(0, 1)

    async def test_the_longest_lapsed_are_first(self, engine: Engine) -> None:
        for n, start in ((1, 30), (2, 10), (3, 20), (4, 10)):
            await running(engine, n, now=NOW + start)
        rows = await take(engine, 10, now=LATE + 60, arms=LAPSED)
        assert ids(rows) == numbered(2, 4, 3, 1)

    async def test_an_extended_lease_has_not_lapsed(self, engine: Engine) -> None:
        row = await running(engine)
        await engine.extend([beat(row, 40.0)], now=NOW)
        assert await take(engine, now=LATE, owner=OTHER) == []
        assert ids(await take(engine, now=NOW + 40_000_000, owner=OTHER)) == numbered(1)

    async def test_a_shortened_lease_lapses_sooner(self, engine: Engine) -> None:
        row = await running(engine)
        await engine.extend([beat(row, 5.0)], now=NOW)
        assert ids(await take(engine, now=NOW + 5_000_000, owner=OTHER)) == numbered(1)
        assert await take(engine, 10, now=LATE, owner=OTHER) == []

    async def test_unknown_names_stay_with_their_holder(self, engine: Engine) -> None:
        await running(engine, 1, task="unknown")
        await running(engine, 2)
        before = await snapshot(engine, [1])
        assert ids(await take(engine, 10, now=LATE, tasks=("mail",))) == numbered(2)
        assert await take(engine, 10, now=LATE + LEASE, tasks=()) == []
        assert await snapshot(engine, [1]) == before

    async def test_other_queues_stay_with_their_holder(self, engine: Engine) -> None:
        await running(engine, 1, queue="other")
        before = await snapshot(engine, [1])
        assert await take(engine, 10, now=LATE) == []
        assert await snapshot(engine, [1]) == before

    async def test_ids_restrict_the_takeover(self, engine: Engine) -> None:
        for n in range(4):
            await running(engine, n, now=NOW - n)
        wanted = tuple(numbered(1, 2, 3))
        assert ids(await take(engine, 2, now=LATE, ids=wanted)) == numbered(3, 2)

    async def test_ids_do_not_open_a_living_lease(self, engine: Engine) -> None:
        await running(engine)
        assert await take(engine, now=LATE - 1, ids=(job_id(1),), owner=OTHER) == []

    async def test_the_due_arm_alone_takes_nothing_over(self, engine: Engine) -> None:
        await running(engine)
        assert await take(engine, 10, now=LATE, arms=DUE) == []

    async def test_the_cancel_flag_is_kept_and_settles_the_job(self, engine: Engine) -> None:
        row = await running(engine)
        await engine.cancel([row.id], now=NOW)
        taken = await take_one(engine, now=LATE, owner=OTHER)
        assert taken.cancel_requested
        await self._ends(engine, taken, Cancelled, State.CANCELLED)

    async def test_a_job_past_its_deadline_is_handed_over_to_expire(self, engine: Engine) -> None:
        await running(engine, expires_in=10)
        taken = await take_one(engine, now=LATE, owner=OTHER)
        await self._ends(engine, taken, Expired, State.EXPIRED)

    @pytest.mark.parametrize("budget", [0, 1, 2])
    async def test_a_spent_lapse_budget_fails_the_job(self, engine: Engine, budget: int) -> None:
        await running(engine, max_lapses=budget)
        for n in range(1, budget + 1):
            assert admit(await take_one(engine, now=NOW + n * LEASE)) is None
        taken = await take_one(engine, now=NOW + (budget + 1) * LEASE)
        await self._ends(engine, taken, Errored, State.FAILED)
        assert [e.kind for e in (await stored(engine, 1)).errors] == ["lapsed"]

    async def test_failures_are_not_lapses(self, engine: Engine) -> None:
        row = await running(engine, max_attempts=5)
        await finish(engine, row, Errored(boom(), after=0))
        again = await take_one(engine)
        assert (again.failures, again.lapses) == (1, 0)
        taken = await take_one(engine, now=LATE, owner=OTHER)
        assert (taken.failures, taken.lapses, taken.errors) == (1, 1, again.errors)

    @staticmethod
    async def _ends(engine: Engine, row: JobRow, kind: type[Outcome], state: State) -> None:
        outcome = admit(row)
        assert isinstance(outcome, kind)
        await finish(engine, row, outcome, now=LATE + 1)
        assert (await stored(engine, row.id)).state is state
