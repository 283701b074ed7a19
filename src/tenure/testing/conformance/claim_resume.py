"""Resuming: a claim whose reply was lost is repeated to its owner, and strands nothing."""

from __future__ import annotations

from tenure.core.lease import Extended
from tenure.core.outcomes import Verdict
from tenure.core.states import State
from tenure.engines.protocol import ALL_ARMS, Engine
from tenure.testing.conformance.kit import (
    LEASE,
    NOW,
    OTHER,
    RESUME,
    Conformance,
    beat,
    changed,
    finish,
    finished,
    ids,
    job_id,
    new,
    numbered,
    put,
    running,
    stored,
    take,
    take_one,
)


class TestResume(Conformance):
    """`claim(Claim)`, resume arm"""

    async def test_what_a_resumption_writes(self, engine: Engine) -> None:
        row = await running(engine)
        again = await take_one(engine, now=NOW + 7, held=())
        assert again == changed(row, lease_until=NOW + 7 + LEASE)
        assert await stored(engine, 1) == again

    async def test_the_holder_can_settle_and_extend(self, engine: Engine) -> None:
        await running(engine)
        again = await take_one(engine, now=NOW + 7, held=())
        assert await engine.extend([beat(again)], now=NOW + 8) == [Extended(30.0)]
        assert (await finish(engine, again, now=NOW + 9)).verdict is Verdict.APPLIED

    async def test_what_is_held_is_not_repeated(self, engine: Engine) -> None:
        first, second = await running(engine, 1), await running(engine, 2)
        assert await take(engine, 10, held=(first.id, second.id)) == []
        assert ids(await take(engine, 10, held=(first.id,))) == [second.id]

    async def test_without_held_nothing_is_repeated(self, engine: Engine) -> None:
        row = await running(engine)
        assert await take(engine, 10, now=NOW + 1) == []
        assert await take(engine, 10, now=NOW + 1, arms=RESUME) == []
        assert await stored(engine, 1) == row

    async def test_without_the_arm_nothing_is_repeated(self, engine: Engine) -> None:
        row = await running(engine)
        assert await take(engine, 10, held=(), arms=ALL_ARMS - RESUME) == []
        assert await stored(engine, 1) == row

    async def test_jobs_of_others_are_not_given(self, engine: Engine) -> None:
        row = await running(engine)
        assert await take(engine, 10, owner=OTHER, held=()) == []
        assert await stored(engine, 1) == row

    async def test_what_no_longer_runs_is_not_given(self, engine: Engine) -> None:
        await finished(engine, 1)
        await running(engine, 2)
        await engine.cancel([job_id(2)], force=True, now=NOW)
        await running(engine, 3)
        await engine.sweep(10, now=NOW + LEASE)
        assert await take(engine, 10, now=NOW + LEASE, held=(), arms=RESUME) == []

    async def test_a_lease_that_ran_out_is_resumed_if_nobody_took_the_job(
        self, engine: Engine
    ) -> None:
        row = await running(engine)
        again = await take_one(engine, now=NOW + 2 * LEASE, held=())
        assert again == changed(row, lease_until=NOW + 3 * LEASE)
        assert (again.token, again.lapses, again.claims) == (row.token, 0, 1)

    async def test_what_another_took_is_not_given(self, engine: Engine) -> None:
        await running(engine)
        taken = await take_one(engine, now=NOW + LEASE, owner=OTHER)
        assert await take(engine, 10, now=NOW + LEASE, held=()) == []
        assert await stored(engine, 1) == taken

    async def test_the_longest_held_are_first_up_to_the_limit(self, engine: Engine) -> None:
        for n, start in ((1, 30), (2, 10), (3, 20), (4, 10)):
            await running(engine, n, now=NOW + start)
        assert ids(await take(engine, 3, now=NOW + 40, held=(), arms=RESUME)) == numbered(2, 4, 3)
        assert ids(await take(engine, 1, now=NOW + 41, held=(), arms=RESUME)) == numbered(1)
        assert await take(engine, 0, now=NOW + 42, held=(), arms=RESUME) == []

    async def test_what_is_resumed_counts_towards_the_limit(self, engine: Engine) -> None:
        await running(engine, 1)
        await running(engine, 2, now=NOW - 2 * LEASE)
        await put(engine, new(3), new(4))
        lapsed = await take_one(engine, owner=OTHER)
        assert lapsed.id == job_id(2)
        rows = await take(engine, 2, now=NOW + 1, held=())
        assert ids(rows) == numbered(1, 3)

    async def test_resumed_come_before_lapsed_and_due(self, engine: Engine) -> None:
        await running(engine, 2)
        await put(engine, new(3), now=NOW - 5)
        await put(engine, new(1), now=NOW - 10 * LEASE)
        await take_one(engine, now=NOW - 9 * LEASE, owner=OTHER)
        rows = await take(engine, 10, now=NOW + 1, held=())
        assert ids(rows) == numbered(2, 1, 3)

    async def test_queues_names_and_ids_do_not_restrict_it(self, engine: Engine) -> None:
        await running(engine, 1, queue="a", task="x")
        rows = await take(engine, 10, held=(), queues=("b",), tasks=("y",), ids=(job_id(9),))
        assert ids(rows) == numbered(1)
        assert ids(await take(engine, 10, held=(), queues=(), room={"a": 0})) == numbered(1)

    async def test_a_cancel_request_is_still_there(self, engine: Engine) -> None:
        row = await running(engine)
        await engine.cancel([row.id], now=NOW)
        assert (await take_one(engine, held=())).cancel_requested

    async def test_a_lost_claim_strands_nothing(self, engine: Engine) -> None:
        """B145, B006: the reply never came, or a worker of the same name began anew."""
        await put(engine, *(new(n) for n in range(5)))
        await take(engine, 3)  # the reply of this one is lost
        again = await take(engine, 10, now=NOW + 1, held=())
        assert sorted(ids(again)) == numbered(*range(5))
        for row in again:
            assert (row.claims, row.lapses) == (1, 0)
            assert (await finish(engine, row, now=NOW + 2)).state is State.COMPLETED
