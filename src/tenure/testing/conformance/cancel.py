"""Cancelling: at once, by request, or by force."""

from __future__ import annotations

import pytest

from tenure.core.outcomes import Cancelled, Errored, Outcome, Snoozed
from tenure.core.query import CancelResult
from tenure.core.states import State
from tenure.engines.protocol import Engine, Facet
from tenure.testing.conformance.kit import (
    LEASE,
    NOW,
    OTHER,
    Conformance,
    boom,
    changed,
    finish,
    finished,
    job_id,
    new,
    numbered,
    put,
    running,
    snapshot,
    stored,
    take,
)

FORCE = pytest.mark.parametrize("force", [False, True])
ENDS: dict[State, Outcome | None] = {
    State.COMPLETED: None,
    State.FAILED: Errored(boom()),
    State.CANCELLED: Cancelled(),
    State.EXPIRED: Snoozed(99),
}


class TestCancel(Conformance):
    """`cancel(ids, force)`"""

    facet = Facet.OPERATE

    async def test_nothing_is_no_error(self, engine: Engine) -> None:
        assert await engine.cancel([], now=NOW) == CancelResult()

    @FORCE
    @pytest.mark.parametrize("delay", [0, 60])
    async def test_a_pending_job_ends_at_once(
        self, engine: Engine, force: bool, delay: int
    ) -> None:
        (row,) = await put(engine, new(1, delay=delay))
        answer = await engine.cancel([row.id], force=force, now=NOW + 5)
        assert answer == CancelResult(cancelled=(row.id,))
        wanted = changed(row, state=State.CANCELLED, ready=False, finished_at=NOW + 5)
        assert await stored(engine, 1) == wanted
        assert await take(engine, 10, now=NOW + 100) == []

    async def test_a_running_job_is_asked(self, engine: Engine) -> None:
        row = await running(engine)
        for now in (NOW + 5, NOW + 6):
            answer = await engine.cancel([row.id], now=now)
            assert answer == CancelResult(requested=(row.id,))
        assert await stored(engine, 1) == changed(row, cancel_requested=True)

    async def test_a_running_job_ends_by_force(self, engine: Engine) -> None:
        row = await running(engine)
        answer = await engine.cancel([row.id], force=True, now=NOW + 5)
        assert answer == CancelResult(cancelled=(row.id,))
        assert await stored(engine, 1) == changed(
            row,
            state=State.CANCELLED,
            token=NOW + 5,
            owner=None,
            lease_until=None,
            finished_at=NOW + 5,
        )
        assert await take(engine, 10, now=NOW + 2 * LEASE) == []
        assert await engine.sweep(10, now=NOW + 2 * LEASE) == []

    async def test_force_draws_a_new_token_though_time_stands_still(self, engine: Engine) -> None:
        row = await running(engine)
        await engine.cancel([row.id], force=True, now=NOW)
        assert (await stored(engine, 1)).token == row.token + 1

    async def test_a_request_that_is_not_heard_can_be_forced(self, engine: Engine) -> None:
        row = await running(engine)
        await engine.cancel([row.id], now=NOW)
        await engine.cancel([row.id], force=True, now=NOW)
        assert (await stored(engine, 1)).state is State.CANCELLED

    async def test_a_lapsed_job_is_asked_too(self, engine: Engine) -> None:
        row = await running(engine)
        answer = await engine.cancel([row.id], now=NOW + 2 * LEASE)
        assert answer == CancelResult(requested=(row.id,))
        await engine.sweep(1, now=NOW + 2 * LEASE)
        assert (await stored(engine, 1)).state is State.CANCELLED

    @FORCE
    @pytest.mark.parametrize("end", ENDS)
    async def test_a_final_job_stays(self, engine: Engine, force: bool, end: State) -> None:
        row = await running(engine, expires_in=50)
        await finish(engine, row, ENDS[end])
        before = await stored(engine, 1)
        assert before.state is end
        answer = await engine.cancel([row.id], force=force, now=NOW + 5)
        assert answer == CancelResult(already_final=(row.id,))
        assert await stored(engine, 1) == before

    async def test_an_unknown_id_is_told(self, engine: Engine) -> None:
        answer = await engine.cancel(numbered(9), now=NOW)
        assert answer == CancelResult(not_found=(job_id(9),))

    async def test_every_id_is_answered_once_in_the_order_met(self, engine: Engine) -> None:
        for n in (1, 2):
            await running(engine, n)
        for n in (3, 4):
            await finished(engine, n)
        await put(engine, new(5), new(6), new(7))
        before = await snapshot(engine, [7])
        asked = numbered(6, 2, 99, 4, 5, 1, 3, 98, 6, 2, 4, 99)
        assert await engine.cancel(asked, now=NOW) == CancelResult(
            cancelled=tuple(numbered(6, 5)),
            requested=tuple(numbered(2, 1)),
            already_final=tuple(numbered(4, 3)),
            not_found=tuple(numbered(99, 98)),
        )
        assert await snapshot(engine, [7]) == before

    async def test_many_jobs_at_once(self, engine: Engine) -> None:
        jobs = [new(n) for n in range(2500)]
        await put(engine, *jobs)
        await take(engine, 1000, owner=OTHER)
        answer = await engine.cancel([job.id for job in jobs], now=NOW)
        assert answer.requested == tuple(numbered(*range(1000)))
        assert answer.cancelled == tuple(numbered(*range(1000, 2500)))
