"""The events that are kept. There is one writer at a time, so their numbers are their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tenure.core import codec
from tenure.core.event import EventFilter, NewEvent, StoredEvent
from tenure.engines.sqlite.operations import SQL, as_list
from tenure.engines.sqlite.thread import Transaction
from tenure.errors import ConfigurationError

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def append(tx: Transaction, events: Sequence[NewEvent], now: int) -> None:
    """See `Engine.append`."""
    rows = []
    for event in events:
        facts = codec.encode(event.facts, "facts").decode()
        rows.append((now, event.name, event.job_id, event.task, event.queue, facts))
    tx.execute_many(SQL["append_event"], rows)


def read(tx: Transaction, where: EventFilter, after: str | None, limit: int) -> list[StoredEvent]:
    """See `Engine.read`."""
    asked: dict[str, Any] = {"after": 0 if after is None else _number(after), "limit": limit}
    for name in ("names", "job_ids", "tasks", "queues"):
        values = getattr(where, name)
        asked[name] = as_list(values) if values else None
    statement = SQL["read_events_of_jobs" if where.job_ids else "read_events"]
    if not where.job_ids:
        del asked["job_ids"]
    return [
        StoredEvent(
            cursor=str(number),
            at=at,
            name=name,
            job_id=job_id,
            task=task,
            queue=queue,
            facts=_decode(facts),
        )
        for number, at, name, job_id, task, queue, facts in tx.execute(statement, asked)
    ]


def prune(tx: Transaction, before: int, limit: int) -> int:
    """See `Engine.prune`."""
    return tx.write(SQL["prune_events"], {"before": before, "limit": limit})


def _number(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit()):
        raise ConfigurationError(f"{cursor!r} is no cursor of this store")
    return min(int(cursor), 2**63 - 1)
