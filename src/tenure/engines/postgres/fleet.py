"""What is known of queues and workers, and which jobs are in an impossible condition."""

from __future__ import annotations

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
from tenure.engines.postgres import limiting, rows
from tenure.engines.postgres.steps import Ask, Effects, Steps

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WorkerInfo).decode


def configure(out: Effects, change: QueueChange) -> Steps[QueueSettings]:
    """See `Engine.configure`."""
    yield Ask("ensure_queue", {"queue": change.queue})
    found = yield Ask("lock_queue", {"queue": change.queue})
    before = _settings(*found[0])
    after = change.of(before)
    values = {"paused": after.paused, "limits": limiting.kept(after.limits)}
    yield Ask("configure_queue", {"queue": after.queue} | values)
    if before.limits.of_keys != after.limits.of_keys:
        yield from limiting.unblock_all(after.queue)
    out.changes.append(("", after.queue, State.PENDING, True))
    return after


def _settings(queue: str, paused: bool, limits: str | None) -> QueueSettings:
    return QueueSettings(queue, paused, limiting.read(limits))


def inspect(out: Effects) -> Steps[Inspection]:
    """See `Engine.inspect`: the jobs and the queues; what is said of the server comes on top."""
    flawed: dict[Flaw, list[str]] = {}
    for now, job_id, state, ready, available_at, owner, lease_until, finished_at in (
        yield Ask("conditions", {"now": out.now})
    ):
        flaw = flaw_of(
            state=state,
            ready=ready,
            available_at=available_at,
            owner=owner,
            lease_until=lease_until,
            finished_at=finished_at,
            now=now,
        )
        if flaw is not None:
            flawed.setdefault(flaw, []).append(job_id)
    settings = [_settings(*values) for values in (yield Ask("queue_settings"))]
    living: list[tuple[str, int]] = yield Ask("living_tasks")
    return Inspection(findings(flawed), tuple(settings), dict(living))


def announce(out: Effects, worker: WorkerInfo, ttl: int) -> Steps[None]:
    """See `Engine.announce`."""
    now = yield from rows.clock(out)
    yield Ask("forget_workers", {"now": now, "id": worker.id})
    if ttl > 0:
        info = _encode(msgspec.structs.replace(worker, seen_at=now)).decode()
        yield Ask("announce", {"id": worker.id, "until": now + ttl, "info": info})
    else:
        yield Ask("forget_worker", {"id": worker.id})


def workers(out: Effects) -> Steps[list[WorkerInfo]]:
    """See `Engine.workers`."""
    return [_decode(info) for (info,) in (yield Ask("workers", {"now": out.now}))]
