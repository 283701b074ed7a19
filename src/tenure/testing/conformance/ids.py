"""The identity of a job: one id is one job, however often it is inserted or requeued."""

from __future__ import annotations

import asyncio

from tenure.core.durations import SECOND
from tenure.core.job import new_row
from tenure.core.states import State
from tenure.engines.protocol import Engine, Inserted
from tenure.testing.conformance.kit import (
    NOW,
    Conformance,
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
    take_one,
)


class TestIdentity(Conformance):
    """Ids and tokens."""

    async def test_a_repeated_insert_changes_nothing(self, engine: Engine) -> None:
        (row,) = await put(engine, new(1, payload=b"1"))
        again = new(1, payload=b"2", task="other", queue="other", priority=9, delay=5)
        assert await engine.insert([again], now=NOW + 1) == [Inserted(job_id(1), False)]
        assert await stored(engine, 1) == row

    async def test_an_id_twice_in_a_batch_is_one_job(self, engine: Engine) -> None:
        jobs = [new(1, payload=b"1"), new(1, payload=b"2", queue="other"), new(2)]
        answers = await engine.insert(jobs, now=NOW)
        assert [a.created for a in answers] == [True, False, True]
        assert [a.id for a in answers] == numbered(1, 1, 2)
        assert await stored(engine, 1) == new_row(jobs[0], NOW)

    async def test_a_repeated_batch_writes_what_was_missing(self, engine: Engine) -> None:
        await put(engine, new(2))
        answers = await engine.insert([new(1), new(2), new(3)], now=NOW + 1)
        assert [a.created for a in answers] == [True, False, True]
        rows = await snapshot(engine, [1, 2, 3])
        assert [row and row.created_at for row in rows] == [NOW + 1, NOW, NOW + 1]

    async def test_a_repeated_insert_leaves_a_running_job_alone(self, engine: Engine) -> None:
        row = await running(engine)
        assert await engine.insert([new(1)], now=NOW + 1) == [Inserted(job_id(1), False)]
        assert await stored(engine, 1) == row
        assert await take(engine, now=NOW + 1) == []

    async def test_a_repeated_insert_does_not_revive_a_finished_job(self, engine: Engine) -> None:
        row = await finished(engine)
        assert await engine.insert([new(1)], now=NOW + 1) == [Inserted(job_id(1), False)]
        assert await stored(engine, 1) == row
        assert await take(engine, now=NOW + 1) == []

    async def test_one_of_many_concurrent_inserts_creates(self, engine: Engine) -> None:
        async with engine.side() as side:
            calls = [
                handle.insert([new(1), new(100 + n)], now=NOW)
                for n, handle in enumerate([engine, side] * 20)
            ]
            answers = await asyncio.gather(*calls)
        assert sum(bool(shared.created) for shared, _ in answers) == 1
        assert all(own.created for _, own in answers)

    async def test_the_token_of_a_new_job_was_never_drawn(self, engine: Engine) -> None:
        await put(engine, new(1))
        assert (await stored(engine, 1)).token == 0

    async def test_a_token_is_the_time_of_the_store(self, engine: Engine) -> None:
        assert (await running(engine, 1, now=NOW + 5)).token == NOW + 5

    async def test_a_token_grows_though_time_stands_still(self, engine: Engine) -> None:
        await put(engine, new(1))
        tokens = []
        for _ in range(4):
            row = await take_one(engine)
            tokens.append(row.token)
            await finish(engine, row)
            await engine.requeue([row.id], now=NOW)
        assert tokens == [NOW, NOW + 1, NOW + 2, NOW + 3]

    async def test_a_token_grows_though_time_goes_back(self, engine: Engine) -> None:
        row = await finished(engine, now=NOW)
        await engine.requeue([row.id], now=NOW - 60 * SECOND)
        assert (await take_one(engine, now=NOW - 60 * SECOND)).token == row.token + 1

    async def test_a_requeue_keeps_the_token(self, engine: Engine) -> None:
        row = await finished(engine)
        await engine.requeue([row.id], now=NOW + 1)
        after = await stored(engine, 1)
        assert (after.state, after.token) == (State.PENDING, row.token)
