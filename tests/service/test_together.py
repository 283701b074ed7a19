"""Everything that a job may carry, by every way into a store, and several features at once."""

from __future__ import annotations

import logging
import sqlite3
from typing import Any

import psycopg
import pytest

from tenure import QueueService, RetryPolicy, State, correlation, current_job, task
from tenure.drafts import Draft
from tenure.engines.postgres import place_of
from tenure.options import TaskOptions
from tenure.tasks import Task
from tenure.testing import override
from tenure.testing.clock import ManualClock
from tests.service.stores import Store, shared_store, store

__all__ = ["shared_store", "store"]
pytestmark = pytest.mark.anyio

FULL: dict[str, Any] = {
    "queue": "mail",
    "priority": 7,
    "max_attempts": 4,
    "retry": RetryPolicy(base=9, factor=3, cap=100, jitter=0),
    "timeout": 30.5,
    "max_lapses": 2,
    "max_interruptions": 5,
    "on_shutdown": "run_out",
    "tags": ["b", "a"],
    "metadata": {"tenant": "x"},
    "description": "greets",
    "actor": lambda: "clerk:7",
    "log_level": "WARNING",
    "log_success": True,
    "concurrency_key": lambda name: f"c:{name}",
    "rate_key": lambda name: f"r:{name}",
    "fair_key": lambda name: f"f:{name}",
}
CARRIED = {
    "queue": "mail",
    "priority": 7,
    "max_attempts": 4,
    "retry": RetryPolicy(base=9, factor=3, cap=100, jitter=0),
    "timeout": 30.5,
    "max_lapses": 2,
    "max_interruptions": 5,
    "on_shutdown": "run_out",
    "tags": ("b", "a"),
    "metadata": {"tenant": "x"},
    "description": "greets",
    "actor": "clerk:7",
    "log_level": logging.WARNING,
    "log_success": True,
    "concurrency_key": "c:ann",
    "rate_key": "r:ann",
    "fair_key": "f:ann",
}


async def _greet(name: str = "ann") -> str:
    return f"hello {name}"


def full(**more: Any) -> Task[..., Any]:
    made: Task[..., Any] = task(name="greet", **FULL, **more)(_greet)
    return made


async def carried(jobs: QueueService, job_id: str) -> dict[str, Any]:
    row = (await jobs.get(job_id)).row
    return {name: getattr(row, name) for name in CARRIED}


async def test_every_way_in_carries_everything(store: Store):
    greet = full()
    async with store.service(tasks=[greet]) as jobs:
        ids = [(await jobs.enqueue(greet)).id]
        ids += [one.id for one in await jobs.enqueue_many([greet.bind("ann"), greet.bind()])]
        ids.append((await jobs.enqueue(greet.options(unique_key="k"), "ann")).id)
        ids.append((await jobs.enqueue(greet.options(delay=60), "ann")).id)
        await jobs.schedules.add("each", greet.bind("ann"), interval=3600)
        ids.append((await jobs.schedules.run_now("each")).id)
        for job_id in ids:
            assert await carried(jobs, job_id) == CARRIED
        assert (await jobs.get(ids[3])).row.unique_key == "k"


def test_the_blocking_face_carries_everything(store: Store):
    greet = full()
    jobs = store.service(tasks=[greet])
    handles = [jobs.sync.enqueue(greet, "ann"), *jobs.sync.enqueue_many([greet.bind("ann")] * 2)]
    for handle in handles:
        row = jobs.sync.get(handle.id).row
        assert {name: getattr(row, name) for name in CARRIED} == CARRIED
    jobs.sync.close()


async def test_the_callers_transaction_carries_everything(shared_store: Store):
    greet, shared_url = full(), shared_store.url or ""
    async with QueueService(shared_url, tasks=[greet]) as jobs:
        connection: Any
        if shared_url.startswith("sqlite"):
            path = shared_url.removeprefix("sqlite:///")
            connection = sqlite3.connect(path, isolation_level=None)
            connection.execute("BEGIN IMMEDIATE")
        else:
            connection = psycopg.connect(place_of(shared_url).conninfo)
        joined = jobs.using(connection)
        handle = await joined.enqueue(greet.options(unique_key="k"), "ann")
        [other] = await joined.enqueue_many([greet.bind()])
        connection.commit()
        connection.close()
        for job_id in (handle.id, other.id):
            assert await carried(jobs, job_id) == CARRIED


async def test_all_of_it_stays_through_attempts_and_a_requeue(store: Store):
    greet = full()
    async with store.service(tasks=[greet]) as jobs:
        handle = await jobs.enqueue(greet, "ann")
        [job] = await jobs.claim("mail")
        assert {name: getattr(job.row, name) for name in CARRIED} == CARRIED
        assert (await jobs.execute(job)).result == "hello ann"
        assert await carried(jobs, handle.id) == CARRIED
        await jobs.requeue(handle.id)
        assert await carried(jobs, handle.id) == CARRIED
        async for delivery in jobs.receive("mail"):
            async with delivery:
                context = current_job()
                assert context is not None
                assert (context.actor, context.max_attempts) == ("clerk:7", 4)
        await jobs.requeue(handle.id, arguments={"name": "bob"})
        assert await carried(jobs, handle.id) == CARRIED  # keys are made at the enqueue
        assert (await jobs.run_one(handle.id)).result == "hello bob"


