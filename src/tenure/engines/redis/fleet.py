"""What is known of queues and workers, and what is wrong with the store."""

from __future__ import annotations

from collections import Counter

import msgspec

from tenure.core.durations import SECOND
from tenure.core.fleet import Flaw, Inspection, WorkerInfo, findings, flaw_of
from tenure.core.states import State
from tenure.engines.redis import limiting, queries
from tenure.engines.redis.link import Link
from tenure.engines.redis.rows import opaque

_encode = msgspec.json.Encoder().encode
_decode_worker = msgspec.json.Decoder(WorkerInfo).decode


async def inspect(link: Link, now: int | None) -> Inspection:
    """See `Engine.inspect`, but for what the server says of itself."""
    at = await store_time(link) if now is None else now
    flawed: dict[Flaw, list[str]] = {}
    tasks: Counter[str] = Counter()
    async for rows in queries.every(link):
        for row in rows:
            flaw = flaw_of(
                state=row.state,
                ready=row.ready,
                available_at=row.available_at,
                owner=row.owner,
                lease_until=row.lease_until,
                finished_at=row.finished_at,
                now=at,
            )
            if flaw is not None:
                flawed.setdefault(flaw, []).append(row.id)
            if row.state in (State.PENDING, State.RUNNING):
                tasks[row.task] += 1
    return Inspection(findings(flawed), await limiting.settings(link), tasks)


async def store_time(link: Link) -> int:
    """The store's time in microseconds."""
    seconds, micros = await link.command(b"TIME")
    return int(seconds) * SECOND + int(micros)


async def announce(link: Link, worker: WorkerInfo, ttl: int, now: int | None) -> None:
    """See `Engine.announce`."""
    await link.run("announce", [worker.id, ttl, opaque(_encode(worker))], now, repeat=True)


async def workers(link: Link, now: int | None) -> list[WorkerInfo]:
    """See `Engine.workers`."""
    found = []
    for text in await link.run("workers", [], now, repeat=True):
        at, _, info = text.partition(b" ")
        found.append(msgspec.structs.replace(_decode_worker(info), seen_at=int(at)))
    return sorted(found, key=lambda worker: worker.id)
