"""What type checkers must accept and refuse. Read by mypy and basedpyright, never run.

Every refusal is marked for both; an unused mark is an error, so nothing here can rot.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

from tenure import (
    INJECTED,
    BoundTask,
    Job,
    JobContext,
    JobHandle,
    QueueService,
    TaskRef,
    task,
)
from tenure.sync import JobHandle as SyncJobHandle

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


def accepted_in_sync() -> None:
    handle = jobs.sync.enqueue(resize, "photo.jpg", width=640)
    assert_type(handle, SyncJobHandle[str])
    assert_type(handle.result(timeout=30), str)


async def refused() -> None:
    await jobs.enqueue(resize, 7)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await jobs.enqueue(resize, "a", widht=7)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await jobs.enqueue(resize)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    resize.bind(path=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    resize.options(prioritty=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    resize.options(priority="high")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.worker(concurency=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    jobs.sync.enqueue(resize, 7)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


@jobs.task(max_atempts=5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportUntypedFunctionDecorator]
async def misspelt() -> None: ...
