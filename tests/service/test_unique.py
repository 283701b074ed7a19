"""Unique keys at the service: where they come from, what a taken one does, and every race."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tenure import INJECTED, JobContext, QueueService, TaskRef, task
from tenure.core.keys import task_key
from tenure.engines.protocol import Prunable
from tenure.errors import (
    ConfigurationError,
    DuplicateJob,
    EngineUnavailable,
    IdentityTooLarge,
    InvalidArguments,
    PayloadError,
    UniquenessConflict,
)
from tests.service.conftest import End
from tests.service.stores import Store, shared_store, store, store_on

__all__ = ["shared_store", "store"]
pytestmark = pytest.mark.anyio


@task(unique_by="arguments")
async def resize(path: Path, width: float = 800, *, ctx: JobContext = INJECTED) -> str:
    return f"{path}@{width}"


@task
async def mail(to: str) -> str:
    return to


@task(unique_by="task")
async def refresh(region: str = "all") -> str:
    return region


@task(unique_key="nightly", unique_until="forever")
async def report() -> str:
    return "done"


TASKS = (resize, mail, refresh, report)


@task(unique_by="arguments")
async def typed(
    at: datetime, owner: UUID, tags: frozenset[str] = frozenset(), *rest: int, **more: Any
) -> None: ...


# Where a key comes from


def test_the_key_of_the_call_goes_before_that_of_the_task_and_both_before_unique_by() -> None:
    both = report.options(unique_by="arguments")
    assert both.bind().unique_key() == "nightly"
    assert both.options(unique_key="mine").bind().unique_key() == "mine"
    assert both.options(unique_key=None).bind().unique_key() == refreshed(report)
    assert refresh.bind("eu").unique_key() == refresh.bind("us").unique_key() == task_key("refresh")
    assert refresh.options(unique_key="mine").bind("eu").unique_key() == "mine"
    assert mail.bind("a").unique_key() is None


def refreshed(one: Any) -> str | None:
    key: str | None = one.options(unique_key=None, unique_by="arguments").bind().unique_key()
    return key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (resize.bind(Path("a")), resize.bind(Path("a"), 800)),
        (resize.bind(Path("a")), resize.bind(path=Path("a"), width=800.0)),
        (resize.bind(Path("a"), 1), resize.bind(Path("a"), 1.0)),
        (
            typed.bind(datetime(2026, 1, 1, tzinfo=UTC), UUID(int=10)),
            typed.bind("2026-01-01T00:00:00+00:00", str(UUID(int=10)).upper()),
        ),
        (
            typed.bind(datetime(2026, 1, 1, tzinfo=UTC), UUID(int=1), frozenset("abc")),
            typed.bind(datetime(2026, 1, 1, tzinfo=UTC), UUID(int=1), frozenset("cba")),
        ),
        (
            typed.bind(datetime(2026, 1, 1, tzinfo=UTC), UUID(int=1), a=1, b=2),
            typed.bind(datetime(2026, 1, 1, tzinfo=UTC), UUID(int=1), b=2, a=1),
        ),
    ],
)
def test_equal_calls_have_one_key_however_they_are_written(one: Any, other: Any) -> None:
    assert one.unique_key() == other.unique_key()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (resize.bind(Path("a")), resize.bind(Path("b"))),
        (resize.bind(Path("a"), 1), resize.bind(Path("a"), 1.5)),
        (resize.bind(Path("a")), mail.options(unique_by="arguments").bind("a")),
        (
            typed.bind(datetime(2026, 1, 1, tzinfo=UTC), UUID(int=1), frozenset(), 1, 2),
            typed.bind(datetime(2026, 1, 1, tzinfo=UTC), UUID(int=1), frozenset(), 2, 1),
        ),
    ],
)
def test_other_calls_have_other_keys(one: Any, other: Any) -> None:
    assert one.unique_key() != other.unique_key()


def test_arguments_that_are_injected_have_no_part_in_it() -> None:
    """The context is of the attempt: a key that holds it would be new each time."""
    assert resize.signature.complete(b'{"path":"a"}') == {"path": "a", "width": 800.0}
    with pytest.raises(InvalidArguments, match="ctx is injected"):
        resize.bind(Path("a"), ctx=None)  # type: ignore[arg-type]


def test_what_has_no_canonical_form_is_refused_by_name() -> None:
    with pytest.raises(PayloadError, match="width: nan cannot be stored"):
        resize.bind(Path("a"), float("nan"))

    @task(unique_by="arguments")
    async def odd(x: Any = object) -> None: ...

    with pytest.raises(PayloadError, match="x: type cannot be stored"):
        odd.bind().unique_key()


async def test_a_large_identity_is_refused_and_a_key_of_ones_own_is_not() -> None:
    async with QueueService("memory://", tasks=TASKS, max_identity_bytes=100) as jobs:
        long = Path("x" * 100)
        with pytest.raises(IdentityTooLarge) as told:
            await jobs.enqueue(resize, long)
        assert told.value.allowed == 100 < told.value.actual
        assert await jobs.find() == []
        assert (await jobs.enqueue(resize.options(unique_key="k"), long)).created
        assert (await jobs.enqueue(refresh, "x" * 200)).created


def test_options_that_say_nothing_without_a_key_are_refused() -> None:
    jobs = QueueService("memory://", tasks=TASKS)
    changes: Any
    for changes in ({"unique_until": "forever"}, {"on_conflict": "raise"}):
        [name] = changes
        with pytest.raises(ConfigurationError, match=f"mail: {name}=.* needs a unique_key or"):
            jobs.sync.enqueue(mail.options(**changes), "a")
    with pytest.raises(ConfigurationError, match="needs the code of the task"):
        jobs.sync.enqueue(TaskRef("mail", unique_by="arguments"), to="a")
    assert jobs.sync.find() == []
    ref = TaskRef("mail", unique_by="task", unique_until="started")
    assert jobs.sync.enqueue(ref, to="a").created
    assert not jobs.sync.enqueue(ref, to="b").created
    jobs.sync.close()


# What a taken key does, on every engine


async def test_a_second_enqueue_meets_the_living_job(store: Store, end: End) -> None:
    async with store.service(tasks=TASKS) as jobs:
        first = await jobs.enqueue(resize, Path("a"))
        twin = await jobs.enqueue(resize, path=Path("a"), width=800)
        other = await jobs.enqueue(resize, Path("b"))
        assert (first.created, twin.created, twin.id) == (True, False, first.id)
        assert (other.created, first.cancelling, twin.cancelling) == (True, False, False)
        assert (await twin.job()).unique_key == resize.bind(Path("a")).unique_key()
        await end(jobs, first.id)
        again = await jobs.enqueue(resize, Path("a"))
        assert (again.created, again.id != first.id) == (True, True)


async def test_raise_names_the_job_that_has_the_key(store: Store) -> None:
    async with store.service(tasks=TASKS) as jobs:
        strict = mail.options(unique_key="k", on_conflict="raise")
        first = await jobs.enqueue(strict, "a")
        with pytest.raises(DuplicateJob) as told:
            await jobs.enqueue(strict, "b")
        assert (told.value.existing, told.value.key) == (first.id, "k")
        assert [job.id for job in await jobs.find()] == [first.id]


async def test_replace_rearms_a_waiting_job_and_refuses_a_running_one(store: Store) -> None:
    """Debouncing: each enqueue gives the one job that waits its arguments, options and times."""
    async with store.service(tasks=TASKS) as jobs:
        debounced = mail.options(unique_key="k", on_conflict="replace", delay=60, actor="first")
        first = await jobs.enqueue(debounced, "a")
        changes = debounced.options(delay=0, priority=3, actor="second", log_success=True)
        second = await jobs.enqueue(changes, "b")
        assert (second.id, second.created) == (first.id, False)
        job = await second.job()
        assert (job.arguments, job.priority, job.label) == ({"to": "b"}, 3, "pending")
        assert (job.actor, job.row.log_success) == ("second", True)
        worker = jobs.worker(poll_max=0.05)
        entered, leave = asyncio.Event(), asyncio.Event()

        @jobs.task(unique_key="slow", on_conflict="replace")
        async def slow() -> None:
            entered.set()
            await leave.wait()

        running = asyncio.create_task(worker.run())
        busy = await jobs.enqueue(slow)
        await entered.wait()
        with pytest.raises(DuplicateJob) as told:
            await jobs.enqueue(slow)
        assert told.value.existing == busy.id
        await jobs.cancel(busy.id)
        asked = await jobs.enqueue(slow.options(on_conflict="return"))
        assert (asked.id, asked.created, asked.cancelling) == (busy.id, False, True)
        leave.set()
        worker.stop()
        await running


async def test_one_key_is_not_used_with_two_policies(store: Store) -> None:
    async with store.service(tasks=TASKS) as jobs:
        first = await jobs.enqueue(report)
        for until in ("started", "finished"):
            with pytest.raises(UniquenessConflict, match="nightly"):
                await jobs.enqueue(mail.options(unique_key="nightly", unique_until=until), "a")
        assert [job.id for job in await jobs.find()] == [first.id]


async def test_a_key_until_started_is_free_as_soon_as_the_job_runs(store: Store) -> None:
    async with store.service(tasks=TASKS) as jobs:
        again: list[bool] = []
        once = refresh.options(unique_until="started")

        @jobs.task(unique_by="task", unique_until="started")
        async def chain(depth: int) -> None:
            if depth:
                again.append((await jobs.enqueue(chain, depth - 1)).created)

        assert (await jobs.enqueue(once)).created
        assert not (await jobs.enqueue(once)).created
        await jobs.enqueue(chain, 3)
        await jobs.worker(burst=True).run()
        assert again == [True, True, True]
        assert (await jobs.enqueue(once)).created


async def test_forever_outlives_the_job_until_it_is_released(store: Store) -> None:
    async with store.service(tasks=TASKS) as jobs:
        first = await jobs.enqueue(report)
        kept = await jobs.identities.get("nightly")
        assert kept is not None
        assert (kept.key, kept.job_id) == ("nightly", first.id)
        assert abs((kept.reserved_at - (await first.job()).created_at).total_seconds()) < 1
        await jobs.worker(burst=True).run()
        assert await first.result(20) == "done"
        engine = jobs._life.engine
        assert await engine.prune(Prunable.JOBS, 2**62) == 1
        twin = await jobs.enqueue(report)
        assert (twin.created, twin.id) == (False, first.id)
        assert not await jobs.identities.release("nightly", expected_owner=twin.id + "x")
        assert await jobs.identities.release("nightly", expected_owner=first.id)
        assert not await jobs.identities.release("nightly")
        assert await jobs.identities.get("nightly") is None
        assert (await jobs.enqueue(report)).created


async def test_identities_refuse_what_is_no_key_and_no_id(store: Store) -> None:
    async with store.service() as jobs:
        with pytest.raises(ConfigurationError, match="key must be text"):
            await jobs.identities.get(3)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="key must have 1 to 512 bytes"):
            await jobs.identities.release("")
        with pytest.raises(InvalidArguments, match="a job id is text"):
            await jobs.identities.release("k", expected_owner=3)  # type: ignore[arg-type]


def test_the_blocking_face_does_the_same(store: Store) -> None:
    jobs = store.service(tasks=TASKS)
    sync = jobs.sync
    first = sync.enqueue(report)
    twin = sync.enqueue(report)
    assert (first.created, twin.created, twin.id, twin.cancelling) == (True, False, first.id, False)
    reserved = sync.identities.get("nightly")
    assert reserved is not None
    assert reserved.job_id == first.id
    with pytest.raises(DuplicateJob):
        sync.enqueue(report.options(on_conflict="raise"))
    assert sync.cancel(first.id).cancelled
    assert sync.identities.release("nightly", expected_owner=first.id)
    assert sync.enqueue(report).created
    sync.close()


# Batches and transactions


async def test_keyed_and_unkeyed_jobs_go_in_one_batch(store: Store) -> None:
    async with store.service(tasks=TASKS) as jobs:
        before = await jobs.enqueue(resize, Path("old"))
        batch = [
            mail.bind("a"),
            resize.bind(Path("new")),
            mail.bind("a"),
            resize.bind(Path("old")),
            resize.bind(Path("new"), 800),
            mail.options(unique_key="k").bind("b"),
        ]
        handles = await jobs.enqueue_many(batch)
        assert [handle.created for handle in handles] == [True, True, True, False, False, True]
        assert handles[3].id == before.id
        assert handles[4].id == handles[1].id
        assert len(await jobs.find()) == 5
        for bad in (
            mail.options(unique_key="k", on_conflict="raise").bind("c"),
            mail.options(unique_key="k", unique_until="forever").bind("c"),
        ):
            fresh = mail.options(unique_key="fresh").bind("d")
            with pytest.raises((DuplicateJob, UniquenessConflict)):
                await jobs.enqueue_many([mail.bind("e"), fresh, bad])
        assert len(await jobs.find()) == 5
        assert (await jobs.enqueue(mail.options(unique_key="fresh"), "d")).created


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_a_key_taken_in_a_transaction_is_free_after_its_rollback(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    kept = store_on(engine, request, tmp_path)
    async with kept.service(tasks=TASKS) as jobs:
        await jobs.find()
        connection, begin = connected(kept)
        connection.execute(begin)
        first = await jobs.using(connection).enqueue(report)
        twin = await jobs.using(connection).enqueue(report)
        assert (first.created, twin.created, twin.id) == (True, False, first.id)
        with pytest.raises(DuplicateJob):
            await jobs.using(connection).enqueue(report.options(on_conflict="raise"))
        connection.execute("ROLLBACK")
        assert await jobs.identities.get("nightly") is None
        connection.execute(begin)
        second = jobs.sync.using(connection).enqueue(report)
        connection.execute("COMMIT")
        connection.close()
        assert second.created
        met = await jobs.enqueue(report)
        assert (met.created, met.id) == (False, second.id)


def connected(store: Store) -> tuple[Any, str]:
    """A connection of the application, and how it begins a transaction."""
    assert store.url is not None
    if store.url.startswith("sqlite"):
        path = store.url.removeprefix("sqlite:///")
        return sqlite3.connect(path, isolation_level=None), "BEGIN IMMEDIATE"
    return psycopg.connect(store.url.partition("?")[0], autocommit=True), "BEGIN"


# Races


@pytest.mark.parametrize("until", ["started", "finished", "forever"])
async def test_of_many_enqueuers_one_gets_the_key(store: Store, until: str) -> None:
    once = mail.options(unique_key="k", unique_until=until)  # type: ignore[arg-type]
    services = [store.service(tasks=TASKS) for _ in range(4)]
    for jobs in services:
        await jobs.open()
    calls = [jobs.enqueue(once, str(n)) for n, jobs in enumerate(services * 5)]
    handles = await asyncio.gather(*calls)
    assert sum(handle.created for handle in handles) == 1
    assert len({handle.id for handle in handles}) == 1
    assert len(await services[0].find()) == 1
    for jobs in services:
        await jobs.close()


async def test_an_enqueue_against_the_end_of_its_twin(store: Store) -> None:
    """Whoever comes first: the call meets the job before its end, or makes a new one after it."""
    one, other = store.service(tasks=TASKS), store.service(tasks=TASKS)
    async with one, other:
        runs: list[str] = []

        @one.task(unique_key="k")
        async def step() -> None:
            runs.append("")

        other.tasks.add(step)
        worker = one.worker(poll_max=0.02)
        running = asyncio.create_task(worker.run())
        handles = []
        for _ in range(40):
            handles.append(await other.enqueue(step))
        for handle in handles:
            await handle.wait(20)
        worker.stop()
        await running
        ids = {handle.id for handle in handles}
        assert len(ids) == sum(handle.created for handle in handles) == len(runs)


async def test_an_enqueue_whose_reply_is_lost_is_no_twin_of_itself(store: Store) -> None:
    """The caller cannot know, so it enqueues again, and gets the one job that there is."""
    jobs, flaky = store.flaky(tasks=TASKS)
    async with jobs:
        calls: list[Any] = [report.bind(), mail.options(unique_key="k").bind("a"), refresh.bind()]
        for call in calls:
            flaky.fail("insert", after=True)
            with pytest.raises(EngineUnavailable):
                await jobs.enqueue(call)
            handle = await jobs.enqueue(call)
            assert not handle.created
            flaky.fail("insert")
            with pytest.raises(EngineUnavailable):
                await jobs.enqueue(call)
            assert (await handle.job()).label == "pending"
        assert len(await jobs.find()) == 3


async def test_a_released_identity_is_said_to_be_gone_after_a_lost_reply(store: Store) -> None:
    jobs, flaky = store.flaky(tasks=TASKS)
    async with jobs:
        first = await jobs.enqueue(report)
        await jobs.cancel(first.id)
        flaky.fail("release_identity", after=True)
        with pytest.raises(EngineUnavailable):
            await jobs.identities.release("nightly")
        assert not await jobs.identities.release("nightly")
        assert (await jobs.enqueue(report)).created
