"""What people do to many jobs at once: find, cancel, requeue and prune by filter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure import QueueService
from tenure.core.outcomes import Errored
from tenure.core.query import PAGE_MAX, CancelResult, RequeueResult
from tenure.core.reports import JobError
from tenure.errors import ConfigurationError, InvalidArguments, JobNotFound
from tenure.tasks import TaskRef

pytestmark = pytest.mark.anyio
FAILED = Errored(JobError("ValueError", "Disk full"), retryable=False)
mail, video = TaskRef("mail"), TaskRef("video", queue="video")


@pytest.fixture
async def shop(jobs: QueueService, end) -> AsyncIterator[tuple[QueueService, dict[str, str]]]:
    """A waiting mail, a failed mail, a completed mail, a running mail and two waiting videos."""
    ids = {}
    for name in ("failed", "completed", "running", "waiting"):
        tagged = mail.options(tags=[name], metadata={"customer": 7, "vip": name == "failed"})
        ids[name] = (await jobs.enqueue(tagged, name=name)).id
        if name == "failed":
            await end(jobs, ids[name], FAILED)
        elif name == "completed":
            await end(jobs, ids[name])
    for n in range(2):
        ids[f"video{n}"] = (await jobs.enqueue(video, n=n)).id
    async with jobs.receive(limit=1, tasks=["mail"]) as deliveries:
        [delivery] = deliveries
        assert delivery.job.id == ids["running"]
        yield jobs, ids
        await jobs.cancel(ids["running"], force=True)


async def test_jobs_are_found_by_what_is_in_them(shop):
    jobs, ids = shop
    names = {job_id: name for name, job_id in ids.items()}

    async def found(**where: Any) -> list[str]:
        return [names[job.id] for job in await jobs.find(**where)]

    assert await found(tags="failed") == ["failed"]
    assert await found(tags=["failed", "waiting"]) == ["waiting", "failed"]
    assert await found(metadata={"customer": 7, "vip": True}) == ["failed"]
    assert await found(metadata={"customer": "7"}) == []
    assert await found(error="disk FULL") == ["failed"]
    assert await found(error="ValueError", states="completed") == []
    assert await found(queues="video") == ["video1", "video0"]
    now = datetime.now(UTC)
    assert await found(created_after=now + timedelta(hours=1)) == []
    assert len(await found(created_before=now + timedelta(hours=1))) == 6
    ended = {"finished_after": now - timedelta(hours=1)}
    assert await found(**ended) == ["completed", "failed"]
    assert await found(**ended, tasks=["mail"], limit=1) == ["completed"]
    assert await found(schedules="nightly") == await found(actors="ann") == []
    assert await found(keys=["k"]) == []


async def test_all_that_match_come_one_by_one(shop):
    jobs, ids = shop
    met = [job.id async for job in jobs.find_all(tasks="mail")]
    assert met == [ids[n] for n in ("waiting", "running", "completed", "failed")]


def test_all_that_match_come_without_a_loop(service: QueueService):
    for n in range(3):
        service.sync.enqueue(mail, n=n)
    assert [job.arguments["n"] for job in service.sync.find_all(tasks="mail")] == [2, 1, 0]
    assert service.sync.cancel(tasks="mail", dry_run=True).requested == ()
    assert len(service.sync.cancel(tasks="mail").cancelled) == 3


@pytest.mark.parametrize(
    ("where", "error", "words"),
    [
        ({"colour": "red"}, InvalidArguments, "'colour'; one of: states"),
        ({"metadata": ["a"]}, InvalidArguments, "metadata must be a mapping"),
        ({"metadata": {"a": 1.5}}, InvalidArguments, "metadata.a must be text, a whole number"),
        ({"metadata": {"a": 2**63}}, ConfigurationError, "64 bits"),
        ({"error": 5}, InvalidArguments, "error must be text"),
        ({"tags": 5}, InvalidArguments, "tags must be a list"),
        ({"created_after": datetime(2026, 1, 1)}, ConfigurationError, "created_after must have a"),  # noqa: DTZ001
    ],
)
async def test_what_cannot_be_looked_for_is_named(jobs, where, error, words):
    for operation in (jobs.find, jobs.cancel, jobs.requeue, jobs.prune):
        with pytest.raises(error, match=words):
            await operation(**where)


async def test_cancelling_by_filter_tells_first_and_then_does_the_same(shop):
    jobs, ids = shop
    told = await jobs.cancel(tasks="mail", dry_run=True)
    assert told == CancelResult(cancelled=(ids["waiting"],), requested=(ids["running"],))
    assert (await jobs.get(ids["waiting"])).label == "pending"
    assert (await jobs.cancel(tasks="mail", force=True, dry_run=True)).requested == ()
    assert await jobs.cancel(tasks="mail") == told
    assert (await jobs.get(ids["video0"])).label == "pending"
    told = await jobs.cancel(ids["video0"], ids["failed"], "none", dry_run=True)
    assert told == CancelResult((ids["video0"],), (), (ids["failed"],), ("none",))
    told = await jobs.requeue(ids["video0"], ids["failed"], "none", dry_run=True)
    assert told == RequeueResult((ids["failed"],), (ids["video0"],), ("none",))


async def test_no_filter_and_no_ids_is_nothing_at_all(shop):
    jobs, _ = shop
    assert await jobs.cancel() == await jobs.cancel(dry_run=True) == CancelResult()
    assert await jobs.requeue() == await jobs.requeue(dry_run=True) == RequeueResult()
    with pytest.raises(InvalidArguments, match="prune what"):
        await jobs.prune()


async def test_requeueing_by_filter_takes_what_failed_unless_told_otherwise(shop):
    jobs, ids = shop
    assert await jobs.requeue(queues="default", dry_run=True) == RequeueResult((ids["failed"],))
    assert (await jobs.get(ids["failed"])).label == "failed"
    assert await jobs.requeue(metadata={"customer": 7}) == RequeueResult((ids["failed"],))
    assert await jobs.requeue(states="completed") == RequeueResult((ids["completed"],))
    answer = await jobs.requeue(ids["waiting"], "none", tasks="mail")
    assert answer == RequeueResult(not_final=(ids["waiting"],), not_found=("none",))


async def test_more_than_a_page_is_done_page_by_page(jobs: QueueService):
    await jobs.enqueue_many([mail.bind(n=n) for n in range(PAGE_MAX + 50)])
    assert len((await jobs.cancel(tasks="mail", dry_run=True)).cancelled) == PAGE_MAX + 50
    assert len((await jobs.cancel(tasks="mail")).cancelled) == PAGE_MAX + 50
    assert len((await jobs.requeue(states="cancelled")).requeued) == PAGE_MAX + 50
    ids = [job.id async for job in jobs.find_all()]
    assert len((await jobs.cancel(*ids)).cancelled) == PAGE_MAX + 50
    assert await jobs.prune(states="cancelled", dry_run=True) == PAGE_MAX + 50
    assert await jobs.prune(states="cancelled") == PAGE_MAX + 50
    assert await jobs.find() == []


async def test_pruning_removes_only_what_ended_and_matches(shop):
    jobs, ids = shop
    assert await jobs.prune(older_than=3600) == 0
    assert await jobs.prune(states="pending") == 0
    assert await jobs.prune(tags="failed", dry_run=True) == 1
    assert await jobs.prune(tags="failed") == 1
    assert await jobs.prune(ids["completed"], ids["waiting"], ids["running"]) == 1
    assert await jobs.prune(tasks="mail") == 0
    assert {job.id for job in await jobs.find()} == {
        ids[name] for name in ("waiting", "running", "video0", "video1")
    }


async def test_a_job_runs_again_with_other_arguments(jobs: QueueService, end):
    @jobs.task
    async def resize(path: str, width: int = 800, *more: int) -> None: ...

    job_id = (await jobs.enqueue(resize, "a.jpg", 1, 2, 3)).id
    await end(jobs, job_id, FAILED)
    for wrong, words in (
        ({"width": 5}, "missing argument 'path'"),
        ({"path": "b", "height": 5}, "unknown argument 'height'"),
        ({"path": "b", "width": "wide"}, "width"),
        (["b"], "must be a mapping"),
    ):
        with pytest.raises(InvalidArguments, match=words):
            await jobs.requeue(job_id, arguments=wrong)  # type: ignore[arg-type]
    assert (await jobs.requeue(job_id, arguments={"path": "b"}, dry_run=True)).requeued
    assert (await jobs.get(job_id)).label == "failed"
    await jobs.requeue(job_id, arguments={"path": "b.jpg", "more": [7]})
    job = await jobs.get(job_id)
    assert (job.label, job.arguments) == (
        "pending",
        {"path": "b.jpg", "width": 800, "more": [7]},
    )
    with pytest.raises(InvalidArguments, match="one job"):
        await jobs.requeue(job_id, "other", arguments={})
    with pytest.raises(InvalidArguments, match="one job"):
        await jobs.requeue(job_id, tasks="resize", arguments={})
    with pytest.raises(JobNotFound):
        await jobs.requeue("none", arguments={})


async def test_arguments_of_an_unknown_task_are_taken_as_they_are(jobs: QueueService, end):
    job_id = (await jobs.enqueue(mail, to="ann")).id
    await end(jobs, job_id)
    await jobs.requeue(job_id, arguments={"anything": [1, None]})
    assert (await jobs.get(job_id)).arguments == {"anything": [1, None]}
    with pytest.raises(InvalidArguments, match=r"mail: .*anything"):
        await jobs.requeue(job_id, arguments={"anything": float("nan")})
