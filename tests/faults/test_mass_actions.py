"""Acting on many jobs at once: bounded, told before, and never more than was meant."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tenure import QueueService
from tenure.core.query import PAGE_MAX, Filter, Found, Page
from tenure.core.states import State
from tenure.engines.protocol import Prunable
from tenure.errors import InvalidArguments
from tenure.tasks import TaskRef
from tenure.testing.flaky import Flaky

pytestmark = pytest.mark.anyio

mail = TaskRef("mail", tags=["a"], metadata={"n": 1})


class Measured(Flaky):
    """Notes how much one call asks for, or brings."""

    largest = 0

    def _note(self, count: int) -> None:
        self.largest = max(self.largest, count)

    async def find(self, where: Filter, page: Page) -> Found:
        self._note(len(where.ids))
        found = await super().find(where, page)
        self._note(len(found))
        return found

    async def cancel(self, ids: Sequence[str], **options: Any) -> Any:
        self._note(len(ids))
        return await super().cancel(ids, **options)

    async def requeue(self, ids: Sequence[str], **options: Any) -> Any:
        self._note(len(ids))
        return await super().requeue(ids, **options)

    async def prune(self, kind: Prunable, before: int, **options: Any) -> int:
        self._note(options.get("limit", 1000))
        return await super().prune(kind, before, **options)


async def test_no_action_on_a_whole_backlog_asks_for_it_at_once(
    jobs: QueueService, scaled: Callable[[int, int], int]
):
    """B091: purging or retrying all loads a backlog into memory."""
    count = scaled(3 * PAGE_MAX, 50_000)  # so that the last page is empty
    for start in range(0, count, 5_000):
        size = min(5_000, count - start)
        await jobs.enqueue_many([mail.bind(n=n) for n in range(size)])
    measured = Measured(jobs._life.engine)
    jobs._life._engine = measured
    assert len((await jobs.cancel(tags="a")).cancelled) == count
    assert len((await jobs.requeue(states="cancelled", metadata={"n": 1})).requeued) == count
    assert len((await jobs.cancel(tasks="mail", force=True)).cancelled) == count
    ids = [job.id async for job in jobs.find_all(tags="a")]
    assert len(ids) == count
    assert len((await jobs.requeue(*ids)).requeued) == count
    assert len((await jobs.cancel(*ids)).cancelled) == count
    assert (await jobs.maintain()).state == "done"
    assert await jobs.prune(tags="a") == count
    assert measured.largest == PAGE_MAX


@pytest.mark.parametrize("empty", [{"tasks": []}, {"tags": ()}, {"metadata": {}}, {"error": ""}])
async def test_a_filter_that_came_out_empty_is_not_all_jobs(jobs: QueueService, empty):
    """An empty list stands for all in many a filter, and a mass action then hits everything."""
    handle = await jobs.enqueue(mail)
    for action in (jobs.cancel, jobs.requeue, jobs.prune, jobs.find):
        with pytest.raises(InvalidArguments, match="is empty; leave it out to match any"):
            await action(**empty)
    assert (await handle.job()).label == "pending"


async def test_a_dry_run_changes_nothing_at_all(jobs: QueueService):
    ids = [(await jobs.enqueue(mail)).id for _ in range(4)]
    await jobs.cancel(ids[0])
    [running] = await jobs.claim(tasks=["mail"])
    await jobs.cancel(running.id)
    before = [job.row for job in await jobs.find()]
    told = await jobs.cancel(tasks="mail", force=True, dry_run=True)
    assert sorted(told.cancelled) == ids[1:]
    assert (await jobs.requeue(states="cancelled", dry_run=True)).requeued == (ids[0],)
    assert await jobs.prune(tasks="mail", dry_run=True) == 1
    assert [job.row for job in await jobs.find()] == before


async def test_what_began_or_ended_since_it_was_looked_at_is_judged_as_it_is(jobs: QueueService):
    """A mass action reads first and acts then; jobs do not stand still in between."""
    ids = [(await jobs.enqueue(mail)).id for _ in range(3)]
    flaky = Flaky(jobs._life.engine)
    jobs._life._engine = flaky
    gate = flaky.hold("cancel")
    action = asyncio.create_task(jobs.cancel(states="pending"))
    await gate.reached()
    [running] = await jobs.claim(tasks=["mail"])
    await jobs._run(lambda engine: engine.cancel([ids[1]]))
    gate.let_go()
    answer = await action
    assert answer.requested == (running.id,)
    assert answer.already_final == (ids[1],)
    assert answer.cancelled == (ids[2],)


async def test_all_kinds_of_housekeeping_at_once_harm_nothing(jobs: QueueService):
    """Beside workers: what lives stays, and what ended stays ended."""
    done: list[int] = []

    @jobs.task
    async def work(n: int) -> None:
        done.append(n)

    count = 150
    stop = asyncio.Event()

    async def keep_house() -> None:
        while not stop.is_set():
            await jobs.sweep()
            await jobs.prune(states=["completed"], older_than=3600)
            await jobs.maintain(0)
            await asyncio.sleep(0)

    houses = [asyncio.create_task(keep_house()) for _ in range(3)]
    await jobs.enqueue_many([work.bind(n) for n in range(count)])
    await asyncio.gather(*(jobs.worker(burst=True, concurrency=5).run() for _ in range(2)))
    stop.set()
    await asyncio.gather(*houses)
    assert sorted(done) == list(range(count))
    assert len(await jobs.find(tasks="work", states="completed", limit=1000)) == count


async def test_a_row_that_cannot_be_read_inside_stops_no_search(tmp_path: Path):
    """One record that somebody edited must not make every search fail."""
    async with QueueService(f"sqlite:///{tmp_path}/jobs.db") as jobs:
        bad, good = [(await jobs.enqueue(mail)).id for _ in range(2)]
        with sqlite3.connect(tmp_path / "jobs.db") as connection:
            connection.execute(
                "UPDATE jobs SET metadata = '{', tags = 'x', error = '[]' WHERE id = ?", (bad,)
            )
        connection.close()
        assert [job.id for job in await jobs.find(metadata={"n": 1})] == [good]
        assert [job.id for job in await jobs.find(tags="a")] == [good]
        assert await jobs.find(error="x") == []
        assert (await jobs.cancel(tags="a")).cancelled == (good,)
        assert (await jobs.get(bad)).state is State.PENDING