async def test_the_jobs_of_a_schedule_carry_everything(url: str):
    clock = ManualClock()
    jobs = QueueService("memory://", tasks=[full(interval=3600)])
    greet = jobs.tasks.get("greet")
    low: Any = greet.options(priority=1, queue="low", tags=["c"], log_success=False)
    jobs.schedules.declare("bob", low.bind("bob"), interval=3600)
    async with override(jobs, url, clock=clock):
        await jobs.maintain()
        clock.advance(3600)
        await jobs.maintain()
        [ann], [bob] = [await jobs.find(schedules=name) for name in ("greet", "bob")]
    assert {name: getattr(ann.row, name) for name in CARRIED} == CARRIED
    other = {
        **CARRIED,
        "priority": 1,
        "queue": "low",
        "tags": ("c",),
        "log_success": False,
        "concurrency_key": "c:bob",
        "rate_key": "r:bob",
        "fair_key": "f:bob",
    }
    assert {name: getattr(bob.row, name) for name in CARRIED} == other


@pytest.mark.parametrize("way", ["worker", "execute", "run_one", "inline"])
async def test_a_success_is_logged_as_the_task_says(
    store: Store, way: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG, "tenure.worker")
    greet = full(executor="inline") if way == "inline" else full()
    quiet: Any = greet.options(log_success=False)
    async with store.service(tasks=[greet], log_success=True) as jobs:
        handles = [await jobs.enqueue(one, "ann") for one in (greet, quiet)]
        if way == "worker":
            await jobs.worker(queues=["mail"], burst=True).run()
        elif way == "execute":
            for job in await jobs.claim("mail", limit=2):
                await jobs.execute(job)
        elif way == "run_one":
            for handle in handles:
                await jobs.run_one(handle.id)
    told = [r for r in caplog.records if "completed" in r.getMessage()]
    assert [(r.levelno, r.__dict__["job_id"]) for r in told] == [(logging.WARNING, handles[0].id)]


async def test_what_runs_inline_goes_through_all_that_surrounds_it(store: Store):
    seen: list[Any] = []

    async def tag(draft: Draft, step: Any) -> Any:
        draft.arguments["name"] = draft.arguments["name"].lower()
        handle = await step()
        seen.append(("stored", handle.created))
        return handle

    async def around(job: Any, step: Any) -> Any:
        context = current_job()
        assert context is not None
        seen.append(("body", job.arguments, job.row.concurrency_key, context.correlation_id))
        return await step()

    greet = full(executor="inline", unique_by="arguments", unique_until="forever")
    settings: dict[str, Any] = {"middleware": (around,), "enqueue_middleware": (tag,)}
    async with store.service(tasks=[greet], **settings) as jobs:
        with correlation("request-1"):
            first = await jobs.enqueue(greet, "ANN")
            twin = await jobs.enqueue(greet, "ann")
        assert (first.created, twin.created, twin.id) == (True, False, first.id)
        assert (await first.job()).state is State.COMPLETED
        assert seen == [
            ("stored", True),
            ("body", {"name": "ann"}, "c:ann", "request-1"),
            ("stored", False),
        ]


async def test_keys_are_made_of_what_the_middleware_left(store: Store):
    async def lower(draft: Draft, step: Any) -> Any:
        draft.arguments["name"] = draft.arguments["name"].lower()
        return await step()

    greet = full()
    async with store.service(tasks=[greet], enqueue_middleware=(lower,)) as jobs:
        handle = await jobs.enqueue(greet, "ANN")
        assert await carried(jobs, handle.id) == CARRIED
        await jobs.queues.limit("mail", key_concurrency=1)
        await jobs.enqueue_many([greet.bind("Ann"), greet.bind("Bob")])
        claimed = await jobs.claim("mail", limit=5)
        assert sorted(job.row.concurrency_key or "" for job in claimed) == ["c:ann", "c:bob"]
        [stats] = await jobs.queues.stats("mail")
        assert (stats.pending, stats.blocked, stats.running) == (1, 1, 2)


async def test_an_inline_job_that_a_limit_holds_back_waits_for_a_worker(store: Store):
    greet = full(executor="inline")
    async with store.service(tasks=[greet]) as jobs:
        await jobs.queues.limit("mail", key_concurrency=1)
        await jobs.enqueue(greet.options(executor=None), "ann")
        [held] = await jobs.claim("mail")
        blocked, free = await jobs.enqueue(greet, "ann"), await jobs.enqueue(greet, "bob")
        assert (await blocked.job()).state is State.PENDING
        assert (await free.job()).state is State.COMPLETED
        await jobs.queues.pause("mail")
        paused = await jobs.enqueue(greet, "eve")
        assert (await paused.job()).state is State.PENDING
        await jobs.queues.resume("mail")
        await jobs.execute(held)
        await jobs.worker(queues=["mail"], burst=True).run()
        assert [(await one.job()).state for one in (blocked, paused)] == [State.COMPLETED] * 2


def test_no_column_is_forgotten_here():
    """A new option of jobs has its place in these tests."""
    elsewhere = {
        *("name", "aliases", "delay", "run_at", "expires_in", "expires_at", "executor"),
        *("unique_key", "unique_by", "unique_until", "on_conflict"),
        *("cron", "interval", "timezone", "jitter", "initial_delay", "starts_at", "ends_at"),
        *("misfire", "overlap", "from_finish"),
        *("retry_for", "discard_for", "retry_if", "on_failure", "on_lost"),
    }
    assert set(TaskOptions.__struct_fields__) == set(FULL) | elsewhere
    assert set(CARRIED) == set(FULL)
