"""What travels with jobs: the correlation id, the trace, and which job is running."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import pytest

from tenure import INJECTED, JobContext, QueueService, correlation, current_job, task
from tenure.ambient import JobFilter, correlation_id, headers_now
from tenure.errors import ConfigurationError
from tests.service.stores import Store, store

__all__ = ["store"]
pytestmark = pytest.mark.anyio

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@task
async def on_loop() -> dict[str, Any]:
    return await asyncio.to_thread(noted)  # a thread of the body belongs to the job as well


@task
def in_thread() -> dict[str, Any]:
    return noted()


def noted() -> dict[str, Any]:
    context = current_job()
    assert context is not None
    return {
        "id": context.job_id,
        "correlation": correlation_id(),
        "trace": headers_now().get("traceparent"),
        "state": context.headers.get("tracestate"),
    }


async def test_they_travel_from_the_enqueue_to_each_attempt(store: Store) -> None:
    attempts: list[str | None] = []

    async with store.service(tasks=[on_loop, in_thread]) as jobs:

        @jobs.task(max_attempts=3)
        async def fails() -> None:
            attempts.append(correlation_id())
            raise ValueError

        with correlation("request-1", traceparent=TRACE, tracestate="a=b"):
            handles = await jobs.enqueue_many([on_loop.bind(), in_thread.bind(), fails.bind()])
        assert (correlation_id(), current_job()) == (None, None)
        await jobs.worker(burst=True).run()
        expected = {"correlation": "request-1", "trace": TRACE, "state": "a=b"}
        for handle in handles[:2]:
            assert await handle.result(20) == {"id": handle.id, **expected}
        assert (await handles[2].job()).correlation_id == "request-1"
        assert attempts == ["request-1"]
        assert (correlation_id(), current_job()) == (None, None)


async def test_children_inherit_them_and_the_first_of_a_family_gives_its_own_id(
    store: Store,
) -> None:
    async with store.service(tasks=[on_loop, in_thread]) as jobs:

        @jobs.task
        async def parent() -> list[str]:
            first = await jobs.enqueue(on_loop)
            second = await asyncio.to_thread(jobs.sync.enqueue, in_thread)
            return [first.id, second.id]

        @jobs.task
        def sync_parent() -> list[str]:
            return [jobs.sync.enqueue(one).id for one in (on_loop, in_thread)]

        with correlation("request-2", traceparent=TRACE):
            known = [await jobs.enqueue(parent), await jobs.enqueue(sync_parent)]
        alone = [await jobs.enqueue(parent), await jobs.enqueue(sync_parent)]
        worker = jobs.worker(poll_max=0.05)
        running = asyncio.create_task(worker.run())
        for handle, wanted, trace in [
            *((one, "request-2", TRACE) for one in known),
            *((one, one.id, None) for one in alone),
        ]:
            assert (await handle.job()).correlation_id == wanted
            for child in await handle.result(20):
                seen = await jobs.handle(child).result(20)
                assert seen == {"id": child, "correlation": wanted, "trace": trace, "state": None}
        worker.stop()
        await running


def test_the_blocking_face_takes_them_along(store: Store) -> None:
    jobs = store.service(tasks=[in_thread])
    with correlation("request-3"):
        handle = jobs.sync.enqueue(in_thread)
    assert handle.job().correlation_id == "request-3"
    assert jobs.sync.enqueue(in_thread).job().row.headers == {}
    jobs.sync.close()


def test_blocks_are_within_each_other_and_end() -> None:
    with correlation("a", traceparent=TRACE):
        with correlation("b"):
            assert correlation_id() == "b"
        with pytest.raises(ZeroDivisionError), correlation("c"):
            1 / 0  # noqa: B018
        assert correlation_id() == "a"
    assert correlation_id() is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"id": ""}, "correlation id must be text of 1 to 255"),
        ({"id": "x" * 256}, "correlation id must be text of 1 to 255"),
        ({"id": 3}, "correlation id must be text"),
        ({"id": "a\x00"}, "NUL"),
        ({"id": "a", "traceparent": "abc"}, "traceparent must be as 00-"),
        ({"id": "a", "traceparent": TRACE.upper()}, "traceparent must be as 00-"),
        ({"id": "a", "traceparent": TRACE.replace("b7ad6b7169203331", "0" * 16)}, "traceparent"),
        ({"id": "a", "traceparent": "ff" + TRACE[2:]}, "traceparent"),
        ({"id": "a", "traceparent": TRACE + "\n"}, "traceparent"),
        ({"id": "a", "traceparent": TRACE, "tracestate": "x" * 513}, "tracestate must be text"),
    ],
)
def test_what_cannot_travel_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words), correlation(**arguments):
        pass
    assert correlation_id() is None


async def test_a_worker_that_is_run_within_a_correlation_gives_it_to_no_job() -> None:
    async with QueueService("memory://", tasks=[on_loop, in_thread]) as jobs:
        handles = await jobs.enqueue_many([on_loop.bind(), in_thread.bind()])
        with correlation("of the application", traceparent=TRACE):
            await jobs.worker(burst=True).run()
        for handle in handles:
            seen = await handle.result(20)
            assert (seen["correlation"], seen["trace"]) == (handle.id, None)


async def test_many_at_once_see_each_their_own() -> None:
    """Two hundred at once on the loop and in eight threads, each of them a child's parent."""
    async with QueueService("memory://") as jobs:
        wrong: list[str] = []

        def check(ctx: JobContext) -> None:
            here = current_job()
            if here is None or (here.job_id, correlation_id()) != (ctx.job_id, ctx.correlation_id):
                wrong.append(ctx.job_id)

        @jobs.task
        async def waits(*, ctx: JobContext = INJECTED) -> str:
            for _ in range(3):
                check(ctx)
                await asyncio.sleep(0.001)
            return ctx.correlation_id

        @jobs.task
        def blocks(*, ctx: JobContext = INJECTED) -> str:
            for _ in range(3):
                check(ctx)
                time.sleep(0.001)
            child = threading.Thread(target=lambda: None)
            child.start()
            child.join()
            return ctx.correlation_id

        handles = []
        for number in range(200):
            with correlation(f"request-{number}"):
                handles.append(await jobs.enqueue(waits if number % 2 else blocks))
        await jobs.worker(burst=True, concurrency=200, threads=8).run()
        results = [await handle.result(20) for handle in handles]
        assert results == [f"request-{number}" for number in range(200)]
        assert wrong == []


