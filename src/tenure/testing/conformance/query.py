"""Reading: jobs by id and by filter, the depth of queues, and when the next job is due."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.durations import SECOND
from tenure.core.outcomes import Cancelled, Errored, Snoozed
from tenure.core.query import PAGE_MAX, SCAN_MAX, Filter, Page, QueueStats
from tenure.core.states import State
from tenure.engines.protocol import Engine, Facet
from tenure.errors import ConfigurationError
from tenure.testing.conformance.kit import (
    LEASE,
    NOW,
    PROMOTE,
    Conformance,
    boom,
    finish,
    finished,
    ids,
    job_id,
    new,
    numbered,
    put,
    running,
    take,
    take_one,
)

FILTERS: dict[str, Filter] = {
    "everything": Filter(),
    "ids": Filter(ids=tuple(numbered(1, 5, 99))),
    "no such id": Filter(ids=tuple(numbered(99))),
    "a state": Filter(states=(State.RUNNING,)),
    "some states": Filter(states=(State.PENDING, State.COMPLETED)),
    "a task": Filter(tasks=("a",)),
    "some tasks": Filter(tasks=("a", "b", "never")),
    "a queue": Filter(queues=("x",)),
    "no such queue": Filter(queues=("never",)),
    "a key": Filter(keys=("k3",)),
    "some keys": Filter(keys=("k3", "k5", "never")),
    "a schedule": Filter(schedules=("nightly",)),
    "an actor": Filter(actors=("ann", "nobody")),
    "a tag": Filter(tags=("even",)),
    "some tags": Filter(tags=("even", "odd", "never")),
    "a part of a tag": Filter(tags=("eve",)),
    "an entry": Filter(metadata={"n": 4}),
    "text is no number": Filter(metadata={"n": "4"}),
    "a bool is no number": Filter(metadata={"n": 1}),
    "a number is no bool": Filter(metadata={"n": True}),
    "nothing is not nothing there": Filter(metadata={"none": None}),
    "two entries": Filter(metadata={"n": 4, 'a "key"': "x'y\\"}),
    "two entries that never meet": Filter(metadata={"n": 4, 'a "key"': "z"}),
    "an error": Filter(error="BOOM"),
    "a kind of error": Filter(error="valueerror: bo"),
    "no such error": Filter(error="bo%m"),
    "created from": Filter(created_from=NOW + 6),
    "created before": Filter(created_to=NOW + 6),
    "created within": Filter(created_from=NOW + 3, created_to=NOW + 5),
    "ended from": Filter(finished_from=NOW + 101),
    "ended before": Filter(finished_to=NOW + 101),
    "not ended before": Filter(finished_to=NOW + 101, states=(State.PENDING,)),
    "inside and outside": Filter(tags=("even",), states=(State.PENDING,), queues=("x",)),
    "inside and ids": Filter(tags=("even",), ids=tuple(numbered(1, 2, 3, 4))),
    "all at once": Filter(
        ids=tuple(numbered(*range(9))), states=(State.PENDING,), tasks=("a", "c"), queues=("x",)
    ),
}


async def _mixed(engine: Engine) -> None:
    """Twelve jobs of three tasks and two queues, in several states, no two alike inside."""
    for n in range(12):
        fields: dict[str, Any] = {
            "task": "abc"[n % 3],
            "queue": "xy"[n % 2],
            "tags": ("odd", "all") if n % 2 else ("all", "even"),
            "metadata": {"n": n if n != 1 else True, 'a "key"': "x'y\\"} if n else {},
        }
        if n % 4 == 3:
            fields |= {"unique_key": f"k{n}", "schedule": "nightly", "tick": n}
        if n == 7:
            fields |= {"actor": "ann", "metadata": {"none": None, "deep": {"n": 4}}}
        await put(engine, new(n, **fields), now=NOW + n)
    rows = await take(engine, 6, queues=("x", "y"), now=NOW + 99)
    for place, row in enumerate(rows[:4]):
        outcome = Errored(boom()) if place == 3 else None
        await finish(engine, row, outcome, now=NOW + 100 + place)


async def _walk(engine: Engine, where: Filter, limit: int) -> list[str]:
    """The ids on all pages, in the order met."""
    met: list[str] = []
    before: str | None = None
    while True:
        page = await engine.find(where, Page(limit, before))
        assert len(page) <= limit
        met += ids(page)
        if page.next is None:
            break
        before = page.next
    return met


class TestGet(Conformance):
    """`get(ids)`"""

    async def test_in_order_with_none_for_what_is_not_there(self, engine: Engine) -> None:
        one, two = await put(engine, new(1), new(2))
        rows = await engine.get(numbered(2, 9, 1, 2))
        assert rows == [two, None, one, two]

    async def test_nothing_is_no_error(self, engine: Engine) -> None:
        assert await engine.get([]) == []

    async def test_many_at_once(self, engine: Engine) -> None:
        rows = await put(engine, *(new(n) for n in range(2500)))
        assert await engine.get(ids(rows)) == rows


class TestFind(Conformance):
    """`find(Filter, Page)`"""

    facet = Facet.QUERY

    @pytest.mark.parametrize("name", FILTERS)
    async def test_a_filter_agrees_with_core(self, engine: Engine, name: str) -> None:
        await _mixed(engine)
        rows = [row for row in await engine.get(numbered(*range(11, -1, -1))) if row]
        wanted = [row for row in rows if FILTERS[name].matches(row)]
        assert await engine.find(FILTERS[name], Page()) == wanted

    @pytest.mark.parametrize("limit", [1, 2, 5, 6, 7, 100])
    async def test_pages_go_through_everything_once(self, engine: Engine, limit: int) -> None:
        await _mixed(engine)
        where, seen, before = Filter(queues=("x",)), [], None
        while rows := await engine.find(where, Page(limit, before)):
            assert len(rows) <= limit
            seen += ids(rows)
            before = rows[-1].id
        assert seen == numbered(10, 8, 6, 4, 2, 0)

    @pytest.mark.parametrize("limit", [1, 2, 6, 100])
    @pytest.mark.parametrize(
        "name", ["a queue", "a tag", "an entry", "ids", "no such queue", "inside and ids"]
    )
    async def test_going_on_from_next_meets_everything_once(
        self, engine: Engine, name: str, limit: int
    ) -> None:
        await _mixed(engine)
        rows = await engine.get(numbered(*range(11, -1, -1)))
        wanted = [row.id for row in rows if row and FILTERS[name].matches(row)]
        assert await _walk(engine, FILTERS[name], limit) == wanted

    @pytest.mark.parametrize("where", [Filter(queues=("x",)), Filter(tags=("t",))])
    async def test_a_few_among_more_than_one_call_looks_at(
        self, engine: Engine, where: Filter
    ) -> None:
        """The few are the oldest, so the first calls find nothing, and say where to go on."""
        few = [new(n, queue="x", tags=("t",)) for n in (0, 1)]
        await engine.insert([*few, *(new(n) for n in range(2, SCAN_MAX + 5))], now=NOW)
        assert await _walk(engine, where, 100) == numbered(1, 0)

    @pytest.mark.parametrize("where", [Filter(queues=("x",)), Filter(tags=("t",))])
    async def test_a_job_at_the_end_of_what_one_call_looks_at_is_met(
        self, engine: Engine, where: Filter
    ) -> None:
        """Wherever the end is: every job before and behind it is met, and once."""
        around = range(SCAN_MAX - 2, SCAN_MAX + 3)
        last = SCAN_MAX + 4
        few = {last - n for n in around}
        jobs = [new(n, queue="x", tags=("t",)) if n in few else new(n) for n in range(last + 1)]
        await engine.insert(jobs, now=NOW)
        assert await _walk(engine, where, 100) == numbered(*sorted(few, reverse=True))

    async def test_newest_first_by_id_not_by_insertion(self, engine: Engine) -> None:
        await put(engine, *(new(n) for n in (3, 1, 4, 2)))
        assert ids(await engine.find(Filter(), Page(3))) == numbered(4, 3, 2)

    async def test_before_need_not_exist_and_is_left_out(self, engine: Engine) -> None:
        await put(engine, *(new(n) for n in (1, 3, 5)))
        assert ids(await engine.find(Filter(), Page(10, job_id(4)))) == numbered(3, 1)
        assert ids(await engine.find(Filter(), Page(10, job_id(3)))) == numbered(1)
        assert await engine.find(Filter(), Page(10, job_id(1))) == []

    async def test_the_longest_page(self, engine: Engine) -> None:
        await put(engine, *(new(n) for n in range(PAGE_MAX + 1)))
        assert len(await engine.find(Filter(), Page(PAGE_MAX))) == PAGE_MAX

    @pytest.mark.parametrize("limit", [0, -1, PAGE_MAX + 1])
    async def test_a_limit_out_of_range_is_refused(self, engine: Engine, limit: int) -> None:
        with pytest.raises(ConfigurationError, match="limit"):
            await engine.find(Filter(), Page(limit))


class TestStats(Conformance):
    """`stats(queues)`"""

    facet = Facet.QUERY

    async def test_an_empty_store_has_no_queues(self, engine: Engine) -> None:
        assert await engine.stats(now=NOW) == []

    async def test_an_asked_queue_without_jobs_is_empty(self, engine: Engine) -> None:
        await put(engine, new(1, queue="b"))
        assert await engine.stats(["z", "a", "z"], now=NOW) == [QueueStats("a"), QueueStats("z")]

    async def test_every_state_is_counted(self, engine: Engine) -> None:
        await finished(engine, 1)
        for n in (2, 3):
            await finish(engine, await running(engine, n), Errored(boom()))
        await finish(engine, await running(engine, 4), Cancelled())
        await finish(engine, await running(engine, 5, expires_in=9), Snoozed(10))
        await running(engine, 6, now=NOW - 2 * LEASE)
        await running(engine, 7)
        await put(engine, new(8), now=NOW - 50)
        await put(engine, new(9), now=NOW - 20)
        await put(engine, *(new(n, delay=10) for n in (10, 11, 12)))
        assert await engine.stats(now=NOW) == [
            QueueStats(
                "default",
                pending=2,
                scheduled=3,
                running=2,
                lapsed=1,
                completed=1,
                failed=2,
                cancelled=1,
                expired=1,
                oldest_due=50,
            )
        ]

    async def test_queues_are_apart_and_sorted(self, engine: Engine) -> None:
        await put(engine, new(1, queue="b"), new(2, queue="a"), new(3, queue="c"))
        await take_one(engine, queues=("c",))
        assert await engine.stats(["c", "a"], now=NOW) == [
            QueueStats("a", pending=1, oldest_due=0),
            QueueStats("c", running=1),
        ]
        assert [s.queue for s in await engine.stats(now=NOW)] == ["a", "b", "c"]

    async def test_a_job_is_due_by_its_time_promoted_or_not(self, engine: Engine) -> None:
        await put(engine, new(1, delay=10))
        assert await engine.stats(now=NOW + 9) == [QueueStats("default", scheduled=1)]
        due = [QueueStats("default", pending=1, oldest_due=5)]
        assert await engine.stats(now=NOW + 15) == due
        await take(engine, now=NOW + 15, arms=PROMOTE)
        assert await engine.stats(now=NOW + 15) == due

    async def test_a_lease_lapses_at_the_very_instant(self, engine: Engine) -> None:
        await running(engine)
        (before,) = await engine.stats(now=NOW + LEASE - 1)
        (after,) = await engine.stats(now=NOW + LEASE)
        assert (before.running, before.lapsed, after.running, after.lapsed) == (1, 0, 1, 1)


DUES: dict[str, tuple[dict[str, Any], int | None]] = {
    "any name": ({"queues": ["default"]}, 10 * SECOND),
    "a name": ({"queues": ["default"], "tasks": ["b"]}, 20 * SECOND),
    "names": ({"queues": ["default"], "tasks": ["c", "b"]}, 20 * SECOND),
    "an unknown name": ({"queues": ["default"], "tasks": ["z"]}, None),
    "no name": ({"queues": ["default"], "tasks": []}, None),
    "another queue": ({"queues": ["other"]}, 5 * SECOND),
    "queues": ({"queues": ["default", "other"], "tasks": ["c", "a"]}, 10 * SECOND),
    "an empty queue": ({"queues": ["empty"]}, None),
    "no queue": ({"queues": []}, None),
}


class TestNextDue(Conformance):
    """`next_due(queues, tasks)`"""

    @pytest.mark.parametrize("name", DUES)
    async def test_the_earliest_of_what_is_asked_for(self, engine: Engine, name: str) -> None:
        await put(
            engine,
            new(1, task="a", delay=10 * SECOND),
            new(2, task="b", delay=20 * SECOND),
            new(3, task="c", delay=30 * SECOND),
            new(4, task="d", delay=5 * SECOND, queue="other"),
        )
        question, wanted = DUES[name]
        assert await engine.next_due(**question, now=NOW) == wanted

    async def test_it_is_relative_and_never_negative(self, engine: Engine) -> None:
        await put(engine, new(1, delay=100))
        for after, wanted in ((0, 100), (99, 1), (100, 0), (500, 0)):
            assert await engine.next_due(["default"], now=NOW + after) == wanted

    async def test_a_due_job_is_due_now(self, engine: Engine) -> None:
        await put(engine, new(1), new(2, delay=50))
        assert await engine.next_due(["default"], now=NOW + 10) == 0

    async def test_only_pending_jobs_count(self, engine: Engine) -> None:
        await finished(engine, 1)
        await running(engine, 2)
        await put(engine, new(3, delay=5))
        await engine.cancel([job_id(3)], now=NOW)
        assert await engine.next_due(["default"], now=NOW + 2 * LEASE) is None

    async def test_a_retry_counts(self, engine: Engine) -> None:
        row = await running(engine, max_attempts=2)
        await finish(engine, row, Errored(boom(), after=70))
        assert await engine.next_due(["default"], ["mail"], now=NOW) == 70
