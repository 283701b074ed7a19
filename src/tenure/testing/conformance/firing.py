"""Firing: a tick becomes one job, and the next tick is planned, or nothing happens."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tenure.core.durations import LAST_INSTANT
from tenure.core.job import new_row
from tenure.core.query import Filter, Page
from tenure.core.schedule import Fired, Overlap, Schedule, Tick
from tenure.core.states import State
from tenure.engines.protocol import Engine, Facet, Prunable, Signal, Topic
from tenure.errors import ConfigurationError, PayloadError
from tenure.testing.conformance.kit import (
    LEASE,
    NOW,
    RAISE,
    REPLACE,
    STARTED,
    Conformance,
    changed,
    finish,
    finished,
    ids,
    job_id,
    keyed,
    new,
    numbered,
    put,
    stored,
    take,
    take_one,
)
from tenure.testing.conformance.schedules import kept, remove, schedule

STEP = 60


def tick(given: Schedule, n: int, at: int = NOW, **fields: Any) -> Tick:
    """The tick of a schedule as it was saved, which inserts the job number `n`."""
    job = fields.pop("job", None) or new(n, **fields)
    return Tick(given.name, given.revision, at, at + STEP, job)


async def fire(engine: Engine, *ticks: Tick, now: int = NOW) -> list[Fired]:
    return await engine.fire(ticks, now=now)


async def planned(engine: Engine) -> tuple[int | None, int | None]:
    """When the only schedule is due next, and was last."""
    (only,) = await engine.schedules()
    return only.next_at, only.last_at


async def jobs(engine: Engine) -> list[str]:
    return sorted(ids(await engine.find(Filter(), Page())))


class TestFire(Conformance):
    """`fire(ticks)`"""

    facet = Facet.SCHEDULES

    async def test_nothing_is_no_error(self, engine: Engine) -> None:
        assert await fire(engine) == []

    async def test_what_a_tick_does(self, engine: Engine) -> None:
        given = await kept(engine, schedule())
        job = new(1, queue="q", priority=2, payload=b"[1]", delay=3, expires_at=NOW + 50)
        assert await fire(engine, tick(given, 1, job=job), now=NOW + 7) == [Fired.FIRED]
        wanted = changed(new_row(job, NOW + 7), schedule="s", tick=NOW)
        assert await stored(engine, 1) == wanted
        after = msgspec.structs.replace(given, next_at=NOW + STEP, last_at=NOW)
        assert await engine.schedules() == [after]

    async def test_its_job_can_be_claimed(self, engine: Engine) -> None:
        given = await kept(engine, schedule())
        async with engine.listen((Topic.QUEUE,)) as listener:
            await fire(engine, tick(given, 1))
            assert Signal(Topic.QUEUE, "default") in await listener.wait(10)
        row = await take_one(engine)
        assert (row.id, row.schedule, row.tick) == (job_id(1), "s", NOW)
        assert (await finish(engine, row)).state is State.COMPLETED

    async def test_the_last_tick_plans_no_other(self, engine: Engine) -> None:
        given = await kept(engine, schedule())
        last = Tick("s", given.revision, NOW, None, new(1))
        assert await fire(engine, last) == [Fired.FIRED]
        assert await planned(engine) == (None, NOW)
        assert await fire(engine, tick(given, 2)) == [Fired.STALE]

    async def test_a_tick_is_never_early(self, engine: Engine) -> None:
        """By the store's clock: the clock of whoever fires does not matter."""
        given = await kept(engine, schedule())
        before = await engine.schedules()
        assert await fire(engine, tick(given, 1), now=NOW - 1) == [Fired.EARLY]
        assert (await jobs(engine), await engine.schedules()) == ([], before)
        assert await fire(engine, tick(given, 1), now=NOW) == [Fired.FIRED]

    async def test_a_missed_tick_is_passed_over(self, engine: Engine) -> None:
        """From the very instant on, by the store's clock."""
        given = await kept(engine, schedule())
        late = msgspec.structs.replace(tick(given, 1), missed_from=NOW + STEP)
        after = msgspec.structs.replace(tick(given, 2, NOW + STEP), missed_from=NOW + 2 * STEP)
        answers = await fire(engine, late, after, now=NOW + STEP)
        assert answers == [Fired.SKIPPED, Fired.FIRED]
        assert await jobs(engine) == [job_id(2)]
        assert await planned(engine) == (NOW + 2 * STEP, NOW + STEP)

    async def test_a_tick_is_not_missed_before(self, engine: Engine) -> None:
        given = await kept(engine, schedule())
        late = msgspec.structs.replace(tick(given, 1), missed_from=NOW + STEP)
        assert await fire(engine, late, now=NOW + STEP - 1) == [Fired.FIRED]

    async def test_a_leap_passes_over_ticks_that_were_missed_only(self, engine: Engine) -> None:
        given = await kept(engine, schedule())
        far = NOW + 9 * STEP
        leap = msgspec.structs.replace(tick(given, 1), next_at=far, missed_from=far, leap=True)
        assert await fire(engine, leap, now=far - 1) == [Fired.EARLY]
        assert await planned(engine) == (NOW, None)
        assert await fire(engine, leap, tick(given, 2, far), now=far) == [
            Fired.SKIPPED,
            Fired.FIRED,
        ]
        assert await jobs(engine) == [job_id(2)]

    @pytest.mark.parametrize("case", ["revision", "instant", "paused", "removed", "unknown"])
    async def test_a_stale_tick_does_nothing(self, engine: Engine, case: str) -> None:
        given = await kept(engine, schedule())
        ticked = tick(given, 1)
        match case:
            case "revision":
                await kept(engine, schedule(), given.revision)
            case "instant":
                ticked = tick(given, 1, at=NOW - 1)
            case "paused":
                given = await kept(engine, schedule(paused=True), given.revision)
                ticked = tick(given, 1)
            case "removed":
                await remove(engine, "s", given.revision)
            case "unknown":
                ticked = msgspec.structs.replace(ticked, name="other")
        before = await engine.schedules()
        assert await fire(engine, ticked, now=NOW + 99) == [Fired.STALE]
        assert (await jobs(engine), await engine.schedules()) == ([], before)

    async def test_a_lost_reply_fires_nothing_twice(self, engine: Engine) -> None:
        given = await kept(engine, schedule())
        assert await fire(engine, tick(given, 1)) == [Fired.FIRED]
        for n in (1, 2):
            assert await fire(engine, tick(given, n), now=NOW + 5) == [Fired.STALE]
        assert await jobs(engine) == numbered(1)
        assert await planned(engine) == (NOW + STEP, NOW)

    async def test_one_of_many_fires(self, engine: Engine) -> None:
        given = await kept(engine, schedule())
        async with engine.side() as side:
            calls = [fire(handle, tick(given, n)) for n, handle in enumerate([engine, side] * 10)]
            answers = [answer for (answer,) in await asyncio.gather(*calls)]
        assert sorted(answers) == [Fired.FIRED] + [Fired.STALE] * 19
        assert await jobs(engine) == numbered(answers.index(Fired.FIRED))

    async def test_missed_ticks_are_fired_one_after_the_other(self, engine: Engine) -> None:
        given = await kept(engine, schedule())
        ticks = [tick(given, n, at=NOW + n * STEP) for n in range(4)]
        answers = await fire(engine, *ticks, now=NOW + 2 * STEP)
        assert answers == [Fired.FIRED] * 3 + [Fired.EARLY]
        assert await jobs(engine) == numbered(0, 1, 2)
        assert await planned(engine) == (NOW + 3 * STEP, NOW + 2 * STEP)

    async def test_schedules_are_apart(self, engine: Engine) -> None:
        one, two = await kept(engine, schedule("a")), await kept(engine, schedule("b"))
        assert await fire(engine, tick(one, 1), tick(two, 2)) == [Fired.FIRED] * 2
        assert await jobs(engine) == numbered(1, 2)

    @pytest.mark.parametrize("stage", ["pending", "final", "pruned"])
    async def test_an_edit_that_goes_back_fires_nothing_twice(
        self, engine: Engine, stage: str
    ) -> None:
        given = await kept(engine, schedule())
        await fire(engine, tick(given, 1))
        if stage != "pending":
            await finish(engine, await take_one(engine))
        if stage == "pruned":
            await engine.prune(Prunable.JOBS, NOW + 1)
        before = await jobs(engine)
        again = await kept(engine, schedule(), given.revision)
        assert (again.next_at, again.last_at) == (NOW, NOW)
        assert await fire(engine, tick(again, 2), now=NOW + 5) == [Fired.SKIPPED]
        assert await jobs(engine) == before
        assert await planned(engine) == (NOW + STEP, NOW)
        next_one = tick(again, 3, at=NOW + STEP)
        assert await fire(engine, next_one, now=NOW + STEP) == [Fired.FIRED]

    async def test_a_schedule_made_anew_does_not_fire_a_tick_whose_job_is_there(
        self, engine: Engine
    ) -> None:
        given = await kept(engine, schedule())
        await fire(engine, tick(given, 1))
        await finish(engine, await take_one(engine))
        await remove(engine, "s", given.revision)
        again = await kept(engine, schedule())
        assert await fire(engine, tick(again, 2)) == [Fired.SKIPPED]
        assert await jobs(engine) == numbered(1)
        assert await planned(engine) == (NOW + STEP, NOW)

    async def test_no_two_jobs_share_a_tick(self, engine: Engine) -> None:
        await put(engine, new(1, schedule="s", tick=NOW))
        answers = await engine.insert(
            [
                new(2, schedule="s", tick=NOW),
                new(3, schedule="s", tick=NOW + 1),
                new(4, schedule="s", tick=NOW + 1),
                new(5, schedule="t", tick=NOW),
                new(6, schedule="s"),
                new(7, schedule="s"),
            ],
            now=NOW,
        )
        assert [answer.created for answer in answers] == [False, True, False, True, True, True]
        assert [answer.id for answer in answers] == numbered(1, 3, 3, 5, 6, 7)

    async def test_a_job_that_cannot_be_kept_does_nothing(self, engine: Engine) -> None:
        one, two = await kept(engine, schedule("a")), await kept(engine, schedule("b"))
        before = await engine.schedules()
        bad: list[tuple[dict[str, Any], type[Exception]]] = [
            ({"payload": b"x" * (engine.traits.max_payload + 1)}, PayloadError),
            ({"metadata": {"n": float("nan")}}, PayloadError),
            ({"delay": LAST_INSTANT}, ConfigurationError),
        ]
        for fields, error in bad:
            with pytest.raises(error):
                await fire(engine, tick(one, 1), tick(two, 2, **fields))
            assert (await jobs(engine), await engine.schedules()) == ([], before)

    @pytest.mark.parametrize("other", [{}, {"on_conflict": RAISE}, {"until": STARTED}])
    async def test_a_tick_whose_unique_key_is_taken_is_skipped(
        self, engine: Engine, other: dict[str, Any]
    ) -> None:
        given = await kept(engine, schedule())
        await put(engine, keyed(1))
        assert await fire(engine, tick(given, 2, job=keyed(2, **other))) == [Fired.SKIPPED]
        assert await jobs(engine) == numbered(1)
        assert await planned(engine) == (NOW + STEP, NOW)

    async def test_a_tick_may_take_the_place_of_a_waiting_job(self, engine: Engine) -> None:
        given = await kept(engine, schedule())
        await put(engine, keyed(1))
        job = keyed(2, on_conflict=REPLACE, payload=b"2")
        assert await fire(engine, tick(given, 2, job=job)) == [Fired.FIRED]
        assert (await stored(engine, 1)).payload == b"2"
        assert await planned(engine) == (NOW + STEP, NOW)


