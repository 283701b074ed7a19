"""Bare jobs in Redis, by the driver of tenure: the least that any queue has to do."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import redis
from redis.asyncio import Redis

from benchmarks.measure import Sample, Stopwatch, repeat, repeat_async
from benchmarks.raw.ideal import IdealWorker
from benchmarks.raw.store import Claimed

_READY, _JOBS, _RUNNING = "raw:ready", "raw:jobs", "raw:running"
_INSERT = (
    "redis.call('HSET', KEYS[2], ARGV[1], ARGV[2]) "
    "return redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])"
)
_CLAIM = """
local ids = redis.call('ZRANGE', KEYS[1], 0, ARGV[1] - 1)
if #ids == 0 then return {} end
redis.call('ZREM', KEYS[1], unpack(ids))
local leases = {}
for _, id in ipairs(ids) do
  leases[#leases + 1] = ARGV[2]
  leases[#leases + 1] = id
end
redis.call('ZADD', KEYS[3], unpack(leases))
return {ids, redis.call('HMGET', KEYS[2], unpack(ids))}
"""
_COMPLETE = """
local done = redis.call('ZREM', KEYS[1], unpack(ARGV))
redis.call('HDEL', KEYS[2], unpack(ARGV))
return done
"""


def _job(i: int) -> tuple[str, bytes, int]:
    return os.urandom(8).hex(), json.dumps([i]).encode(), i


def inserts(port: int, seconds: float, at_once: int) -> Sample:
    """Inserts by one script each; of several callers, all that wait in one pipeline."""

    async def run() -> Sample:
        async with Redis(port=port, protocol=2) as client:
            insert = client.register_script(_INSERT)
            if at_once == 1:
                return await repeat_async(
                    lambda i: insert(keys=[_READY, _JOBS], args=_job(i)), seconds
                )
            return await _grouped(client, insert, seconds, at_once)

    return asyncio.run(run())


async def _grouped(
    client: Redis, insert: Callable[..., Awaitable[Any]], seconds: float, at_once: int
) -> Sample:
    waiting: list[tuple[int, asyncio.Future[None]]] = []
    came, ending = asyncio.Event(), asyncio.Event()

    async def flush() -> None:
        while not ending.is_set():
            await came.wait()
            came.clear()
            group, waiting[:] = waiting[:], []
            pipe = client.pipeline(transaction=False)
            for i, _ in group:
                await insert(keys=[_READY, _JOBS], args=_job(i), client=pipe)
            await pipe.execute()
            for _, future in group:
                future.set_result(None)

    async def one(i: int) -> None:
        future = asyncio.get_running_loop().create_future()
        waiting.append((i, future))
        came.set()
        await future

    flusher = asyncio.create_task(flush())
    sample = await repeat_async(one, seconds, at_once=at_once)
    ending.set()
    came.set()
    await flusher
    return sample


def sync_inserts(port: int, seconds: float) -> Sample:
    """The same by the blocking driver."""
    with redis.Redis(port=port, protocol=2) as client:
        insert = client.register_script(_INSERT)
        return repeat(lambda i: insert(keys=[_READY, _JOBS], args=_job(i)), seconds)


def bulk(port: int, calls: int, count: int) -> Sample:
    """Pipelines of a thousand inserts, by plain commands."""

    async def run() -> Sample:
        async with Redis(port=port, protocol=2) as client:
            watch = Stopwatch()
            for _ in range(calls):
                await _fill(client, range(count))
            return watch.sample(calls * count)

    return asyncio.run(run())


async def _fill(client: Redis, numbers: Sequence[int]) -> None:
    for start in range(0, len(numbers), 1000):
        pipe = client.pipeline(transaction=False)
        for i in numbers[start : start + 1000]:
            name, body, score = _job(i)
            pipe.hset(_JOBS, name, body)
            pipe.zadd(_READY, {name: score})
        await pipe.execute()


def drain(port: int, count: int) -> Sample:
    """The ideal drain, on two connections."""

    async def run() -> Sample:
        async with Redis(port=port, protocol=2) as one, Redis(port=port, protocol=2) as two:
            await one.flushdb()
            await _fill(one, range(count))
            take, done = one.register_script(_CLAIM), two.register_script(_COMPLETE)

            async def claim(limit: int) -> list[Claimed]:
                found = await take(keys=[_READY, _JOBS, _RUNNING], args=[limit, 10**15])
                return [(i, body, 1) for i, body in zip(*found, strict=True)] if found else []

            async def complete(jobs: Sequence[Claimed]) -> None:
                await done(keys=[_RUNNING, _JOBS], args=[job[0] for job in jobs])

            return await IdealWorker(claim, complete, count).run()

    return asyncio.run(run())
