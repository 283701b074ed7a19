"""The sync face: every public coroutine has a blocking twin, of the same signature, that works."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tenure import JobHandle, QueueService, TaskRef, sync, task
from tenure.errors import ConfigurationError, InvalidArguments, JobCancelled, JobNotFound
from tenure.queues import Queues
from tenure.receipts import Receipts

PAIRS: list[tuple[type, type]] = [
    (QueueService, sync.QueueService),
    (JobHandle, sync.JobHandle),
    (Queues, sync.Queues),
    (Receipts, sync.Receipts),
]
TWINS = [
    (face, twin, name)
    for face, twin in PAIRS
    for name, member in vars(face).items()
    if inspect.iscoroutinefunction(member) and not name.startswith("_")
]


@task
async def work(n: int = 0) -> int:
    return n


@pytest.fixture
def jobs(url: str) -> Iterator[sync.QueueService]:
    with sync.QueueService(url, tasks=[work]) as jobs:
        yield jobs


@pytest.mark.parametrize(("face", "twin", "name"), TWINS, ids=lambda v: getattr(v, "__name__", v))
def test_every_coroutine_has_a_twin(face: type, twin: type, name: str) -> None:
    theirs, ours = getattr(face, name), getattr(twin, name)
    assert not inspect.iscoroutinefunction(ours)
    assert inspect.signature(ours) == inspect.signature(theirs)
    said, says = inspect.getdoc(theirs), inspect.getdoc(ours)
    assert says
    assert says == (said or "").replace("`await ", "`")


def test_both_faces_are_made_alike() -> None:
    assert inspect.signature(sync.QueueService) == inspect.signature(QueueService)
    assert {"enqueue", "close", "wait", "stats"} <= {name for _, _, name in TWINS}


def test_a_face_and_its_service_lead_to_each_other(url: str) -> None:
    jobs = QueueService(url)
    assert jobs.sync.async_service is jobs
    assert jobs.sync.url == jobs.url
    assert jobs.sync.task == jobs.task


def test_every_twin_works(jobs: sync.QueueService) -> None:
    jobs.open()
    assert jobs.migrate() == jobs.migrate() > 0
    handle = jobs.enqueue(work, 3)
    assert (jobs.get(handle.id), handle.created) == (handle.job(), True)
    many = jobs.enqueue_many(work.bind(n) for n in range(3))
    assert [h.job().arguments["n"] for h in many] == [0, 1, 2]
    assert len(jobs.find(states="pending", tasks=["work"], limit=2)) == 2
    assert [s.pending for s in jobs.queues.stats("default", "none")] == [4, 0]
    assert jobs.cancel(handle.id, many[0].id).cancelled == (handle.id, many[0].id)
    assert many[1].cancel(force=True).cancelled == (many[1].id,)
    assert jobs.wait(handle.id, timeout=5) == handle.wait() == handle.wait(timeout=0)
    with pytest.raises(JobCancelled):
        jobs.handle(handle.id).result(5)
    with pytest.raises(TimeoutError):
        many[2].wait(0.01)
    assert jobs.requeue(handle.id).requeued == (handle.id,)
    assert jobs.sweep() == []
    assert handle.id in repr(handle)
    jobs.close()
    jobs.close()
    assert jobs.get(handle.id).task == "work"


def test_errors_come_as_they_are(jobs: sync.QueueService) -> None:
    with pytest.raises(JobNotFound):
        jobs.get("nobody")
    with pytest.raises(InvalidArguments, match="unexpected keyword argument 'm'"):
        jobs.enqueue(work, m=3)  # type: ignore[call-overload]
    with pytest.raises(InvalidArguments, match="item 0 is a Task"):
        jobs.enqueue_many([work])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="limit"):
        jobs.find(limit=0)
    assert jobs.find() == []


def test_a_generator_runs_in_the_callers_thread(jobs: sync.QueueService) -> None:
    """It may use what belongs to that thread: a database session, for one."""
    seen: list[str] = []

    def items() -> Iterator[Any]:
        seen.append(threading.current_thread().name)
        yield TaskRef("elsewhere").bind()

    jobs.enqueue_many(items())
    assert seen == [threading.current_thread().name]


def test_tasks_are_declared_through_either_face(jobs: sync.QueueService) -> None:
    @jobs.task(name="plain", priority=3)
    def plain(n: int) -> int:
        return n

    assert jobs.enqueue("plain", 1).job().priority == 3
    assert jobs.enqueue(plain, 1).job().task == "plain"
