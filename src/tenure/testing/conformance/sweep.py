"""Sweeping: nothing stays overdue or lapsed, whatever its task or queue."""

from __future__ import annotations

from tenure.core.job import rank_of
from tenure.core.query import Swept
from tenure.core.rules import lapse, revoked_token, settled_values
from tenure.core.states import State
from tenure.engines.protocol import Engine
from tenure.testing.conformance.kit import (
    LEASE,
    NOW,
    OTHER,
    PROMOTE,
    Conformance,
    beat,
    changed,
    ids,
    job_id,
    new,
    put,
    running,
    snapshot,
    stored,
    take,
    take_one,
)

LATE = NOW + LEASE


class TestSweep(Conformance):
    """`sweep(limit)`"""

    async def test_an_empty_store_has_nothing_to_sweep(self, engine: Engine) -> None:
        assert await engine.sweep(10, now=NOW) == []

    async def test_an_overdue_job_expires(self, engine: Engine) -> None:
        (row,) = await put(engine, new(1, expires_in=10))
        assert await engine.sweep(10, now=NOW + 9) == []
        assert await engine.sweep(10, now=NOW + 10) == [Swept(job_id(1), State.EXPIRED)]
        wanted = changed(row, state=State.EXPIRED, ready=False, finished_at=NOW + 10)
        assert await stored(engine, 1) == wanted

    async def test_a_waiting_job_expires(self, engine: Engine) -> None:
        await put(engine, new(1, expires_in=10, delay=99))
        assert await engine.sweep(10, now=NOW + 10) == [Swept(job_id(1), State.EXPIRED)]
        assert await take(engine, 10, now=NOW + 200) == []

    async def test_a_lapsed_job_is_taken_back(self, engine: Engine) -> None:
        row = await running(engine, priority=2, expires_in=10 * LEASE)
        assert await engine.sweep(10, now=LATE - 1) == []
        assert await engine.sweep(10, now=LATE + 5) == [Swept(row.id, State.PENDING)]
        assert await stored(engine, 1) == changed(
            row,
            state=State.PENDING,
            ready=True,
            token=LATE + 5,
            owner=None,
            lease_until=None,
            lapses=1,
            available_at=LATE + 5,
            queued_at=LATE + 5,
            rank=rank_of(LATE + 5, 2),
        )

    async def test_a_lease_lapses_at_the_very_instant(self, engine: Engine) -> None:
        await running(engine)
        assert await engine.sweep(10, now=LATE) == [Swept(job_id(1), State.PENDING)]

    async def test_what_was_taken_back_is_claimed_again(self, engine: Engine) -> None:
        row = await running(engine)
        await engine.sweep(10, now=LATE)
        again = await take_one(engine, now=LATE, owner=OTHER)
        assert (again.claims, again.lapses, again.owner) == (2, 1, OTHER)
        assert again.token > LATE >= row.token

    async def test_a_lapsed_job_ends_as_core_says(self, engine: Engine) -> None:
        rows = [
            await running(engine, 1),
            await running(engine, 2, max_lapses=0),
            await running(engine, 3, expires_in=LEASE),
            await running(engine, 4, max_lapses=0),
            await running(engine, 5, expires_in=LEASE + 1),
        ]
        await engine.cancel([job_id(4)], now=NOW)
        rows[3] = changed(rows[3], cancel_requested=True)
        ends = [State.PENDING, State.FAILED, State.EXPIRED, State.CANCELLED, State.PENDING]
        swept = await engine.sweep(10, now=LATE)
        assert swept == [Swept(row.id, end) for row, end in zip(rows, ends, strict=True)]
        for row in rows:
            values = settled_values(row.priority, lapse(row, LATE), LATE)
            wanted = changed(row, **{**values, **revoked_token(row, LATE)})
            assert await stored(engine, row.id) == wanted

    async def test_a_spent_lapse_budget_leaves_an_error(self, engine: Engine) -> None:
        await running(engine, max_lapses=0)
        await engine.sweep(10, now=LATE)
        row = await stored(engine, 1)
        assert row.error is not None
        assert (row.state, row.error.kind, row.errors) == (State.FAILED, "lapsed", (row.error,))

    async def test_any_task_and_queue_is_swept(self, engine: Engine) -> None:
        await running(engine, 1, task="nobody.knows", queue="forgotten")
        await put(engine, new(2, task="nobody.knows", queue="forgotten", expires_in=5))
        assert await engine.sweep(10, now=LATE) == [
            Swept(job_id(2), State.EXPIRED),
            Swept(job_id(1), State.PENDING),
        ]

    async def test_the_limit_holds_for_each_kind(self, engine: Engine) -> None:
        for n in range(4):
            await running(engine, n, now=NOW - n)
        await put(engine, *(new(10 + n, expires_in=10 - n, queue=f"q{n}") for n in range(4)))
        late = LATE + 100
        first = [Swept(job_id(n), State.EXPIRED) for n in (13, 12)]
        first += [Swept(job_id(n), State.PENDING) for n in (3, 2)]
        assert await engine.sweep(2, now=late) == first
        second = [Swept(job_id(n), State.EXPIRED) for n in (11, 10)]
        second += [Swept(job_id(n), State.PENDING) for n in (1, 0)]
        assert await engine.sweep(2, now=late) == second
        assert await engine.sweep(2, now=late) == []

    async def test_a_limit_of_zero_does_nothing(self, engine: Engine) -> None:
        await running(engine, 1)
        await put(engine, new(2, expires_in=1))
        assert await engine.sweep(0, now=LATE) == []

    async def test_everything_else_stays(self, engine: Engine) -> None:
        await running(engine, 1)
        await put(engine, new(2), new(3, delay=5), new(4, expires_in=5 * LEASE))
        held = await take_one(engine, ids=(job_id(4),))
        await engine.extend([beat(held, 300.0)], now=NOW)
        extended = await stored(engine, 4)
        before = await snapshot(engine, [2, 3])
        assert await engine.sweep(10, now=LATE) == [Swept(job_id(1), State.PENDING)]
        assert await snapshot(engine, [2, 3]) == before
        assert await stored(engine, 4) == extended

    async def test_a_sweep_does_not_promote(self, engine: Engine) -> None:
        await put(engine, new(1, delay=5))
        await engine.sweep(10, now=NOW + 10)
        assert not (await stored(engine, 1)).ready
        await take(engine, now=NOW + 10, arms=PROMOTE)
        assert ids(await take(engine, now=NOW + 10)) == [job_id(1)]