class TestOverlap(Conformance):
    """`fire(ticks)` while a job of an earlier tick lives"""

    facet = Facet.SCHEDULES

    async def _second(self, engine: Engine, given: Schedule, now: int = NOW + STEP) -> Fired:
        (answer,) = await fire(engine, tick(given, 2, at=NOW + STEP), now=now)
        assert await planned(engine) == (
            (NOW + 2 * STEP, NOW + STEP) if answer is not Fired.EARLY else (NOW + STEP, NOW)
        )
        return answer

    @pytest.mark.parametrize("state", ["pending", "running", "lapsed"])
    async def test_allow_does_not_look(self, engine: Engine, state: str) -> None:
        given = await kept(engine, schedule())
        await fire(engine, tick(given, 1))
        if state != "pending":
            await take_one(engine)
        now = NOW + STEP + (LEASE if state == "lapsed" else 0)
        assert await self._second(engine, given, now) is Fired.FIRED
        assert await jobs(engine) == numbered(1, 2)

    @pytest.mark.parametrize("state", ["waiting", "pending", "running", "lapsed"])
    async def test_skip_skips_while_one_lives(self, engine: Engine, state: str) -> None:
        given = await kept(engine, schedule(overlap=Overlap.SKIP))
        await fire(engine, tick(given, 1, delay=99 if state == "waiting" else 0))
        if state in ("running", "lapsed"):
            await take_one(engine)
        before = await stored(engine, 1)
        now = NOW + STEP + (LEASE if state == "lapsed" else 0)
        assert await self._second(engine, given, now) is Fired.SKIPPED
        assert await jobs(engine) == numbered(1)
        assert await stored(engine, 1) == before

    async def test_skip_fires_again_after_the_end(self, engine: Engine) -> None:
        given = await kept(engine, schedule(overlap=Overlap.SKIP))
        await fire(engine, tick(given, 1))
        await finish(engine, await take_one(engine))
        assert await self._second(engine, given) is Fired.FIRED

    async def test_skip_does_not_wait_for_what_may_no_longer_start(self, engine: Engine) -> None:
        given = await kept(engine, schedule(overlap=Overlap.SKIP))
        await fire(engine, tick(given, 1, expires_in=STEP))
        assert await self._second(engine, given, NOW + STEP) is Fired.FIRED

    async def test_skip_does_not_look_at_other_schedules(self, engine: Engine) -> None:
        await put(engine, new(7), new(8, schedule="other", tick=NOW))
        given = await kept(engine, schedule(overlap=Overlap.SKIP))
        assert await fire(engine, tick(given, 1)) == [Fired.FIRED]

    async def test_a_requeued_job_lives_again(self, engine: Engine) -> None:
        given = await kept(engine, schedule(overlap=Overlap.SKIP))
        await fire(engine, tick(given, 1))
        await finish(engine, await take_one(engine))
        await engine.requeue(numbered(1), now=NOW)
        assert await self._second(engine, given) is Fired.SKIPPED

    async def test_cancel_ends_what_waits(self, engine: Engine) -> None:
        given = await kept(engine, schedule(overlap=Overlap.CANCEL))
        await fire(engine, tick(given, 1))
        before = await stored(engine, 1)
        async with engine.listen((Topic.DONE,)) as listener:
            assert await self._second(engine, given) is Fired.FIRED
            assert await listener.wait(10) == {Signal(Topic.DONE, job_id(1))}
        assert await stored(engine, 1) == changed(
            before, state=State.CANCELLED, ready=False, finished_at=NOW + STEP
        )
        assert ids(await take(engine, 9, now=NOW + STEP)) == numbered(2)

    async def test_cancel_asks_what_runs_to_stop(self, engine: Engine) -> None:
        given = await kept(engine, schedule(overlap=Overlap.CANCEL))
        await fire(engine, tick(given, 1))
        row = await take_one(engine)
        async with engine.listen((Topic.CANCEL,)) as listener:
            assert await self._second(engine, given) is Fired.FIRED
            assert await listener.wait(10) == {Signal(Topic.CANCEL, job_id(1))}
        assert await stored(engine, 1) == changed(row, cancel_requested=True)
        assert (await stored(engine, 2)).state is State.PENDING

    async def test_cancel_leaves_other_jobs_alone(self, engine: Engine) -> None:
        await put(engine, new(7), new(8, schedule="other", tick=NOW))
        given = await kept(engine, schedule(overlap=Overlap.CANCEL))
        await finished(engine, 9, schedule="s", tick=NOW - 1)
        await fire(engine, tick(given, 1))
        states = [(await stored(engine, n)).state for n in (7, 8, 9)]
        assert states == [State.PENDING, State.PENDING, State.COMPLETED]

    async def test_a_tick_that_is_not_fired_cancels_nothing(self, engine: Engine) -> None:
        given = await kept(engine, schedule(overlap=Overlap.CANCEL))
        await fire(engine, tick(given, 1))
        before = await stored(engine, 1)
        assert await self._second(engine, given, NOW + STEP - 1) is Fired.EARLY
        assert await fire(engine, tick(given, 1)) == [Fired.STALE]
        assert await stored(engine, 1) == before

    async def test_a_tick_whose_job_is_there_is_not_cancelled_by_itself(
        self, engine: Engine
    ) -> None:
        given = await kept(engine, schedule(overlap=Overlap.CANCEL))
        await fire(engine, tick(given, 1))
        before = await stored(engine, 1)
        await remove(engine, "s", given.revision)
        again = await kept(engine, schedule(overlap=Overlap.CANCEL))
        assert await fire(engine, tick(again, 2)) == [Fired.SKIPPED]
        assert await stored(engine, 1) == before

    async def test_cancel_frees_the_key_for_the_next_one(self, engine: Engine) -> None:
        given = await kept(engine, schedule(overlap=Overlap.CANCEL))
        await fire(engine, tick(given, 1, job=keyed(1)))
        second = tick(given, 2, at=NOW + STEP, job=keyed(2))
        assert await fire(engine, second, now=NOW + STEP) == [Fired.FIRED]
        assert (await stored(engine, 1)).state is State.CANCELLED
        third = tick(given, 3, at=NOW + 2 * STEP, job=keyed(3))
        await take_one(engine, now=NOW + STEP)
        assert await fire(engine, third, now=NOW + 2 * STEP) == [Fired.SKIPPED]
        assert (await stored(engine, 2)).cancel_requested
