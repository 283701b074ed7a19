"""Enqueueing: what is stored, and that nothing is where something is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure import BoundTask, QueueService, RetryPolicy, State, TaskRef
from tenure.errors import ConfigurationError, InvalidArguments, PayloadError, UnknownTask

pytestmark = pytest.mark.anyio


@pytest.fixture
def keep(jobs: QueueService) -> Any:
    @jobs.task(aliases=["hold"])
    async def keep(value: object = None) -> object:
        return value

    return keep


async def stored(jobs: QueueService) -> int:
    return len(await jobs.find(limit=1000))


async def test_a_job_is_stored_as_its_options_say(jobs: QueueService, keep: Any) -> None:
    chosen = keep.options(
        queue="mail",
        priority=-5,
        max_attempts=7,
        max_lapses=2,
        max_interruptions=4,
        retry=RetryPolicy(base=2.0),
        timeout=timedelta(seconds=90),
        delay=60,
        expires_in=timedelta(hours=1),
        tags=["a", "b"],
        metadata={"k": [1]},
        description="words",
    )
    handle = await jobs.enqueue(chosen, 3)
    job = await handle.job()
    assert (job.id, job.task, job.queue, job.priority) == (handle.id, "keep", "mail", -5)
    assert (job.state, job.label, job.arguments) == (State.PENDING, "scheduled", {"value": 3})
    assert (job.row.max_attempts, job.row.max_lapses, job.row.max_interruptions) == (7, 2, 4)
    assert (job.row.retry, job.row.timeout) == (RetryPolicy(base=2.0), 90.0)
    assert job.available_at - job.created_at == timedelta(seconds=60)
    assert job.expires_at == job.created_at + timedelta(hours=1)
    assert (job.tags, job.metadata, job.description) == (("a", "b"), {"k": [1]}, "words")
    assert handle.created
    assert handle.id in repr(handle)


async def test_absolute_times_are_kept(jobs: QueueService, keep: Any) -> None:
    start, end = (datetime(year, 1, 1, tzinfo=UTC) for year in (2999, 9999))
    job = await (await jobs.enqueue(keep.options(run_at=start, expires_at=end))).job()
    assert (job.available_at, job.expires_at) == (start, end)
    past = datetime(1970, 1, 1, tzinfo=UTC)
    job = await (await jobs.enqueue(keep.options(run_at=past))).job()
    assert (job.label, job.available_at) == ("pending", job.created_at)


async def test_a_task_may_be_given_in_four_ways(jobs: QueueService, keep: Any) -> None:
    handles = [
        await jobs.enqueue(keep, 1),
        await jobs.enqueue("keep", 1),
        await jobs.enqueue("hold", value=1),
        await jobs.enqueue(keep.bind(1)),
        await jobs.enqueue(TaskRef("keep"), value=1),
    ]
    found = [await handle.job() for handle in handles]
    assert {(job.task, job.arguments["value"]) for job in found} == {("keep", 1)}


async def test_code_elsewhere_needs_no_task_here(jobs: QueueService) -> None:
    handle = await jobs.enqueue(TaskRef("reports.render", queue="reports"), month="may")
    job = await handle.job()
    assert (job.task, job.queue, job.arguments) == ("reports.render", "reports", {"month": "may"})


def bare() -> None: ...


@pytest.mark.parametrize(
    ("given", "error", "word"),
    [
        ("kep", UnknownTask, "'kep'; known: hold, keep"),
        (bare, ConfigurationError, "was the function decorated with @jobs.task"),
        (None, ConfigurationError, "not None"),
        (7, ConfigurationError, "not 7"),
    ],
)
async def test_what_is_no_task_is_refused(
    jobs: QueueService, keep: Any, given: Any, error: type[Exception], word: str
) -> None:
    with pytest.raises(error, match=word):
        await jobs.enqueue(given)
    assert await stored(jobs) == 0


async def test_a_task_that_was_called_is_told_apart(jobs: QueueService, keep: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"was called.*enqueue\(task, argument\)"):
        await jobs.enqueue(keep(1))


async def test_a_bound_task_takes_no_more_arguments(jobs: QueueService, keep: Any) -> None:
    for args, kwargs in (((2,), {}), ((), {"value": 2})):
        with pytest.raises(InvalidArguments, match="keep is bound already"):
            await jobs.enqueue(keep.bind(1), *args, **kwargs)
    assert await stored(jobs) == 0


async def test_too_large_a_payload_is_refused_by_name(jobs: QueueService) -> None:
    @jobs.task
    async def put(name: str, body: str) -> None: ...

    limit = 1024 * 1024
    fits = limit - len('{"name":"n","body":""}')
    await jobs.enqueue(put, "n", "x" * fits)
    with pytest.raises(PayloadError, match=f"put: .*{limit + 1} bytes.*'body'; {limit} are"):
        await jobs.enqueue(put, "n", "x" * (fits + 1))
    assert await stored(jobs) == 1


async def test_a_delay_past_the_last_year_is_refused(jobs: QueueService, keep: Any) -> None:
    with pytest.raises(ConfigurationError, match="delay"):
        await jobs.enqueue(keep.options(delay=timedelta(days=366 * 8000)))
    assert await stored(jobs) == 0


async def test_a_body_can_be_called_directly(jobs: QueueService, keep: Any) -> None:
    @jobs.task
    def plain(a: int, *, b: int = 2) -> int:
        return a * b

    assert await keep("x") == "x"
    assert await plain(3, b=5) == 15
    assert await stored(jobs) == 0


# Many at once


async def test_handles_come_in_the_order_given(jobs: QueueService, keep: Any) -> None:
    handles = await jobs.enqueue_many([keep.bind(n) for n in range(50)])
    assert [(await handle.job()).arguments["value"] for handle in handles] == list(range(50))
    ids = [handle.id for handle in handles]
    assert ids == sorted(ids)
    assert len(set(ids)) == 50


async def test_no_jobs_are_no_trouble(jobs: QueueService) -> None:
    assert await jobs.enqueue_many([]) == []
    assert await jobs.enqueue_many(iter(())) == []


async def test_a_generator_will_do(jobs: QueueService, keep: Any) -> None:
    handles = await jobs.enqueue_many(keep.bind(n) for n in range(3))
    assert len(handles) == await stored(jobs) == 3


async def test_a_generator_that_fails_stores_nothing(jobs: QueueService, keep: Any) -> None:
    def items() -> Iterator[BoundTask[Any]]:
        yield keep.bind(1)
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        await jobs.enqueue_many(items())
    assert await stored(jobs) == 0


@pytest.mark.parametrize("where", [0, 1, 2])
async def test_one_bad_item_stores_nothing(jobs: QueueService, keep: Any, where: int) -> None:
    large = keep.bind("x" * 2**20)
    items: list[Any] = [keep.bind(1), keep.bind(2)]
    with pytest.raises(PayloadError, match="keep"):
        await jobs.enqueue_many([*items[:where], large, *items[where:]])
    with pytest.raises(InvalidArguments, match=f"item {where} is a Task, not a bound task"):
        await jobs.enqueue_many([*items[:where], keep, *items[where:]])
    assert await stored(jobs) == 0


async def test_what_is_no_list_is_refused(jobs: QueueService, keep: Any) -> None:
    with pytest.raises(InvalidArguments, match="list of bound tasks is needed, not BoundTask"):
        await jobs.enqueue_many(keep.bind(1))


async def test_tasks_may_be_mixed(jobs: QueueService, keep: Any) -> None:
    await jobs.enqueue_many([keep.bind(1), TaskRef("other").bind(a=2)])
    assert {job.task for job in await jobs.find()} == {"keep", "other"}


async def test_twenty_thousand_in_one_call(jobs: QueueService, keep: Any) -> None:
    handles = await jobs.enqueue_many(keep.bind(n) for n in range(20_000))
    assert len({handle.id for handle in handles}) == 20_000
    [stats] = await jobs.queues.stats()
    assert stats.pending == 20_000
    assert (await handles[-1].job()).arguments == {"value": 19_999}
