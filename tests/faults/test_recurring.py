"""Recurring jobs: run twice, not at all, all at once, or never again after one bad night."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tenure import QueueService
from tenure.core.cron import cron_rule
from tenure.core.durations import SECOND, instant, moment
from tenure.core.ticks import Timing, first_tick, next_tick
from tenure.engines.memory import MemoryEngine
from tenure.engines.sqlite import SQLiteEngine
from tenure.errors import ConfigurationError
from tests.faults.scripts import output, start, surroundings
from tests.schedules.kit import World
from tests.worker.kit import until

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A store whose time is turned by hand."""
    memory = request.param == "memory"
    async with MemoryEngine() if memory else SQLiteEngine(tmp_path / "jobs.db") as engine:
        yield World(engine)


def ticks(rule: str, zone: str, start: datetime, count: int) -> list[datetime]:
    cron, at, found = cron_rule(rule, zone), instant(start, "start"), []
    for _ in range(count):
        following = cron.after(at)
        assert following is not None
        found.append(moment(following))
        at = following
    return found


# Clocks that are changed


@pytest.mark.parametrize("rule", ["*/30 * * * *", "0 */2 * * *", "*/7 * * * *", "30 * * * *"])
@pytest.mark.parametrize("zone", ["US/Eastern", "Australia/Lord_Howe", "Africa/Casablanca"])
def test_the_repeated_hour_never_yields_one_instant_twice(rule: str, zone: str):
    for day in (datetime(2026, 3, 7, tzinfo=UTC), datetime(2026, 10, 31, tzinfo=UTC)):
        found = ticks(rule, zone, day, 200)
        assert all(early < late for early, late in itertools.pairwise(found))


def test_a_skipped_hour_costs_no_run_and_no_later_day():
    found = ticks("0 2 * * *", "US/Eastern", datetime(2013, 3, 9, 12, tzinfo=UTC), 3)
    wall = [at.astimezone(ZoneInfo("US/Eastern")) for at in found]
    assert [(at.day, at.hour) for at in wall] == [(10, 3), (11, 2), (12, 2)]


def test_a_nightly_job_runs_once_in_either_night():
    for month, day in ((3, 29), (10, 25)):
        start = datetime(2026, month, day, tzinfo=ZoneInfo("Europe/Berlin")).astimezone(UTC)
        found = ticks("30 2 * * *", "Europe/Berlin", start, 2)
        assert found[0] - start < timedelta(hours=4)
        assert found[1] - found[0] > timedelta(hours=20)


def test_zones_of_host_and_schedule_have_nothing_to_do_with_each_other(tmp_path: Path):
    """The next ticks are the same instants whatever the zone of the host is."""
    code = (
        "from tenure.core.cron import cron_rule\n"
        "for zone in ('America/Los_Angeles', 'Asia/Kolkata', 'Pacific/Kiritimati',"
        " 'Australia/Lord_Howe'):\n"
        "    for rule in ('0 0 28-31 * *', '*/15 9 * * *', '0 * * * *'):\n"
        "        print(cron_rule(rule, zone).after(1_780_000_000_000_000))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=surroundings(TZ=zone),
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
            timeout=30,
        ).stdout
        for zone in ("Asia/Tokyo", "America/Los_Angeles")
    }
    assert len(outputs) == 1
    assert len(outputs.pop().split()) == 12


# Ends of months


def test_a_leap_day_kills_no_schedule():
    start = datetime(2024, 2, 29, 9, tzinfo=UTC)
    assert ticks("0 9 29 2 *", "UTC", start, 1) == [datetime(2028, 2, 29, 9, tzinfo=UTC)]
    with pytest.raises(ConfigurationError, match="cron"):
        cron_rule("0 0 30 2 *", "UTC")


def test_the_last_day_is_found_in_every_month():
    found = ticks("0 0 L * *", "UTC", datetime(2023, 1, 1, tzinfo=UTC), 12 * 7)
    assert [(at.year, at.month) for at in found] == [
        (year, month) for year in range(2023, 2030) for month in range(1, 13)
    ]
    assert all((at + timedelta(days=1)).day == 1 for at in found)


