"""One job that is named, run in this process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure import QueueService, Retry, Snooze
from tenure.core.fleet import QueueChange
from tenure.core.states import State
from tenure.engines.protocol import Claim
from tenure.errors import EngineUnavailable, JobNotClaimable, JobNotFound, UnknownTask
from tenure.worker import single
from tenure.worker.options import WorkerOptions
from tenure.worker.single import SingleRun
from tests.worker.kit import House, until
from tests.worker.puppet import Strings

pytestmark = pytest.mark.anyio


async def run(house: House, job_id: str, **options: Any) -> Any:
    return await asyncio.wait_for((await prepared(house, job_id, **options)).finish(), 20)


async def prepared(house: House, job_id: str, **options: Any) -> SingleRun:
    job = await house.job(job_id)
    chosen = WorkerOptions(
        queues=(job.queue,), concurrency=1, **{"stop_grace": 0.2, "poll_max": 3600, **options}
    )
    return SingleRun(house.engine, house.tasks, chosen, job.row, hooks=house.hooks)


async def work() -> str:
    return "done"


async def fail() -> None:
    raise ValueError("no luck")


async def wait_for_ever() -> None:
    await asyncio.Event().wait()


async def test_it_runs_this_job_and_no_other(house: House):
    task = house.task(work, queue="q")
    ids = [await house.put(task) for _ in range(3)]
    job = await run(house, ids[1])
    assert (job.id, job.state, job.result) == (ids[1], State.COMPLETED, "done")
    assert [await house.state(job_id) for job_id in ids] == ["pending", "completed", "pending"]
    assert house.names(ids[1]) == ["job.started", "job.completed"]


async def test_a_failure_is_final_or_comes_again(house: House):
    job_id = await house.put(house.task(fail, max_attempts=2))
    job = await run(house, job_id)
    assert (job.state, job.row.failures) == (State.PENDING, 1)
    await until(lambda: due(house))
    job = await run(house, job_id)
    assert (job.state, job.error.message) == (State.FAILED, "no luck")


async def vanish(house: House, job_id: str) -> None:
    """Claim the job, and let the lease run out at once."""
    await house.engine.claim(Claim(owner="gone", limit=1, lease=1, ids=(job_id,)))


async def started(house: House, job_id: str) -> None:
    await until(lambda: house.names(job_id) == ["job.started"])


async def due(house: House) -> bool:
    return await house.engine.next_due(["default"]) == 0


@pytest.mark.parametrize("directive", [Retry(after=60), Snooze(60)])
async def test_one_attempt_is_made_and_no_second(house: House, directive: BaseException):
    async def body() -> None:
        raise directive

    job_id = await house.put(house.task(body, max_attempts=9))
    job = await run(house, job_id)
    assert (job.state, job.row.claims) == (State.PENDING, 1)
    with pytest.raises(JobNotClaimable, match="it is not due before 20"):
        await run(house, job_id)


async def test_what_cannot_be_claimed_is_refused_with_the_reason(house: House):
    task = house.task(work)
    final, held, later, paused = [await house.put(task, delay=d) for d in (0, 0, 10**9, 0)]
    await house.engine.cancel([final])
    await house.steal(ids=(held,))
    await house.engine.configure(QueueChange("default", paused=True))
    for job_id, reason in (
        (final, "it is cancelled already"),
        (held, "thief holds it until .* UTC"),
        (later, "it is not due before"),
        (paused, "the queue default is paused"),
    ):
        before = await house.job(job_id)
        with pytest.raises(JobNotClaimable, match=f"job {job_id} cannot be run now: {reason}"):
            await run(house, job_id)
        assert (await house.job(job_id)).row == before.row
    assert house.told == []


async def test_a_lapsed_job_is_taken_over(house: House):
    job_id = await house.put(house.task(work))
    await vanish(house, job_id)
    job = await run(house, job_id)
    assert (job.state, job.lapses) == (State.COMPLETED, 1)


async def test_an_overdue_job_expires(house: House):
    job_id = await house.put(house.task(work), expires_in=1)
    with pytest.raises(JobNotClaimable, match="it is expired already"):
        await run(house, job_id)


async def test_a_job_behind_many_that_became_due(house: House, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(single, "_PROMOTED", 2)
    task = house.task(work)
    ids = [await house.put(task, delay=1) for _ in range(7)]
    assert (await run(house, ids[-1])).state is State.COMPLETED


async def test_a_claim_whose_reply_is_lost_is_asked_for_again(
    moved: tuple[House, Strings], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(single, "_PAUSE", 0.0)
    house, strings = moved
    job_id = await house.put(house.task(work))
    strings.after["claim"] = [EngineUnavailable("lost")]
    job = await run(house, job_id)
    assert (job.state, job.claims, job.lapses) == (State.COMPLETED, 1, 0)


async def test_a_store_that_stays_away_ends_it(
    moved: tuple[House, Strings], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(single, "_PAUSE", 0.0)
    house, strings = moved
    job_id = await house.put(house.task(work))
    strings.before["claim"] = [EngineUnavailable("away")] * 50
    with pytest.raises(EngineUnavailable):
        await run(house, job_id)


async def test_a_cancel_request_is_heard(house: House):
    job_id = await house.put(house.task(wait_for_ever))
    running = asyncio.create_task(run(house, job_id))
    await started(house, job_id)
    await house.engine.cancel([job_id])
    assert (await running).state is State.CANCELLED


async def test_the_first_stop_waits_and_the_second_gives_back(house: House):
    going = asyncio.Event()

    async def body() -> str:
        await going.wait()
        return "done"

    task = house.task(body)
    ids = [await house.put(task) for _ in range(2)]
    for job_id, stops in zip(ids, (1, 2), strict=True):
        going.clear()
        one = await prepared(house, job_id)
        running = asyncio.create_task(one.finish())
        await started(house, job_id)
        for _ in range(stops):
            one.stop()
        if stops == 1:
            going.set()
        job = await asyncio.wait_for(running, 20)
        assert job.state is (State.COMPLETED if stops == 1 else State.PENDING)
        assert job.row.releases == stops - 1


async def test_who_is_cancelled_gives_the_job_back(house: House):
    job_id = await house.put(house.task(wait_for_ever))
    running = asyncio.create_task(run(house, job_id))
    await started(house, job_id)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    job = await house.job(job_id)
    assert (job.state, job.row.releases, job.row.lapses) == (State.PENDING, 1, 0)


async def test_others_are_not_swept(house: House):
    task = house.task(work)
    job_id, lapsed = [await house.put(task) for _ in range(2)]
    await vanish(house, lapsed)
    await run(house, job_id)
    assert (await house.job(lapsed)).state is State.RUNNING


async def test_the_service_runs_one(tmp_path):
    jobs = QueueService(f"sqlite:///{tmp_path}/jobs.db")
    add = jobs.task(add_up)
    async with jobs:
        handle = await jobs.enqueue(add, 1, 2)
        assert (await jobs.run_one(handle.id)).result == 3
        with pytest.raises(JobNotClaimable):
            await jobs.run_one(handle.id)
        with pytest.raises(JobNotFound):
            await jobs.run_one("nobody")
        other = QueueService(jobs.url)
        async with other:
            with pytest.raises(UnknownTask):
                await other.run_one((await jobs.enqueue(add, 1, 2)).id)


def test_the_blocking_face_runs_one(tmp_path):
    jobs = QueueService(f"sqlite:///{tmp_path}/jobs.db")
    add = jobs.task(add_up)
    with jobs.sync as face:
        assert face.run_one(face.enqueue(add, 1, 2).id).result == 3


def add_up(a: int, b: int) -> int:
    return a + b
