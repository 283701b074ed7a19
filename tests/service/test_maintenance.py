"""Housekeeping: in phases, in bounded steps, by one runner of a fleet."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from tenure import QueueService
from tenure.core.durations import HOUR, SECOND
from tenure.core.event import EventFilter, NewEvent
from tenure.core.retention import Retention
from tenure.core.states import State
from tenure.core.upkeep import Maintained, PhaseState
from tenure.engines.memory import MemoryEngine
from tenure.engines.open import open_engine
from tenure.errors import ConfigurationError, EngineUnavailable
from tenure.maintenance import JOB_ID, NAME, Maintenance
from tenure.tasks import TaskRef
from tenure.testing import override
from tenure.testing.clock import ManualClock
from tenure.testing.conformance.kit import finished, new, running, stored
from tenure.testing.flaky import Flaky
from tenure.worker import ticker
from tenure.worker.pruner import STEP, Pruner, prune_step
from tests.worker.kit import until

pytestmark = pytest.mark.anyio
DAY = 24 * HOUR
mail = TaskRef("mail")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Stores of which a test has the clock."""
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
async def flaky(url: str, clock: ManualClock):
    async with Flaky(open_engine(url, clock=clock)) as engine:
        yield engine


def upkeep(engine, clock: ManualClock, **retention) -> Maintenance:
    return Maintenance(engine, Retention(**retention), clock=clock)


def counts(report: Maintained) -> dict[str, tuple[str, int]]:
    return {phase.name: (str(phase.state), phase.count) for phase in report.phases}


async def test_each_end_is_kept_for_its_time(flaky, clock):
    now = clock.time_us()
    await finished(flaky, 1, now=now)
    await running(flaky, 2, now=now)
    await flaky.cancel([(await stored(flaky, 2)).id], force=True, now=now)
    await flaky.append([NewEvent(name="e", facts={})], now=now)
    left = []
    for days in (7, 0.001, 22.999, 0.001):
        clock.advance(timedelta(days=days))
        report = await upkeep(flaky, clock).run(30)
        assert report.state == "done"
        where = {phase.name: phase.count for phase in report.phases}
        left.append((where["retention"], where["events"]))
    assert left == [(0, 0), (1, 1), (0, 0), (1, 0)]
    assert await flaky.read(EventFilter()) == []


async def test_what_is_kept_for_ever_stays(flaky, clock):
    await finished(flaky, 1, now=clock.time_us())
    clock.advance(timedelta(days=10_000))
    report = await upkeep(flaky, clock, completed=None, events=None).run(30)
    assert counts(report) == {"sweep": ("done", 0), "retention": ("done", 0), "events": ("done", 0)}


async def test_a_run_does_all_that_there_is_in_bounded_steps(flaky, clock):
    now = clock.time_us()
    late = [new(n, expires_in=1) for n in range(STEP + 1)]
    await flaky.insert(late, now=now)
    await flaky.append([NewEvent(name="e", facts={}) for _ in range(STEP)], now=now)
    clock.advance(timedelta(days=31))
    report = await upkeep(flaky, clock).run(30)
    assert counts(report)["sweep"] == ("done", STEP + 1)
    assert counts(report)["events"] == ("done", STEP)
    assert flaky.calls["sweep"] == 2
    clock.advance(timedelta(days=31))
    report = await upkeep(flaky, clock).run(30)
    assert counts(report)["retention"] == ("done", STEP + 1)


async def test_a_budget_that_is_over_leaves_the_rest_for_the_next_run(flaky, clock):
    now = clock.time_us()
    await flaky.insert([new(n, expires_in=1) for n in range(2 * STEP + 1)], now=now)
    clock.advance(60)
    reports = [await upkeep(flaky, clock).run(0) for _ in range(3)]
    assert [counts(report)["sweep"] for report in reports] == [
        ("partial", STEP),
        ("partial", STEP),
        ("done", 1),
    ]
    assert [report.state for report in reports] == ["partial", "partial", "done"]


