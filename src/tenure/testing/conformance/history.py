"""History: events are kept in order, and whoever goes on from a cursor sees each once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.core.event import EventFilter, NewEvent, StoredEvent
from tenure.core.query import PAGE_MAX
from tenure.engines.protocol import Engine, Facet, Prunable
from tenure.errors import ConfigurationError, PayloadError
from tenure.testing.conformance.insert import STRANGE
from tenure.testing.conformance.kit import NOW, Conformance, job_id, numbered

ALL = EventFilter()
FULL = NewEvent(
    name="job.completed",
    job_id=job_id(1),
    task="reports.build",
    queue="slow",
    facts={"n": 1, "list": [1.5, None, True], "text": STRANGE, "": {}},
)


def event(n: int, **fields: Any) -> NewEvent:
    return NewEvent(**{"name": f"e{n}", **fields})


async def names(engine: Engine, after: str | None = None, limit: int = 100) -> list[str]:
    return [found.name for found in await engine.read(ALL, after, limit)]


async def _mixed(engine: Engine) -> list[StoredEvent]:
    """Twelve events of several names, jobs, tasks and queues."""
    await engine.append(
        [
            NewEvent(
                name=("job.started", "job.failed", "worker.left")[n % 3],
                job_id=job_id(n % 4) if n % 3 < 2 else None,
                task="ab"[n % 2],
                queue="xyz"[n // 4],
            )
            for n in range(12)
        ],
        now=NOW,
    )
    return await engine.read(ALL)


FILTERS = {
    "everything": ALL,
    "a name": EventFilter(names=("job.failed",)),
    "names": EventFilter(names=("job.failed", "worker.left", "never")),
    "jobs": EventFilter(job_ids=tuple(numbered(1, 2))),
    "a task": EventFilter(tasks=("a",)),
    "queues": EventFilter(queues=("x", "z")),
    "all at once": EventFilter(names=("job.started",), tasks=("a", "b"), queues=("x",)),
    "nothing": EventFilter(names=("never",)),
}


class TestEvents(Conformance):
    """`append(events)`, `read(where, after, limit)`"""

    facet = Facet.EVENTS

    async def test_there_are_none_at_first(self, engine: Engine) -> None:
        await engine.append([], now=NOW)
        assert await engine.read(ALL) == []

    @pytest.mark.parametrize("given", [FULL, event(1), event(2, task=STRANGE, queue="")])
    async def test_what_is_kept_is_read(self, engine: Engine, given: NewEvent) -> None:
        await engine.append([given], now=NOW + 5)
        (found,) = await engine.read(ALL)
        assert found == StoredEvent(
            cursor=found.cursor,
            at=NOW + 5,
            name=given.name,
            job_id=given.job_id,
            task=given.task,
            queue=given.queue,
            facts=given.facts,
        )

    async def test_without_now_the_engine_has_a_clock(self, engine: Engine) -> None:
        await engine.append([event(1)])
        (found,) = await engine.read(ALL)
        assert found.at > NOW

    async def test_order_is_the_order_of_keeping_not_of_time(self, engine: Engine) -> None:
        await engine.append([event(3), event(1)], now=NOW)
        await engine.append([event(2)], now=NOW - 99)
        assert await names(engine) == ["e3", "e1", "e2"]

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
    async def test_pages_go_through_everything_once(self, engine: Engine, limit: int) -> None:
        for n in range(0, 14, 2):
            await engine.append([event(n), event(n + 1)], now=NOW)
        seen: list[str] = []
        after = None
        for _ in range(20):
            if not (found := await engine.read(ALL, after, limit)):
                break
            assert len(found) <= limit
            seen += [one.name for one in found]
            after = found[-1].cursor
        assert seen == [f"e{n}" for n in range(14)]

    @pytest.mark.parametrize("name", FILTERS)
    async def test_a_filter_agrees_with_core(self, engine: Engine, name: str) -> None:
        everything = await _mixed(engine)
        where = FILTERS[name]
        wanted = [one for one in everything if where.matches(one)]
        assert await engine.read(where) == wanted
        assert await engine.read(where, limit=2) == wanted[:2]
        if wanted:
            assert await engine.read(where, wanted[0].cursor) == wanted[1:]

    async def test_a_cursor_holds_across_handles_and_filters(self, engine: Engine) -> None:
        everything = await _mixed(engine)
        async with engine.side() as side:
            assert await side.read(ALL, everything[4].cursor) == everything[5:]
            await side.append([event(1)], now=NOW)
        assert await names(engine, everything[-1].cursor) == ["e1"]

    async def test_what_was_pruned_does_not_move_a_cursor(self, engine: Engine) -> None:
        for n in range(6):
            await engine.append([event(n)], now=NOW + n)
        third = (await engine.read(ALL, limit=3))[-1]
        assert await engine.prune(Prunable.EVENTS, NOW + 5) == 5
        assert await names(engine, third.cursor) == ["e5"]
        assert await engine.prune(Prunable.EVENTS, NOW + 9) == 1
        await engine.append([event(6)], now=NOW)
        assert await names(engine, third.cursor) == ["e6"]

    async def test_the_oldest_are_pruned_first_up_to_the_limit(self, engine: Engine) -> None:
        await engine.append([event(n) for n in range(5)], now=NOW)
        await engine.append([event(5)], now=NOW + 1)
        assert await engine.prune(Prunable.EVENTS, NOW) == 0
        assert await engine.prune(Prunable.EVENTS, NOW + 1, limit=2) == 2
        assert await names(engine) == ["e2", "e3", "e4", "e5"]
        assert await engine.prune(Prunable.EVENTS, NOW + 1) == 3
        assert await names(engine) == ["e5"]

    async def test_pruning_looks_at_the_first_ones_only(self, engine: Engine) -> None:
        await engine.append([event(0)], now=NOW)
        await engine.append([event(1), event(2)], now=NOW + 9)
        await engine.append([event(3)], now=NOW)
        assert await engine.prune(Prunable.EVENTS, NOW + 1, limit=3) == 1
        assert await engine.prune(Prunable.EVENTS, NOW + 1, limit=2) == 0
        assert await names(engine) == ["e1", "e2", "e3"]
        assert await engine.prune(Prunable.EVENTS, NOW + 1, limit=3) == 1
        assert await names(engine) == ["e1", "e2"]

    async def test_pruning_jobs_leaves_events(self, engine: Engine) -> None:
        await engine.append([FULL], now=NOW)
        assert await engine.prune(Prunable.JOBS, NOW + 99) == 0
        assert await names(engine) == ["job.completed"]

    @pytest.mark.parametrize("facts", [{"x": float("nan")}, {"x": "\x00"}, {1: "x"}])
    async def test_facts_that_cannot_be_kept_keep_nothing(
        self, engine: Engine, facts: dict[Any, Any]
    ) -> None:
        with pytest.raises(PayloadError, match="facts"):
            await engine.append([event(1), event(2, facts=facts)], now=NOW)
        assert await engine.read(ALL) == []
        await engine.append([event(3)], now=NOW)
        assert await names(engine) == ["e3"]

    @pytest.mark.parametrize("limit", [0, -1, PAGE_MAX + 1])
    async def test_a_limit_out_of_range_is_refused(self, engine: Engine, limit: int) -> None:
        with pytest.raises(ConfigurationError, match="limit"):
            await engine.read(ALL, limit=limit)

    @pytest.mark.parametrize("cursor", ["", "x", "-1", "1.5", "\u0661"])
    async def test_a_cursor_of_nobody_is_refused(self, engine: Engine, cursor: str) -> None:
        await engine.append([event(1)], now=NOW)
        with pytest.raises(ConfigurationError, match="cursor"):
            await engine.read(ALL, cursor)

    async def test_many_writers_lose_nothing(self, engine: Engine) -> None:
        async with engine.side() as side:
            calls = [
                handle.append([event(2 * n), event(2 * n + 1)], now=NOW)
                for n, handle in enumerate([engine, side] * 20)
            ]
            await asyncio.gather(*calls)
        found = await engine.read(ALL, limit=PAGE_MAX)
        assert sorted(one.name for one in found) == sorted(f"e{n}" for n in range(80))
        order = [one.name for one in found]
        for n in range(40):  # a batch stays together
            assert order.index(f"e{2 * n + 1}") == order.index(f"e{2 * n}") + 1
        assert len({one.cursor for one in found}) == 80

    async def test_a_reader_that_follows_sees_each_once(self, engine: Engine) -> None:
        seen: list[str] = []

        async def follow() -> None:
            after = None
            while len(seen) < 60:
                for one in await engine.read(ALL, after, 7):
                    seen.append(one.name)
                    after = one.cursor

        async def write(handle: Engine, start: int) -> None:
            for n in range(start, start + 30):
                await handle.append([event(n)], now=NOW)

        async with engine.side() as side, asyncio.timeout(20):
            await asyncio.gather(follow(), write(engine, 0), write(side, 30))
        assert sorted(seen) == sorted(f"e{n}" for n in range(60))
