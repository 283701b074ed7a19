"""The arms of a claim that move jobs without taking them: promote and expired."""

from __future__ import annotations

from tenure.core.durations import SECOND
from tenure.core.job import RANK_STEP
from tenure.core.states import State
from tenure.engines.protocol import ALL_ARMS, Arm, Engine
from tenure.testing.conformance.kit import (
    DUE,
    EXPIRED,
    LAPSED,
    LEASE,
    NOW,
    OTHER,
    PROMOTE,
    Conformance,
    changed,
    ids,
    job_id,
    new,
    numbered,
    put,
    running,
    snapshot,
    stored,
    take,
)


class TestPromote(Conformance):
    """`claim(Claim)`, promote arm"""

    async def test_what_a_promotion_writes(self, engine: Engine) -> None:
        (row,) = await put(engine, new(1, delay=10, priority=3))
        assert await take(engine, now=NOW + 20, arms=PROMOTE) == []
        assert await stored(engine, 1) == changed(row, ready=True, queued_at=NOW + 10)

    async def test_only_due_jobs_are_promoted(self, engine: Engine) -> None:
        await put(engine, new(1, delay=10), new(2, delay=11))
        await take(engine, 10, now=NOW + 10, arms=PROMOTE)
        rows = await snapshot(engine, [1, 2])
        assert [row and row.ready for row in rows] == [True, False]

    async def test_the_earliest_are_promoted_up_to_the_limit(self, engine: Engine) -> None:
        await put(engine, *(new(n, delay=100 - n) for n in range(5)), new(7, delay=97))
        await take(engine, 3, now=NOW + 200, arms=PROMOTE)
        rows = await snapshot(engine, [0, 1, 2, 3, 4, 7])
        assert [row and row.ready for row in rows] == [False] * 3 + [True] * 3

    async def test_jobs_of_any_name_are_promoted(self, engine: Engine) -> None:
        await put(engine, new(1, delay=10, task="unknown"))
        await take(engine, 1, now=NOW + 10, arms=PROMOTE, tasks=("mail",))
        row = await stored(engine, 1)
        assert (row.ready, row.state) == (True, State.PENDING)

    async def test_other_queues_are_not_promoted(self, engine: Engine) -> None:
        await put(engine, new(1, delay=10, queue="other"))
        before = await snapshot(engine, [1])
        await take(engine, 10, now=NOW + 10, arms=PROMOTE)
        assert await snapshot(engine, [1]) == before

    async def test_without_the_arm_a_due_job_waits(self, engine: Engine) -> None:
        await put(engine, new(1, delay=10))
        before = await snapshot(engine, [1])
        assert await take(engine, 10, now=NOW + 20, arms=ALL_ARMS - PROMOTE) == []
        assert await snapshot(engine, [1]) == before

    async def test_a_promoted_job_counts_from_its_own_time(self, engine: Engine) -> None:
        await put(engine, new(1, delay=10))
        await put(engine, new(2), now=NOW + 5)
        await put(engine, new(3), now=NOW + 15)
        assert ids(await take(engine, 10, now=NOW + 60)) == numbered(2, 1, 3)

    async def test_a_promoted_job_keeps_its_priority(self, engine: Engine) -> None:
        await put(engine, new(1), now=NOW + RANK_STEP - 1)
        await put(engine, new(2, priority=1, delay=RANK_STEP))
        await put(engine, new(3, priority=-1, delay=5))
        assert ids(await take(engine, 10, now=NOW + 2 * RANK_STEP)) == numbered(2, 1, 3)

    async def test_one_claim_promotes_and_takes(self, engine: Engine) -> None:
        await put(engine, *(new(n, delay=10) for n in range(3)))
        assert ids(await take(engine, 2, now=NOW + 10)) == numbered(0, 1)
        assert ids(await take(engine, 2, now=NOW + 10)) == numbered(2)

    async def test_ids_do_not_restrict_the_promotion(self, engine: Engine) -> None:
        await put(engine, new(1, delay=10), new(2, delay=10))
        assert ids(await take(engine, 10, now=NOW + 10, ids=(job_id(2),))) == numbered(2)
        assert (await stored(engine, 1)).ready