async def test_a_phase_that_fails_is_told_and_the_others_go_on(flaky, clock):
    await finished(flaky, 1, now=clock.time_us())
    clock.advance(timedelta(days=8))
    flaky.fail("sweep", error=RuntimeError("no such table"))
    report = await upkeep(flaky, clock).run(30)
    assert report.state == "failed"
    [sweep, retention, _] = report.phases
    assert (sweep.state, sweep.error) == (PhaseState.FAILED, "RuntimeError: no such table")
    assert (retention.state, retention.count) == (PhaseState.DONE, 1)
    assert (await upkeep(flaky, clock).run(30)).state == "done"


async def test_one_runner_at_a_time_and_another_after_it(flaky, clock):
    first, second = upkeep(flaky, clock), upkeep(flaky, clock)
    gate = flaky.hold("sweep")
    running = asyncio.create_task(first.run(30))
    await gate.reached()
    refused = await second.run(30)
    assert (refused.state, refused.phases) == ("already running", ())
    assert refused.runner == (await flaky.get([JOB_ID]))[0].owner
    gate.let_go()
    report = await running
    assert (report.state, report.runner) == ("done", refused.runner)
    assert not (await second.run(30)).already_running


async def test_many_at_once_are_one(flaky, clock):
    gate = flaky.hold("sweep")
    runs = [asyncio.create_task(upkeep(flaky, clock).run(30)) for _ in range(8)]
    await gate.reached()
    done, _ = await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
    while len(done) < 7:
        more, _ = await asyncio.wait(set(runs) - done, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    gate.let_go()
    states = [report.state for report in await asyncio.gather(*runs)]
    assert sorted(states) == ["already running"] * 7 + ["done"]


async def test_a_runner_that_vanished_is_followed_when_its_lease_ends(flaky, clock):
    gate = flaky.hold("sweep")
    gone = asyncio.create_task(upkeep(flaky, clock).run(30))
    await gate.reached()
    flaky.fail("settle", times=1)
    gone.cancel()  # as a process that died: its end is never written
    with pytest.raises(asyncio.CancelledError):
        await gone
    clock.advance(89)
    assert (await upkeep(flaky, clock).run(30)).already_running
    clock.advance(1)
    assert (await upkeep(flaky, clock).run(30)).state == "done"


async def test_any_number_of_runners_may_vanish(flaky, clock):
    for _ in range(6):
        flaky.fail("settle")
        await upkeep(flaky, clock).run(30)
        clock.advance(91)
    assert (await upkeep(flaky, clock).run(30)).state == "done"


async def test_a_cancelled_run_lets_the_next_begin_at_once(flaky, clock):
    gate = flaky.hold("sweep")
    run = asyncio.create_task(upkeep(flaky, clock).run(30))
    await gate.reached()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (await upkeep(flaky, clock).run(30)).state == "done"


async def test_a_store_that_is_away_raises(flaky, clock):
    flaky.fail("insert")
    with pytest.raises(EngineUnavailable):
        await upkeep(flaky, clock).run(30)


async def test_one_job_is_all_that_it_leaves_however_often_it_runs(jobs: QueueService):
    for _ in range(3):
        report = await jobs.maintain()
    [job] = await jobs.find()
    assert (job.id, job.task, job.queue, job.state) == (JOB_ID, NAME, NAME, State.COMPLETED)
    assert msgspec.convert(job.result, Maintained) == report
    assert await jobs.maintain(timedelta(0)) != report
    with pytest.raises(ConfigurationError, match="budget"):
        await jobs.maintain(-1)


async def test_schedules_that_are_due_are_fired(url: str, clock: ManualClock):
    jobs = QueueService("memory://")

    @jobs.task(interval=3600)
    async def work() -> None: ...

    async with override(jobs, url, clock=clock):
        assert counts(await jobs.maintain())["schedules"] == ("done", 0)
        clock.advance(3600)
        assert counts(await jobs.maintain())["schedules"] == ("done", 1)
        assert counts(await jobs.maintain())["schedules"] == ("done", 0)
        [job] = await jobs.find(tasks="work")
        assert job.label == "pending"


async def test_ticks_that_do_not_fit_in_the_budget_are_left_for_the_next_run(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ticker, "_ROUNDS", 1)
    monkeypatch.setattr(ticker, "_BATCH", 2)
    jobs = QueueService("memory://")

    @jobs.task(interval=3600, misfire="all")
    async def work() -> None: ...

    async with override(jobs, url, clock=clock):
        await jobs.maintain()
        clock.advance(5 * 3600)
        found = [counts(await jobs.maintain(0))["schedules"] for _ in range(3)]
        assert found == [("partial", 2), ("partial", 2), ("done", 1)]
        clock.advance(5 * 3600)
        assert counts(await jobs.maintain())["schedules"] == ("done", 5)


async def test_a_store_that_is_only_looked_at_fires_nothing(jobs: QueueService):
    """A service without tasks knows no schedule, and must not take those of others for gone."""
    assert "schedules" not in counts(await jobs.maintain())


async def test_a_sweep_of_maintenance_tells_the_tasks(url: str, clock: ManualClock):
    jobs, told = QueueService("memory://"), []

    @jobs.task(max_lapses=0, on_failure=lambda job, error: told.append((job.id, error.kind)))
    async def work() -> None: ...

    async with override(jobs, url, clock=clock):
        handle = await jobs.enqueue(work)
        await jobs.claim()
        clock.advance(60)
        assert counts(await jobs.maintain())["sweep"] == ("done", 1)
        assert told == [(handle.id, "lapsed")]


def test_it_runs_without_a_loop(service: QueueService):
    assert service.sync.maintain(5).state == "done"


async def test_workers_prune_a_little_and_go_on_while_there_is_more(clock):
    async with MemoryEngine(clock) as engine:
        for n in range(3):
            await finished(engine, n, now=clock.time_us())
        clock.advance(timedelta(days=8))
        assert await prune_step(engine, Retention(), clock.time_us()) == (3, False)
        await engine.insert([new(n) for n in range(STEP + 1)])
        await engine.cancel([new(n).id for n in range(STEP + 1)])
        clock.advance(timedelta(days=31))
        pruner = Pruner(engine, Retention(), clock=clock, every=0.001, soon=0.001)
        task = asyncio.create_task(pruner.run())
        while await engine.stats():  # noqa: ASYNC110 (of a store)
            await asyncio.sleep(0.001)
        task.cancel()


async def test_a_pruner_outlives_a_store_that_fails(clock):
    flaky = Flaky(MemoryEngine(clock))
    async with flaky:
        flaky.fail("prune", times=1)
        flaky.fail("prune", times=1, error=RuntimeError("odd"))
        pruner = Pruner(flaky, Retention(), clock=clock, every=0.001)
        task = asyncio.create_task(pruner.run())
        await until(lambda: flaky.calls["prune"] >= 5)
        task.cancel()


@pytest.mark.parametrize("name", ["completed", "others", "events"])
@pytest.mark.parametrize("value", [0, -1, True, "7 days", float("nan")])
def test_a_bad_retention_is_refused_by_name(name, value):
    with pytest.raises(ConfigurationError, match=f"retention: {name}"):
        Retention(**{name: value})


def test_retention_is_a_setting(monkeypatch, tmp_path):
    monkeypatch.setenv("TENURE_RETENTION", '{"completed": 3600, "others": null}')
    jobs = QueueService("memory://")
    assert jobs.settings.retention == Retention(completed=3600, others=None)
    monkeypatch.delenv("TENURE_RETENTION")
    (tmp_path / "pyproject.toml").write_text("[tool.tenure.retention]\nevents = 60\n")
    assert QueueService("memory://").settings.retention == Retention(events=60)
    (tmp_path / "pyproject.toml").write_text("[tool.tenure.retention]\nfailed = 60\n")
    with pytest.raises(ConfigurationError, match="failed"):
        QueueService("memory://")
    (tmp_path / "pyproject.toml").unlink()
    monkeypatch.setenv("TENURE_RETENTION", "{7")
    with pytest.raises(ConfigurationError, match="TENURE_RETENTION"):
        QueueService("memory://")


def test_the_longest_kept_is_still_an_instant():
    assert Retention(completed=None, others=timedelta(days=30)).of_jobs(40 * DAY) == [
        ((State.FAILED, State.CANCELLED, State.EXPIRED), 10 * DAY)
    ]
    assert Retention(events=1).of_events(5 * SECOND) == 4 * SECOND
