"""What code declares, release after release: the older one cannot undo the newer."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tenure import QueueService
from tenure.core.durations import SECOND
from tenure.core.reconcile import API, source_of
from tenure.core.schedule import ScheduleChange
from tenure.worker.reconciler import TERM
from tests.schedules.kit import ZERO, Scheduler, World

pytestmark = pytest.mark.anyio

DAY = 86_400


def release(world: World, *schedules: tuple[str, int], app: str = "shop") -> Scheduler:
    """A scheduler of a release that declares these, each with an interval in seconds."""
    one = world.scheduler(app=app)
    task = one.task()
    for name, interval in schedules:
        one.declarations.declare(name, task, {"interval": interval})
    return one


async def plans(world: World) -> dict[str, object]:
    return {row.name: row.definition["timing"]["interval"] / SECOND for row in await world.rows()}


async def test_what_is_declared_is_there_once_a_worker_started(world: World):
    one = release(world, ("a", 10), ("b", 20))
    await one.ticker.look()
    rows = {row.name: row for row in await world.rows()}
    assert rows.keys() == {"a", "b"}
    assert {row.source for row in rows.values()} == {source_of("shop")}
    assert rows["b"].next_at == ZERO + 20 * SECOND


async def test_an_app_without_schedules_leaves_no_trace(world: World):
    await release(world).ticker.look()
    assert await world.engine.schedules() == []


async def test_a_restart_keeps_the_plan(world: World):
    await release(world, ("a", 900)).ticker.look()
    world.pass_time(899)
    await world.steps(1, release(world, ("a", 900)))
    assert await world.ticks() == [900]


async def test_a_new_release_replaces_retires_and_keeps(world: World):
    await release(world, ("a", 10), ("b", 20), ("c", 30)).ticker.look()
    await world.change("a", paused=True)
    world.pass_time(5)
    await release(world, ("a", 40), ("c", 30), ("d", 50)).ticker.look()
    rows = {row.name: row for row in await world.rows()}
    assert await plans(world) == {"a": 40, "c": 30, "d": 50}
    assert rows["a"].paused
    assert [(rows[name].next_at or 0) - ZERO for name in "acd"] == [
        45 * SECOND,
        30 * SECOND,
        55 * SECOND,
    ]


async def test_other_arguments_keep_the_plan(world: World):
    old, new = world.scheduler(), world.scheduler()
    old.declarations.declare("a", old.task().bind(1), {"interval": 10})
    new.declarations.declare("a", new.task().bind(2), {"interval": 10})
    await old.ticker.look()
    world.pass_time(12)  # the deploy takes longer than that
    await new.ticker.look()
    [job] = await world.jobs()
    assert (job.tick, job.payload) == (ZERO + 10 * SECOND, b'{"n":2}')


async def test_new_times_are_no_reason_to_run_at_once(world: World):
    await release(world, ("a", 10)).ticker.look()
    world.pass_time(60)
    await release(world, ("a", 20)).ticker.look()
    assert await world.jobs() == []
    assert (await world.row("a")).next_at == ZERO + 80 * SECOND


async def test_an_old_worker_that_starts_late_undoes_nothing(
    world: World, caplog: pytest.LogCaptureFixture
):
    old = release(world, ("same", 10), ("changed", 10), ("gone", 10))
    await old.ticker.look()
    new = release(world, ("same", 10), ("changed", 20), ("added", 30))
    await new.ticker.look()
    restarted = release(world, ("same", 10), ("changed", 10), ("gone", 10))
    with caplog.at_level(logging.WARNING, "tenure.schedules"):
        await world.steps(60, restarted, old, every=5)
    assert await plans(world) == {"same": 10, "changed": 20, "added": 30}
    assert set(await world.ticks("same")) == {10, 20, 30, 40, 50, 60}
    assert await world.ticks("changed") == []  # nobody that knows it is there
    assert await world.ticks("gone") == []
    told = [happening.facts["schedule"] for happening in restarted.told if "rej" in happening.name]
    assert told == ["changed", "gone"]
    assert caplog.text.count("a newer release") == 4  # once for each worker and schedule
    await world.steps(5, new)
    assert await world.ticks("changed") == [60]
    assert await world.ticks("added") == [60]


async def test_both_releases_together_converge_whoever_looks_first(world: World):
    old = [release(world, ("a", 10), ("b", 10)) for _ in range(3)]
    await asyncio.gather(*(each.ticker.look() for each in old))
    new = [release(world, ("a", 20), ("c", 10)) for _ in range(3)]
    await world.steps(100, *new, *old, every=10)
    assert await plans(world) == {"a": 20, "c": 10}


async def test_several_workers_of_a_new_release_start_at_once(world: World):
    await release(world, ("a", 10), ("b", 20)).ticker.look()
    many = [release(world, ("a", 40), ("c", 50)) for _ in range(6)]
    await asyncio.gather(*(each.ticker.look() for each in many))
    assert await plans(world) == {"a": 40, "c": 50}


async def test_after_a_rollback_the_older_release_takes_over_in_time(world: World):
    old = release(world, ("a", DAY), ("gone", DAY))
    await old.ticker.look()
    new = release(world, ("a", 2 * DAY))
    await world.steps(TERM, new, old, every=10)
    await world.steps(TERM / 2, old, every=10)  # the newer one is gone now
    assert await plans(world) == {"a": 2 * DAY}
    await world.steps(TERM / 2 + 20, old, every=10)
    assert await plans(world) == {"a": DAY, "gone": DAY}


async def test_while_its_workers_live_a_release_stays_in_force(world: World):
    old, new = release(world, ("a", DAY)), release(world, ("a", 2 * DAY))
    await world.steps(0, old)
    for _ in range(4):
        await world.steps(TERM * 3 / 4, new, old, every=20)
        assert await plans(world) == {"a": 2 * DAY}


async def test_a_crash_in_the_middle_of_a_sync_is_made_good(world: World):
    await release(world, ("a", 10)).ticker.look()
    new = release(world, ("a", 20), ("b", 30))
    saves = 0
    real = world.engine.save_schedules

    async def save(changes: list[ScheduleChange]):
        nonlocal saves
        saves += 1
        if saves == 2:
            raise RuntimeError("the process died")
        return await real(changes)

    world.engine.save_schedules = save  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="died"):
        await new.ticker.look()
    assert await plans(world) == {"a": 10}
    await release(world, ("a", 20), ("b", 30)).ticker.look()
    assert await plans(world) == {"a": 20, "b": 30}


async def test_apps_do_not_touch_each_other(world: World, caplog: pytest.LogCaptureFixture):
    shop, bank = release(world, ("a", 10), app="shop"), release(world, ("b", 10), app="bank")
    await shop.ticker.look()
    await bank.ticker.look()
    assert set(await plans(world)) == {"a", "b"}
    with caplog.at_level(logging.WARNING, "tenure.schedules"):
        await release(world, ("a", 99), ("b", 10), app="bank").ticker.look()
    assert await plans(world) == {"a": 10, "b": 10}
    assert "the app 'shop' has a schedule of this name" in caplog.text
    await world.steps(10, bank)
    assert await world.ticks("a") == []


async def test_what_was_edited_at_run_time_is_kept(world: World):
    await release(world, ("a", 10)).ticker.look()
    await world.change("a", source=API)
    for interval in (20, 30):
        await release(world, ("a", interval)).ticker.look()
    assert await plans(world) == {"a": 10}


async def test_a_broken_declaration_stops_no_other(world: World, caplog: pytest.LogCaptureFixture):
    await release(world, ("bad", 10)).ticker.look()
    one = release(world, ("good", 10))
    one.declarations.declare("bad", "nobody", {"interval": 10})
    with caplog.at_level(logging.WARNING, "tenure.schedules"):
        await world.steps(40, one)
    assert await world.ticks() == [10, 20, 30, 40]
    assert caplog.text.count("schedule.rejected: bad: no task is named 'nobody'") == 1
    assert set(await plans(world)) == {"good", "bad"}


async def test_a_forced_sync_wins_at_once(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"

    def service(interval: int) -> QueueService:
        jobs = QueueService(url, app_name="shop")

        @jobs.task(interval=interval, name="a")
        async def a() -> None: ...

        return jobs

    old, new = service(10), service(20)
    async with old, new:
        assert (await old.schedules.sync()).created == ("a",)
        assert (await old.schedules.sync()).kept == ("a",)
        assert (await new.schedules.sync()).replaced == ("a",)
        assert (await old.schedules.get("a")).state == "unknown"
        assert (await old.schedules.sync()).replaced == ("a",)
        assert (await old.schedules.get("a")).state == "active"