async def test_log_lines_of_bodies_say_whose_they_are() -> None:
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    log = logging.getLogger("shop")
    handler = Kept()
    handler.addFilter(JobFilter())
    handler.setFormatter(
        logging.Formatter("%(correlation_id)s|%(job_id)s|%(task)s|%(attempt)s|%(message)s")
    )
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        async with QueueService("memory://") as jobs:

            @jobs.task
            def pack(order: int) -> None:
                log.info("packing %s", order)

            with correlation("request-9"):
                log.info("enqueueing")
                handle = await jobs.enqueue(pack, 7)
            await jobs.worker(burst=True).run()
            log.info("bye", extra={"job_id": "mine"})
    finally:
        log.removeHandler(handler)
    assert lines == [
        "request-9||||enqueueing",
        f"request-9|{handle.id}|pack|1|packing 7",
        "|mine|||bye",
    ]


async def test_an_actor_is_known_to_each_attempt() -> None:
    async with QueueService("memory://") as jobs:
        names = iter([None, None, "robot"])

        @jobs.task(actor=lambda: next(names))
        async def asked(*, ctx: JobContext = INJECTED) -> str | None:
            return ctx.actor

        @jobs.task(actor="clerk:7")
        async def said(*, ctx: JobContext = INJECTED) -> str | None:
            return ctx.actor

        handles = [
            await jobs.enqueue(asked),
            await jobs.enqueue(said),
            await jobs.enqueue(said.options(actor="me")),
            await jobs.enqueue(said.options(actor=None)),
        ]
        # The first attempt of `asked` is told nobody; a second job is told a robot.
        await jobs.worker(burst=True).run()
        assert [await one.result(20) for one in handles] == [None, "clerk:7", "me", "clerk:7"]


async def test_an_actor_that_fails_at_the_attempt_leaves_it_nameless(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with QueueService("memory://") as jobs:
        answers = iter([None])

        @jobs.task(actor=lambda: next(answers))
        async def body(*, ctx: JobContext = INJECTED) -> str | None:
            return ctx.actor

        handle = await jobs.enqueue(body)
        await jobs.worker(burst=True).run()
        assert await handle.result(20) is None
    assert any("actor is unknown" in record.getMessage() for record in caplog.records)
