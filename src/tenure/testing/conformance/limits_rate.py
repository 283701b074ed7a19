"""Limits on how many jobs start in a time: of a queue, and of a key."""

from __future__ import annotations

from tenure.core.durations import SECOND
from tenure.core.fleet import QueueChange
from tenure.core.job import NewJob
from tenure.core.limits import NO_LIMITS, Blocked, Limits, Rate
from tenure.engines.protocol import Engine, Facet
from tenure.testing.conformance.kit import (
    LEASE,
    NOW,
    OTHER,
    Conformance,
    finish,
    ids,
    new,
    numbered,
    put,
    stored,
    take,
)

ONE = Rate(1, SECOND)
THREE = Rate(1, SECOND, burst=3)


async def limit(engine: Engine, queue: str = "default", **limits: object) -> None:
    """From now on these limits hold."""
    await engine.configure(QueueChange(queue, limits=Limits(**limits)))  # type: ignore[arg-type]


def paced(n: int, key: str | None = "r", **fields: object) -> NewJob:
    """The job number `n` with a rate key."""
    return new(n, rate_key=key, **fields)


async def blocked(engine: Engine, *numbers: int) -> list[str | None]:
    return [(await stored(engine, n)).blocked for n in numbers]


class TestRateOfQueues(Conformance):
    """`Limits.rate`"""

    facet = Facet.OPERATE

    async def test_one_starts_at_a_time_an_interval_apart(self, engine: Engine) -> None:
        await limit(engine, rate=Rate(4, SECOND))
        await put(engine, *(new(n) for n in range(9)))
        assert ids(await take(engine, 9)) == numbered(0)
        assert await take(engine, 9, now=NOW + SECOND // 4 - 1) == []
        assert ids(await take(engine, 9, now=NOW + SECOND // 4)) == numbered(1)
        assert ids(await take(engine, 9, now=NOW + 2 * SECOND, owner=OTHER)) == numbered(2)

    async def test_a_burst_starts_at_once_and_comes_back_with_time(self, engine: Engine) -> None:
        await limit(engine, rate=THREE)
        await put(engine, *(new(n) for n in range(20)))
        assert len(await take(engine, 2)) == 2
        assert len(await take(engine, 9)) == 1
        assert await take(engine, 9, now=NOW + SECOND - 1) == []
        assert len(await take(engine, 9, now=NOW + 2 * SECOND)) == 2
        assert len(await take(engine, 9, now=NOW + 20 * SECOND)) == 3

    async def test_nobody_is_blocked_by_it_and_other_queues_go_on(self, engine: Engine) -> None:
        await limit(engine, "a", rate=ONE)
        await put(engine, *(new(n, queue="ab"[n % 2]) for n in range(6)))
        assert ids(await take(engine, 9, queues=("a", "b"))) == numbered(0, 1, 3, 5)
        assert await blocked(engine, 2, 4) == [None, None]

    async def test_it_says_when_the_next_one_may_start(self, engine: Engine) -> None:
        await limit(engine, rate=Rate(1, 10))
        await put(engine, new(0), new(1), new(2, delay=3), new(3, queue="b", delay=8))
        await take(engine, 9)
        assert await engine.next_due(["default"], now=NOW) == 10
        assert await engine.next_due(["default"], ["mail"], now=NOW + 4) == 6
        assert await engine.next_due(["default", "b"], now=NOW) == 8
        assert await engine.next_due(["default"], now=NOW + 10) == 0

    async def test_what_ended_gives_no_start_back(self, engine: Engine) -> None:
        await limit(engine, rate=ONE)
        await put(engine, new(0), new(1))
        for row in await take(engine, 9):
            await finish(engine, row)
        assert await take(engine, 9) == []

    async def test_a_job_that_is_taken_over_needs_no_start(self, engine: Engine) -> None:
        await limit(engine, rate=Rate(1, 10 * LEASE))
        await put(engine, new(0))
        await take(engine, 9)
        assert ids(await take(engine, 9, now=NOW + LEASE, owner=OTHER)) == numbered(0)

    async def test_it_can_be_changed_while_jobs_wait(self, engine: Engine) -> None:
        await limit(engine, rate=Rate(1, 3600 * SECOND))
        await put(engine, *(new(n) for n in range(9)))
        await take(engine, 9)
        assert await take(engine, 9, now=NOW + SECOND) == []
        await limit(engine, rate=ONE)
        assert len(await take(engine, 9, now=NOW + SECOND)) == 1
        assert await take(engine, 9, now=NOW + SECOND) == []
        await engine.configure(QueueChange("default", limits=NO_LIMITS))
        assert len(await take(engine, 9, now=NOW + SECOND)) == 7

    async def test_a_clock_that_is_set_back_holds_nobody_for_long(self, engine: Engine) -> None:
        await limit(engine, rate=THREE)
        await put(engine, *(new(n) for n in range(9)), now=NOW - 4000 * SECOND)
        assert len(await take(engine, 9, now=NOW)) == 3
        little, early = NOW - SECOND, NOW - 3600 * SECOND
        assert await take(engine, 9, now=little) == []
        assert await engine.next_due(["default"], now=little) == 2 * SECOND
        assert len(await take(engine, 9, now=early)) == 3
        assert await engine.next_due(["default"], now=early) == SECOND

    async def test_it_holds_beside_a_limit_of_concurrency(self, engine: Engine) -> None:
        await limit(engine, rate=THREE, concurrency=2)
        await put(engine, *(new(n) for n in range(9)))
        rows = await take(engine, 9)
        assert len(rows) == 2
        for row in rows:
            await finish(engine, row)
        assert len(await take(engine, 9)) == 1


class TestRateOfKeys(Conformance):
    """`Limits.key_rate`"""

    facet = Facet.OPERATE

    async def test_each_key_has_its_own_rate(self, engine: Engine) -> None:
        await limit(engine, key_rate=ONE)
        await put(engine, *(paced(n, "rs"[n % 2]) for n in range(6)), paced(6, None))
        assert ids(await take(engine, 9)) == numbered(0, 1, 6)
        assert await take(engine, 9, now=NOW + SECOND - 1) == []
        assert await blocked(engine, 2, 3) == [Blocked.RATE, Blocked.RATE]
        assert ids(await take(engine, 9, now=NOW + SECOND)) == numbered(2, 3)

    async def test_blocked_ones_are_looked_at_when_it_is_time(self, engine: Engine) -> None:
        await limit(engine, key_rate=Rate(1, 10))
        await put(engine, paced(0), paced(1), new(2, delay=25))
        await take(engine, 9)
        assert await engine.next_due(["default"], now=NOW) == 10
        assert await engine.next_due(["default"], ["mail"], now=NOW + 4) == 6
        assert ids(await take(engine, 9, now=NOW + 10)) == numbered(1)
        assert await engine.next_due(["default"], now=NOW + 10) == 15

    async def test_the_first_in_order_starts_next(self, engine: Engine) -> None:
        await limit(engine, key_rate=ONE)
        await put(engine, paced(0, priority=5), paced(1), paced(2), paced(3, priority=1))
        await take(engine, 9)
        await put(engine, paced(4, priority=2), now=NOW + 1)
        taken = [(await take(engine, 9, now=NOW + second * SECOND))[0].id for second in range(1, 5)]
        assert taken == numbered(4, 3, 1, 2)

    async def test_a_burst_comes_back_with_time(self, engine: Engine) -> None:
        await limit(engine, key_rate=THREE)
        await put(engine, *(paced(n) for n in range(12)))
        assert len(await take(engine, 9)) == 3
        assert len(await take(engine, 9, now=NOW + 2 * SECOND)) == 2
        assert len(await take(engine, 9, now=NOW + 20 * SECOND)) == 3
        assert len(await take(engine, 9, now=NOW + 21 * SECOND)) == 1

    async def test_all_of_them_run_in_their_time(self, engine: Engine) -> None:
        """B097: a limit drops no job, however many wait for it."""
        await limit(engine, key_rate=Rate(2, 10 * SECOND, burst=2), concurrency=9)
        await put(engine, *(paced(n) for n in range(40)))
        done = []
        for window in range(21):
            rows = await take(engine, 9, now=NOW + window * 10 * SECOND)
            assert len(rows) <= 2
            for row in rows:
                await finish(engine, row, now=NOW + window * 10 * SECOND)
            done += rows
        assert ids(done) == numbered(*range(40))

    async def test_arrivals_below_the_rate_do_not_wait_after_a_burst(self, engine: Engine) -> None:
        """B098: the delay is back at none once the burst is served."""
        await limit(engine, key_rate=Rate(10, SECOND))
        await put(engine, *(paced(n) for n in range(20)))
        now = NOW
        for _ in range(20):
            assert len(await take(engine, 9, now=now)) == 1
            now += SECOND // 10
        for n in range(20, 40):
            now += SECOND // 2
            await put(engine, paced(n), now=now)
            assert ids(await take(engine, 9, now=now)) == numbered(n)

    async def test_a_job_that_leaves_makes_no_gap(self, engine: Engine) -> None:
        await limit(engine, key_rate=ONE)
        await put(engine, paced(0), paced(1), paced(2, expires_in=5), paced(3))
        await take(engine, 9)
        await engine.cancel(numbered(1), now=NOW)
        await engine.sweep(9, now=NOW + 5)
        assert ids(await take(engine, 9, now=NOW + SECOND)) == numbered(3)

    async def test_a_task_that_nobody_knows_keeps_no_other_from_starting(
        self, engine: Engine
    ) -> None:
        await limit(engine, key_rate=ONE)
        await put(engine, paced(0), paced(1, task="unknown"), paced(2))
        await take(engine, 9)
        assert ids(await take(engine, 9, tasks=("mail",), now=NOW + SECOND)) == numbered(2)

    async def test_both_keys_of_a_job_count(self, engine: Engine) -> None:
        await limit(engine, key_rate=ONE, key_concurrency=1)
        both = {"concurrency_key": "c"}
        await put(engine, paced(0, **both), paced(1, "s", **both), paced(2, "r"), paced(3, **both))
        (row,) = await take(engine, 9)
        assert await blocked(engine, 1, 2, 3) == ["concurrency", "rate", "concurrency"]
        await finish(engine, row)
        assert ids(await take(engine, 9)) == numbered(1)
        assert ids(await take(engine, 9, now=NOW + SECOND)) == numbered(2)

    async def test_who_waits_for_the_rate_leaves_the_slot_to_others(self, engine: Engine) -> None:
        await limit(engine, key_rate=ONE, key_concurrency=1)
        both = {"concurrency_key": "c"}
        await put(engine, paced(0, **both), paced(1, **both), paced(2, "s", **both))
        (row,) = await take(engine, 9)
        await take(engine, 9)
        await finish(engine, row)
        rows = []
        for _ in range(2):  # the first claim finds out that job 1 has to wait longer
            rows += await take(engine, 9)
        assert ids(rows) == numbered(2)

    async def test_a_rate_that_is_removed_lets_them_go(self, engine: Engine) -> None:
        await limit(engine, key_rate=Rate(1, 3600 * SECOND))
        await put(engine, *(paced(n) for n in range(4)))
        await take(engine, 9)
        await limit(engine)
        assert ids(await take(engine, 9)) == numbered(1, 2, 3)
        assert await engine.next_due(["default"], now=NOW) is None

    async def test_a_clock_that_is_set_back_holds_nobody_for_long(self, engine: Engine) -> None:
        await limit(engine, key_rate=ONE)
        await put(engine, *(paced(n) for n in range(3)), now=NOW - 4000 * SECOND)
        await take(engine, 9)
        early = NOW - 3600 * SECOND
        assert ids(await take(engine, 9, now=early)) == numbered(1)
        await take(engine, 9, now=early)
        assert await engine.next_due(["default"], now=early) == SECOND
        assert ids(await take(engine, 9, now=early + SECOND)) == numbered(2)

    async def test_a_paused_queue_starts_nothing(self, engine: Engine) -> None:
        await limit(engine, key_rate=ONE)
        await put(engine, paced(0), paced(1))
        await take(engine, 9)
        await engine.configure(QueueChange("default", paused=True))
        assert await take(engine, 9, now=NOW + SECOND) == []
        await engine.configure(QueueChange("default", paused=False))
        assert ids(await take(engine, 9, now=NOW + SECOND)) == numbered(1)
