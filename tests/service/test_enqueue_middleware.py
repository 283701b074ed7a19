"""Middleware around enqueueing: it may change a job before the insert, and nothing after."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sqlite3
from datetime import UTC, datetime
from typing import Any

import pytest

from tenure import QueueService, TaskRef, correlation, task
from tenure.drafts import Draft
from tenure.errors import (
    ConfigurationError,
    DuplicateJob,
    EngineUnavailable,
    InvalidArguments,
    PayloadError,
)
from tests.service.stores import Store, store

__all__ = ["store"]
pytestmark = pytest.mark.anyio


@task(unique_by="arguments")
async def add(a: int, b: float = 2, when: datetime | None = None) -> float:
    return a + b


@task
async def mail(to: str) -> str:
    return to


def service(store: Store, *middleware: Any) -> QueueService:
    return store.service(tasks=[add, mail], enqueue_middleware=middleware)


async def tag(draft: Draft, step: Any) -> Any:
    draft.arguments["a"] = draft.arguments.get("a", 0) * 10
    draft.metadata["tenant"] = "x"
    draft.headers["traceparent"] = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    return await step()


async def test_it_changes_a_job_before_the_insert(store: Store) -> None:
    seen: list[Any] = []

    async def outer(draft: Draft, step: Any) -> Any:
        seen.append((draft.task, dict(draft.arguments), draft.options.priority))
        handle = await step()
        seen.append((handle.created, dict(draft.arguments)))
        return "ignored"

    async with service(store, outer, tag) as jobs:
        with correlation("request-1"):
            handle = await jobs.enqueue(add.options(priority=3), 4)
        job = await handle.job()
        assert job.arguments == {"a": 40}
        assert job.metadata == {"tenant": "x"}
        assert job.correlation_id == "request-1"
        assert job.row.headers["traceparent"].endswith("-01")
        await jobs.worker(burst=True).run()
        assert await handle.result(20) == 42
        assert seen == [("add", {"a": 4}, 3), (True, {"a": 40})]


async def test_twins_are_those_of_what_is_stored(store: Store) -> None:
    """Two calls that the middleware makes equal are one job, and two that it parts are two."""

    async def even(draft: Draft, step: Any) -> Any:
        draft.arguments["a"] -= draft.arguments["a"] % 2
        return await step()

    async with service(store, even) as jobs:
        first, second = await jobs.enqueue(add, 4), await jobs.enqueue(add, 5)
        assert (first.created, second.created, second.id) == (True, False, first.id)
        handles = await jobs.enqueue_many([add.bind(n) for n in (6, 7, 8)])
        assert [handle.created for handle in handles] == [True, False, True]
        with pytest.raises(DuplicateJob):
            await jobs.enqueue(add.options(on_conflict="raise"), 5)


async def test_unchanged_arguments_are_stored_as_without_it(store: Store) -> None:
    async def look(draft: Draft, step: Any) -> Any:
        return await step()

    at = datetime(2026, 1, 1, tzinfo=UTC)
    plain = store.service(tasks=[add, mail])
    async with service(store, look) as jobs, plain:
        one = await plain.enqueue(add, 1, when=at)
        other = await jobs.enqueue(add.options(unique_by=None), 1, when=at)
        assert (await one.job()).row.payload == (await other.job()).row.payload
        assert not (await jobs.enqueue(add, 1, when=at)).created


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"a": "text"}, InvalidArguments, "add: a: Expected `int`"),
        ({"a": None}, InvalidArguments, "add: a: Expected `int`"),
        ({"b": float("nan")}, PayloadError, "add: b: nan cannot be stored"),
        ({"c": 1}, InvalidArguments, "add: unknown argument 'c'"),
        ({"b": object()}, PayloadError, "add: b: object cannot be stored"),
        ({"a": "x" * 2_000_000}, InvalidArguments, "add: a: Expected `int`"),
    ],
)
async def test_what_it_changes_is_checked_as_if_it_had_been_given(
    store: Store, change: dict[str, Any], error: type[Exception], words: str
) -> None:
    heard: list[BaseException] = []

    async def spoil(draft: Draft, step: Any) -> Any:
        draft.arguments |= change
        try:
            return await step()
        except Exception as failure:
            heard.append(failure)
            return None  # which hides nothing from the caller

    async with service(store, spoil) as jobs:
        with pytest.raises(error, match=words):
            await jobs.enqueue(add, 1)
        assert await jobs.find() == []
        assert [type(one) for one in heard] == [error]


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (lambda d: d.arguments.pop("a"), InvalidArguments, "missing argument 'a'"),
        (lambda d: setattr(d, "arguments", [1]), InvalidArguments, "a list, not a dict"),
        (lambda d: d.metadata.update(x=float("inf")), ConfigurationError, "metadata.x"),
        (lambda d: d.headers.update(x=3), ConfigurationError, "headers must be texts"),
    ],
)
async def test_so_is_everything_else(spoil: Any, error: type[Exception], words: str) -> None:
    async def middleware(draft: Draft, step: Any) -> Any:
        spoil(draft)
        return await step()

    async with QueueService("memory://", tasks=[add], enqueue_middleware=[middleware]) as jobs:
        with pytest.raises(error, match=words):
            await jobs.enqueue(add, 1)
        assert await jobs.find() == []


async def refuse(draft: Draft, step: Any) -> Any:
    if draft.arguments.get("to") == "nobody":
        raise PermissionError("not to nobody")
    return await step()


async def leave_out(draft: Draft, step: Any) -> Any:
    if draft.arguments.get("to") != "nobody":
        return await step()
    return None


@pytest.mark.parametrize(
    ("middleware", "error", "words"),
    [
        (refuse, PermissionError, "not to nobody"),
        (leave_out, ConfigurationError, r"mail: an enqueue middleware did not call next\(\)"),
    ],
)
async def test_one_that_refuses_a_job_refuses_its_batch(
    store: Store, middleware: Any, error: type[Exception], words: str
) -> None:
    ends: list[str] = []

    async def watch(draft: Draft, step: Any) -> Any:
        try:
            return await step()
        except BaseException as failure:
            ends.append(type(failure).__name__)
            raise

    async with service(store, watch, middleware) as jobs:
        batch = [mail.bind(to) for to in ("a", "nobody", "b")]
        with pytest.raises(error, match=words):
            await jobs.enqueue_many(batch)
        assert await jobs.find() == []
        assert len(await jobs.enqueue_many(batch[::2])) == 2
    assert len(ends) >= 1  # those that waited are told


async def test_what_it_does_after_the_insert_changes_nothing(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(draft: Draft, step: Any) -> Any:
        await step()
        draft.arguments["to"] = "somebody else"
        raise OSError("the exporter is away")

    async def again(draft: Draft, step: Any) -> Any:
        await step()
        await step()

    for middleware, word in ((fail, "exporter"), (again, "was called before")):
        caplog.clear()
        async with service(store, middleware) as jobs:
            handles = await jobs.enqueue_many([mail.bind("a"), mail.bind("b")])
            found = [(await one.job()).arguments["to"] for one in handles]
        assert found == ["a", "b"]
        told = [r for r in caplog.records if "enqueue middleware" in r.getMessage()]
        assert [r.levelno for r in told] == [logging.ERROR] * 2
        assert word in str(told[0].exc_info)


async def test_a_lost_reply_is_told_to_caller_and_middleware(store: Store) -> None:
    heard: list[str] = []

    async def watch(draft: Draft, step: Any) -> Any:
        try:
            return await step()
        except EngineUnavailable:
            heard.append(draft.task)
            return None

    jobs, flaky = store.flaky(tasks=[add, mail], enqueue_middleware=[watch])
    async with jobs:
        flaky.fail("insert", after=True)
        with pytest.raises(EngineUnavailable):
            await jobs.enqueue(add, 1)
        twin = await jobs.enqueue(add, 1)
        assert (twin.created, heard, len(await jobs.find())) == (False, ["add"], 1)


async def test_a_cancelled_call_leaves_no_middleware_behind(store: Store) -> None:
    entered, gone = asyncio.Event(), asyncio.Event()

    async def waits(draft: Draft, step: Any) -> Any:
        entered.set()
        try:
            await asyncio.sleep(60)
        finally:
            gone.set()

    async with service(store, waits) as jobs:
        call = asyncio.create_task(jobs.enqueue(mail, "a"))
        await entered.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert gone.is_set()
        assert await jobs.find() == []


def test_the_blocking_face_goes_through_it_too(store: Store) -> None:
    jobs = service(store, tag, refuse)
    handle = jobs.sync.enqueue(add, 3)
    assert handle.job().arguments == {"a": 30}
    batch = [add.bind(n) for n in range(3)]
    assert [one.created for one in jobs.sync.enqueue_many(batch)] == [True, True, True]
    with pytest.raises(PermissionError):
        jobs.sync.enqueue(mail, "nobody")
    jobs.sync.close()


async def test_it_works_within_the_callers_transaction(tmp_path: Any) -> None:
    jobs = QueueService(
        f"sqlite:///{tmp_path}/jobs.db", tasks=[add, mail], enqueue_middleware=[tag]
    )
    async with jobs:
        await jobs.find()
        connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
        for end, expected in (("ROLLBACK", 0), ("COMMIT", 2)):
            connection.execute("BEGIN IMMEDIATE")
            first = await jobs.using(connection).enqueue(add, 1)
            await jobs.using(connection).enqueue_many([add.bind(2), add.bind(1)])
            connection.execute(end)
            assert len(await jobs.find()) == expected
        connection.close()
        assert (await first.job()).arguments == {"a": 10}


def test_it_works_there_without_an_event_loop(tmp_path: Any) -> None:
    jobs = QueueService(
        f"sqlite:///{tmp_path}/jobs.db", tasks=[add, mail], enqueue_middleware=[tag, refuse]
    )
    jobs.sync.migrate()
    connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    handle = jobs.sync.using(connection).enqueue(add, 1)
    with pytest.raises(PermissionError):
        jobs.sync.using(connection).enqueue(mail, "nobody")
    connection.execute("COMMIT")
    connection.close()
    assert [job.id for job in jobs.sync.find()] == [handle.id]
    assert handle.job().arguments == {"a": 10}
    jobs.sync.close()


async def test_what_surrounds_the_call_surrounds_the_middleware() -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")

    async def stamp(draft: Draft, step: Any) -> Any:
        draft.metadata["tenant"] = tenant.get()
        return await step()

    async with QueueService("memory://", tasks=[mail], enqueue_middleware=[stamp]) as jobs:

        async def request(name: str) -> Any:
            tenant.set(name)
            return (await (await jobs.enqueue(mail, name)).job()).metadata["tenant"]

        names = [f"tenant-{n}" for n in range(20)]
        assert await asyncio.gather(*(request(name) for name in names)) == names


async def test_a_task_whose_code_is_elsewhere_is_changed_too(store: Store) -> None:
    async with service(store, tag) as jobs:
        handle = await jobs.enqueue(TaskRef("elsewhere"), a=5)
        assert (await handle.job()).arguments == {"a": 50}


async def test_large_batches_go_through_as_one(scaled: Any) -> None:
    count = scaled(2000, 20_000)
    async with QueueService("memory://", tasks=[add], enqueue_middleware=[tag]) as jobs:
        handles = await jobs.enqueue_many([add.bind(n) for n in range(count)])
        assert len({handle.id for handle in handles}) == count
        assert (await handles[-1].job()).arguments == {"a": (count - 1) * 10}
