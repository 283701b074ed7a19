"""What is known of queues and workers, and what is wrong with the file."""

from __future__ import annotations

from collections import Counter

import msgspec

from tenure.core.fleet import (
    Flaw,
    Inspection,
    QueueChange,
    QueueSettings,
    WorkerInfo,
    findings,
    flaw_of,
)
from tenure.core.states import State
from tenure.engines.sqlite import health, limiting
from tenure.engines.sqlite.operations import SQL
from tenure.engines.sqlite.thread import Transaction

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WorkerInfo).decode


def configure(tx: Transaction, change: QueueChange) -> QueueSettings:
    """See `Engine.configure`."""
    before = {kept.queue: kept for kept in _settings(tx)}.get(change.queue)
    after = change.of(before)
    values = {"paused": int(after.paused), "limits": limiting.kept(after.limits)}
    tx.write(SQL["configure_queue"], {"queue": after.queue} | values)
    if before is not None and before.limits.of_keys != after.limits.of_keys:
        limiting.unblock_all(tx, after.queue)
    tx.changes.append(("", after.queue, State.PENDING, True))
    tx.crowd = True
    return after


def _settings(tx: Transaction) -> list[QueueSettings]:
    return [
        QueueSettings(queue, bool(paused), limiting.read(limits))
        for queue, paused, limits in tx.execute(SQL["queue_settings"])
    ]


def inspect(tx: Transaction, path: str, now: int) -> Inspection:
    """See `Engine.inspect`."""
    flawed: dict[Flaw, list[str]] = {}
    tasks: Counter[str] = Counter()
    for job_id, task, state, ready, available_at, owner, lease_until, finished_at in tx.execute(
        SQL["conditions"]
    ):
        flaw = flaw_of(
            state=state,
            ready=bool(ready),
            available_at=available_at,
            owner=owner,
            lease_until=lease_until,
            finished_at=finished_at,
            now=now,
        )
        if flaw is not None:
            flawed.setdefault(flaw, []).append(job_id)
        if state in (State.PENDING, State.RUNNING):
            tasks[task] += 1
    found = (*findings(flawed), *health.examine(tx, path))
    return Inspection(found, tuple(_settings(tx)), tasks)


def announce(tx: Transaction, worker: WorkerInfo, ttl: int, now: int) -> None:
    """See `Engine.announce`."""
    tx.write(SQL["forget_workers"], {"now": now, "id": worker.id})
    if ttl > 0:
        info = _encode(msgspec.structs.replace(worker, seen_at=now)).decode()
        tx.write(SQL["announce"], {"id": worker.id, "until": now + ttl, "info": info})


def workers(tx: Transaction, now: int) -> list[WorkerInfo]:
    """See `Engine.workers`."""
    return [_decode(info) for (info,) in tx.execute(SQL["workers"], {"now": now})]
