"""A bare table of jobs in PostgreSQL, by the driver of tenure: what any queue has to store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import psycopg

from benchmarks.measure import Sample, Stopwatch, repeat_async
from benchmarks.raw.ideal import IdealWorker
from benchmarks.raw.store import Claimed

_TABLE = """
DROP TABLE IF EXISTS raw_jobs;
CREATE TABLE raw_jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue text NOT NULL, task text NOT NULL,
    state smallint NOT NULL DEFAULT 0, priority smallint NOT NULL DEFAULT 0,
    due timestamptz NOT NULL DEFAULT now(), attempt smallint NOT NULL DEFAULT 0,
    max_attempts smallint NOT NULL DEFAULT 3, args bytea NOT NULL, lease_until timestamptz,
    worker text, created timestamptz NOT NULL DEFAULT now(), finished timestamptz, result bytea
) WITH (fillfactor = 80);
CREATE INDEX raw_ready ON raw_jobs (queue, priority, due, id) WHERE state = 0;
CREATE INDEX raw_lease ON raw_jobs (lease_until) WHERE state = 1;
"""
_INSERT = "INSERT INTO raw_jobs (queue, task, args) VALUES ('default', 'noop', %b) RETURNING id"
_BULK = """
INSERT INTO raw_jobs (queue, task, args)
SELECT q, t, a FROM unnest(%b::text[], %b::text[], %b::bytea[]) AS u (q, t, a)
"""
_CLAIM = """
WITH c AS MATERIALIZED (
    SELECT id FROM raw_jobs WHERE state = 0 AND queue = 'default' AND due <= now()
    ORDER BY priority, due, id LIMIT %s FOR UPDATE SKIP LOCKED
)
UPDATE raw_jobs SET state = 1, attempt = attempt + 1, lease_until = now() + interval '30 s',
    worker = 'w'
FROM c WHERE raw_jobs.id = c.id RETURNING raw_jobs.id, args, attempt
"""
_COMPLETE = """
DELETE FROM raw_jobs USING unnest(%b::bigint[], %b::smallint[]) AS u (i, a)
WHERE raw_jobs.id = u.i AND attempt = u.a
"""


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[psycopg.AsyncCursor[Any]]:
    """A cursor of a connection that prepares what it runs; the table is new and empty."""
    async with await psycopg.AsyncConnection.connect(
        url.partition("?")[0], autocommit=True, prepare_threshold=0
    ) as connection:
        await connection.execute(_TABLE, prepare=False)
        yield connection.cursor(binary=True)


def wake(connection: psycopg.Connection[Any], i: int) -> None:
    """An insert, and a word to who listens."""
    connection.execute(_INSERT, (json.dumps([i]).encode(),))
    connection.execute("NOTIFY raw_jobs")


def wakened(connection: psycopg.Connection[Any]) -> Iterator[int]:
    """The number of each job that comes, until the channel says `end`."""
    connection.execute("LISTEN raw_jobs")
    yield -1
    while "end" not in [notice.payload for notice in connection.notifies(stop_after=1)]:
        for job_id, args, attempt in connection.execute(_CLAIM, (1,)).fetchall():
            yield json.loads(args)[0]
            connection.execute(_COMPLETE, ([job_id], [attempt]))


def created(url: str) -> psycopg.Connection[Any]:
    """A blocking connection; the table is new and empty."""
    connection = joined(url)
    connection.execute(_TABLE, prepare=False)
    return connection


def joined(url: str) -> psycopg.Connection[Any]:
    """One more to the same table."""
    return psycopg.connect(url.partition("?")[0], autocommit=True, prepare_threshold=0)


async def insert_many(cursor: psycopg.AsyncCursor[Any], numbers: Sequence[int]) -> None:
    """In statements of a thousand rows."""
    for start in range(0, len(numbers), 1000):
        part = [json.dumps([i]).encode() for i in numbers[start : start + 1000]]
        await cursor.execute(_BULK, (["default"] * len(part), ["noop"] * len(part), part))


def inserts(url: str, seconds: float, at_once: int) -> Sample:
    """Inserts one by one, or, if there are several callers, all that wait in one statement."""

    async def run() -> Sample:
        async with connected(url) as cursor:
            if at_once == 1:
                return await repeat_async(
                    lambda i: cursor.execute(_INSERT, (json.dumps([i]).encode(),)), seconds
                )
            waiting: list[tuple[int, asyncio.Future[None]]] = []
            ending = asyncio.Event()
            came = asyncio.Event()

            async def flush() -> None:
                while not ending.is_set():
                    await came.wait()
                    came.clear()
                    group, waiting[:] = waiting[:], []
                    await insert_many(cursor, [i for i, _ in group])
                    for _, future in group:
                        future.set_result(None)

            async def insert(i: int) -> None:
                future = asyncio.get_running_loop().create_future()
                waiting.append((i, future))
                came.set()
                await future

            flusher = asyncio.create_task(flush())
            sample = await repeat_async(insert, seconds, at_once=at_once)
            ending.set()
            came.set()
            await flusher
            return sample

    return asyncio.run(run())


def bulk(url: str, calls: int, count: int) -> Sample:
    """Bulk inserts of `count` rows."""

    async def run() -> Sample:
        async with connected(url) as cursor:
            watch = Stopwatch()
            for _ in range(calls):
                await insert_many(cursor, range(count))
            return watch.sample(calls * count)

    return asyncio.run(run())


def drain(url: str, count: int, elsewhere: Callable[[], float]) -> Sample:
    """The ideal drain of the bare table, on two connections. `elsewhere` as in `Work.drain`."""

    async def run() -> Sample:
        async with connected(url) as one:
            await insert_many(one, range(count))
            async with await psycopg.AsyncConnection.connect(
                url.partition("?")[0], autocommit=True, prepare_threshold=0
            ) as second:
                two = second.cursor(binary=True)

                async def claim(limit: int) -> list[Claimed]:
                    await one.execute(_CLAIM, (limit,))
                    return await one.fetchall()

                async def complete(jobs: Sequence[Claimed]) -> None:
                    ids, attempts = [job[0] for job in jobs], [job[2] for job in jobs]
                    await two.execute(_COMPLETE, (ids, attempts))

                before = elsewhere()
                sample = await IdealWorker(claim, complete, count).run()
                return replace(sample, cpu=sample.cpu + elsewhere() - before)

    return asyncio.run(run())
