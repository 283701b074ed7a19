"""Presence: workers say that they are there; recovery never asks."""

from __future__ import annotations

import msgspec

from tenure.core.durations import SECOND
from tenure.core.fleet import WorkerInfo
from tenure.core.states import State
from tenure.engines.protocol import Engine, Facet, Prunable
from tenure.testing.conformance.kit import (
    LEASE,
    NOW,
    OTHER,
    OWNER,
    Conformance,
    finish,
    finished,
    ids,
    numbered,
    put,
    running,
    stored,
    take,
    take_one,
)
from tenure.testing.conformance.kit import new as new_job

TTL = 10 * SECOND
WORKER = WorkerInfo(
    id=OWNER,
    queues=("a", "ö b"),
    tasks=("x", "y.z"),
    concurrency=5,
    running=2,
    started_at=NOW - 99,
)


def worker(name: str, **fields: object) -> WorkerInfo:
    return msgspec.structs.replace(WORKER, id=name, **fields)


class TestPresence(Conformance):
    """`announce(worker, ttl)`, `workers()`"""

    facet = Facet.QUERY

    async def test_nobody_is_there_at_first(self, engine: Engine) -> None:
        assert await engine.workers(now=NOW) == []

    async def test_what_was_said_is_told(self, engine: Engine) -> None:
        await engine.announce(WORKER, TTL, now=NOW)
        assert await engine.workers(now=NOW + 1) == [worker(OWNER, seen_at=NOW)]

    async def test_the_time_is_the_stores(self, engine: Engine) -> None:
        await engine.announce(worker(OWNER, seen_at=5), TTL, now=NOW)
        (seen,) = await engine.workers(now=NOW)
        assert (seen.seen_at, seen.started_at) == (NOW, NOW - 99)

    async def test_a_word_holds_for_its_time(self, engine: Engine) -> None:
        await engine.announce(WORKER, TTL, now=NOW)
        assert len(await engine.workers(now=NOW + TTL - 1)) == 1
        assert await engine.workers(now=NOW + TTL) == []

    async def test_a_new_word_replaces_the_old_one(self, engine: Engine) -> None:
        await engine.announce(WORKER, TTL, now=NOW)
        await engine.announce(worker(OWNER, running=4, queues=()), TTL, now=NOW + 5)
        wanted = [worker(OWNER, running=4, queues=(), seen_at=NOW + 5)]
        assert await engine.workers(now=NOW + TTL + 4) == wanted
        await engine.announce(WORKER, 1, now=NOW + 6)
        assert await engine.workers(now=NOW + 7) == []

    async def test_who_left_is_gone_at_once(self, engine: Engine) -> None:
        await engine.announce(WORKER, TTL, now=NOW)
        await engine.announce(worker(OTHER), TTL, now=NOW)
        await engine.announce(WORKER, 0, now=NOW)
        assert [w.id for w in await engine.workers(now=NOW)] == [OTHER]
        await engine.announce(worker("never there"), 0, now=NOW)
        assert [w.id for w in await engine.workers(now=NOW)] == [OTHER]

    async def test_workers_are_sorted(self, engine: Engine) -> None:
        for name in ("w2", "w10", "w1", "W3"):
            await engine.announce(worker(name), TTL, now=NOW)
        assert [w.id for w in await engine.workers(now=NOW)] == ["W3", "w1", "w10", "w2"]

    async def test_every_handle_sees_them(self, engine: Engine) -> None:
        async with engine.side() as side:
            await side.announce(WORKER, TTL, now=NOW)
            assert len(await engine.workers(now=NOW)) == 1

    async def test_presence_does_not_keep_a_lapsed_job(self, engine: Engine) -> None:
        """B006: whoever holds a lease holds it by the lease, however lively its worker is."""
        await engine.announce(WORKER, 99 * LEASE, now=NOW)
        await running(engine, 1)
        await put(engine, new_job(2))
        await take_one(engine)
        (row,) = await take(engine, 1, now=NOW + LEASE, owner=OTHER)
        assert (row.lapses, row.owner) == (1, OTHER)
        assert len(await engine.sweep(9, now=NOW + LEASE)) == 1

    async def test_absence_does_not_end_a_lease(self, engine: Engine) -> None:
        """B005, B124: workers come and go, the job is recovered when its own lease ran out."""
        row = await running(engine)
        for ttl in (TTL, 0, 1):
            await engine.announce(WORKER, ttl, now=NOW)
            assert await engine.sweep(9, now=NOW + 5) == []
        await engine.prune(Prunable.JOBS, NOW + 5)
        assert await take(engine, 9, now=NOW + 5, owner=OTHER) == []
        assert await stored(engine, 1) == row
        assert (await finish(engine, row, now=NOW + 5)).state is State.COMPLETED

    async def test_recovery_works_for_workers_nobody_knew(self, engine: Engine) -> None:
        await running(engine)
        assert ids(await take(engine, 9, now=NOW + LEASE, owner=OTHER)) == numbered(1)
        assert await engine.workers(now=NOW + LEASE) == []
        await finished(engine, 2)