def test_a_schedule_of_the_31st_never_sticks_to_the_28th():
    found = ticks("0 0 31 * *", "UTC", datetime(2026, 1, 1, tzinfo=UTC), 60)
    assert {at.day for at in found} == {31}
    assert len({(at.year, at.month) for at in found}) == 60


def test_intervals_do_not_drift():
    timing = Timing(interval=7 * 86_400 * SECOND, starts_at=5)
    at = first_tick(timing, 0)
    for n in range(1000):
        assert at == 5 + n * 7 * 86_400 * SECOND
        at = next_tick(timing, at)


# Twice, and all at once


async def test_a_scheduler_that_was_frozen_and_comes_back_fires_nothing_twice(world: World):
    """Nobody leads, so nobody can go on believing that it does."""
    frozen, other = world.scheduler(), world.scheduler()
    for each in (frozen, other):
        each.task(interval=10)
    await world.steps(25, frozen, other, every=5)
    await world.steps(400, other, every=5, first=False)
    await world.steps(100, frozen, other, every=5)
    assert await world.ticks() == [10.0 * n for n in range(1, 53)]


@pytest.mark.parametrize("before", [1, -1])
async def test_the_one_that_fires_dies_around_a_tick_and_the_next_goes_on(
    world: World, before: int
):
    """A quarter of an hour stays a quarter of an hour: the plan is in the store."""
    first, second = world.scheduler(), world.scheduler()
    for each in (first, second):
        each.task(interval=900)
    await world.steps(900 - before, first, every=900 - before)
    await world.steps(20, second)
    assert await world.ticks() == [900]
    await world.steps(900, second, every=60)
    assert await world.ticks() == [900, 1800]


async def test_after_days_offline_a_daily_job_runs_once(world: World):
    one = world.scheduler()
    one.task(cron="0 7 * * *")
    await world.steps(0, one)
    world.pass_time(4 * 86_400)
    await one.ticker.look()
    assert len(await world.ticks()) == 1


async def test_a_slow_job_does_not_fill_the_workers(world: World):
    one = world.scheduler()
    one.task(interval=1, overlap="skip")
    await world.steps(2, one)
    await world.start()
    await world.steps(50, one)
    assert len(await world.jobs()) == 1


async def test_a_machine_that_slept_over_some_ticks_fires_by_the_policy(world: World):
    one = world.scheduler()
    one.task(interval=30, misfire="all")
    await world.steps(31, one)
    world.pass_time(90)
    await one.ticker.look()
    assert await world.ticks() == [30, 60, 90, 120]
    for step in (7200, -7200, 1):
        one.clock.set(world.clock_time(step))
        await world.steps(30, one)
    fired = await world.ticks()
    assert fired == [30.0 * n for n in range(1, len(fired) + 1)]
    assert len(fired) >= 6


async def test_sleeps_are_short_and_looked_at_again(world: World):
    """No timer is set for a day, so none can be wrong for a day."""
    one = world.scheduler()
    one.task(cron="@yearly")
    assert 0 < await one.ticker.look() <= 60


async def test_processes_of_one_web_server_fire_each_tick_once(
    tmp_path: Path, scaled: Callable[[int, int], int]
):
    """Four processes, each with a worker in its lifespan; they end when they are told to."""
    code = """
        import asyncio, signal
        from tenure import QueueService

        jobs = QueueService("sqlite:///jobs.db", app_name="shop")

        @jobs.task(interval=0.1, misfire="all")
        async def beat() -> None:
            await asyncio.sleep(0.05)

        async def main() -> None:
            stop = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
            async with jobs.lifespan():
                worker = jobs.worker(poll_max=0.1)
                running = asyncio.create_task(worker.run())
                await stop.wait()
                worker.stop()
                await running

        asyncio.run(main())
    """
    children = [start(code, cwd=tmp_path) for _ in range(scaled(3, 8))]
    async with QueueService(f"sqlite:///{tmp_path}/jobs.db") as jobs:

        async def enough() -> bool:
            return len(await jobs.schedules.history("beat")) >= scaled(15, 90)

        await until(enough, timeout=40)
        for child in children:
            child.terminate()
        await asyncio.gather(*(asyncio.to_thread(output, child) for child in children))
        found = sorted(job.row.tick or 0 for job in await jobs.schedules.history("beat", limit=999))
    assert found == list(range(found[0], found[-1] + 1, SECOND // 10))
