"""Housekeeping: what is old is removed, and what is wrong is found."""

from __future__ import annotations

import pytest

from tenure.core.durations import HOUR
from tenure.core.fleet import Flaw
from tenure.core.lease import Lost
from tenure.core.outcomes import Completed, Verdict
from tenure.core.query import PRUNE_MAX, Filter, Page
from tenure.core.rules import decide
from tenure.core.states import State
from tenure.engines.protocol import Engine, Facet, Prunable
from tenure.errors import ConfigurationError
from tenure.testing.conformance.cancel import ENDS
from tenure.testing.conformance.kit import (
    LEASE,
    NOW,
    OTHER,
    Conformance,
    beat,
    finish,
    finished,
    ids,
    job_id,
    keyed,
    new,
    numbered,
    put,
    running,
    snapshot,
    stored,
    take,
    take_one,
)

JOBS = Prunable.JOBS


async def _left(engine: Engine) -> list[str]:
    return sorted(ids(await engine.find(Filter(), Page())))


class TestPrune(Conformance):
    """`prune(JOBS, before)`"""

    facet = Facet.OPERATE

    @pytest.mark.parametrize("end", ENDS)
    async def test_every_final_state_is_pruned(self, engine: Engine, end: State) -> None:
        await finish(engine, await running(engine, expires_in=50), ENDS[end])
        assert (await stored(engine, 1)).state is end
        assert await engine.prune(JOBS, NOW + 1) == 1
        assert await engine.get(numbered(1)) == [None]
        assert await engine.prune(JOBS, NOW + 1) == 0

    async def test_what_lives_stays_however_old(self, engine: Engine) -> None:
        await running(engine, 1)
        await put(engine, new(2), new(3, delay=50), new(4, expires_in=5))
        before = await snapshot(engine, [1, 2, 3, 4])
        assert await engine.prune(JOBS, NOW + 10**15) == 0
        assert await snapshot(engine, [1, 2, 3, 4]) == before

    async def test_only_what_ended_before_the_instant(self, engine: Engine) -> None:
        for n in (1, 2, 3):
            await finished(engine, n, now=NOW + n)
        assert await engine.prune(JOBS, NOW + 2) == 1
        assert await _left(engine) == numbered(2, 3)

    async def test_the_age_is_counted_from_the_end(self, engine: Engine) -> None:
        row = await running(engine, 1, now=NOW - HOUR)
        await finish(engine, row, now=NOW)
        await finished(engine, 2, now=NOW - 1)
        assert await engine.prune(JOBS, NOW) == 1
        assert await _left(engine) == numbered(1)

    async def test_the_oldest_are_removed_first_up_to_the_limit(self, engine: Engine) -> None:
        for n, end in ((1, 5), (2, 3), (3, 4), (5, 3), (4, 3)):
            await finished(engine, n, now=NOW + end)
        assert await engine.prune(JOBS, NOW + 9, limit=2) == 2
        assert await _left(engine) == numbered(1, 3, 5)
        assert await engine.prune(JOBS, NOW + 9, limit=2) == 2
        assert await _left(engine) == numbered(1)
        assert await engine.prune(JOBS, NOW + 9, limit=2) == 1

    async def test_a_filter_restricts_it(self, engine: Engine) -> None:
        for n in range(8):
            await finished(engine, n, task="ab"[n % 2], queue="xy"[n // 4])
        await finish(engine, await running(engine, 8, task="a", queue="x"), ENDS[State.FAILED])
        where = Filter(tasks=("a",), queues=("x",), states=(State.COMPLETED, State.PENDING))
        assert await engine.prune(JOBS, NOW + 1, where=where) == 2
        assert await _left(engine) == numbered(1, 3, 4, 5, 6, 7, 8)
        where = Filter(ids=tuple(numbered(1, 3, 99)))
        assert await engine.prune(JOBS, NOW + 1, where=where, limit=1) == 1
        assert await _left(engine) == numbered(3, 4, 5, 6, 7, 8)

    @pytest.mark.parametrize("kind", Prunable)
    @pytest.mark.parametrize("limit", [0, -1, PRUNE_MAX + 1])
    async def test_a_limit_out_of_range_is_refused(
        self, engine: Engine, kind: Prunable, limit: int
    ) -> None:
        with pytest.raises(ConfigurationError, match="limit"):
            await engine.prune(kind, NOW, limit=limit)

    async def test_a_late_holder_is_told_that_it_is_gone(self, engine: Engine) -> None:
        row = await running(engine)
        await engine.cancel([row.id], force=True, now=NOW)
        await engine.prune(JOBS, NOW + 1)
        (answer,) = await engine.settle([decide(row, Completed(), now=NOW)], now=NOW)
        assert (answer.verdict, answer.state) == (Verdict.LOST, None)
        assert await engine.extend([beat(row)], now=NOW) == [Lost("gone")]
        assert (await engine.cancel([row.id], now=NOW)).not_found == (row.id,)
        assert (await engine.requeue([row.id], now=NOW)).not_found == (row.id,)

    async def test_an_id_that_was_pruned_can_be_inserted_anew(self, engine: Engine) -> None:
        row = await finished(engine)
        await engine.prune(JOBS, NOW + 1)
        await put(engine, new(1), now=NOW + 5)
        assert (await take_one(engine, now=NOW + 5)).token > row.token

    async def test_no_trace_is_left(self, engine: Engine) -> None:
        """B096: what is gone is in no index: not claimed, not swept, not counted, no twin."""
        for n in range(20):
            await finished(engine, n, unique_key=f"k{n}", schedule="s", tick=n)
        await engine.prune(JOBS, NOW + 1)
        assert await engine.stats(now=NOW) == []
        assert await take(engine, 100, now=NOW + 9 * LEASE) == []
        assert await engine.sweep(100, now=NOW + 9 * LEASE) == []
        assert await engine.next_due(["default"], now=NOW) is None
        await put(engine, *(keyed(n, f"k{n}", schedule="s", tick=n) for n in range(20)))

    async def test_pruning_and_requeueing_at_once_lose_nothing(self, engine: Engine) -> None:
        for n in range(10):
            await finished(engine, n)
        answer = await engine.requeue(numbered(*range(5)), now=NOW)
        assert await engine.prune(JOBS, NOW + 1) == 5
        assert await _left(engine) == list(answer.requeued)


class TestInspect(Conformance):
    """`inspect()`"""

    facet = Facet.OPERATE

    async def test_an_empty_store_has_no_problem(self, engine: Engine) -> None:
        found = await engine.inspect(now=NOW)
        assert [finding for finding in found.findings if finding.problem] == []

    async def test_what_the_operations_do_is_no_problem(self, engine: Engine) -> None:
        await put(engine, new(1), new(2, delay=50), new(3, expires_in=5))
        await finished(engine, 4)
        await running(engine, 5, max_attempts=2)
        await running(engine, 6)
        await engine.cancel(numbered(2, 5, 6), now=NOW)
        await engine.cancel(numbered(6), force=True, now=NOW)
        await engine.sweep(10, now=NOW + LEASE)
        await engine.requeue(numbered(4, 6), now=NOW + LEASE)
        await take(engine, 2, now=NOW + LEASE, owner=OTHER)
        for now in (NOW - HOUR // 120, NOW, NOW + 99 * LEASE):
            found = await engine.inspect(now=now)
            assert [finding for finding in found.findings if finding.problem] == []

    async def test_jobs_that_nobody_takes_over_are_pointed_out(self, engine: Engine) -> None:
        await running(engine, 1)
        for now, left in ((NOW + LEASE, False), (NOW + LEASE + HOUR, True)):
            found = await engine.inspect(now=now)
            assert (Flaw.LEFT in [finding.code for finding in found.findings]) is left
        await engine.sweep(10, now=NOW + LEASE + HOUR)
        found = await engine.inspect(now=NOW + LEASE + HOUR)
        assert Flaw.LEFT not in [finding.code for finding in found.findings]

    async def test_the_tasks_of_living_jobs_are_counted(self, engine: Engine) -> None:
        await finished(engine, 1, task="done")
        await running(engine, 2, task="runs")
        await put(engine, new(3), new(4, task="x"), new(5, task="x", delay=5))
        assert (await engine.inspect(now=NOW)).tasks == {"runs": 1, new(3).task: 1, "x": 2}
        await engine.cancel(numbered(2, 3, 4), force=True, now=NOW)
        assert (await engine.inspect(now=NOW)).tasks == {"x": 1}

    async def test_a_job_that_is_ready_long_before_its_time_is_found(self, engine: Engine) -> None:
        await put(engine, new(1), new(2, delay=5), new(3), now=NOW)
        await take_one(engine)
        found = await engine.inspect(now=NOW - HOUR)
        (finding,) = (finding for finding in found.findings if finding.problem)
        assert finding.code == Flaw.TOO_EARLY
        assert job_id(3) in finding.text
        assert job_id(2) not in finding.text
