"""Group commit: what waits is written together, and each caller gets its own answer."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tenure.core.job import COLUMNS
from tenure.engines.protocol import Claim
from tenure.engines.sqlite import SQLiteEngine, operations
from tenure.engines.sqlite.group import GROUP_CALLS, GROUP_ROWS
from tenure.engines.sqlite.turnstile import Turnstile
from tenure.errors import EngineUnavailable, PayloadError
from tests.engines.sqlite.conftest import make_job, new_id

pytestmark = pytest.mark.anyio


class Commits:
    """Counts the transactions of the writer."""

    def __init__(self, engine: SQLiteEngine) -> None:
        self.groups: list[int] = []
        writer = engine._writer
        assert writer is not None
        finish = writer._together.finish

        def counted(database, calls):
            self.groups.append(len(calls))
            finish(database, calls)

        writer._together.finish = counted  # type: ignore[method-assign]


@asynccontextmanager
async def held(engine: SQLiteEngine) -> AsyncIterator[None]:
    """Keep the writer busy, so that whatever is submitted meanwhile forms one group."""
    entered, released = threading.Event(), threading.Event()

    def hold(tx, now):
        entered.set()
        released.wait()

    holding = asyncio.create_task(engine._write("hold", hold, None, 0))
    await asyncio.to_thread(entered.wait)
    try:
        yield
    finally:
        released.set()
        await holding


async def test_calls_that_wait_are_one_transaction(engine: SQLiteEngine):
    async with held(engine):
        commits = Commits(engine)
        tasks = [asyncio.create_task(engine.insert([make_job()])) for _ in range(50)]
        await asyncio.sleep(0)
    answers = await asyncio.gather(*tasks)
    assert all(answer[0].created for answer in answers)
    assert commits.groups == [50]


async def test_a_failing_call_fails_its_own_caller_only(engine: SQLiteEngine):
    async with held(engine):
        before = asyncio.create_task(engine.insert([make_job(id="a")]))
        # Passes every check and fails on the connection, after rows of others were written.
        failing = asyncio.create_task(engine.insert([make_job(id="b"), make_job(priority=2**70)]))
        after = asyncio.create_task(engine.insert([make_job(id="c")]))
        claiming = asyncio.create_task(engine.claim(Claim(owner="w", limit=9, lease=10**7)))
        await asyncio.sleep(0)
    with pytest.raises(OverflowError):
        await failing
    assert [answer.created for answer in (*await before, *await after)] == [True, True]
    assert {row.id for row in await claiming} == {"a", "c"}
    found = await engine.get(["a", "b", "c"])
    assert [row is not None for row in found] == [True, False, True]


async def test_sqlites_own_errors_become_unavailable_and_name_the_call(engine: SQLiteEngine):
    def fail(tx, now):
        tx.execute("SELECT * FROM nowhere")

    async with held(engine):
        failing = asyncio.create_task(engine._write("claim", fail, None, 1))
        fine = asyncio.create_task(engine.insert([make_job()]))
        await asyncio.sleep(0)
    with pytest.raises(EngineUnavailable, match="claim: no such table: nowhere") as caught:
        await failing
    assert isinstance(caught.value.__cause__, sqlite3.Error)
    assert (await fine)[0].created


async def test_a_cancelled_caller_takes_nobody_along(engine: SQLiteEngine):
    async with held(engine):
        tasks = [asyncio.create_task(engine.insert([make_job()])) for _ in range(5)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.sleep(0)
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(answers[2], asyncio.CancelledError)
    assert [type(answer) for i, answer in enumerate(answers) if i != 2] == [list] * 4


async def test_a_caller_that_left_before_its_turn_changed_nothing(engine: SQLiteEngine):
    async with held(engine):
        task = asyncio.create_task(engine.insert([make_job(id="a")]))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
    await engine.insert([make_job()])  # behind it in the queue, so its turn is over
    assert await engine.get(["a"]) == [None]


async def test_groups_are_capped_in_calls_and_rows(engine: SQLiteEngine):
    async with held(engine):
        commits = Commits(engine)
        tasks = [asyncio.create_task(engine.insert([make_job()])) for _ in range(GROUP_CALLS + 1)]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert commits.groups == [GROUP_CALLS, 1]
    half = [make_job() for _ in range(GROUP_ROWS // 2)]
    async with held(engine):
        commits = Commits(engine)
        tasks = [
            asyncio.create_task(engine.insert([make_job(id=new_id()) for _ in half]))
            for _ in range(3)
        ]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert commits.groups == [2, 1]


async def test_a_batch_beyond_the_cap_is_one_transaction(engine: SQLiteEngine):
    jobs = [make_job() for _ in range(20_000)]
    commits = Commits(engine)
    answers = await engine.insert([*jobs, jobs[0]])
    assert [answer.created for answer in answers] == [True] * 20_000 + [False]
    assert commits.groups == [1]


async def test_a_payload_that_is_too_large_writes_nothing(engine: SQLiteEngine):
    large = make_job(payload=b"x" * (engine.traits.max_payload + 1))
    with pytest.raises(PayloadError, match=r"has 1048577 bytes; at most 1048576 are allowed"):
        await engine.insert([make_job(id="a"), large])
    assert await engine.get(["a"]) == [None]
    await engine.insert([make_job(id="b", payload=b"x" * engine.traits.max_payload)])
    (row,) = await engine.get(["b"])
    assert row is not None
    assert row.payload_size == engine.traits.max_payload


async def test_a_full_disk_is_unavailable_and_passes(engine: SQLiteEngine):
    def limit(pages: int):
        return engine._write(
            "limit", lambda tx, now: tx.execute(f"PRAGMA max_page_count = {pages}"), None, 0
        )

    await limit(30)
    large = [make_job(payload=b"x" * 9_000) for _ in range(50)]
    with pytest.raises(EngineUnavailable, match="insert: database or disk is full"):
        await engine.insert([*large, make_job(id="a")])
    assert await engine.get(["a"]) == [None]
    await limit(1_000_000)
    assert (await engine.insert([*large, make_job(id="a")]))[-1].created


async def test_a_lock_that_outlasts_the_call_is_an_error_that_says_so(path: str):
    async with SQLiteEngine(path, timeout=0.3) as engine:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(EngineUnavailable, match="insert: database is locked"):
            await engine.insert([make_job(id="a")])
        assert await engine.get(["a"]) == [None]  # reads go on
        other.execute("ROLLBACK")
        other.close()
        assert (await engine.insert([make_job(id="a")]))[0].created


async def test_a_process_that_keeps_its_turn_holds_up_nobody_for_good(path: str):
    """As one that was stopped would: calls end in time, closing too, and nothing is lost later."""
    async with SQLiteEngine(path, timeout=0.2) as engine:
        other = Turnstile(path)
        other.enter()
        with pytest.raises(EngineUnavailable, match=r"insert: .* did not answer"):
            await engine.insert([make_job(id="a")])
        other.leave()
        assert (await engine.insert([make_job(id="b")]))[0].created
        assert await engine.get(["a"]) == [None]  # its caller had left
        other.enter()
    other.close()
    async with SQLiteEngine(path) as engine:
        assert await engine.get(["a"]) == [None]


async def test_a_call_that_gets_no_turn_ends_in_time(path: str):
    async with SQLiteEngine(path, timeout=0.2) as engine:
        entered, released = threading.Event(), threading.Event()

        def hold(tx, now):
            entered.set()
            released.wait()

        holding = asyncio.create_task(engine._write("hold", hold, None, 0))
        await asyncio.to_thread(entered.wait)
        with pytest.raises(EngineUnavailable, match=r"claim: .* did not answer within 0\.2 s"):
            await engine.claim(Claim(owner="w", limit=1, lease=10**6))
        released.set()
        with pytest.raises(EngineUnavailable, match=r"hold: .* did not answer"):
            await holding


async def test_a_long_read_is_ended(path: str):
    endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT max(i) FROM n"
    async with SQLiteEngine(path, timeout=0.2) as engine:
        with pytest.raises(EngineUnavailable, match="stats: "):
            await engine._read("stats", lambda tx, now: tx.execute(endless), None)
        assert await engine.get(["a"]) == [None]


async def test_a_long_read_delays_no_write(engine: SQLiteEngine):
    reading, released = threading.Event(), threading.Event()

    def read(tx, now):
        reading.set()
        released.wait()
        return 1

    task = asyncio.create_task(engine._read("stats", read, None))
    await asyncio.to_thread(reading.wait)
    assert (await engine.insert([make_job()]))[0].created
    released.set()
    assert await task == 1


async def test_closing_finishes_what_is_queued(path: str):
    engine = SQLiteEngine(path)
    await engine.__aenter__()
    tasks = [asyncio.create_task(engine.insert([make_job(id=f"{i}")])) for i in range(20)]
    await asyncio.sleep(0)
    await engine.__aexit__()
    answers = await asyncio.gather(*tasks)
    assert all(answer[0].created for answer in answers)
    names = {thread.name for thread in threading.enumerate()}
    assert not any(name.startswith("tenure-sqlite") for name in names)


async def test_any_loop_may_wait_for_an_answer(engine: SQLiteEngine):
    def in_another_loop(job_id: str) -> bool:
        return bool(asyncio.run(engine.insert([make_job(id=job_id)]))[0].created)

    created = await asyncio.gather(
        *(asyncio.to_thread(in_another_loop, f"x{i}") for i in range(8)),
        *(engine.insert([make_job(id=f"y{i}")]) for i in range(8)),
    )
    assert len(created) == 16
    assert None not in await engine.get([f"x{i}" for i in range(8)])


async def test_a_side_engine_works_beside_it_from_a_thread(engine: SQLiteEngine):
    side = engine.side()
    with pytest.raises(EngineUnavailable, match="not open"):
        await side.get(["a"])

    async def use() -> bool:
        async with side:
            return bool((await side.insert([make_job(id="a")]))[0].created)

    assert await asyncio.to_thread(lambda: asyncio.run(use()))
    assert (await engine.get(["a"]))[0] is not None


def test_the_plain_insert_names_the_columns_it_is_given():
    text = operations.SQL["insert_plain_job"]
    names = text[text.index("(") + 1 : text.index(")")].replace(",", " ").split()
    assert tuple(names) == operations._PLAIN


def test_the_full_insert_names_every_column():
    text = operations.SQL["insert_job"]
    names = text[text.index("(") + 1 : text.index(")")].replace(",", " ").split()
    assert tuple(names) == COLUMNS


async def test_rows_with_rarer_columns_are_written_whole(engine: SQLiteEngine):
    rare = make_job(id="b", actor="me", schedule="nightly", tick=7)
    answers = await engine.insert([make_job(id="a"), rare, rare])
    assert [answer.created for answer in answers] == [True, True, False]
    rows = await engine.get(["a", "b"])
    assert [(row.actor, row.tick) for row in rows if row] == [(None, None), ("me", 7)]
