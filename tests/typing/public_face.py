"""What type checkers must accept and refuse. Read by mypy and basedpyright, never run.

Every refusal is marked for both; an unused mark is an error, so nothing here can rot.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, assert_type

from tenure import (
    INJECTED,
    BoundTask,
    CancelResult,
    Job,
    JobContext,
    JobError,
    JobHandle,
    QueueService,
    RequeueResult,
    Retention,
    Retry,
    RetryPolicy,
    State,
    TaskRef,
    correlation,
    current_job,
    retry_after_of,
    task,
)
from tenure.core.identity import Reservation
from tenure.deliveries import Delivery
from tenure.deliveries_sync import Delivery as SyncDelivery
from tenure.drafts import Draft, Enqueued
from tenure.leases import Extension, Lease, LeaseClient, LeaseRenewal, client_from
from tenure.sync import JobHandle as SyncJobHandle
from tenure.sync import QueueService as SyncQueueService
from tenure.testing import override
from tenure.worker.surroundings import Next

jobs = QueueService("memory://")


@jobs.task(max_attempts=5, timeout=60)
async def resize(path: str, width: int = 800, *, ctx: JobContext = INJECTED) -> str:
    ctx.progress(1, 3, "opened")
    return f"{path}@{width}"


@jobs.task
def count(path: Path) -> int:
    return len(path.read_text().split())


@task(queue="mail")
async def send(to: str) -> None: ...


@jobs.task(name="sums", queue="math", retry=RetryPolicy(base=1), timeout=timedelta(minutes=1))
def total(*numbers: int, base: int = 0) -> int:
    return base + sum(numbers)


@task
async def find_all(names: list[str]) -> dict[str, Path | None]:
    return dict.fromkeys(names)


async def accepted() -> None:
    handle = await jobs.enqueue(resize, "photo.jpg", width=640)
    assert_type(handle, JobHandle[str])
    assert_type(await handle.result(timeout=30), str)
    assert_type(await handle.wait(), Job)
    assert_type(await (await jobs.enqueue(count, Path("a.txt"))).result(), int)
    await jobs.enqueue(resize.options(delay=60, priority=5), "a.jpg")
    bound = resize.bind("a.jpg", width=3)
    assert_type(bound, BoundTask[str])
    assert_type(await jobs.enqueue_many([bound]), list[JobHandle[str]])
    await jobs.enqueue(TaskRef("reports.render", queue="reports"), month="may")
    await jobs.enqueue("resize", path="a.jpg")
    assert_type(await resize("a.jpg"), str)
    assert_type(send.bind("somebody"), BoundTask[None])
    await jobs.worker(queues=["mail"], burst=True).run()


async def received() -> None:
    async with jobs.receive("mail", limit=10, tasks=[send, "resize"]) as deliveries:
        assert_type(deliveries[0], Delivery)
        for delivery in deliveries:
            async with delivery as same:
                assert_type(same, Delivery)
                assert_type(same.lease, Lease)
                assert_type(await jobs.receipts.ack(same.receipt, 1), bool)
    async for delivery in jobs.receive(wait=timedelta(seconds=20)):
        assert_type(delivery.arguments, dict[str, Any])
    with jobs.sync.receive("mail") as batch:
        assert_type(batch, list[SyncDelivery])
    for one in jobs.sync.receive():
        with one as same_one:
            assert_type(same_one, SyncDelivery)
    jobs.receive(limits=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def renewed() -> None:
    async def renew(receipt: str, seconds: float) -> None: ...

    client: LeaseClient = client_from(renew)
    with LeaseRenewal(client, "receipt", 60) as renewal:
        assert_type(renewal, LeaseRenewal)
        assert_type(renewal.extend(30), Extension | None)
    async with LeaseRenewal(client, None) as unheld:
        assert_type(await unheld.wait_lost(), str)


async def accepted_too() -> None:
    assert_type(await jobs.enqueue(total, 1, 2, base=3), JobHandle[int])
    assert_type(await (await jobs.enqueue(find_all, ["a"])).result(), dict[str, Path | None])
    assert_type(await jobs.enqueue(total.bind(1)), JobHandle[int])
    assert_type(await total(1, 2), int)
    await jobs.enqueue_many(total.bind(n) for n in range(3))
    assert_type(await jobs.find(states=["failed", State.EXPIRED], limit=5), list[Job])
    assert_type(await jobs.cancel("a", "b", force=True), CancelResult)
    assert_type(await jobs.requeue("a"), RequeueResult)
    assert_type(await jobs.cancel(tasks="a", metadata={"n": 1}, dry_run=True), CancelResult)
    assert_type(await jobs.requeue("a", arguments={"n": [1]}), RequeueResult)
    assert_type(await jobs.prune(states=["failed"], older_than=timedelta(days=1)), int)
    assert_type([job async for job in jobs.find_all(tags=["a"])], list[Job])
    assert_type(await jobs.execute((await jobs.claim("q", tasks=[total], limit=2))[0]), Job)
    assert_type(await jobs.run_one("a", token=3), Job)
    async with override(jobs, "memory://", inline=True) as kit:
        assert_type(await kit.assert_enqueued(total, a=1), Job)
        assert_type(await kit.advance(timedelta(days=1), check=True), list[Job])
    send.options(
        priority=1,
        delay=timedelta(seconds=3),
        expires_at=datetime.now(UTC),
        tags=["a"],
        metadata={"a": [1]},
    )
    QueueService(tasks=["package.jobs", send, find_all], lease=20, concurrency=3)
    async with jobs as opened:
        assert_type(opened, QueueService)
    async with jobs.lifespan():
        pass
    jobs.schedules.declare("a", resize.bind("a.jpg"), cron="@daily", timezone="Europe/Berlin")
    jobs.schedules.declare("b", "resize", interval=timedelta(minutes=5), misfire=3)
    await jobs.schedules.add("c", send, interval=5, overlap="skip", misfire="all", jitter=1)
    assert_type((await jobs.schedules.edit("c", from_finish=True)).next_at, datetime | None)
    assert_type(await jobs.schedules.history("c", limit=5), Sequence[Job])
    assert_type(await jobs.schedules.run_now("c"), JobHandle[Any])


def accepted_in_sync() -> None:
    handle = jobs.sync.enqueue(resize, "photo.jpg", width=640)
    assert_type(handle, SyncJobHandle[str])
    assert_type(handle.result(timeout=30), str)
    assert_type(list(jobs.sync.find_all(queues="q")), list[Job])
    assert_type(jobs.sync.cancel(error="x", dry_run=True), CancelResult)
    assert_type([jobs.sync.execute(job) for job in jobs.sync.claim()], list[Job])
    with override(jobs.sync) as kit:
        assert_type(kit.sync.drain(limit=5), list[Job])
    QueueService("memory://", retention=Retention(completed=timedelta(days=1), others=None))


class Database: ...


@asynccontextmanager
async def provide(context: JobContext) -> AsyncGenerator[dict[str, Any], None]:
    yield {"db": Database(), "name": context.task}


async def resolve(context: JobContext) -> dict[str, Any]:
    return {"db": context.queue}


async def traced(job: Job, step: Next) -> Any:
    return await step()


async def stamped(draft: Draft, step: Enqueued) -> None:
    draft.arguments["a"] = 1
    assert_type(await step(), JobHandle[Any])


async def told(job: Job, error: JobError) -> None: ...


def judged(error: BaseException, job: Job) -> bool | Retry | None:
    return Retry(after=60, spread=0.5) if job.attempt > 3 else None


@jobs.task(
    unique_by="arguments",
    unique_until="started",
    on_conflict="replace",
    on_shutdown="run_out",
    actor=lambda: "me",
    log_success=True,
    log_level="DEBUG",
    retry_for=OSError,
    discard_for=[ValueError, KeyError],
    retry_if=judged,
    on_failure=told,
    on_lost=lambda context, reason: (context.job_id, reason),
)
async def everything(a: int, *, db: Database = INJECTED) -> int:
    return a


async def accepted_around() -> None:
    assert_type(await everything(1, db=Database()), int)
    handle = await jobs.enqueue(everything.options(unique_key="k", unique_until="forever"), 1)
    assert_type(handle.created, bool)
    assert_type(handle.cancelling, bool)
    assert_type(everything.bind(1).unique_key(), str | None)
    assert_type(await jobs.identities.get("k"), Reservation | None)
    assert_type(await jobs.identities.release("k", expected_owner=handle.id), bool)
    assert_type(jobs.sync.identities.get("k"), Reservation | None)
    with correlation("request", traceparent="00-0-0-00"):
        assert_type(current_job(), JobContext | None)
    QueueService(provider=provide, middleware=[traced], enqueue_middleware=[stamped])
    QueueService(resolver=resolve, error_sanitizer=lambda error, job: ("text", "trace"))
    SyncQueueService(log_level=10, max_identity_bytes=1000, middleware=(traced,))
    send.options(retry_if=retry_after_of)


async def refused_around() -> None:
    send.options(unique_by="all")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    send.options(unique_until="done")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    send.options(on_conflict="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    send.options(on_shutdown="wait")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    send.options(retry_for=ValueError())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    send.options(retry_if=told)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    send.options(on_failure=traced)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    QueueService(resolver=provide)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    QueueService(provider=resolve)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    QueueService(middleware=[stamped])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    QueueService(error_sanitizer=lambda error, job: 3)  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]
    await jobs.identities.get(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def refused() -> None:
    await jobs.enqueue(resize, 7)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await jobs.enqueue(resize, "a", widht=7)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await jobs.enqueue(resize)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    resize.bind(path=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    resize.options(prioritty=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    resize.options(priority="high")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.worker(concurency=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await jobs.enqueue(total, "1")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await jobs.enqueue(total.bind(1), 2)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await jobs.enqueue(count, "a.txt")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await jobs.enqueue_many([send])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await jobs.cancel(["a"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await jobs.find(state="failed")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await jobs.cancel(colour="red")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await jobs.requeue(tags=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    total.options(executor="process")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await jobs.find(limit="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await jobs.schedules.add("a", send, crom="@daily")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await jobs.schedules.add("a", send, interval="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await jobs.schedules.edit("a", overlap="never")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    QueueService(tasks=[print])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    QueueService("memory://", lesse=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    TaskRef("x", prioritty=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    total.options(retry=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    total.options(run_at="tomorrow")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    send.name = 3  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    jobs.sync.enqueue(resize, 7)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


@jobs.task(max_atempts=5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportUntypedFunctionDecorator]
async def misspelt() -> None: ...
