"""Without a worker: claim and execute, a job taken over by its token, and jobs run at enqueue."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from tenure import QueueService
from tenure.core.fleet import QueueChange
from tenure.core.states import State
from tenure.errors import (
    ConfigurationError,
    EngineUnavailable,
    InvalidArguments,
    JobFailed,
    JobNotClaimable,
    LeaseLost,
    UnknownTask,
)
from tenure.tasks import TaskRef
from tenure.testing import override
from tenure.testing.flaky import Flaky

pytestmark = pytest.mark.anyio


@pytest.fixture
def tasks(jobs: QueueService) -> dict[str, Any]:
    """Some tasks, and what they did."""
    done: list[Any] = []
    began = asyncio.Event()

    @jobs.task
    async def add(a: int, b: int = 2) -> int:
        done.append((a, b))
        return a + b

    @jobs.task
    def in_thread(a: int) -> str:
        done.append(threading.current_thread() is threading.main_thread())
        return f"<{a}>"

    @jobs.task(max_attempts=2)
    async def fail() -> None:
        raise ValueError("no luck")

    @jobs.task
    async def rest() -> None:
        began.set()
        await asyncio.Event().wait()

    return {
        "add": add,
        "in_thread": in_thread,
        "fail": fail,
        "rest": rest,
        "done": done,
        "began": began,
    }


# claim and execute


async def test_a_claimed_job_goes_through_its_whole_life(jobs: QueueService, tasks):
    for n in range(3):
        await jobs.enqueue(tasks["add"], n)
    await jobs.enqueue(tasks["in_thread"], 7)
    results = []
    while claimed := await jobs.claim():
        [job] = claimed
        assert (job.label, job.owner is not None) == ("running", True)
        results.append((await jobs.execute(job)).result)
    assert results == [2, 3, 4, "<7>"]
    assert await jobs.claim(limit=10) == []


async def test_only_what_was_asked_for_is_claimed(jobs: QueueService, tasks):
    await jobs.enqueue(tasks["add"].options(queue="q"), 1)
    await jobs.enqueue(tasks["fail"])
    await jobs.enqueue(TaskRef("elsewhere"), n=1)
    assert [job.task for job in await jobs.claim(limit=10)] == ["fail"]
    assert await jobs.claim("q", tasks=["fail"]) == []
    assert [job.task for job in await jobs.claim("q", tasks=[tasks["add"]])] == ["add"]
    bad: list[dict[str, Any]] = [{"limit": 0}, {"lease": 0.1}, {"tasks": []}]
    for wrong in bad:
        with pytest.raises(ConfigurationError):
            await jobs.claim(**wrong)


async def test_a_failure_is_stored_and_not_raised(jobs: QueueService, tasks):
    await jobs.enqueue(tasks["fail"])
    [job] = await jobs.claim()
    again = await jobs.execute(job)
    assert again.label == "retrying"
    assert again.error is not None
    assert again.error.message == "no luck"


async def test_a_job_whose_claim_is_over_is_not_run(jobs: QueueService, tasks):
    await jobs.enqueue(tasks["add"], 1)
    [job] = await jobs.claim()
    assert (await jobs.execute(job)).state is State.COMPLETED
    with pytest.raises(LeaseLost, match="settled"):
        await jobs.execute(job)
    await jobs.requeue(job.id)
    [second] = await jobs.claim()
    with pytest.raises(LeaseLost, match="taken"):
        await jobs.execute(job)
    await jobs.cancel(job.id, force=True)
    with pytest.raises(LeaseLost, match="taken"):
        await jobs.execute(second)
    with pytest.raises(JobNotClaimable, match="not claimed"):
        await jobs.execute(await jobs.get(job.id))
    assert tasks["done"] == [(1, 2)]


async def test_a_lease_that_ran_out_before_is_lost(jobs: QueueService, url: str, tasks):
    async with override(jobs, url.replace("jobs.db", "other.db")) as kit:
        await jobs.enqueue(tasks["add"], 1)
        [job] = await jobs.claim(lease=1)
        assert kit.clock is not None
        kit.clock.advance(1)
        with pytest.raises(LeaseLost, match="lapsed"):
            await jobs.execute(job)
    assert tasks["done"] == []


async def test_one_claim_is_executed_once(jobs: QueueService, tasks):
    await jobs.enqueue(tasks["rest"])
    [job] = await jobs.claim()
    first = asyncio.create_task(jobs.execute(job))
    await tasks["began"].wait()
    with pytest.raises(JobNotClaimable, match="already"):
        await jobs.execute(job)
    await jobs.cancel(job.id)
    assert (await first).state is State.CANCELLED


async def test_a_cancelled_execute_gives_the_job_back_and_raises(jobs: QueueService, tasks):
    await jobs.enqueue(tasks["rest"])
    [job] = await jobs.claim()
    run = asyncio.create_task(jobs.execute(job))
    await tasks["began"].wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    left = await jobs.get(job.id)
    assert (left.label, left.row.releases, left.row.failures) == ("pending", 1, 0)
    [again] = await jobs.claim()
    assert again.token > job.token


async def test_a_job_that_was_cancelled_meanwhile_is_not_started(jobs: QueueService, tasks):
    await jobs.enqueue(tasks["add"], 1)
    [job] = await jobs.claim()
    await jobs.cancel(job.id)
    assert (await jobs.execute(job)).state is State.CANCELLED
    assert tasks["done"] == []


async def test_a_store_that_flaps_keeps_no_claimed_job_from_running(url: str, tasks, jobs):
    flaky = Flaky(jobs._life.engine)
    jobs._life._engine = flaky
    await jobs.enqueue(tasks["add"], 1)
    [job] = await jobs.claim()
    flaky.fail("extend", times=2)
    assert (await jobs.execute(job)).result == 3


@pytest.mark.parametrize("wrong", ["01890000", None, object()], ids=["an id", "None", "other"])
async def test_what_is_no_job_is_not_executed(jobs: QueueService, wrong: Any):
    with pytest.raises(InvalidArguments, match="job that was claimed"):
        await jobs.execute(wrong)


@pytest.mark.parametrize("wrong", ["7", 7.0, True])
async def test_what_is_no_token_takes_nothing_over(jobs: QueueService, tasks, wrong: Any):
    handle = await jobs.enqueue(tasks["add"], 1)
    with pytest.raises(InvalidArguments, match="token"):
        await jobs.run_one(handle.id, wrong)


async def test_code_that_is_not_here_is_told_first(jobs: QueueService, tasks):
    await jobs.enqueue(TaskRef("elsewhere"), n=1)
    [job] = await jobs.claim(tasks=["elsewhere"])
    with pytest.raises(UnknownTask):
        await jobs.execute(job)
    assert (await jobs.get(job.id)).label == "running"


def test_it_works_without_a_loop(service: QueueService):
    @service.task
    def double(n: int) -> int:
        return 2 * n

    face = service.sync
    for n in range(2):
        face.enqueue(double, n)
    assert [face.execute(job).result for job in face.claim(limit=2)] == [0, 2]


# run_one with a token


async def test_a_job_is_taken_over_by_its_token_and_only_once(jobs: QueueService, tasks):
    await jobs.enqueue(tasks["add"], 1)
    [job] = await jobs.claim()
    with pytest.raises(JobNotClaimable, match="holds it"):
        await jobs.run_one(job.id)
    with pytest.raises(LeaseLost, match="not held"):
        await jobs.run_one(job.id, job.token + 1)
    calls = [jobs.run_one(job.id, job.token) for _ in range(5)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    won = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert [done.result for done in won] == [3]
    assert all(isinstance(a, LeaseLost) for a in answers if a not in won)
    assert tasks["done"] == [(1, 2)]
    with pytest.raises(LeaseLost):
        await jobs.run_one(job.id, job.token)
    assert await jobs._run(lambda engine: engine.get([job.id])) == [won[0].row]


async def test_the_first_holder_is_refused_after_it_passed_the_job_on(jobs: QueueService, tasks):
    await jobs.enqueue(tasks["add"], 1)
    [job] = await jobs.claim()
    await jobs.run_one(job.id, job.token)
    with pytest.raises(LeaseLost, match="taken"):
        await jobs.execute(job)
    assert tasks["done"] == [(1, 2)]


# inline


async def test_a_due_job_runs_before_enqueue_returns(jobs: QueueService, tasks):
    handle = await jobs.enqueue(tasks["add"].options(executor="inline"), 1, b=5)
    assert tasks["done"] == [(1, 5)]
    assert (await handle.job()).state is State.COMPLETED
    assert await handle.result(0) == 6
    handles = await jobs.enqueue_many(
        [tasks["in_thread"].options(executor="inline").bind(1), tasks["add"].bind(1)]
    )
    assert [(await handle.job()).label for handle in handles] == ["completed", "pending"]


async def test_its_failure_does_not_raise(jobs: QueueService, tasks):
    inline = tasks["fail"].options(executor="inline")
    handle = await jobs.enqueue(inline)
    assert (await handle.job()).label == "retrying"
    handle = await jobs.enqueue(inline.options(max_attempts=1))
    with pytest.raises(JobFailed, match="no luck"):
        await handle.result(0)


async def test_what_is_not_due_waits_for_a_worker(jobs: QueueService, tasks):
    inline = tasks["add"].options(executor="inline")
    delayed = await jobs.enqueue(inline.options(delay=60), 1)
    await jobs._run(lambda engine: engine.configure(QueueChange("default", paused=True)))
    paused = await jobs.enqueue(inline, 2)
    assert tasks["done"] == []
    assert [(await h.job()).label for h in (delayed, paused)] == ["scheduled", "pending"]


async def test_a_body_enqueues_another_that_runs_within_it(jobs: QueueService, tasks):
    @jobs.task(executor="inline")
    async def outer() -> int:
        handle = await jobs.enqueue(tasks["add"].options(executor="inline"), 1)
        return int(await handle.result(0)) * 10

    @jobs.task(executor="inline")
    def from_a_thread() -> int:
        handle = jobs.sync.enqueue(tasks["add"].options(executor="inline"), 2)
        return int(handle.result(0)) * 10

    assert await (await jobs.enqueue(outer)).result(0) == 30
    assert await (await jobs.enqueue(from_a_thread)).result(0) == 40


async def test_a_cancelled_enqueue_leaves_the_job_to_others(jobs: QueueService, tasks):
    work = asyncio.create_task(jobs.enqueue(tasks["rest"].options(executor="inline")))
    await tasks["began"].wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    [job] = await jobs.find()
    assert (job.label, job.row.releases) == ("pending", 1)


async def test_a_store_that_goes_away_after_the_insert_fails_no_enqueue(jobs, tasks):
    flaky = Flaky(jobs._life.engine)
    jobs._life._engine = flaky
    flaky.fail("get")
    handle = await jobs.enqueue(tasks["add"].options(executor="inline"), 1)
    assert (await handle.job()).label == "pending"
    flaky.fail("insert")
    with pytest.raises(EngineUnavailable):
        await jobs.enqueue(tasks["add"].options(executor="inline"), 1)


async def test_arguments_and_results_are_encoded_all_the_same(jobs: QueueService):
    seen: list[object] = []

    @jobs.task(executor="inline")
    async def keep(path: Path, values: tuple[int, ...]) -> tuple[int, ...]:
        seen.append((path, values))
        return values

    given = (1, 2)
    handle = await jobs.enqueue(keep, Path("a"), given)
    assert seen == [(Path("a"), (1, 2))]
    assert (await handle.job()).result == [1, 2]


async def test_the_code_must_be_here(jobs: QueueService):
    with pytest.raises(ConfigurationError, match="needs the code"):
        await jobs.enqueue(TaskRef("elsewhere", executor="inline"))
    assert await jobs.find() == []


@pytest.mark.parametrize("wrong", ["process", "", 5])
def test_no_other_executor_is_taken(wrong):
    jobs = QueueService("memory://")
    with pytest.raises(ConfigurationError, match="executor must be 'inline' or None"):
        jobs.task(executor=wrong)


def test_inline_without_a_loop(service: QueueService):
    @service.task(executor="inline")
    def double(n: int) -> int:
        return 2 * n

    assert service.sync.enqueue(double, 4).result(0) == 8
    handles = service.sync.enqueue_many([double.bind(1), double.options(executor=None).bind(2)])
    assert [handle.job().label for handle in handles] == ["completed", "pending"]


async def test_it_is_refused_within_a_transaction(tmp_path: Path):
    async with QueueService(f"sqlite:///{tmp_path}/jobs.db") as jobs:

        @jobs.task(executor="inline")
        async def work() -> None: ...

        connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(ConfigurationError, match="inline cannot run within"):
            await jobs.using(connection).enqueue(work)
        with pytest.raises(ConfigurationError, match="inline cannot run within"):
            jobs.sync.using(connection).enqueue(work)
        await jobs.using(connection).enqueue(work.options(executor=None))
        connection.execute("COMMIT")
        connection.close()
        assert len(await jobs.find()) == 1
