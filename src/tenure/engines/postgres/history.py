"""The events that are kept.

Their order is that of their transactions' numbers. A transaction may commit long after a younger
one; so events are read only below the oldest number that is still open.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from tenure.core import codec
from tenure.core.event import EventFilter, NewEvent, StoredEvent
from tenure.engines.postgres.steps import Ask, Effects, Steps
from tenure.errors import ConfigurationError

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_CURSOR = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")
_PATIENCE = 10
"""How often a reader waits a moment for transactions that hide events: mostly they are short."""


def append(out: Effects, events: Sequence[NewEvent]) -> Steps[None]:
    """See `Engine.append`."""
    if not events:
        return
    values: dict[str, Any] = {
        name: [getattr(event, name) for event in events]
        for name in ("name", "job_id", "task", "queue")
    }
    values["facts"] = [codec.encode(event.facts, "facts").decode() for event in events]
    yield Ask("append_events", values | {"now": out.now})


def read(where: EventFilter, after: str | None, limit: int) -> Steps[list[StoredEvent]]:
    """See `Engine.read`. What a transaction that is still open may precede comes later."""
    xid, number = (0, 0) if after is None else _place(after)
    asked: dict[str, Any] = {"xid": str(xid), "number": number, "most": limit}
    for name in ("names", "job_ids", "tasks", "queues"):
        asked[name] = list(getattr(where, name)) or None
    statement = "read_events_of_jobs" if where.job_ids else "read_events"
    yield from _await_visible()
    return [
        StoredEvent(
            cursor=f"{xid}-{number}",
            at=at,
            name=name,
            job_id=job_id,
            task=task,
            queue=queue,
            facts=_decode(facts),
        )
        for xid, number, at, name, job_id, task, queue, facts in (yield Ask(statement, asked))
    ]


def _await_visible() -> Steps[None]:
    """Wait a moment for what is committed, but behind a transaction that is still open."""
    ((last,),) = yield Ask("hidden_events")
    if last is None:
        return
    for _ in range(_PATIENCE):
        yield Ask("pause")
        ((hidden,),) = yield Ask("is_hidden", {"xid": str(last)})
        if not hidden:
            return


def _place(cursor: str) -> tuple[int, int]:
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise ConfigurationError(f"{cursor!r} is no cursor of this store")
    xid, number = map(int, found.groups())
    return xid, min(number, 2**63 - 1)
