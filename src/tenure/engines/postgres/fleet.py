"""What is known of queues and workers, and which jobs are in an impossible condition."""

from __future__ import annotations

import msgspec

from tenure.core.fleet import Flaw, Inspection, QueueSettings, WorkerInfo, findings, flaw_of
from tenure.core.states import State
from tenure.engines.postgres import rows
from tenure.engines.postgres.steps import Ask, Effects, Steps

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WorkerInfo).decode


def configure(out: Effects, settings: QueueSettings) -> Steps[None]:
    """See `Engine.configure`."""
    yield Ask("configure_queue", {"queue": settings.queue, "paused": settings.paused})
    out.changes.append(("", settings.queue, State.PENDING, True))


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
    settings = [QueueSettings(queue, paused) for queue, paused in (yield Ask("queue_settings"))]
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
