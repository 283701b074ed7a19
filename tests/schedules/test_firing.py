"""Firing ticks: once each, by the store's clock, whoever does it and whatever happens."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tenure.core.durations import HOUR, SECOND
from tenure.core.reconcile import definition_of
from tenure.core.schedule import Fired
from tenure.core.states import State
from tenure.core.ticks import GRACE, jitter_of
from tenure.worker import ticker
from tests.schedules.kit import ZERO, World

pytestmark = pytest.mark.anyio

LOOK = ticker.LOOK


async def test_a_tick_becomes_a_job_with_the_options_of_its_task(world: World):
    one = world.scheduler()
    task = one.task(interval=10, priority=3, max_attempts=7, timeout=5, tags=["x"], expires_in=4)
    await world.steps(10, one)
    [job] = await world.jobs("work")
    assert (job.task, job.priority, job.max_attempts, job.timeout) == ("work", 3, 7, 5.0)
    assert (job.schedule, job.tick, job.tags) == ("work", ZERO + 10 * SECOND, ("x",))
    assert job.expires_at == ZERO + 14 * SECOND
    assert task.spec.recurring
    row = await world.row("work")
    assert (row.next_at, row.last_at) == (ZERO + 20 * SECOND, ZERO + 10 * SECOND)
    assert one.names() == ["schedule.fired"]


async def test_ticks_follow_from_the_nominal_instant_however_late_they_are_fired(world: World):
    one = world.scheduler()
    one.task(interval=10)
    await world.steps(0, one)
    for _ in range(5):
        world.pass_time(10.7)
        await one.ticker.look()
    assert await world.ticks() == [10, 20, 30, 40, 50]


async def test_twenty_at_once_make_one_job_of_each_tick(world: World):
    many = [world.scheduler() for _ in range(20)]
    for each in many:
        each.task(interval=10)
        each.task("other", cron="* * * * *")
    await world.steps(60, *many, every=10)
    assert await world.ticks("work") == [10, 20, 30, 40, 50, 60]
    assert await world.ticks("other") == [60]


@pytest.mark.parametrize(
    ("misfire", "wanted"),
    [
        ("skip", [110, 120, 130]),
        ("once", [10, 100, 110, 120, 130]),
        (3, [10, 80, 90, 100, 110, 120, 130]),
        ("all", [10.0 * n for n in range(1, 14)]),
    ],
)
async def test_what_was_missed_while_all_slept(world: World, misfire: str, wanted: list[float]):
    """Asleep from second 12 to second 104; then again every second."""
    one = world.scheduler()
    one.task(interval=10, misfire=misfire)
    await world.steps(12, one)
    world.pass_time(92)
    await world.steps(27, one)
    expected = [10, *[100 if misfire == "skip" else None], *wanted] if misfire == "skip" else wanted
    assert await world.ticks() == [tick for tick in expected if tick is not None]


async def test_skip_passes_over_what_is_more_than_a_minute_late(world: World):
    one = world.scheduler()
    one.task(cron="0 * * * *", misfire="skip")
    await world.steps(0, one)
    world.pass_time(3600 + GRACE / SECOND - 1)
    await one.ticker.look()
    assert await world.ticks() == [3600]
    world.pass_time(3600 + 1)
    await one.ticker.look()
    assert await world.ticks() == [3600]
    assert one.names() == ["schedule.fired", "schedule.skipped"]
    assert (await world.row("work")).next_at == ZERO + 3 * HOUR


async def test_a_year_of_sleep_costs_next_to_nothing(world: World):
    one = world.scheduler()
    one.task(interval=1)
    await world.steps(1, one)
    world.pass_time(365 * 86_400)
    world.engine.calls.clear()
    await one.ticker.look()
    assert await world.ticks() == [1, 365 * 86_400 + 1]
    assert len(world.engine.calls) < 12


async def test_a_clock_that_is_an_hour_ahead_fires_nothing_early_and_loses_nothing(world: World):
    one = world.scheduler(ahead=3600)
    one.task()
    await world.add(one, "s", "work", interval=10)
    await world.add(one, "minutes", "work", cron="*/5 * * * *")
    for second in range(300):
        await world.steps(1, one, first=not second)
        at = (world.clock.time_us() - ZERO) / SECOND
        assert all(tick <= at for tick in await world.ticks())
        if second % 10 == 0 and second > 10:
            assert len(await world.ticks("s")) >= (at - 2) // 10
    assert await world.ticks("s") == [10.0 * n for n in range(1, 31)]
    assert await world.ticks("minutes") == [300]


@pytest.mark.parametrize("ahead", [-3600, -30, 7200])
async def test_whatever_its_clock_shows_a_scheduler_alone_is_soon_in_time(
    world: World, ahead: float
):
    one = world.scheduler(ahead=ahead)
    one.task()
    await world.add(one, "s", "work", interval=20)
    await world.steps(200, one)
    fired = {row.tick or 0: row.created_at for row in await world.jobs("s")}
    assert sorted(fired) == [ZERO + n * 20 * SECOND for n in range(1, 11)]
    assert max(at - tick for tick, at in fired.items()) <= (LOOK + 1) * SECOND


@pytest.mark.parametrize("step", [timedelta(hours=2), timedelta(hours=-2), timedelta(seconds=1)])
async def test_steps_of_the_schedulers_clock_double_and_lose_nothing(world: World, step: timedelta):
    one = world.scheduler()
    one.task(interval=10)
    await world.steps(25, one)
    one.clock.set(world.clock_time() + step)
    await world.steps(60, one, first=False)
    one.clock.set(world.clock_time())
    await world.steps(15, one, first=False)
    assert await world.ticks() == [10.0 * n for n in range(1, 11)]


async def test_a_store_whose_clock_is_set_back_fires_nothing_twice(world: World):
    one = world.scheduler()
    one.task(interval=10)
    await world.steps(35, one)
    world.clock.set(world.clock_time(-30))
    one.clock.set(world.clock_time())
    await world.steps(30, one, first=False)
    assert await world.ticks() == [10, 20, 30]
    await world.steps(20, one, first=False)
    assert await world.ticks() == [10, 20, 30, 40, 50]


async def test_a_store_whose_clock_is_set_ahead_goes_by_the_policy(world: World):
    one = world.scheduler()
    one.task(interval=10, misfire=2)
    await world.steps(12, one)
    world.clock.set(world.clock_time(100))
    await world.steps(20, one, first=False)
    ticks = await world.ticks()
    assert ticks[0] == 10
    assert ticks[1:] == [10.0 * n for n in range(round(ticks[1] / 10), 14)]
    assert len(ticks) >= 4


@pytest.mark.parametrize("operation", ["fire", "save_schedules", "schedules"])
async def test_a_lost_reply_doubles_and_loses_nothing(world: World, operation: str):
    one = world.scheduler()
    one.task(interval=10)
    for _ in range(6):
        world.engine.lost.add(operation)
        await one.ticker.step()
        await one.ticker.step()
        world.pass_time(5)
    assert await world.ticks() == [10, 20]


async def test_a_crash_between_two_steps_loses_nothing(world: World):
    """The one that found out what was missed dies before it fires the rest."""
    dying, other = world.scheduler(), world.scheduler()
    for each in (dying, other):
        each.task(interval=1, misfire=3)
    await world.steps(1, dying)
    world.pass_time(1000)
    real = dying.ticker._due

    def only_the_leap(*, probe: bool):
        leap, *_ = real(probe=probe)
        assert leap.leap
        return [leap]

    dying.ticker._due = only_the_leap  # type: ignore[method-assign]
    dying.ticker._answered = lambda *_: False  # type: ignore[method-assign]
    await dying.ticker.look()
    assert await world.ticks() == [1]
    await other.ticker.look()
    assert await world.ticks() == [1, 999, 1000, 1001]


async def test_an_edit_at_the_same_moment_fires_by_one_definition_or_the_other(world: World):
    one, two = world.scheduler(), world.scheduler()
    for each in (one, two):
        each.task()
    for round_ in range(10):
        name = f"s{round_}"
        row = await world.add(one, name, one.tasks.get("work").bind(1), interval=10)
        await asyncio.gather(one.ticker.look(), two.ticker.look())
        world.pass_time(10)
        old = definition_of(row)
        assert old is not None
        edited = msgspec.to_builtins(msgspec.structs.replace(old, arguments={"n": 2}))
        await asyncio.gather(
            one.ticker.look(), world.change(name, definition=edited), two.ticker.look()
        )
        one.ticker.wake()
        await one.ticker.look()
        jobs = await world.jobs(name)
        assert len(jobs) == 1
        assert jobs[0].payload in (b'{"n":1}', b'{"n":2}')


@pytest.mark.parametrize(
    ("overlap", "wanted"),
    [
        ("allow", ["running", "pending", "pending"]),
        ("skip", ["running"]),
        ("cancel", ["running", "cancelled", "pending"]),
    ],
)
async def test_overlap(world: World, overlap: str, wanted: list[str]):
    one = world.scheduler()
    one.task(interval=10, overlap=overlap)
    await world.steps(11, one)
    await world.start()
    await world.steps(20, one)
    jobs = await world.jobs("work")
    assert [str(job.state) for job in jobs] == wanted
    assert jobs[0].cancel_requested is (overlap == "cancel")
    assert (await world.row("work")).next_at == ZERO + 40 * SECOND


async def test_from_finish_counts_from_the_end_of_the_last_run(world: World):
    one, two = world.scheduler(), world.scheduler()
    for each in (one, two):
        each.task(interval=10, from_finish=True)
    await world.steps(11, one, two)
    assert (await world.row("work")).next_at is None
    await world.start()
    await world.steps(30, one, two)
    assert await world.ticks() == [10]
    [job] = await world.jobs()
    await world.engine.cancel([job.id], force=True)
    await world.steps(9, one, two)
    assert await world.ticks() == [10]
    await world.steps(2, one, two)
    assert await world.ticks() == [10, 51]


async def test_from_finish_goes_on_after_its_job_was_pruned(world: World):
    one = world.scheduler()
    one.task(interval=10, from_finish=True, misfire="skip")
    await world.steps(5, one)
    world.pass_time(100)
    await one.ticker.look()
    assert await world.ticks() == []  # more than a minute late
    await world.steps(11, one)
    assert await world.ticks() == [115]


async def test_from_finish_ends(world: World):
    one = world.scheduler()
    one.task(interval=10, from_finish=True, ends_at=world.clock_time(15))
    await world.steps(11, one)
    await world.finish()
    await world.steps(40, one)
    assert await world.ticks() == [10]


async def test_the_last_tick_is_the_last(world: World):
    one = world.scheduler()
    one.task(interval=10, ends_at=world.clock_time(30))
    await world.steps(60, one)
    assert await world.ticks() == [10, 20, 30]
    assert (await world.row("work")).next_at is None


async def test_jitter_delays_the_job_and_not_the_plan(world: World):
    one = world.scheduler()
    one.task(interval=10, jitter=100)
    await world.steps(50, one)
    for job in await world.jobs():
        tick = job.tick or 0
        assert job.available_at == tick + jitter_of("work", tick, 100 * SECOND)
    assert await world.ticks() == [10, 20, 30, 40, 50]


async def test_the_delay_of_a_task_counts_from_the_nominal_instant(world: World):
    one = world.scheduler()
    one.task(interval=10, delay=60)
    await world.steps(0, one)
    world.pass_time(13)
    await one.ticker.look()
    [job] = await world.jobs()
    assert job.available_at == ZERO + 70 * SECOND


async def test_what_may_no_longer_start_expires(world: World):
    one = world.scheduler()
    one.task(interval=10, expires_in=4)
    await world.steps(0, one)
    world.pass_time(15)
    await one.ticker.look()
    await world.finish()
    [job] = await world.jobs()
    assert (job.state, job.expires_at) == (State.EXPIRED, ZERO + 14 * SECOND)


async def test_a_paused_schedule_is_not_fired(world: World):
    one = world.scheduler()
    one.task(interval=10)
    await world.steps(11, one)
    await world.change("work", paused=True)
    await world.steps(LOOK + 20, one)
    assert await world.ticks() == [10]


async def test_a_schedule_whose_task_is_not_known_is_not_fired(world: World):
    knows, other = world.scheduler(), world.scheduler()
    knows.task()
    await world.add(knows, "s", "work", interval=10)
    await world.steps(30, other)
    assert (await world.jobs(), other.told) == ([], [])
    await world.steps(1, knows)
    assert await world.ticks() == [30]


async def test_a_schedule_of_another_version_is_left_alone(world: World):
    one = world.scheduler()
    one.task()
    row = await world.add(one, "strange", "work", interval=10)
    await world.add(one, "plain", "work", interval=10)
    await world.change("strange", definition={**row.definition, "lunar": True})
    await world.steps(10, one)
    assert await world.ticks("plain") == [10]
    assert await world.ticks("strange") == []


async def test_a_job_that_cannot_be_made_stops_no_other(
    world: World, caplog: pytest.LogCaptureFixture
):
    one = world.scheduler()
    one.task()
    large = world.scheduler()
    large.task()
    await world.add(one, "good", "work", interval=10)
    row = await world.add(one, "bad", "work", interval=10)
    huge = {**row.definition, "arguments": {"n": "x" * 1_100_000}}
    await world.change("bad", definition=huge)
    with caplog.at_level(logging.WARNING, "tenure.schedules"):
        await world.steps(30, one)
    assert await world.ticks() == [10, 20, 30]
    assert one.names().count("schedule.rejected") == 1
    assert caplog.text.count("schedule.rejected: bad") == 1
    await world.change("bad", definition=row.definition)
    await world.steps(LOOK, one)
    assert await world.ticks("bad") == [40]


@pytest.mark.parametrize(
    "options", [{"expires_in": 2**62}, {"priority": 2**40}, {"retry": {"base": -1}}, {"x": 5}]
)
async def test_options_that_the_store_refuses_stop_no_other(world: World, options: dict[str, Any]):
    one = world.scheduler()
    one.task()
    await world.add(one, "good", "work", interval=10)
    row = await world.add(one, "bad", "work", interval=10)
    await world.change("bad", definition={**row.definition, "options": options})
    await world.steps(20, one)
    assert await world.ticks() == [10, 20]


async def test_an_idle_scheduler_asks_little(memory: World):
    one = memory.scheduler()
    one.task(cron="0 0 1 1 *")
    await one.ticker.look()
    memory.engine.calls.clear()
    await memory.steps(150, one, first=False)
    assert len(memory.engine.calls) <= 2 * 150 / LOOK + 2


async def test_an_idle_scheduler_asks_little_of_what_is_paused(memory: World):
    one = memory.scheduler()
    one.task(interval=10)
    await memory.steps(0, one)
    await memory.change("work", paused=True)
    one.ticker.wake()
    await memory.steps(20, one)
    memory.engine.calls.clear()
    await memory.steps(60, one, first=False)
    assert "fire" not in memory.engine.calls


async def test_a_clock_that_is_an_hour_ahead_is_not_offered_leap_after_leap(memory: World):
    one = memory.scheduler(ahead=3600)
    one.task()
    await memory.add(one, "s", "work", interval=1)
    await one.ticker.look()
    memory.engine.calls.clear()
    memory.pass_time(100)
    await one.ticker.look()
    assert await memory.ticks() == [100]
    assert memory.engine.calls.count("fire") < 6


async def test_what_was_learned_of_the_stores_clock_is_forgotten_with_a_step(memory: World):
    one = memory.scheduler(ahead=3600)
    one.task()
    await memory.add(one, "s", "work", interval=10)
    await memory.steps(30, one)
    one.clock.set(memory.clock_time())
    await one.ticker.look()
    for _ in range(10):
        wait = await one.ticker.look()
        assert 0 < wait <= 10
        memory.pass_time(wait)
    assert await memory.ticks() == [10.0 * n for n in range(1, len(await memory.ticks()) + 1)]
    assert one.ticker._time.now() == memory.clock.time_us()


async def test_news_during_a_reading_are_not_lost(memory: World):
    one = memory.scheduler()
    one.task()
    await one.ticker.look()
    real = memory.engine.schedules

    async def schedules():
        answer = await real()
        if not await real():
            await memory.add(one, "s", "work", interval=10)
            one.ticker.wake()
        return answer

    one.ticker.wake()
    memory.engine.schedules = schedules  # type: ignore[attr-defined]
    await one.ticker.look()
    assert await one.ticker.look() == 10


async def test_many_due_at_once_are_all_fired(memory: World):
    one = memory.scheduler()
    task = one.task()
    for n in range(1100):
        await memory.add(one, f"s{n}", task, interval=60)
    await memory.steps(60, one, every=60)
    assert {row.last_at for row in await memory.rows()} == {ZERO + 60 * SECOND}
    assert max(memory.engine.sizes) == 500


async def test_a_store_that_refuses_every_tick_makes_nobody_spin(memory: World):
    one = memory.scheduler()
    one.task(interval=10)
    await memory.steps(10, one, every=9)

    async def fire(ticks):
        return [Fired.STALE for _ in ticks]

    memory.engine.fire = fire  # type: ignore[attr-defined]
    memory.pass_time(10)
    for _ in range(5):
        assert await one.ticker.look() >= 0.01


async def test_it_sleeps_until_the_next_tick(memory: World):
    one = memory.scheduler()
    one.task(interval=10)
    assert await one.ticker.look() == 10
    memory.pass_time(4)
    assert await one.ticker.look() == 6
    memory.pass_time(6)
    assert await one.ticker.look() == 10 - 5  # all is read again before that