class TestExpired(Conformance):
    """`claim(Claim)`, expired arm"""

    async def test_what_an_expiry_writes(self, engine: Engine) -> None:
        (row,) = await put(engine, new(1, expires_in=10))
        assert await take(engine, now=NOW + 30, arms=EXPIRED) == []
        assert await stored(engine, 1) == changed(
            row, state=State.EXPIRED, ready=False, finished_at=NOW + 30
        )

    async def test_a_job_expires_at_the_very_instant(self, engine: Engine) -> None:
        await put(engine, new(1, expires_in=10))
        await take(engine, now=NOW + 9, arms=EXPIRED)
        assert (await stored(engine, 1)).state is State.PENDING
        await take(engine, now=NOW + 10, arms=EXPIRED)
        assert (await stored(engine, 1)).state is State.EXPIRED

    async def test_the_longest_overdue_expire_up_to_the_limit(self, engine: Engine) -> None:
        await put(engine, *(new(n, expires_in=100 - n) for n in range(5)))
        await take(engine, 2, now=NOW + 200, arms=EXPIRED)
        rows = await snapshot(engine, range(5))
        assert [row and row.state is State.EXPIRED for row in rows] == [False] * 3 + [True] * 2

    async def test_what_the_limit_left_is_not_claimed(self, engine: Engine) -> None:
        await put(engine, *(new(n, expires_in=10) for n in range(6)))
        assert await take(engine, 2, now=NOW + 20) == []
        rows = await snapshot(engine, range(6))
        states = [row.state for row in rows if row]
        assert (states.count(State.EXPIRED), states.count(State.PENDING)) == (2, 4)

    async def test_a_waiting_job_expires(self, engine: Engine) -> None:
        (row,) = await put(engine, new(1, delay=60, expires_in=10))
        await take(engine, now=NOW + 10, arms=EXPIRED)
        wanted = changed(row, state=State.EXPIRED, finished_at=NOW + 10)
        assert await stored(engine, 1) == wanted
        assert await take(engine, 10, now=NOW + 90) == []

    async def test_a_job_is_promoted_and_expired_by_one_claim(self, engine: Engine) -> None:
        (row,) = await put(engine, new(1, delay=10, expires_in=20))
        assert await take(engine, now=NOW + 30) == []
        wanted = changed(row, state=State.EXPIRED, finished_at=NOW + 30)
        assert await stored(engine, 1) == wanted

    async def test_jobs_of_any_name_expire(self, engine: Engine) -> None:
        await put(engine, new(1, expires_in=10, task="unknown"))
        await take(engine, now=NOW + 10, arms=EXPIRED, tasks=("mail",))
        assert (await stored(engine, 1)).state is State.EXPIRED

    async def test_other_queues_do_not_expire(self, engine: Engine) -> None:
        await put(engine, new(1, expires_in=10, queue="other"))
        before = await snapshot(engine, [1])
        await take(engine, 10, now=NOW + 10)
        assert await snapshot(engine, [1]) == before

    async def test_a_running_job_does_not_expire(self, engine: Engine) -> None:
        row = await running(engine, expires_in=10)
        await take(engine, 10, now=NOW + 20, owner=OTHER)
        assert await stored(engine, 1) == row

    async def test_only_the_asked_arms_work(self, engine: Engine) -> None:
        await running(engine, 1)
        await put(engine, new(2), new(3, delay=5), new(4, expires_in=5, queue="b"))
        later = NOW + LEASE + 10 * SECOND
        before = await snapshot(engine, [1, 2, 3, 4])
        everywhere = ("default", "b")
        assert await take(engine, 10, now=later, queues=everywhere, arms=frozenset()) == []
        assert await snapshot(engine, [1, 2, 3, 4]) == before
        for arm, number in {Arm.LAPSED: 1, Arm.DUE: 2, Arm.PROMOTE: 3, Arm.EXPIRED: 4}.items():
            rows = await take(engine, 10, now=later, queues=everywhere, arms=frozenset({arm}))
            assert ids(rows) == (numbered(number) if arm in DUE | LAPSED else [])
            after = await snapshot(engine, [1, 2, 3, 4])
            assert [n for n in (1, 2, 3, 4) if after[n - 1] != before[n - 1]] == [number]
            before = after
