"""Recurring jobs as users declare them, look after them and see them run."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenure import INJECTED, JobContext, QueueService, RetryPolicy, task
from tenure.core.durations import SECOND
from tenure.core.reconcile import definition_of
from tenure.core.schedule import Overlap, Schedule, ScheduleChange
from tenure.core.states import State
from tenure.errors import (
    ConfigurationError,
    InvalidArguments,
    ScheduleNotFound,
    UnknownTask,
)
from tenure.options import TaskOptions, changed
from tenure.recurring import ScheduleOptions
from tenure.tasks import Task, TaskRef
from tenure.testing import override
from tenure.testing.clock import ManualClock
from tenure.worker import ticker
from tests.worker.kit import NEVER, until

pytestmark = pytest.mark.anyio

NOW = datetime.now(UTC)


def greet(name: str = "you", *, ctx: JobContext = INJECTED) -> str:
    return f"hello {name}"


def known(jobs: QueueService, **options) -> Task[..., Any]:
    return jobs.task(**options)(greet)


# Declaring


async def test_a_task_may_have_a_schedule_of_its_own(jobs: QueueService):
    known(jobs, cron="0 7 * * 1-5", timezone="Europe/Berlin")
    assert (await jobs.schedules.sync()).created == ("greet",)
    [info] = await jobs.schedules.list()
    assert (info.name, info.task, info.rule) == ("greet", "greet", "0 7 * * 1-5 Europe/Berlin")
    assert (info.state, info.app, info.arguments) == ("active", jobs._declarations.app, {})
    assert info.next_at == info.preview(1)[0]


async def test_one_task_may_have_any_number_of_schedules(jobs: QueueService):
    one = known(jobs, interval=60)
    jobs.schedules.declare("eu", one.bind("eu"), cron="@daily", timezone="Europe/Berlin")
    jobs.schedules.declare("us", "greet", cron="@daily", timezone="US/Central", overlap="skip")
    synced = await jobs.schedules.sync()
    assert synced.created == ("eu", "greet", "us")
    assert (await jobs.schedules.get("eu")).arguments == {"name": "eu"}
    assert (await jobs.schedules.get("us")).overlap is Overlap.SKIP
    assert (await jobs.schedules.sync()).kept == ("eu", "greet", "us")


async def test_what_is_no_longer_declared_is_retired(url: str):
    def service(*names: str) -> QueueService:
        jobs = QueueService(url, app_name="shop")
        for name in names:
            jobs.schedules.declare(name, known_once(jobs), interval=60)
        return jobs

    def known_once(jobs: QueueService) -> Task[..., Any]:
        return known(jobs) if "greet" not in jobs.tasks else jobs.tasks.get("greet")

    if url.startswith("memory"):
        pytest.skip("each service in memory is a store of its own")
    async with service("a", "b") as old, service("b", "c") as new:
        await old.schedules.sync()
        synced = await new.schedules.sync()
        assert (synced.created, synced.kept, synced.retired) == (("c",), ("b",), ("a",))
        synced = await old.schedules.sync()
        assert (synced.created, synced.retired) == (("a",), ("c",))


async def test_tasks_that_are_collected_bring_their_schedules(url: str):
    @task(interval=60)
    async def collected() -> None: ...

    async with QueueService(url, tasks=[collected]) as jobs:
        assert (await jobs.schedules.sync()).created == ("collected",)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"cron": "x"}, "cron"),
        ({"cron": 5}, "cron"),
        ({"cron": "* * * * *", "interval": 5}, "cron or interval"),
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"interval": 0}, "interval"),
        ({"interval": 0.09}, "interval"),
        ({"interval": True}, "interval"),
        ({"interval": float("nan")}, "interval"),
        ({"interval": 1e300}, "interval"),
        ({"interval": 5, "timezone": "Nowhere"}, "timezone"),
        ({"interval": 5, "timezone": None}, "timezone"),
        ({"interval": 5, "jitter": -1}, "jitter"),
        ({"interval": 5, "initial_delay": -1}, "initial_delay"),
        ({"interval": 5, "starts_at": datetime(2026, 1, 1)}, "starts_at"),  # noqa: DTZ001
        ({"interval": 5, "starts_at": NOW, "ends_at": NOW - timedelta(1)}, "ends_at"),
        ({"interval": 5, "misfire": "never"}, "misfire"),
        ({"interval": 5, "misfire": 0}, "misfire"),
        ({"interval": 5, "misfire": 101}, "misfire"),
        ({"interval": 5, "misfire": True}, "misfire"),
        ({"interval": 5, "misfire": []}, "misfire"),
        ({"interval": 5, "overlap": "maybe"}, "overlap"),
        ({"interval": 5, "from_finish": 1}, "from_finish"),
        ({"jitter": 5}, "jitter"),
        ({"timezone": "Europe/Berlin"}, "timezone"),
        ({"misfire": "skip"}, "misfire"),
        ({"from_finish": True}, "from_finish"),
    ],
)
def test_a_bad_option_is_refused_by_name(service: QueueService, options, word: str):
    with pytest.raises(ConfigurationError, match=word):
        service.task(**options)
    if "cron" in options or "interval" in options:
        with pytest.raises(ConfigurationError, match=word):
            service.schedules.declare("s", "greet", **options)


def test_every_option_is_there_in_both_faces():
    fields = set(ScheduleOptions.__struct_fields__)
    assert fields == set(ScheduleOptions.__annotations__)
    assert fields <= set(TaskOptions.__struct_fields__)


def test_a_schedule_without_a_rule_is_refused(service: QueueService):
    with pytest.raises(ConfigurationError, match="cron or interval"):
        service.schedules.declare("s", "greet")
    with pytest.raises(InvalidArguments, match="unknown option 'intervall'"):
        service.schedules.declare("s", "greet", intervall=5)  # type: ignore[call-arg]


def test_two_of_one_name_are_refused(service: QueueService):
    service.schedules.declare("s", "greet", interval=5)
    with pytest.raises(ConfigurationError, match="two schedules are named 's'"):
        service.schedules.declare("s", "greet", interval=5)
    with pytest.raises(ConfigurationError, match="name"):
        service.schedules.declare("code:shop", "greet", interval=5)


async def test_the_name_of_a_recurring_task_is_taken(jobs: QueueService):
    known(jobs, interval=5)
    jobs.schedules.declare("greet", "greet", interval=7)
    synced = await jobs.schedules.sync()
    assert synced.created == ("greet",)
    assert list(synced.rejected) == ["greet"]
    assert (await jobs.schedules.get("greet")).rule == "every 5 s"


def test_a_call_cannot_have_a_schedule(service: QueueService):
    with pytest.raises(InvalidArguments, match=r"interval.*jobs\.schedules"):
        known(service).options(interval=5)
    with pytest.raises(InvalidArguments, match="cron"):
        TaskRef("elsewhere", cron="* * * * *")


async def test_what_cannot_be_declared_is_told_and_stops_no_other(jobs: QueueService):
    @jobs.task(interval=5)
    async def needs(value: int) -> None: ...

    jobs.schedules.declare("stray", "nobody", interval=5)
    jobs.schedules.declare("good", known(jobs), interval=5)
    synced = await jobs.schedules.sync()
    assert synced.created == ("good",)
    assert set(synced.rejected) == {"needs", "stray"}
    assert "value" in synced.rejected["needs"]
    assert "nobody" in synced.rejected["stray"]


def test_options_travel_with_the_bound_task(service: QueueService):
    one = known(service, priority=2, max_attempts=3, tags=["x"])
    rule = changed(TaskOptions(), {"interval": 5})
    policy = RetryPolicy(base=3)
    other = one.options(
        priority=0, timeout=timedelta(seconds=9), retry=policy, tags=[], metadata={"a": [1]},
        expires_at=NOW, max_attempts=3,
    )  # fmt: skip
    declared = service._declarations.declared("s", other.bind(), rule)
    assert declared.definition.options.keys() == {
        "priority", "timeout", "retry", "tags", "metadata", "expires_at",
    }  # fmt: skip
    row = declared.row("api", 0)
    definition = definition_of(row)
    assert definition is not None
    job = service._declarations.job(row, definition, 10**15)
    wanted = service._enqueueing.job_of(other.bind(), job.id)
    for field in ("priority", "timeout", "retry", "tags", "metadata", "expires_at", "max_attempts"):
        assert getattr(job, field) == getattr(wanted, field), field
    assert service._declarations.declared("s", one, rule).definition.options == {}
    by_name = TaskRef("greet", timeout=5)
    assert service._declarations.declared("s", by_name, rule).definition.options == {"timeout": 5}


# At run time


async def test_adding_getting_listing_and_removing(jobs: QueueService):
    one = known(jobs)
    info = await jobs.schedules.add("s", one.bind("me"), interval=60, jitter=5)
    assert (info.name, info.app, info.state) == ("s", None, "active")
    assert (await jobs.schedules.get("s")).row == info.row
    assert [each.name for each in await jobs.schedules.list()] == ["s"]
    assert info.to_dict()["arguments"] == {"name": "me"}
    with pytest.raises(ConfigurationError, match="'s' already"):
        await jobs.schedules.add("s", one, interval=5)
    await jobs.schedules.remove("s")
    assert await jobs.schedules.list() == []
    for call in (jobs.schedules.get, jobs.schedules.remove, jobs.schedules.pause):
        with pytest.raises(ScheduleNotFound, match="'s'"):
            await call("s")


async def test_what_cannot_be_added(jobs: QueueService):
    with pytest.raises(UnknownTask):
        await jobs.schedules.add("s", "nobody", interval=5)
    with pytest.raises(InvalidArguments, match="not 5"):
        await jobs.schedules.add("s", 5, interval=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="name"):
        await jobs.schedules.add("a b", known(jobs), interval=5)
    assert await jobs.schedules.list() == []


async def test_a_sync_leaves_alone_what_was_made_at_run_time(jobs: QueueService):
    await jobs.schedules.add("s", known(jobs), interval=60)
    synced = await jobs.schedules.sync()
    assert (synced.retired, synced.replaced) == ((), ())
    assert (await jobs.schedules.get("s")).state == "active"


async def test_an_edit_keeps_what_it_does_not_name(jobs: QueueService):
    one = known(jobs)
    end = NOW.replace(year=2040, microsecond=0)
    before = await jobs.schedules.add(
        "s", one.bind("me"), interval=3600, jitter=5, overlap="skip", misfire="skip", ends_at=end
    )
    same_plan = await jobs.schedules.edit("s", one.bind("you"))
    assert same_plan.next_at == before.next_at
    assert same_plan.arguments == {"name": "you"}
    after = await jobs.schedules.edit("s", cron="0 7 * * *", timezone="Asia/Tokyo")
    assert (after.rule, after.overlap) == ("0 7 * * * Asia/Tokyo", Overlap.SKIP)
    timing = after.row.definition["timing"]
    assert (timing["jitter"], timing["catch_up"]) == (5 * SECOND, 0)
    assert "interval" not in timing
    assert after.next_at is not None
    assert after.next_at.hour == 22
    assert (await jobs.schedules.edit("s", overlap="cancel")).overlap is Overlap.CANCEL
    with pytest.raises(ConfigurationError, match="jitter"):
        await jobs.schedules.edit("s", jitter=-1)
    with pytest.raises(InvalidArguments, match="unknown option"):
        await jobs.schedules.edit("s", every=5)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="overlap"):
        await jobs.schedules.edit("s", overlap="x")  # type: ignore[arg-type]


async def test_an_edited_declaration_stays_edited(jobs: QueueService):
    known(jobs, interval=60)
    await jobs.schedules.sync()
    assert (await jobs.schedules.edit("greet", interval=5)).app is None
    assert (await jobs.schedules.sync()).kept == ("greet",)
    assert (await jobs.schedules.get("greet")).rule == "every 5 s"
    await jobs.schedules.remove("greet")
    assert (await jobs.schedules.sync()).created == ("greet",)
    assert (await jobs.schedules.get("greet")).rule == "every 60 s"


async def test_edits_at_the_same_time_all_take_effect(jobs: QueueService):
    await jobs.schedules.add("s", known(jobs), interval=60)
    await asyncio.gather(
        jobs.schedules.edit("s", jitter=7),
        jobs.schedules.pause("s"),
        jobs.schedules.edit("s", overlap="skip"),
        jobs.schedules.edit("s", "greet", timezone="Asia/Tokyo"),
    )
    info = await jobs.schedules.get("s")
    timing = info.row.definition["timing"]
    assert (timing["jitter"], timing["timezone"]) == (7 * SECOND, "Asia/Tokyo")
    assert (info.overlap, info.paused) == (Overlap.SKIP, True)


async def test_an_edit_meanwhile_is_not_undone(jobs: QueueService, monkeypatch: pytest.MonkeyPatch):
    await jobs.schedules.add("s", known(jobs), interval=60)
    real = jobs.schedules._row

    async def row(name: str) -> Schedule:
        found = await real(name)
        if not found.paused:
            await _put(jobs, found, paused=True)  # somebody else is faster
        return found

    monkeypatch.setattr(jobs.schedules, "_row", row)
    info = await jobs.schedules.edit("s", jitter=7)
    assert info.paused
    assert info.row.definition["timing"]["jitter"] == 7 * SECOND


@pytest.mark.parametrize("end", ["failed", "cancelled", "expired", "lapsed", "pruned"])
async def test_a_schedule_goes_on_whatever_becomes_of_its_jobs(url: str, end: str):
    jobs, clock = QueueService("memory://"), ManualClock()

    @jobs.task(interval=3600, max_lapses=0, expires_in=60)
    async def work() -> None:
        raise ValueError("boom")

    async with override(jobs, url, clock=clock):
        await jobs.maintain()
        clock.advance(100)
        for _ in range(3):
            clock.advance(3500)
            await jobs.maintain()
            [job] = await jobs.find(tasks="work", states="pending")
            if end == "failed":
                await jobs.run_one(job.id)
            elif end == "cancelled":
                await jobs.cancel(job.id)
            elif end == "pruned":
                await jobs.cancel(job.id)
                assert await jobs.prune(job.id) == 1
            elif end == "lapsed":
                await jobs.claim()
            clock.advance(100)
            await jobs.sweep()
            assert not await jobs.find(tasks="work", states=("pending", "running"))


async def test_a_pause_is_not_made_up_for(jobs: QueueService):
    await jobs.schedules.add("a", known(jobs), interval=0.1)
    await jobs.schedules.add("b", "greet", cron="* * * * *")
    for name in "ab":
        assert (await jobs.schedules.pause(name)).state == "paused"
        paused = await jobs.schedules.get(name)
        long_ago = 1_000_000_000 * SECOND
        row = paused.row
        await _put(jobs, row, next_at=long_ago)
        info = await jobs.schedules.resume(name)
        assert info.state == "active"
        assert info.next_at is not None
        assert info.next_at > datetime.now(UTC) - timedelta(seconds=0.1)
        assert (info.row.next_at or 0) % (SECOND // 10) == 0  # from the nominal instant on
        again = await jobs.schedules.resume(name)
        assert again.next_at == info.next_at


async def test_resuming_what_runs_changes_no_plan(jobs: QueueService):
    """What is overdue is for a worker to make up for."""
    info = await jobs.schedules.add("s", known(jobs), interval=60)
    await _put(jobs, info.row, next_at=1_000_000_000 * SECOND)
    assert (await jobs.schedules.resume("s")).row.next_at == 1_000_000_000 * SECOND


async def _put(jobs: QueueService, row: Schedule, **fields) -> None:
    new = msgspec.structs.replace(row, **fields)
    engine = jobs._life.engine
    [saved] = await engine.save_schedules([ScheduleChange(row.name, row.revision, new)])
    assert saved is not None


async def test_run_now_does_not_move_the_plan(jobs: QueueService):
    one = known(jobs, expires_in=3600, priority=4)
    before = await jobs.schedules.add("s", one.bind("me"), interval=3600, jitter=100)
    handle = await jobs.schedules.run_now("s")
    job = await jobs.get(handle.id)
    assert (job.schedule, job.tick, job.state) == ("s", None, State.PENDING)
    assert (job.arguments, job.priority) == ({"name": "me"}, 4)
    assert job.available_at == job.created_at
    assert job.expires_at is not None
    assert abs(job.expires_at - job.created_at - timedelta(hours=1)) < timedelta(minutes=1)
    assert (await jobs.schedules.get("s")).row == before.row
    other = await jobs.schedules.run_now("s")
    assert [each.id for each in await jobs.schedules.history("s")] == [other.id, handle.id]


async def test_preview(jobs: QueueService):
    await jobs.schedules.add("s", known(jobs), cron="0 0 1 1 *")
    ticks = await jobs.schedules.preview("s", 3)
    year = datetime.now(UTC).year
    assert [(tick.year, tick.month, tick.day) for tick in ticks] == [
        (year + n, 1, 1) for n in (1, 2, 3)
    ]
    end = datetime.now(UTC) + timedelta(seconds=130)
    await jobs.schedules.add("ends", "greet", interval=60, ends_at=end)
    assert len(await jobs.schedules.preview("ends", 1000)) == 2
    for bad in (0, 1001, True):
        with pytest.raises(ConfigurationError, match="n must"):
            await jobs.schedules.preview("s", bad)


async def test_the_states_that_are_shown(jobs: QueueService):
    known(jobs)
    soon = datetime.now(UTC) + timedelta(seconds=5)
    assert (await jobs.schedules.add("e", "greet", interval=60, ends_at=soon)).state == "ended"
    info = await jobs.schedules.add("w", "greet", interval=60, from_finish=True)
    await _put(jobs, info.row, next_at=None)
    assert (await jobs.schedules.get("w")).state == "ended"
    async with QueueService("memory://") as other:
        stranger = other.schedules._infos([info.row])[0]
    assert (stranger.state, stranger.known) == ("unknown", False)
    assert "another version" in other.schedules._infos([_strange(info.row)])[0].rule


def _strange(row: Schedule) -> Schedule:
    return msgspec.structs.replace(row, definition={"lunar": 1})


# Running


async def test_a_worker_makes_and_fires_what_is_declared(jobs: QueueService):
    ran = []

    @jobs.task(interval=0.1, name="beat")
    async def beat() -> None:
        ran.append(datetime.now(UTC))

    worker = jobs.worker(poll_max=0.1)
    running = asyncio.create_task(worker.run())
    await until(lambda: len(ran) >= 3)
    [info] = await jobs.schedules.list()
    worker.stop()
    await running
    history = await jobs.schedules.history("beat", limit=2)
    assert len(history) == 2
    assert history[0].tick is not None
    assert history[1].tick is not None
    assert history[0].tick > history[1].tick
    assert info.last_at is not None


async def test_a_schedule_made_at_run_time_is_heard_of_at_once(
    jobs: QueueService, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ticker, "LOOK", NEVER)
    ran = []

    @jobs.task
    async def beat() -> None:
        ran.append(1)

    worker = jobs.worker(poll_max=0.1)
    running = asyncio.create_task(worker.run())
    await until(lambda: worker._ticker is not None and worker._ticker._read_at > 0)
    await jobs.schedules.add("s", beat, interval=3600, initial_delay=0)
    await until(lambda: ran)
    worker.stop()
    await running


async def test_a_worker_in_burst_mode_runs_what_is_due(jobs: QueueService):
    one = known(jobs)
    await jobs.schedules.add("s", one, interval=3600, initial_delay=0)
    await jobs.worker(burst=True).run()
    [job] = await jobs.schedules.history("s")
    assert (job.state, job.result) == (State.COMPLETED, "hello you")


async def test_doctor_tells_of_schedules_that_nobody_fires(jobs: QueueService):
    known(jobs, interval=60)
    await jobs.schedules.sync()
    row = (await jobs.schedules.get("greet")).row
    assert await _told(jobs) == {}
    await _put(jobs, row, next_at=1)
    assert list(await _told(jobs)) == ["schedule-late"]
    row = (await jobs.schedules.get("greet")).row
    await _put(jobs, row, task="renamed")
    found = await _told(jobs)
    assert list(found) == ["schedule-late", "schedule-unknown"]
    assert "greet" in found["schedule-unknown"]


async def _told(jobs: QueueService) -> dict[str, str]:
    """What doctor says of schedules, by code."""
    findings = (await jobs.inspect()).findings
    return {each.code: each.text for each in findings if each.code.startswith("schedule")}


# Names of apps, and the blocking face


def test_the_app_is_named_by_its_settings_or_its_module(monkeypatch: pytest.MonkeyPatch):
    assert QueueService("memory://")._declarations.app == __name__
    assert QueueService("memory://", app_name="shop")._declarations.app == "shop"
    monkeypatch.setenv("TENURE_APP_NAME", "bank")
    assert QueueService("memory://")._declarations.app == "bank"
    for bad in ("", "x" * 201, "a\nb"):
        with pytest.raises(ConfigurationError, match="app_name"):
            QueueService("memory://", app_name=bad)


def test_the_blocking_face(tmp_path: Path):
    from tenure.sync import QueueService as SyncQueueService

    with SyncQueueService(f"sqlite:///{tmp_path}/jobs.db") as jobs:
        assert jobs.async_service._declarations.app == __name__
        one = jobs.task(greet)
        jobs.schedules.declare("s", one, interval=60)
        assert jobs.schedules.sync().created == ("s",)
        assert jobs.schedules.run_now("s").created
        assert jobs.schedules.pause("s").state == "paused"
        assert jobs.schedules.resume("s").state == "active"
        assert len(jobs.schedules.preview("s", 2)) == 2
        assert len(jobs.schedules.history("s")) == 1
        assert [info.name for info in jobs.schedules.list()] == ["s"]
