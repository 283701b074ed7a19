"""Looking after jobs: find, get, cancel, requeue, sweep, stats, and what is heard of it all."""

from __future__ import annotations

from typing import Any

import pytest

from tenure import JobHandle, QueueService, State
from tenure.core.outcomes import Errored
from tenure.core.reports import JobError
from tenure.errors import ConfigurationError, InvalidArguments, JobNotFound, TenureError
from tenure.observe.hooks import Happening
from tests.service.conftest import End

pytestmark = pytest.mark.anyio


@pytest.fixture
def work(jobs: QueueService) -> Any:
    @jobs.task
    async def work(n: int = 0) -> int:
        return n

    return work


async def test_jobs_are_found_by_what_they_are(jobs: QueueService, work: Any, end: End) -> None:
    @jobs.task(queue="mail")
    async def send() -> None: ...

    done, due, mail = [await jobs.enqueue(task) for task in (work, work, send)]
    await end(jobs, done.id)

    async def found(**where: Any) -> list[str]:
        return [job.id for job in await jobs.find(**where)]

    assert await found() == [mail.id, due.id, done.id]
    assert await found(limit=1) == [mail.id]
    assert await found(before=mail.id) == [due.id, done.id]
    assert await found(states=["completed"]) == [done.id]
    assert await found(states=[State.PENDING, "failed"]) == [mail.id, due.id]
    assert await found(tasks={"send", "other"}) == [mail.id]
    assert await found(queues=iter(["default"])) == [due.id, done.id]
    assert await found(states="pending", tasks="work", queues="default") == [due.id]


@pytest.mark.parametrize(
    ("where", "word"),
    [
        ({"states": "done"}, r"states must be of pending, .*; not 'done'"),
        ({"states": [3]}, "states must be of"),
        ({"states": 3}, "states must be a list, not int"),
        ({"tasks": 3}, "tasks must be a list, not int"),
        ({"tasks": [3]}, "tasks must be names, not int"),
        ({"queues": ["a\x00"]}, "queues: .*NUL"),
        ({"limit": 0}, "limit must be an integer from 1 to 1000"),
        ({"limit": 1001}, "from 1 to 1000"),
        ({"limit": True}, "from 1 to 1000"),
        ({"limit": "5"}, "from 1 to 1000"),
        ({"before": 3}, "job id is text, not int"),
    ],
)
async def test_a_bad_search_is_refused_by_name(
    jobs: QueueService, where: dict[str, Any], word: str
) -> None:
    with pytest.raises(TenureError, match=word):
        await jobs.find(**where)


async def test_a_task_is_no_name(jobs: QueueService, work: Any) -> None:
    with pytest.raises(InvalidArguments, match=r"tasks must be names, not Task; give its \.name"):
        await jobs.find(tasks=[work])


async def test_what_is_no_id_is_refused_with_a_hint(jobs: QueueService, work: Any) -> None:
    handle = await jobs.enqueue(work)
    given: list[tuple[Any, str]] = [
        ([handle.id], r"not list; give several one by one, as in \(\*ids\)"),
        (handle, r"not JobHandle; give its \.id"),
        (await handle.job(), r"not Job; give its \.id"),
        (7, "not int"),
        (None, "not NoneType"),
        ("a\x00", "NUL"),
        ("\udce4", "surrogate"),
    ]
    for value, word in given:
        for call in (jobs.get, jobs.wait, jobs.cancel, jobs.requeue):
            with pytest.raises(TenureError, match=f"job id.*{word}"):
                await call(value)
    assert (await handle.job()).state is State.PENDING


async def test_an_unknown_job_is_told(jobs: QueueService) -> None:
    with pytest.raises(JobNotFound, match="'nobody'") as caught:
        await jobs.get("nobody")
    assert isinstance(caught.value, LookupError)
    assert (await jobs.cancel("nobody")).not_found == ("nobody",)
    assert (await jobs.requeue("nobody")).not_found == ("nobody",)


async def test_many_are_cancelled_and_requeued_at_once(
    jobs: QueueService, work: Any, end: End
) -> None:
    handles: list[JobHandle[Any]] = await jobs.enqueue_many(work.bind(n) for n in range(3000))
    ids = [handle.id for handle in handles]
    await end(jobs, ids[0])
    assert await jobs.cancel() == await jobs.cancel(*[])
    answer = await jobs.cancel(*ids, ids[1], "nobody")
    assert answer.already_final == (ids[0],)
    assert sorted(answer.cancelled) == ids[1:]
    assert answer.not_found == ("nobody",)
    again = await jobs.requeue(*ids)
    assert sorted(again.requeued) == ids
    assert (await jobs.requeue(ids[0])).not_final == (ids[0],)
    [stats] = await jobs.queues.stats("default")
    assert (stats.pending, stats.cancelled, stats.completed) == (3000, 0, 0)


async def test_a_failed_job_may_be_made_to_run_again(
    jobs: QueueService, work: Any, end: End
) -> None:
    handle = await jobs.enqueue(work)
    await end(jobs, handle.id, Errored(JobError("ValueError", "no")))
    assert (await handle.job()).state is State.FAILED
    assert (await jobs.requeue(handle.id)).requeued == (handle.id,)
    await jobs.worker(burst=True).run()
    assert await handle.result(timeout=0) == 0


async def test_a_sweep_expires_what_is_overdue(jobs: QueueService, work: Any) -> None:
    handle = await jobs.enqueue(work.options(expires_in=0))
    assert [swept.id for swept in await jobs.sweep(10)] == [handle.id]
    assert (await handle.job()).state is State.EXPIRED
    for limit in (0, 10_001, True, "x"):
        with pytest.raises(ConfigurationError, match="limit"):
            await jobs.sweep(limit)  # type: ignore[arg-type]


async def test_queues_are_counted(jobs: QueueService, work: Any) -> None:
    assert await jobs.queues.stats() == []
    await jobs.enqueue(work)
    await jobs.enqueue(work.options(queue="mail", delay=60))
    found = await jobs.queues.stats()
    assert [(s.queue, s.pending, s.scheduled) for s in found] == [
        ("default", 1, 0),
        ("mail", 0, 1),
    ]
    with pytest.raises(InvalidArguments, match="queues must be names, not list"):
        await jobs.queues.stats(["mail"])  # type: ignore[arg-type]


async def test_hooks_hear_of_jobs_and_harm_none(jobs: QueueService, work: Any) -> None:
    heard: list[str] = []

    def hear(happening: Happening) -> None:
        heard.append(happening.name)

    def fail(happening: Happening) -> None:
        raise ValueError

    remove = jobs.hooks.add(hear)
    jobs.hooks.add(fail)
    handle = await jobs.enqueue(work, 5)
    await jobs.worker(burst=True).run()
    assert await handle.result(timeout=0) == 5
    assert "job.completed" in heard
    assert jobs.hooks.failures >= len(heard)
    remove()
    before = len(heard)
    await jobs.enqueue(work)
    await jobs.worker(burst=True).run()
    assert len(heard) == before


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"concurency": 3}, "unknown option 'concurency'"),
        ({"concurrency": 0}, "concurrency must be"),
        ({"queues": []}, "name at least one queue"),
        ({"lease": 0.5}, "lease must be"),
    ],
)
async def test_a_bad_worker_is_refused(
    jobs: QueueService, options: dict[str, Any], word: str
) -> None:
    with pytest.raises(TenureError, match=word):
        jobs.worker(**options)
