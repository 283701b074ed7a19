"""Requeueing: a final job runs again, with fresh budgets and the same identity."""

from __future__ import annotations

import pytest

from tenure.core.job import Progress
from tenure.core.outcomes import Errored
from tenure.core.query import RequeueResult
from tenure.core.rules import requeued_values
from tenure.core.states import State
from tenure.engines.protocol import Engine, Facet
from tenure.errors import PayloadError
from tenure.testing.conformance.cancel import ENDS
from tenure.testing.conformance.kit import (
    LEASE,
    NOW,
    OTHER,
    Conformance,
    beat,
    boom,
    changed,
    finish,
    finished,
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


class TestRequeue(Conformance):
    """`requeue(ids)`"""

    facet = Facet.OPERATE

    async def test_nothing_is_no_error(self, engine: Engine) -> None:
        assert await engine.requeue([], now=NOW) == RequeueResult()

    @pytest.mark.parametrize("end", ENDS)
    async def test_a_final_job_becomes_pending(self, engine: Engine, end: State) -> None:
        row = await running(engine, priority=3, expires_in=50)
        await finish(engine, row, ENDS[end])
        before = await stored(engine, 1)
        assert before.state is end
        answer = await engine.requeue([row.id], now=NOW + 99)
        assert answer == RequeueResult(requeued=(row.id,))
        assert await stored(engine, 1) == changed(before, **requeued_values(before, NOW + 99))

    async def test_budgets_flag_and_deadline_start_afresh(self, engine: Engine) -> None:
        row = await running(engine, max_attempts=3, expires_in=10 * LEASE)
        await engine.extend([beat(row, 1.0, progress=Progress(1))], now=NOW)
        taken = await take_one(engine, now=NOW + LEASE)
        await finish(engine, taken, Errored(boom(), after=0), now=NOW + LEASE)
        last = await take_one(engine, now=NOW + LEASE)
        await engine.cancel([last.id], now=NOW + LEASE)
        await finish(engine, last, Errored(boom(), after=0), now=NOW + LEASE)
        before = await stored(engine, 1)
        assert (before.failures, before.lapses, before.cancel_requested) == (1, 1, True)
        await engine.requeue([row.id], now=NOW + 20 * LEASE)
        after = await stored(engine, 1)
        assert (after.failures, after.lapses, after.releases) == (0, 0, 0)
        assert (after.cancel_requested, after.progress, after.expires_at) == (False, None, None)
        assert (after.claims, after.errors) == (before.claims, before.errors)

    async def test_it_is_due_at_once_and_can_complete(self, engine: Engine) -> None:
        row = await finished(engine)
        await put(engine, new(2), now=NOW + 1)
        await engine.requeue([row.id], now=NOW + 2)
        await put(engine, new(3), now=NOW + 3)
        rows = await take(engine, 10, now=NOW + 3)
        assert ids(rows) == numbered(2, 1, 3)
        assert rows[1].claims == 2
        assert (await finish(engine, rows[1], now=NOW + 4)).state is State.COMPLETED

    async def test_an_expired_job_does_not_expire_again(self, engine: Engine) -> None:
        await put(engine, new(1, expires_in=5))
        await engine.sweep(1, now=NOW + 5)
        await engine.requeue([job_id(1)], now=NOW + 10)
        assert await engine.sweep(1, now=NOW + 20) == []
        assert ids(await take(engine, now=NOW + 20)) == numbered(1)

    async def test_a_job_that_never_ran_can_be_requeued(self, engine: Engine) -> None:
        await put(engine, new(1, delay=500))
        await engine.cancel([job_id(1)], now=NOW)
        await engine.requeue([job_id(1)], now=NOW + 1)
        assert ids(await take(engine, now=NOW + 1)) == numbered(1)

    async def test_a_job_that_is_not_final_stays(self, engine: Engine) -> None:
        await running(engine, 1)
        await put(engine, new(2), new(3, delay=50))
        before = await snapshot(engine, [1, 2, 3])
        answer = await engine.requeue(numbered(3, 1, 2), now=NOW + 2 * LEASE)
        assert answer == RequeueResult(not_final=tuple(numbered(3, 1, 2)))
        assert await snapshot(engine, [1, 2, 3]) == before

    async def test_every_id_is_answered_once_in_the_order_met(self, engine: Engine) -> None:
        for n in (1, 2, 3):
            await finished(engine, n)
        await running(engine, 4)
        before = await snapshot(engine, [3])
        asked = numbered(2, 4, 99, 1, 2, 4, 98, 99)
        assert await engine.requeue(asked, now=NOW) == RequeueResult(
            requeued=tuple(numbered(2, 1)),
            not_final=tuple(numbered(4)),
            not_found=tuple(numbered(99, 98)),
        )
        assert await snapshot(engine, [3]) == before

    async def test_many_jobs_at_once(self, engine: Engine) -> None:
        jobs = [new(n) for n in range(2500)]
        await put(engine, *jobs)
        await engine.cancel([job.id for job in jobs], now=NOW)
        answer = await engine.requeue([job.id for job in jobs], now=NOW + 1)
        assert answer.requeued == tuple(job.id for job in jobs)
        assert len(await take(engine, 3000, now=NOW + 1, owner=OTHER)) == 2500

    async def test_new_arguments_take_the_place_of_the_old(self, engine: Engine) -> None:
        before = await finished(engine, payload=b'{"to":"annabel"}')
        await engine.requeue([before.id], payload=b'{"to":"bob"}', now=NOW + 5)
        assert (await stored(engine, 1)).payload_size == len(b'{"to":"bob"}')
        wanted = changed(before, **requeued_values(before, NOW + 5, b'{"to":"bob"}'))
        assert await stored(engine, 1) == wanted
        assert (await take_one(engine, now=NOW + 5)).payload == b'{"to":"bob"}'

    async def test_arguments_that_are_too_large_are_refused(self, engine: Engine) -> None:
        before = await finished(engine)
        with pytest.raises(PayloadError, match="bytes"):
            await engine.requeue(
                [before.id], payload=b"x" * (engine.traits.max_payload + 1), now=NOW
            )
        assert await stored(engine, 1) == before
