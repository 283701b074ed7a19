"""Keys that are taken for ever: reservations outlive their jobs, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from tenure.core.identity import Reservation
from tenure.core.states import State
from tenure.engines.protocol import Engine, Facet, Inserted, Prunable
from tenure.errors import DuplicateJob, PayloadError, UniquenessConflict
from tenure.testing.conformance.kit import (
    FINISHED,
    FOREVER,
    LEASE,
    NOW,
    RAISE,
    REPLACE,
    RETURN,
    STARTED,
    Conformance,
    finish,
    finished,
    job_id,
    keyed,
    new,
    numbered,
    put,
    stored,
    take,
    take_one,
)

FIRST = Reservation("k", job_id(1), NOW)


async def _done(engine: Engine, n: int = 1) -> None:
    await finished(engine, n, unique_key="k", unique_until=FOREVER)


async def _pruned(engine: Engine, n: int = 1) -> None:
    await _done(engine, n)
    assert await engine.prune(Prunable.JOBS, NOW + 1) == 1


class TestReservations(Conformance):
    """`insert(jobs)` with keys until `forever`; `identity(key)`, `release_identity(key, owner)`"""

    facet = Facet.IDENTITY

    async def test_an_insert_reserves_its_key(self, engine: Engine) -> None:
        assert await engine.identity("k") is None
        await put(engine, keyed(1, until=FOREVER), keyed(2, "other", FOREVER), now=NOW)
        assert await engine.identity("k") == FIRST
        assert await engine.identity("other") == Reservation("other", job_id(2), NOW)
        assert await engine.identity("K") is None

    async def test_other_policies_reserve_nothing(self, engine: Engine) -> None:
        await put(engine, keyed(1), keyed(2, "b", STARTED))
        assert [await engine.identity(key) for key in ("k", "b")] == [None, None]
        assert not await engine.release_identity("k")

    async def test_a_claim_keeps_the_key(self, engine: Engine) -> None:
        await put(engine, keyed(1, until=FOREVER))
        row = await take_one(engine)
        assert (row.unique_key, row.unique_until) == ("k", "forever")
        assert await engine.identity("k") == FIRST

    @pytest.mark.parametrize("stage", ["pending", "running", "final", "pruned"])
    async def test_it_is_taken_whatever_becomes_of_the_job(
        self, engine: Engine, stage: str
    ) -> None:
        if stage == "pruned":
            await _pruned(engine)
        elif stage == "final":
            await _done(engine)
        else:
            await put(engine, keyed(1, until=FOREVER))
            if stage == "running":
                await take_one(engine)
        answer = await engine.insert([keyed(2, until=FOREVER)], now=NOW + 5)
        assert answer == [Inserted(job_id(1), False)]
        with pytest.raises(DuplicateJob) as caught:
            await engine.insert([keyed(2, until=FOREVER, on_conflict=RAISE)], now=NOW + 5)
        assert caught.value.existing == job_id(1)
        assert await engine.identity("k") == FIRST
        assert await engine.get(numbered(2)) == [None]

    @pytest.mark.parametrize("stage", ["final", "pruned"])
    async def test_a_repeated_insert_is_no_twin(self, engine: Engine, stage: str) -> None:
        await (_pruned if stage == "pruned" else _done)(engine)
        for policy in (RETURN, REPLACE, RAISE):
            job = keyed(1, until=FOREVER, on_conflict=policy)
            assert await engine.insert([job], now=NOW + 5) == [Inserted(job_id(1), False)]
        assert await take(engine, 10, now=NOW + 5) == []
        assert await engine.identity("k") == FIRST

    async def test_only_a_waiting_job_is_replaced(self, engine: Engine) -> None:
        await put(engine, keyed(1, until=FOREVER))
        again = keyed(2, until=FOREVER, on_conflict=REPLACE, payload=b"2")
        assert await engine.insert([again], now=NOW) == [Inserted(job_id(1), False)]
        assert (await stored(engine, 1)).payload == b"2"
        await finish(engine, await take_one(engine))
        for _ in range(2):
            with pytest.raises(DuplicateJob):
                await engine.insert([again], now=NOW + 5)
            await engine.prune(Prunable.JOBS, NOW + 9)
        assert await engine.identity("k") == FIRST

    async def test_a_cancelled_job_says_so(self, engine: Engine) -> None:
        await put(engine, keyed(1, until=FOREVER))
        await take_one(engine)
        await engine.cancel(numbered(1), now=NOW)
        answer = await engine.insert([keyed(2, until=FOREVER)], now=NOW)
        assert answer == [Inserted(job_id(1), False, cancelling=True)]

    @pytest.mark.parametrize("until", [STARTED, FINISHED])
    @pytest.mark.parametrize("stage", ["pending", "pruned"])
    async def test_a_key_across_policies_is_a_conflict(
        self, engine: Engine, until: str, stage: str
    ) -> None:
        if stage == "pruned":
            await _pruned(engine)
        else:
            await put(engine, keyed(1, until=FOREVER))
        with pytest.raises(UniquenessConflict, match=job_id(1)):
            await engine.insert([keyed(2, until=until)], now=NOW)
        assert await engine.get(numbered(2)) == [None]

    async def test_a_reservation_does_not_expire(self, engine: Engine) -> None:
        await put(engine, keyed(1, until=FOREVER, expires_in=5))
        answer = await engine.insert([keyed(2, until=FOREVER)], now=NOW + 9)
        assert answer == [Inserted(job_id(1), False)]
        await engine.sweep(9, now=NOW + 9)
        answer = await engine.insert([keyed(2, until=FOREVER)], now=NOW + 9)
        assert answer == [Inserted(job_id(1), False)]

    async def test_twins_in_one_batch(self, engine: Engine) -> None:
        jobs = [keyed(1, until=FOREVER), keyed(2, until=FOREVER), new(3)]
        assert await engine.insert(jobs, now=NOW) == [
            Inserted(job_id(1), True),
            Inserted(job_id(1), False),
            Inserted(job_id(3), True),
        ]
        assert await engine.identity("k") == FIRST

    async def test_a_batch_that_raises_reserves_nothing(self, engine: Engine) -> None:
        await put(engine, keyed(1, "taken"))
        large = new(4, payload=b"x" * (engine.traits.max_payload + 1))
        for bad, error in (
            (keyed(3, "taken", on_conflict=RAISE), DuplicateJob),
            (keyed(3, "taken", STARTED), UniquenessConflict),
            (large, PayloadError),
        ):
            with pytest.raises(error):
                await engine.insert([keyed(2, until=FOREVER), bad], now=NOW)
        assert await engine.identity("k") is None

    async def test_releasing_frees_the_key_of_an_ended_job(self, engine: Engine) -> None:
        await _done(engine)
        assert await engine.release_identity("k")
        assert await engine.identity("k") is None
        assert not await engine.release_identity("k")
        await put(engine, keyed(2, until=FOREVER), now=NOW + 7)
        assert await engine.identity("k") == Reservation("k", job_id(2), NOW + 7)

    async def test_releasing_can_ask_for_the_owner(self, engine: Engine) -> None:
        await _pruned(engine)
        assert not await engine.release_identity("k", job_id(2))
        assert await engine.identity("k") == FIRST
        assert await engine.release_identity("k", job_id(1))
        assert await engine.identity("k") is None

    async def test_a_living_job_keeps_a_released_key_until_it_ends(self, engine: Engine) -> None:
        await put(engine, keyed(1, until=FOREVER))
        await engine.release_identity("k")
        answer = await engine.insert([keyed(2, until=FOREVER)], now=NOW)
        assert answer == [Inserted(job_id(1), False)]
        assert await engine.identity("k") is None
        await finish(engine, await take_one(engine))
        await put(engine, keyed(2, until=FOREVER))

    async def test_a_requeue_keeps_the_reservation(self, engine: Engine) -> None:
        await _done(engine)
        assert (await engine.requeue(numbered(1), now=NOW + 5)).requeued == (job_id(1),)
        assert await engine.identity("k") == FIRST
        row = await take_one(engine, now=NOW + 5)
        assert (row.unique_key, row.unique_until) == ("k", "forever")

    @pytest.mark.parametrize("until", [FINISHED, FOREVER])
    @pytest.mark.parametrize("stage", ["living", "pruned"])
    async def test_a_reservation_of_another_refuses_a_requeue(
        self, engine: Engine, until: str, stage: str
    ) -> None:
        await finished(engine, 1, unique_key="k", unique_until=until, queue="b")
        await engine.release_identity("k")
        await finished(engine, 2, unique_key="k", unique_until=FOREVER, now=NOW - 5)
        if stage == "pruned":
            assert await engine.prune(Prunable.JOBS, NOW) == 1
        answer = await engine.requeue(numbered(1), now=NOW + 1)
        assert answer.taken == {job_id(1): job_id(2)}
        assert (await stored(engine, 1)).state is State.COMPLETED

    async def test_every_handle_sees_it(self, engine: Engine) -> None:
        async with engine.side() as side:
            await put(side, keyed(1, until=FOREVER))
            assert await engine.identity("k") == FIRST
            assert await engine.release_identity("k")
            assert await side.identity("k") is None

    async def test_one_of_many_releases_it(self, engine: Engine) -> None:
        await _pruned(engine)
        async with engine.side() as side:
            calls = [handle.release_identity("k", job_id(1)) for handle in [engine, side] * 10]
            assert sorted(await asyncio.gather(*calls)) == [False] * 19 + [True]

    async def test_a_lapse_does_not_touch_it(self, engine: Engine) -> None:
        await put(engine, keyed(1, until=FOREVER, max_lapses=0))
        await take_one(engine)
        await engine.sweep(9, now=NOW + LEASE)
        assert (await stored(engine, 1)).state is State.FAILED
        assert await engine.identity("k") == FIRST
