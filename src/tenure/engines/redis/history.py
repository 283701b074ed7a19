"""Events that are kept. Their numbers, drawn in the step that keeps them, are their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tenure.core import codec
from tenure.core.event import EventFilter, NewEvent, StoredEvent
from tenure.engines.redis.link import Link, encode
from tenure.engines.redis.rows import opaque
from tenure.errors import ConfigurationError

_decode = msgspec.msgpack.Decoder(
    list[tuple[str, str, tuple[str, str | None, str | None, str | None, str]]]
).decode
_facts = msgspec.json.Decoder(dict[str, Any]).decode
_READ = 1000
_MOST = 2**53 - 1


async def append(link: Link, events: Sequence[NewEvent], now: int | None) -> None:
    """See `Engine.append`."""
    items = []
    for event in events:
        facts = codec.encode(event.facts, "facts").decode()
        data = encode((event.name, event.job_id, event.task, event.queue, facts))
        items.append((False if event.job_id is None else event.job_id, opaque(data)))
    if items:
        await link.run("append", items, now)


async def read(link: Link, where: EventFilter, after: str | None, limit: int) -> list[StoredEvent]:
    """See `Engine.read`."""
    number = 0 if after is None else _number(after)
    jobs = list(dict.fromkeys(where.job_ids)) or False
    whole = bool(where.names or where.tasks or where.queues)
    found: list[StoredEvent] = []
    while True:
        count = _READ if whole else limit - len(found)
        answer = _decode(await link.run("read_events", [number, count, jobs], repeat=True))
        for text, at, data in answer:
            event = _event(text, at, data)
            if where.matches(event):
                found.append(event)
        if len(found) >= limit or len(answer) < count:
            return found[:limit]
        number = int(answer[-1][0])


async def prune(link: Link, before: int, limit: int) -> int:
    """See `Engine.prune`."""
    removed: int = await link.run("prune_events", [str(before), limit])
    return removed


def _event(number: str, at: str, data: tuple[Any, ...]) -> StoredEvent:
    name, job_id, task, queue, facts = data
    return StoredEvent(
        cursor=number,
        at=int(at),
        name=name,
        job_id=job_id,
        task=task,
        queue=queue,
        facts=_facts(facts),
    )


def _number(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit()):
        raise ConfigurationError(f"{cursor!r} is no cursor of this store")
    return min(int(cursor), _MOST)
