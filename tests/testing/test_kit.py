"""A service in a test: another store, what was enqueued, running it, and letting days pass."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tenure import QueueService, RetryPolicy
from tenure.core.states import State
from tenure.errors import ConfigurationError, EngineUnavailable, InvalidArguments, JobFailed
from tenure.sync import QueueService as SyncQueueService
from tenure.tasks import TaskRef
from tenure.testing import Kit, ManualClock, override

pytestmark = pytest.mark.anyio
DAY = timedelta(days=1)


class App:
    """What a user has at module level: a service on a real file, and code that uses it."""

    def __init__(self, folder: Path) -> None:
        self.jobs = QueueService(f"sqlite:///{folder}/real.db")
        self.sent: list[Any] = []
        self.fails = 0

        @self.jobs.task(max_attempts=5, retry=RetryPolicy.constant(6 * 3600))
        async def send(to: str, subject: str = "hello", *, copies: int = 1) -> int:
            if self.fails:
                self.fails -= 1
                raise ConnectionError("away")
            self.sent.append((to, subject, copies))
            return copies

        @self.jobs.task(queue="reports")
        def report(day: str) -> None:
            self.sent.append(day)
            self.jobs.sync.enqueue(send, "boss", subject=day)

        self.send, self.report = send, report

    async def sign_up(self, name: str) -> None:
        await self.jobs.enqueue(self.send, name, copies=2)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(tmp_path)
    yield app
    app.jobs.sync.close()


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/test.db"


@pytest.fixture
async def kit(app: App, url: str):
    async with override(app.jobs, url) as kit:
        yield kit


# override


async def test_code_that_has_the_service_works_on_another_store(app: App, url: str, tmp_path):
    async with override(app.jobs, url) as kit:
        assert kit.service is app.jobs
        await app.sign_up("ann")
        assert len(await app.jobs.find()) == 1
        assert app.jobs.url == url
    assert not (tmp_path / "real.db").exists()
    assert await app.jobs.find() == []
    assert app.jobs.url.endswith("real.db")


def test_in_plain_code(app: App, url: str, tmp_path):
    with override(app.jobs.sync, url) as kit:
        app.jobs.sync.enqueue(app.send, "ann")
        assert [job.id for job in kit.sync.drain()] == [job.id for job in app.jobs.sync.find()]
    assert app.sent == [("ann", "hello", 1)]
    assert not (tmp_path / "real.db").exists()
    blocking = SyncQueueService("memory://")
    with override(blocking, url) as kit:
        assert kit.service is blocking.async_service


async def test_what_was_open_is_open_again(app: App, url: str):
    await app.sign_up("real")
    async with override(app.jobs, url):
        assert await app.jobs.find() == []
        async with override(app.jobs, "memory://"):
            await app.sign_up("inner")
            assert len(await app.jobs.find()) == 1
        assert await app.jobs.find() == []
    assert [job.arguments["to"] for job in await app.jobs.find()] == ["real"]
    await app.jobs.close()


async def test_an_error_restores_it_too(app: App, url: str):
    own = app.jobs.url

    async def broken() -> None:
        async with override(app.jobs, url):
            await app.sign_up("ann")
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await broken()
    assert app.jobs.url == own
    assert await app.jobs.find() == []
    with pytest.raises(ConfigurationError, match="names no known engine"):
        async with override(app.jobs, "nowhere://"):
            pass
    assert app.jobs.url == own
    await app.jobs.close()


async def test_in_a_coroutine_it_must_be_awaited(app: App):
    own = app.jobs.url
    with pytest.raises(ConfigurationError, match="async with"), override(app.jobs):
        pass
    assert app.jobs.url == own


def test_a_loop_of_the_test_may_be_gone_at_the_end(app: App, url: str):
    """As with plugins that run each test on a loop of its own, and fixtures around it."""
    for _ in range(2):
        with override(app.jobs, url) as kit:
            asyncio.run(app.sign_up("ann"))
            asyncio.run(kit.assert_enqueued(app.send, to="ann"))
            loop = asyncio.new_event_loop()
            loop.run_until_complete(app.sign_up("bob"))
        loop.close()
    assert app.jobs.url.endswith("real.db")


# assert_enqueued


async def test_what_was_enqueued_is_found_by_some_of_its_arguments(app: App, kit: Kit):
    await app.sign_up("ann")
    job = await kit.assert_enqueued(app.send, to="ann")
    assert (await kit.assert_enqueued(app.send, to="ann", subject="hello", copies=2)).id == job.id
    assert (await kit.assert_enqueued("send")).id == job.id
    assert (await kit.assert_enqueued(TaskRef("send"), copies=2)).id == job.id
    await kit.drain()
    await kit.assert_enqueued(app.send, to="ann")
    await kit.assert_not_enqueued(app.report)
    with pytest.raises(AssertionError, match="send was enqueued"):
        await kit.assert_not_enqueued(app.send, copies=2)


async def test_a_failure_lists_what_comes_near(app: App, kit: Kit):
    with pytest.raises(AssertionError, match="no job was enqueued at all"):
        await kit.assert_enqueued(app.send, to="ann")
    await app.sign_up("bob")
    await app.sign_up("eve")
    await app.jobs.enqueue(app.report, "monday")
    with pytest.raises(AssertionError) as caught:
        await kit.assert_enqueued(app.send, to="ann", copies=2)
    lines = str(caught.value).splitlines()
    assert lines[0] == "no job of send with to='ann', copies=2 was enqueued"
    assert lines[1] == "there are 2 of send:"
    assert {line.split(": ", 1)[1] for line in lines[2:4]} == {
        "to='bob', not 'ann'",
        "to='eve', not 'ann'",
    }
    assert lines[4:] == ["of other tasks: report (1)"]
    with pytest.raises(AssertionError, match=r"one of report is:\n  .*: day='monday', not 'sun"):
        await kit.assert_enqueued(app.report, day="sunday")
    for n in range(6):
        await app.sign_up("x" * 200 + str(n))
    with pytest.raises(AssertionError, match=r"(?s)there are 8 of send.*…, not 'a'.*and 3 more"):
        await kit.assert_enqueued(app.send, to="a", subject="b")


async def test_an_argument_that_the_task_does_not_have_is_a_mistake(app: App, kit: Kit):
    await app.sign_up("ann")
    with pytest.raises(InvalidArguments, match="send has no argument 'too'"):
        await kit.assert_enqueued(app.send, too="ann")
    await kit.assert_not_enqueued("elsewhere", anything=1)


async def test_arguments_are_compared_as_they_are_stored(app: App, kit: Kit):
    @app.jobs.task
    async def at(when: datetime, where: Path = Path("/tmp"), *, extra: object = object()) -> None:
        del extra

    when = datetime(2026, 1, 1, tzinfo=UTC)
    await app.jobs.enqueue(at, when, extra=1)
    await kit.assert_enqueued(at, when=when, where=Path("/tmp"))
    await kit.assert_not_enqueued(at, where=Path("/var"))


# drain and inline


async def test_draining_runs_what_is_due_and_what_that_enqueues(app: App, kit: Kit):
    await app.jobs.enqueue(app.report, "monday")
    await app.jobs.enqueue(app.send.options(delay=60), "later")
    ran = await kit.drain()
    assert [job.task for job in ran] == ["report", "send"]
    assert all(job.state is State.COMPLETED for job in ran)
    assert app.sent == ["monday", ("boss", "monday", 1)]
    assert await kit.drain() == []


async def test_failures_are_stored_or_raised_on_request(app: App, kit: Kit):
    app.fails = 1
    once = app.send.options(max_attempts=1)
    await app.jobs.enqueue(once, "ann")
    [job] = await kit.drain()
    assert job.state is State.FAILED
    app.fails = 1
    await app.jobs.enqueue(once, "ann")
    with pytest.raises(JobFailed, match="away"):
        await kit.drain(check=True)


async def test_a_job_that_enqueues_itself_ends_the_drain(app: App, kit: Kit):
    @app.jobs.task
    async def again() -> None:
        await app.jobs.enqueue(again)

    await app.jobs.enqueue(again)
    with pytest.raises(AssertionError, match="more than 10 jobs ran"):
        await kit.drain(limit=10)


async def test_inline_runs_at_the_enqueue_through_the_store(app: App, url: str):
    async with override(app.jobs, url, inline=True) as kit:
        await app.sign_up("ann")
        assert app.sent == [("ann", "hello", 2)]
        assert (await kit.assert_enqueued(app.send)).result == 2
        app.fails = 1
        await app.sign_up("bob")
        assert (await kit.assert_enqueued(app.send, to="bob")).label == "retrying"
        await app.jobs.enqueue(app.report, "monday")
        assert app.sent[1:] == ["monday", ("boss", "monday", 1)]
        await app.jobs.enqueue(TaskRef("elsewhere"))
        assert (await kit.assert_enqueued("elsewhere")).label == "pending"


def test_inline_in_plain_code(app: App, url: str):
    with override(app.jobs, url, inline=True) as kit:
        assert app.jobs.sync.enqueue(app.send, "ann", copies=3).result(0) == 3
        kit.sync.assert_enqueued(app.send, copies=3)
        kit.sync.assert_not_enqueued(app.report)


# time


async def test_retries_come_each_at_its_time(app: App, kit: Kit):
    app.fails = 3
    await app.sign_up("ann")
    assert [job.label for job in await kit.drain()] == ["retrying"]
    assert [job.attempt for job in await kit.advance(6 * 3600)] == [3]
    [job] = await kit.advance(DAY)
    assert (job.state, job.attempt) == (State.COMPLETED, 4)
    times = [datetime.fromtimestamp(error.at / 1e6, UTC) for error in job.errors]
    assert len(times) == 3
    assert job.started_at is not None
    assert job.started_at - job.created_at == timedelta(hours=18)


async def test_delays_and_expiries_come_in_their_order(app: App, kit: Kit):
    for hours in (30, 10, 20):
        await app.jobs.enqueue(app.send.options(delay=hours * 3600), f"{hours}h")
    slow = app.send.options(delay=50 * 3600, expires_in=3600)
    gone = await app.jobs.enqueue(slow, "never")
    ran = await kit.advance(25 * 3600)
    assert [job.arguments["to"] for job in ran] == ["10h", "20h"]
    assert (await gone.job()).state is State.EXPIRED
    assert [to for to, *_ in app.sent] == ["10h", "20h"]
    await kit.advance(25 * 3600)
    assert len(app.sent) == 3


async def test_the_lease_of_a_vanished_worker_runs_out(app: App, kit: Kit):
    await app.sign_up("ann")
    [job] = await app.jobs.claim()
    assert await kit.advance(29) == []
    [done] = await kit.advance(2)
    assert (done.id, done.state, done.lapses) == (job.id, State.COMPLETED, 1)
    await app.jobs.enqueue(TaskRef("elsewhere"))
    [lost] = await app.jobs.claim(tasks=["elsewhere"])
    await kit.advance(60)
    assert (await app.jobs.get(lost.id)).label == "pending"


async def test_what_is_kept_no_longer_is_removed(app: App, kit: Kit):
    await app.sign_up("ann")
    cancelled = await app.jobs.enqueue(app.send.options(delay=60 * 86_400), "bob")
    await cancelled.cancel()
    await kit.advance(7 * DAY)
    assert len(await app.jobs.find()) == 2
    await kit.advance(1)
    assert [job.id for job in await app.jobs.find()] == [cancelled.id]
    await kit.advance(23 * DAY)
    assert await app.jobs.find() == []


async def test_recurring_jobs_come_at_their_times(app: App, kit: Kit):
    """Each tick at its instant by the clock of the test, over days, in its own zone."""

    @app.jobs.task(cron="0 7 * * *", timezone="Europe/Berlin")
    async def newspaper() -> None: ...

    app.jobs.schedules.declare("hourly", app.report.bind("hour"), interval=6 * 3600)
    await kit.drain()
    ran = await kit.advance(2 * DAY)
    daily = sorted(job.tick for job in ran if job.task == "newspaper" and job.tick)
    assert len(daily) == 2
    assert {tick.astimezone(ZoneInfo("Europe/Berlin")).hour for tick in daily} == {7}
    assert daily[1] - daily[0] in (timedelta(hours=23), DAY, timedelta(hours=25))
    often = [job for job in ran if job.task == "report"]
    assert len(often) == 8
    for job in ran:
        if job.tick is not None:
            assert job.started_at == job.tick
    assert len(app.sent) == 16


async def test_a_schedule_that_waits_for_the_end_of_its_job_goes_on(app: App, kit: Kit):
    app.jobs.schedules.declare("r", app.send.bind("ann"), interval=3600, from_finish=True)
    await kit.drain()
    ran = await kit.advance(3.5 * 3600)
    assert len(ran) == 3


async def test_the_clock_begins_now_or_where_it_is_told(app: App, url: str):
    async with override(app.jobs, url) as kit:
        assert kit.clock is not None
        before = datetime.now(UTC)
        await app.sign_up("ann")
        [job] = await app.jobs.find()
        assert abs(before - job.created_at) < timedelta(seconds=60)
    clock = ManualClock()
    async with override(app.jobs, "memory://", clock=clock) as kit:
        await app.sign_up("ann")
        [job] = await app.jobs.find()
        assert job.created_at == datetime(2026, 1, 1, tzinfo=UTC)
        assert "at 2026-01-01 00:00:00" in repr(kit)


async def test_a_store_with_a_clock_of_its_own_cannot_be_advanced(app: App):
    kit = Kit(app.jobs, None, override(app.jobs)._begin().faults)
    with pytest.raises(ConfigurationError, match="keeps its own time"):
        await kit.advance(1)
    assert kit.clock is None
    await app.jobs.close()


def test_days_pass_in_plain_code(app: App, url: str):
    with override(app.jobs, url) as kit:
        app.fails = 1
        app.jobs.sync.enqueue(app.send, "ann")
        [job] = kit.sync.advance(DAY, check=True)
        assert (job.state, job.attempt) == (State.COMPLETED, 2)
        assert kit.sync.service.get(job.id).attempt == 2


# faults


async def test_the_store_fails_where_it_is_told_to(app: App, kit: Kit):
    kit.faults.fail("insert")
    with pytest.raises(EngineUnavailable):
        await app.sign_up("ann")
    kit.faults.fail("insert", after=True)
    with pytest.raises(EngineUnavailable):
        await app.sign_up("bob")
    await kit.assert_enqueued(app.send, to="bob")
    await kit.assert_not_enqueued(app.send, to="ann")
    kit.faults.fail("settle", after=True)
    await kit.drain()
    assert app.sent == [("bob", "hello", 2)]
