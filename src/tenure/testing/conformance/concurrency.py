"""Many callers at once, on one handle, on two, and on two event loops."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier

import msgspec
import pytest

from tenure.core.job import JobRow
from tenure.core.lease import Extended, Lost
from tenure.core.outcomes import Completed, Verdict
from tenure.core.rules import decide
from tenure.engines.protocol import Engine, Inserted
from tenure.errors import PayloadError
from tenure.testing.conformance.kit import (
    LEASE,
    NOW,
    Conformance,
    OpenEngine,
    beat,
    ids,
    job_id,
    new,
    numbered,
    put,
    take,
)


@contextmanager
def _hasty_threads() -> Iterator[None]:
    """Let threads take turns as often as can be, so that a missing lock shows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class TestConcurrency(Conformance):
    """Callers that work at the same time"""

    async def test_claims_never_share_a_job(self, engine: Engine) -> None:
        await put(engine, *(new(n, task=f"t{n % 3}") for n in range(250)))
        async with engine.side() as side:
            calls = [
                take(handle, 3, owner=f"worker-{n}") for n, handle in enumerate([engine, side] * 50)
            ]
            answers = await asyncio.gather(*calls)
        got = [job for rows in answers for job in ids(rows)]
        assert sorted(got) == numbered(*range(250))
        for n, rows in enumerate(answers):
            assert {row.owner for row in rows} <= {f"worker-{n}"}
        stored = await engine.get(got)
        assert stored == [row for rows in answers for row in rows]

    async def test_takeovers_never_share_a_job(self, engine: Engine) -> None:
        await put(engine, *(new(n) for n in range(60)))
        await take(engine, 60)
        calls = [take(engine, 2, now=NOW + LEASE, owner=f"worker-{n}") for n in range(100)]
        got = [row for rows in await asyncio.gather(*calls) for row in rows]
        assert sorted(ids(got)) == numbered(*range(60))
        assert {row.lapses for row in got} == {1}

    async def test_two_event_loops_never_share_a_job(self, engine: Engine) -> None:
        await put(engine, *(new(n) for n in range(2000)))
        sides = [engine.side() for _ in range(4)]
        start = Barrier(len(sides))

        async def work(side: Engine, owner: str) -> list[JobRow]:
            got: list[JobRow] = []
            async with side:
                start.wait(10)
                while rows := await take(side, 9, owner=owner):
                    settled = await side.settle(
                        [decide(row, Completed(), now=NOW) for row in rows], now=NOW
                    )
                    assert {answer.verdict for answer in settled} == {Verdict.APPLIED}
                    got += rows
            return got

        def run(n: int) -> list[JobRow]:
            return asyncio.run(work(sides[n], f"worker-{n}"))

        loop = asyncio.get_running_loop()
        with _hasty_threads(), ThreadPoolExecutor(len(sides)) as pool:
            calls = [loop.run_in_executor(pool, run, n) for n in range(len(sides))]
            got = [row.id for rows in await asyncio.gather(*calls) for row in rows]
        assert sorted(got) == numbered(*range(2000))

    async def test_two_handles_see_each_other_at_once(self, open_engine: OpenEngine) -> None:
        first, second = await open_engine(), await open_engine()
        (row,) = await put(first, new(1))
        assert await second.get([row.id]) == [row]
        (taken,) = await take(second)
        assert await first.get([row.id]) == [taken]

    async def test_one_of_many_settlements_is_applied(self, engine: Engine) -> None:
        await put(engine, new(1))
        (row,) = await take(engine)
        async with engine.side() as side:
            calls = [
                handle.settle([decide(row, Completed(str(n).encode()), now=NOW)], now=NOW)
                for n, handle in enumerate([engine, side] * 10)
            ]
            verdicts = [answer.verdict for (answer,) in await asyncio.gather(*calls)]
        assert verdicts.count(Verdict.APPLIED) == 1
        assert verdicts.count(Verdict.ALREADY) == 19
        (after,) = await engine.get([row.id])
        assert after is not None
        assert after.result == str(verdicts.index(Verdict.APPLIED)).encode()

    async def test_many_inserts(self, engine: Engine) -> None:
        async with engine.side() as side:
            calls = [
                handle.insert([new(2 * n), new(2 * n + 1)], now=NOW)
                for n, handle in enumerate([engine, side] * 150)
            ]
            answers = await asyncio.gather(*calls)
        assert answers == [
            [Inserted(job_id(2 * n), True), Inserted(job_id(2 * n + 1), True)] for n in range(300)
        ]
        assert len(await take(engine, 1000)) == 600

    async def test_a_bad_job_fails_its_own_caller_only(self, engine: Engine) -> None:
        large = b"x" * (engine.traits.max_payload + 1)
        calls = [
            engine.insert(
                [new(2 * n), new(2 * n + 1, payload=large if n % 4 == 1 else b"{}")], now=NOW
            )
            for n in range(40)
        ]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for n, answer in enumerate(answers):
            if n % 4 == 1:
                assert isinstance(answer, PayloadError)
                assert await engine.get(numbered(2 * n, 2 * n + 1)) == [None, None]
            else:
                assert answer == [Inserted(i, True) for i in numbered(2 * n, 2 * n + 1)]

    async def test_a_lost_lease_fails_its_own_caller_only(self, engine: Engine) -> None:
        await put(engine, *(new(n) for n in range(20)))
        rows = await take(engine, 20)
        wrong = [
            msgspec.structs.replace(row, token=1) if n % 5 == 0 else row
            for n, row in enumerate(rows)
        ]
        extended = await asyncio.gather(*(engine.extend([beat(row)], now=NOW) for row in wrong))
        settled = await asyncio.gather(
            *(engine.settle([decide(row, Completed(), now=NOW)], now=NOW) for row in wrong)
        )
        for n in range(20):
            lost = n % 5 == 0
            assert extended[n] == [Lost("taken") if lost else Extended(30.0)]
            assert settled[n][0].verdict is (Verdict.LOST if lost else Verdict.APPLIED)

    @pytest.mark.parametrize("turns", [0, 1, 2, 3])
    async def test_a_cancelled_caller_stops_no_other(self, engine: Engine, turns: int) -> None:
        tasks = [
            asyncio.create_task(engine.insert([new(3 * n + k) for k in range(3)], now=NOW))
            for n in range(40)
        ]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.wait(tasks)
        for n, task in enumerate(tasks):
            mine = numbered(3 * n, 3 * n + 1, 3 * n + 2)
            if n % 2:
                assert task.result() == [Inserted(job, True) for job in mine]
            there = [row is not None for row in await engine.get(mine)]
            # A cancelled caller doesn't know, but its batch is there as a whole or not at all.
            assert there in ([True] * 3, [False] * 3)
            assert there == [True] * 3 or task.cancelled()

    async def test_a_cancelled_claim_stops_no_other(self, engine: Engine) -> None:
        await put(engine, *(new(n) for n in range(100)))
        tasks = [asyncio.create_task(take(engine, 1, owner=f"w{n}")) for n in range(40)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.wait(tasks)
        got = [row.id for task in tasks[1::2] for row in task.result()]
        assert len(got) == len(set(got)) == 20
