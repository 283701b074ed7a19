"""Limits on how many jobs of a key run at once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tenure.core.durations import HOUR, SECOND
from tenure.core.fleet import QueueChange, QueueSettings
from tenure.core.job import JobRow, NewJob
from tenure.core.limits import NO_LIMITS, PARKED_MAX, Blocked, Limits
from tenure.core.outcomes import Completed, Errored, Outcome, Released, ReleaseReason, Snoozed
from tenure.core.rules import decide
from tenure.core.states import State
from tenure.engines.protocol import Engine, Facet, Signal, Topic
from tenure.testing.conformance.kit import (
    DUE,
    LAPSED,
    LEASE,
    NOW,
    OTHER,
    REPLACE,
    Conformance,
    boom,
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


async def limit(engine: Engine, queue: str = "default", **limits: Any) -> None:
    """From now on these limits hold."""
    await engine.configure(QueueChange(queue, limits=Limits(**limits)))


def held(n: int, key: str | None = "k", **fields: object) -> NewJob:
    """The job number `n` with a concurrency key."""
    return new(n, concurrency_key=key, **fields)


async def blocked(engine: Engine, *numbers: int) -> list[str | None]:
    return [(await stored(engine, n)).blocked for n in numbers]


class TestConcurrencyOfKeys(Conformance):
    """`Limits.key_concurrency`"""

    facet = Facet.OPERATE

    async def test_no_more_of_a_key_run_than_may(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=2)
        await put(engine, *(held(n) for n in range(5)))
        assert ids(await take(engine, 9)) == numbered(0, 1)
        assert await take(engine, 9, owner=OTHER) == []
        assert await blocked(engine, 2, 3, 4) == [Blocked.CONCURRENCY] * 3
        assert not (await stored(engine, 2)).ready

    async def test_what_is_held_back_is_counted_among_the_pending(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=1)
        await put(engine, *(held(n) for n in range(3)), held(3, None), held(4, delay=HOUR))
        first, *_ = await take(engine, 1)
        assert await take(engine, 9, owner=OTHER, tasks=("other",)) == []
        await take(engine, 9)
        (stats,) = await engine.stats(now=NOW)
        counted = (stats.pending, stats.blocked, stats.scheduled, stats.running)
        assert counted == (2, 2, 1, 2)
        await finish(engine, first)
        (stats,) = await engine.stats(now=NOW)
        assert (stats.pending, stats.blocked) == (2, 1)
        await engine.cancel(numbered(1, 2), now=NOW)
        (stats,) = await engine.stats(now=NOW)
        assert (stats.pending, stats.blocked, stats.cancelled) == (0, 0, 2)

    async def test_other_keys_and_jobs_without_one_go_on(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=1)
        await put(engine, *(held(n, "abc"[n % 3]) for n in range(6)), held(6, None), held(7, None))
        assert ids(await take(engine, 9)) == numbered(0, 1, 2, 6, 7)

    async def test_the_same_key_of_another_queue_is_another_one(self, engine: Engine) -> None:
        await limit(engine, "a", key_concurrency=1)
        await limit(engine, "b", key_concurrency=1)
        await put(engine, *(held(n, queue="abc"[n % 3]) for n in range(9)))
        assert ids(await take(engine, 9, queues=("a", "b", "c"))) == numbered(0, 1, 2, 5, 8)

    async def test_both_limits_hold_together(self, engine: Engine) -> None:
        await limit(engine, concurrency=3, key_concurrency=2)
        await put(engine, *(held(n, "ab"[n // 3]) for n in range(6)))
        rows = await take(engine, 9)
        assert ids(rows) == numbered(0, 1, 3)
        await finish(engine, rows[2])
        assert ids(await take(engine, 9)) == numbered(4)

    @pytest.mark.parametrize(
        "outcome",
        [
            Completed(),
            Errored(boom()),
            Snoozed(SECOND),
            Errored(boom(), after=SECOND),
            Released(ReleaseReason.SHUTDOWN),
        ],
    )
    async def test_every_end_of_an_attempt_makes_the_next_one_ready(
        self, engine: Engine, outcome: Outcome
    ) -> None:
        await limit(engine, key_concurrency=1)
        await put(engine, *(held(n, max_attempts=3, priority=9 * (n == 0)) for n in range(3)))
        row = await take_one(engine)
        assert await take(engine, 9) == []
        await finish(engine, row, outcome)
        assert await blocked(engine, 1, 2) == [None, Blocked.CONCURRENCY]
        assert (await stored(engine, 1)).ready

    async def test_slots_freed_together_are_all_given_on(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=3)
        await put(engine, *(held(n) for n in range(9)))
        rows = await take(engine, 9)
        await engine.settle([decide(row, Completed(), now=NOW) for row in rows], now=NOW)
        assert ids(await take(engine, 9)) == numbered(3, 4, 5)

    async def test_the_first_in_order_goes_on(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=1)
        await put(engine, held(0), held(1), held(2, priority=2), held(3, priority=1))
        first = await take_one(engine)
        assert first.id == job_id(2)
        await take(engine, 9)
        await finish(engine, first)
        assert ids(await take(engine, 9)) == numbered(3)

    async def test_one_of_each_task_goes_on(self, engine: Engine) -> None:
        """A job whose task nobody knows must not keep the slot from those behind it."""
        await limit(engine, key_concurrency=1)
        await put(engine, held(0), held(1, task="unknown"), held(2))
        row = await take_one(engine)
        await take(engine, 9)
        await finish(engine, row)
        assert await blocked(engine, 1, 2) == [None, None]
        assert ids(await take(engine, 9, tasks=("mail",))) == numbered(2)
        assert await take(engine, 9) == []

    async def test_whoever_gives_up_the_turn_passes_it_on(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=1)
        await put(engine, held(0), held(1, expires_in=9), held(2), held(3))
        row = await take_one(engine)
        await take(engine, 9)
        await finish(engine, row)
        assert await blocked(engine, 1, 2) == [None, Blocked.CONCURRENCY]
        assert await take(engine, 9, tasks=("none",), now=NOW + 9) == []
        assert await blocked(engine, 2, 3) == [None, Blocked.CONCURRENCY]
        await engine.cancel([job_id(2)], now=NOW)
        assert await blocked(engine, 3) == [None]

    async def test_a_blocked_job_can_be_cancelled_and_expires(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=1)
        await put(engine, held(0), held(1), held(2, expires_in=5), held(3))
        row = await take_one(engine)
        await take(engine, 9)
        await engine.cancel([job_id(1)], now=NOW)
        await engine.sweep(9, now=NOW + 5)
        assert [(await stored(engine, n)).state for n in (1, 2)] == [
            State.CANCELLED,
            State.EXPIRED,
        ]
        assert await blocked(engine, 1, 2) == [None, None]
        await finish(engine, row, now=NOW + 5)
        assert ids(await take(engine, 9, now=NOW + 5)) == numbered(3)

    async def test_a_blocked_job_that_is_rearmed_is_met_anew(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=1)
        await put(engine, held(0), held(1, unique_key="u"))
        await take_one(engine)
        await take(engine, 9)
        again = held(2, "other", unique_key="u", on_conflict=REPLACE)
        (answer,) = await engine.insert([again], now=NOW)
        assert answer.id == job_id(1)
        assert ids(await take(engine, 9)) == numbered(1)

    async def test_a_requeued_job_is_met_anew(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=1)
        await put(engine, held(0), held(1))
        await finish(engine, await take_one(engine))
        await take_one(engine)
        await engine.requeue([job_id(0)], now=NOW)
        assert await take(engine, 9) == []
        assert await blocked(engine, 0) == [Blocked.CONCURRENCY]

    async def test_force_takes_the_slot_from_its_holder(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=1)
        await put(engine, held(0), held(1), held(2))
        row = await take_one(engine)
        await take(engine, 9)
        await engine.cancel([row.id], now=NOW)
        assert await take(engine, 9) == []
        await engine.cancel([row.id], force=True, now=NOW)
        assert ids(await take(engine, 9, owner=OTHER)) == numbered(1)
        assert (await finish(engine, row)).verdict == "lost"
        assert await take(engine, 9) == []

    async def test_a_late_end_frees_no_slot_twice(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=1)
        await put(engine, *(held(n, max_lapses=9) for n in range(4)))
        zombies = []
        for turn in range(3):
            now = NOW + turn * LEASE
            zombies += await take(engine, 9, now=now, owner=f"host:{turn}:x")
            for zombie in zombies[:-1]:
                assert (await finish(engine, zombie, now=now)).verdict == "lost"
            assert await take(engine, 9, now=now, owner=OTHER) == []
        assert {row.id for row in zombies} == {job_id(0)}
        assert (await finish(engine, zombies[-1], now=NOW + 2 * LEASE)).verdict == "applied"
        assert (await finish(engine, zombies[-1], now=NOW + 2 * LEASE)).verdict == "already"
        assert len(await take(engine, 9, now=NOW + 2 * LEASE)) == 1

    async def test_a_lapsed_holder_gives_way_in_the_claim(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=1)
        await put(engine, held(0, task="gone"), held(1))
        lost = await take_one(engine)
        assert await take(engine, 9, tasks=("mail",), owner=OTHER) == []
        later = NOW + LEASE
        rows = []
        for _ in range(2):  # the first may only free the slot
            rows += await take(engine, 9, now=later, tasks=("mail",), owner=OTHER)
        assert ids(rows) == numbered(1)
        assert (await finish(engine, lost, now=later)).verdict == "lost"

    async def test_slots_are_given_on_at_the_end_of_a_claim(self, engine: Engine) -> None:
        """Also of a claim that has to take back what another lost; so whom it blocks is met."""
        await limit(engine, key_concurrency=1)
        await put(engine, held(0, None, task="gone"))
        await take_one(engine)
        await put(engine, held(1, expires_in=LEASE), held(2), held(3))
        rows = await take(engine, 9, now=NOW + LEASE, tasks=("mail",), owner=OTHER)
        assert ids(rows) == numbered(2)
        assert [(await stored(engine, n)).state for n in (0, 1)] == [State.PENDING, State.EXPIRED]
        assert await blocked(engine, 3) == [None]

    async def test_a_lapsed_holder_that_is_taken_over_keeps_the_slot(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=1)
        await put(engine, held(0), held(1))
        await take_one(engine)
        again = await take_one(engine, now=NOW + LEASE, owner=OTHER, arms=LAPSED)
        assert again.id == job_id(0)
        assert await take(engine, 9, now=NOW + LEASE) == []

    async def test_a_sweep_frees_the_slot_of_a_lapsed_holder(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=1)
        await put(engine, held(0, task="gone"), held(1))
        await take_one(engine)
        await take(engine, 9)
        await engine.sweep(9, now=NOW + LEASE)
        assert await blocked(engine, 1) == [None]
        assert ids(await take(engine, 9, tasks=("mail",), now=NOW + LEASE)) == numbered(1)

    async def test_a_resumed_job_keeps_its_slot(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=1)
        await put(engine, held(0), held(1))
        row = await take_one(engine)
        assert ids(await take(engine, 9, held=())) == [row.id]

    async def test_who_runs_when_a_limit_comes_goes_on(self, engine: Engine) -> None:
        await put(engine, *(held(n) for n in range(5)))
        rows = await take(engine, 3)
        await limit(engine, key_concurrency=1)
        assert await take(engine, 9) == []
        for row in rows[:2]:
            await finish(engine, row)
            assert await take(engine, 9) == []
        await finish(engine, rows[2])
        assert ids(await take(engine, 9)) == numbered(3)

    @pytest.mark.parametrize(("limits", "most"), [({"key_concurrency": 3}, 2), ({}, 4)])
    async def test_a_limit_that_is_raised_or_removed_lets_them_go(
        self, engine: Engine, limits: dict[str, Any], most: int
    ) -> None:
        await limit(engine, key_concurrency=1)
        await put(engine, *(held(n) for n in range(5)))
        await take(engine, 9)
        await limit(engine, **limits)
        assert await blocked(engine, 1, 2, 3, 4) == [None] * 4
        assert len(await take(engine, 9)) == most

    async def test_a_change_that_leaves_the_keys_alone_wakes_nobody(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=1)
        await put(engine, held(0), held(1))
        await take(engine, 9)
        await engine.configure(QueueChange("default", paused=True))
        await limit(engine, key_concurrency=1, concurrency=9)
        assert await blocked(engine, 1) == [Blocked.CONCURRENCY]

    async def test_blocked_jobs_of_a_paused_queue_wait_for_both(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=1)
        await put(engine, held(0), held(1))
        row = await take_one(engine)
        await take(engine, 9)
        await engine.configure(QueueChange("default", paused=True))
        await finish(engine, row)
        assert await take(engine, 9) == []
        await engine.configure(QueueChange("default", paused=False))
        assert ids(await take(engine, 9)) == numbered(1)

    async def test_blocked_jobs_are_not_due(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=1)
        await put(engine, held(0), held(1), new(2, delay=50))
        row = await take_one(engine)
        await take(engine, 9)
        assert await engine.next_due(["default"], now=NOW) == 50
        assert await engine.next_due(["default"], ["mail"], now=NOW + 9) == 41
        async with engine.listen((Topic.QUEUE,)) as listener:
            await finish(engine, row)
            assert Signal(Topic.QUEUE, "default") in await listener.wait(10)
        assert await engine.next_due(["default"], now=NOW) == 0

    async def test_named_jobs_are_held_back_as_well(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=1)
        await put(engine, held(0), held(1), held(2))
        rows = await take(engine, 9, ids=(job_id(2), job_id(1)))
        assert ids(rows) == numbered(1)
        assert await take(engine, 9, ids=(job_id(2),)) == []

    async def test_the_room_of_a_claim_blocks_nobody(self, engine: Engine) -> None:
        await limit(engine, "a", key_concurrency=1)
        await put(engine, held(0, queue="a"), held(1, queue="a"), held(2, queue="b"))
        assert ids(await take(engine, 9, queues=("a", "b"), room={"a": 0})) == numbered(2)
        assert await blocked(engine, 0, 1) == [None, None]
        assert ids(await take(engine, 9, queues=("a", "b"), room={"a": 1})) == numbered(0)

    async def test_a_claim_walks_past_a_bounded_number(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=1)
        await engine.insert([held(n) for n in range(PARKED_MAX + 2)], now=NOW)
        await engine.insert([held(5000, "other")], now=NOW)
        assert ids(await take(engine, 9)) == numbered(0)
        assert ids(await take(engine, 9)) == numbered(5000)
        assert await engine.next_due(["default"], now=NOW) is None

    async def test_no_job_is_lost_to_a_limit(self, engine: Engine) -> None:
        """Every job of every key runs, in order, and never two of a key at once."""
        await limit(engine, concurrency=5, key_concurrency=1)
        await put(engine, *(held(n, f"k{n % 7}") for n in range(70)))
        done: list[JobRow] = []
        for turn in range(100):
            rows = await take(engine, 9, owner=f"host:{turn % 3}:x")
            assert len(rows) <= 5
            assert max(Counter(row.concurrency_key for row in rows).values(), default=1) == 1
            for row in rows:
                await finish(engine, row)
            done += rows
        assert sorted(ids(done)) == numbered(*range(70))

    async def test_every_handle_keeps_to_it(self, engine: Engine) -> None:
        await put(engine, *(held(n) for n in range(4)))
        async with engine.side() as side:
            await limit(side, key_concurrency=1)
            row = await take_one(engine)
            assert await take(side, 9) == []
            await finish(side, row)
            assert ids(await take(engine, 9)) == numbered(1)

    async def test_what_is_set_can_be_read_and_changed_in_parts(self, engine: Engine) -> None:
        limits = Limits(concurrency=3, key_concurrency=1)
        settings = await engine.configure(QueueChange("q", limits=limits))
        assert settings == QueueSettings("q", False, limits)
        assert await engine.configure(QueueChange("q", paused=True)) == QueueSettings(
            "q", True, limits
        )
        assert await engine.configure(QueueChange("q")) == QueueSettings("q", True, limits)
        assert (await engine.inspect(now=NOW)).queues == (QueueSettings("q", True, limits),)
        settings = await engine.configure(QueueChange("q", False, NO_LIMITS))
        assert settings == QueueSettings("q")

    async def test_a_retry_is_held_back_like_any_other(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=1)
        await put(engine, held(0, max_attempts=2), held(1))
        row = await take_one(engine)
        await take(engine, 9)
        await finish(engine, row, Errored(boom(), after=SECOND))
        assert ids(await take(engine, 9)) == numbered(1)
        assert await take(engine, 9, now=NOW + SECOND) == []
        assert await blocked(engine, 0) == [Blocked.CONCURRENCY]

    async def test_only_the_due_arm_blocks(self, engine: Engine) -> None:
        await limit(engine, key_concurrency=1)
        await put(engine, held(0), held(1))
        assert await take(engine, 9, arms=frozenset(LAPSED)) == []
        assert await blocked(engine, 0, 1) == [None, None]
        await take(engine, 9, arms=DUE)
        assert await blocked(engine, 0, 1) == [None, Blocked.CONCURRENCY]
