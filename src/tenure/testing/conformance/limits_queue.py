"""Limits on how many jobs of a queue run at once."""

from __future__ import annotations

from tenure.core.fleet import QueueChange
from tenure.core.limits import NO_LIMITS
from tenure.core.states import State
from tenure.engines.protocol import Engine, Facet, Signal, Topic
from tenure.testing.conformance.kit import (
    LEASE,
    NOW,
    OTHER,
    Conformance,
    finish,
    ids,
    job_id,
    new,
    numbered,
    put,
    stored,
    take,
    take_one,
)
from tenure.testing.conformance.limits import blocked, limit


class TestConcurrencyOfQueues(Conformance):
    """`Limits.concurrency`"""

    facet = Facet.OPERATE

    async def test_no_more_run_than_may(self, engine: Engine) -> None:
        await limit(engine, concurrency=3)
        await put(engine, *(new(n) for n in range(9)))
        assert ids(await take(engine, 2)) == numbered(0, 1)
        assert ids(await take(engine, 9, owner=OTHER)) == numbered(2)
        assert await take(engine, 9) == []

    async def test_others_stay_ready_and_each_end_makes_room(self, engine: Engine) -> None:
        await limit(engine, concurrency=1)
        await put(engine, *(new(n) for n in range(3)))
        for n in range(3):
            row = await take_one(engine)
            assert row.id == job_id(n)
            assert await take(engine, 9) == []
            await finish(engine, row)
        assert await blocked(engine, 0, 1, 2) == [None] * 3

    async def test_other_queues_go_on(self, engine: Engine) -> None:
        await limit(engine, "a", concurrency=1)
        await put(engine, *(new(n, queue="ab"[n % 2]) for n in range(8)))
        assert ids(await take(engine, 4, queues=("a", "b"))) == numbered(0, 1, 3, 5)
        assert ids(await take(engine, 4, queues=("a", "b"))) == numbered(7)

    async def test_it_bounds_named_jobs_and_known_tasks_too(self, engine: Engine) -> None:
        await limit(engine, concurrency=2)
        await put(engine, *(new(n, task=f"t{n % 2}") for n in range(6)))
        assert ids(await take(engine, 1, ids=(job_id(3), job_id(5)))) == numbered(3)
        assert ids(await take(engine, 9, tasks=("t0",))) == numbered(0)
        assert await take(engine, 9, ids=(job_id(5),)) == []

    async def test_the_room_of_a_claim_holds_beside_it(self, engine: Engine) -> None:
        await limit(engine, concurrency=2)
        await put(engine, *(new(n) for n in range(6)))
        assert len(await take(engine, 9, room={"default": 1})) == 1
        assert len(await take(engine, 9, room={"default": 9})) == 1

    async def test_it_can_be_changed_while_jobs_run(self, engine: Engine) -> None:
        await put(engine, *(new(n) for n in range(9)))
        assert len(await take(engine, 4)) == 4
        await limit(engine, concurrency=2)
        assert await take(engine, 9) == []
        await limit(engine, concurrency=5)
        assert len(await take(engine, 9)) == 1
        await engine.configure(QueueChange("default", limits=NO_LIMITS))
        assert len(await take(engine, 9)) == 4

    async def test_a_full_queue_has_nothing_due(self, engine: Engine) -> None:
        await limit(engine, "a", concurrency=1)
        await put(engine, new(0, queue="a"), new(1, queue="a"), new(2, queue="b", delay=7))
        assert await engine.next_due(["a"], now=NOW) == 0
        row = await take_one(engine, queues=("a",))
        assert await engine.next_due(["a"], now=NOW) is None
        assert await engine.next_due(["a", "b"], ["mail"], now=NOW) == 7
        await finish(engine, row)
        assert await engine.next_due(["a", "b"], now=NOW) == 0

    async def test_whoever_waits_for_room_is_told(self, engine: Engine) -> None:
        await limit(engine, concurrency=1)
        await put(engine, new(0), new(1))
        row = await take_one(engine)
        async with engine.listen((Topic.QUEUE,)) as listener:
            await finish(engine, row)
            assert Signal(Topic.QUEUE, "default") in await listener.wait(10)

    async def test_a_lapsed_job_of_an_unknown_task_does_not_hold_the_queue(
        self, engine: Engine
    ) -> None:
        await limit(engine, concurrency=1)
        await put(engine, new(0, task="gone"), new(1))
        lost = await take_one(engine)
        assert await take(engine, 9, now=NOW + LEASE - 1, tasks=("mail",), owner=OTHER) == []
        rows = await take(engine, 9, now=NOW + LEASE, tasks=("mail",), owner=OTHER)
        assert ids(rows) == numbered(1)
        back = await stored(engine, 0)
        assert (back.state, back.lapses, back.owner) == (State.PENDING, 1, None)
        assert back.token > lost.token

    async def test_a_lapsed_job_that_is_taken_over_keeps_its_slot(self, engine: Engine) -> None:
        await limit(engine, concurrency=1)
        await put(engine, new(0), new(1))
        await take_one(engine)
        assert ids(await take(engine, 9, now=NOW + LEASE, owner=OTHER)) == numbered(0)
