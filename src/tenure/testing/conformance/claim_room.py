"""Bounds of single queues: the room that a claim has for each, and queues that are paused."""

from __future__ import annotations

import pytest

from tenure.core.fleet import QueueChange, QueueSettings
from tenure.core.states import State
from tenure.engines.protocol import Engine, Facet, Signal, Topic
from tenure.testing.conformance.kit import (
    DUE,
    LAPSED,
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
    running,
    stored,
    take,
    take_one,
)

AB = ("a", "b")


async def _ten(engine: Engine) -> None:
    """Jobs 0 to 9 in turns in the queues a and b."""
    await put(engine, *(new(n, queue=AB[n % 2], task=f"t{n % 3}") for n in range(10)))


class TestRoom(Conformance):
    """`claim(Claim)`, room"""

    async def test_a_queue_gives_no_more_than_there_is_room_for(self, engine: Engine) -> None:
        await _ten(engine)
        rows = await take(engine, 10, queues=AB, room={"a": 2})
        assert ids(rows) == numbered(0, 1, 2, 3, 5, 7, 9)

    async def test_order_and_limit_hold_beside_it(self, engine: Engine) -> None:
        await _ten(engine)
        assert ids(await take(engine, 4, queues=AB, room={"a": 1, "b": 9})) == numbered(0, 1, 3, 5)

    @pytest.mark.parametrize("room", [0, -1])
    async def test_no_room_is_no_job(self, engine: Engine, room: int) -> None:
        await _ten(engine)
        assert ids(await take(engine, 3, queues=AB, room={"b": room})) == numbered(0, 2, 4)
        assert await take(engine, 3, queues=("b",), room={"b": room}) == []

    async def test_room_of_other_queues_means_nothing(self, engine: Engine) -> None:
        await _ten(engine)
        assert ids(await take(engine, 3, queues=("a",), room={"b": 0, "c": 5})) == numbered(0, 2, 4)

    async def test_it_bounds_known_names_alone_too(self, engine: Engine) -> None:
        await _ten(engine)
        rows = await take(engine, 10, queues=AB, tasks=("t0", "t1"), room={"a": 1, "b": 2})
        assert ids(rows) == numbered(0, 1, 3)

    async def test_it_bounds_named_jobs_too(self, engine: Engine) -> None:
        await _ten(engine)
        rows = await take(engine, 10, queues=AB, room={"a": 2}, ids=tuple(numbered(8, 6, 4, 1)))
        assert ids(rows) == numbered(1, 4, 6)

    async def test_lapsed_and_due_share_it(self, engine: Engine) -> None:
        await _ten(engine)
        await take(engine, 4, queues=AB, now=NOW)
        rows = await take(engine, 10, queues=AB, now=NOW + LEASE, owner=OTHER, room={"a": 3})
        assert ids(rows) == numbered(0, 1, 2, 3, 4, 5, 7, 9)

    async def test_it_bounds_lapsed_jobs(self, engine: Engine) -> None:
        await _ten(engine)
        await take(engine, 10, queues=AB)
        rows = await take(engine, 10, queues=AB, now=NOW + LEASE, arms=LAPSED, room={"b": 1})
        assert ids(rows) == numbered(0, 1, 2, 4, 6, 8)

    async def test_what_did_not_fit_is_claimed_later(self, engine: Engine) -> None:
        await _ten(engine)
        await take(engine, 10, queues=AB, room={"a": 0, "b": 0})
        assert ids(await take(engine, 10, queues=AB)) == numbered(*range(10))

    async def test_an_overdue_job_takes_no_room(self, engine: Engine) -> None:
        await put(engine, new(1, expires_in=5), new(2), new(3))
        assert ids(await take(engine, 9, now=NOW + 5, arms=DUE, room={"default": 1})) == [job_id(2)]


class TestPaused(Conformance):
    """`configure(QueueChange)`"""

    facet = Facet.OPERATE

    async def test_a_paused_queue_gives_nothing_until_it_goes_on(self, engine: Engine) -> None:
        await _ten(engine)
        await engine.configure(QueueChange("a", paused=True))
        assert ids(await take(engine, 2, queues=AB)) == numbered(1, 3)
        assert await take(engine, 10, queues=("a",)) == []
        assert await take(engine, 10, queues=("a",), ids=(job_id(0),)) == []
        await engine.configure(QueueChange("a", paused=False))
        assert ids(await take(engine, 2, queues=AB)) == numbered(0, 2)

    async def test_its_lapsed_jobs_wait_too(self, engine: Engine) -> None:
        await running(engine)
        await engine.configure(QueueChange("default", paused=True))
        assert await take(engine, 10, now=NOW + LEASE, owner=OTHER) == []
        await engine.configure(QueueChange("default", paused=False))
        assert ids(await take(engine, 10, now=NOW + LEASE, owner=OTHER)) == numbered(1)

    async def test_its_jobs_are_promoted_and_expire(self, engine: Engine) -> None:
        await put(engine, new(1, delay=5), new(2, expires_in=5))
        await engine.configure(QueueChange("default", paused=True))
        assert await take(engine, 10, now=NOW + 5) == []
        assert (await stored(engine, 1)).ready
        assert (await stored(engine, 2)).state is State.EXPIRED

    async def test_its_running_jobs_go_on(self, engine: Engine) -> None:
        row = await running(engine)
        await engine.configure(QueueChange("default", paused=True))
        again = await take_one(engine, held=())
        assert again.token == row.token
        assert (await finish(engine, again)).state is State.COMPLETED

    async def test_its_lapsed_jobs_are_swept(self, engine: Engine) -> None:
        await running(engine)
        await engine.configure(QueueChange("default", paused=True))
        swept = await engine.sweep(10, now=NOW + LEASE)
        assert [job.id for job in swept] == numbered(1)

    async def test_nothing_becomes_due_in_it(self, engine: Engine) -> None:
        await put(engine, new(1, queue="a"), new(2, queue="b", delay=7), new(3, queue="a", delay=5))
        await engine.configure(QueueChange("a", paused=True))
        assert await engine.next_due(["a"], now=NOW) is None
        assert await engine.next_due(["a", "b"], ["mail"], now=NOW) == 7
        await engine.configure(QueueChange("a", paused=False))
        assert await engine.next_due(["a", "b"], now=NOW) == 0

    async def test_every_handle_keeps_to_it(self, engine: Engine) -> None:
        await _ten(engine)
        async with engine.side() as side:
            await side.configure(QueueChange("a", paused=True))
            assert await take(engine, 10, queues=("a",)) == []
            await engine.configure(QueueChange("a", paused=False))
            assert ids(await take(side, 1, queues=("a",))) == numbered(0)

    async def test_idle_workers_are_told(self, engine: Engine) -> None:
        async with engine.listen((Topic.QUEUE,)) as listener:
            await engine.configure(QueueChange("b", paused=False))
            assert Signal(Topic.QUEUE, "b") in await listener.wait(10)

    async def test_the_settings_can_be_read(self, engine: Engine) -> None:
        assert (await engine.inspect(now=NOW)).queues == ()
        await engine.configure(QueueChange("b", paused=True))
        await engine.configure(QueueChange("a", paused=True))
        await engine.configure(QueueChange("a", paused=False))
        wanted = (QueueSettings("a", paused=False), QueueSettings("b", paused=True))
        assert (await engine.inspect(now=NOW)).queues == wanted
