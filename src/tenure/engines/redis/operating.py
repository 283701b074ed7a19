"""The steps that people and housekeeping take: cancel, requeue, sweep, prune."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tenure.core import rules
from tenure.core.fair import Turns, fair_key_of
from tenure.core.identity import FREE, Holder, Reservation, taken_by
from tenure.core.job import JobRow
from tenure.core.query import CancelResult, Filter, RequeueResult, Swept
from tenure.core.states import FINAL, Event, State, check
from tenure.engines.redis import limiting, queries
from tenure.engines.redis.deciding import Plan, Question, Seen, chunks, decided
from tenure.engines.redis.link import Link

_decode_ids = msgspec.msgpack.Decoder(list[str]).decode
_decode_ended = msgspec.msgpack.Decoder(tuple[list[str], Any]).decode


async def cancel(link: Link, ids: Sequence[str], force: bool, now: int | None) -> CancelResult:
    """See `Engine.cancel`."""
    found: dict[str, list[str]] = {name: [] for name in CancelResult.__struct_fields__}
    for part in chunks(list(dict.fromkeys(ids)), 500):

        def decide(seen: Seen, plan: Plan, part: Sequence[str] = part) -> list[tuple[str, str]]:
            rows = zip(part, seen.rows, strict=True)
            return [(_cancelled(row, seen.now, force, plan), job_id) for job_id, row in rows]

        for name, job_id in await decided(link, "cancel", Question(ids=part), decide, now):
            found[name].append(job_id)
    return CancelResult(**{name: tuple(found[name]) for name in found})


def _cancelled(row: JobRow | None, now: int, force: bool, plan: Plan) -> str:
    """Plan the cancelling of one job; the field of the result that names it."""
    if row is None:
        return "not_found"
    if row.state.final:
        return "already_final"
    return cancel_row(row, now, force=force, plan=plan)[0]


def cancel_row(row: JobRow, now: int, *, force: bool, plan: Plan) -> tuple[str, JobRow]:
    """Plan the cancelling of a job that is not final; the field that names it, and its new row."""
    values = rules.cancelled_values(row, now, force=force)
    if row.state is State.RUNNING:
        plan.bereave(row.id)
    if "state" in values:
        return "cancelled", plan.change(row, values)
    return "requested", plan.mark(row, values)


async def requeue(
    link: Link, ids: Sequence[str], payload: bytes | None, now: int | None
) -> RequeueResult:
    """See `Engine.requeue`."""
    requeued: list[str] = []
    not_final: list[str] = []
    not_found: list[str] = []
    taken: dict[str, str] = {}
    for part in chunks(list(dict.fromkeys(ids)), 500):

        def decide(
            seen: Seen, plan: Plan, part: Sequence[str] = part
        ) -> list[tuple[str, JobRow | None, str | None]]:
            turns = Turns(seen.last)
            return [
                (job_id, row, None if row is None else _requeued(row, seen, turns, payload, plan))
                for job_id, row in zip(part, seen.rows, strict=True)
            ]

        question = Question(ids=part, more=True)
        for job_id, row, other in await decided(link, "requeue", question, decide, now):
            if row is None:
                not_found.append(job_id)
            elif not row.state.final:
                not_final.append(job_id)
            elif other is not None:
                taken[job_id] = other
            else:
                requeued.append(job_id)
    return RequeueResult(tuple(requeued), tuple(not_final), tuple(not_found), taken)


def _requeued(
    row: JobRow, seen: Seen, turns: Turns, payload: bytes | None, plan: Plan
) -> str | None:
    """Plan the requeueing of a final job; the other one that has its key."""
    if not row.state.final:
        return None
    holder = seen.holders.get(row.unique_key, FREE) if row.unique_key is not None else FREE
    other = taken_by(row, holder)
    if other is None:
        rank = turns.rank(fair_key_of(row), seen.now, row.priority)
        changed = plan.change(row, rules.requeued_values(row, seen.now, payload, rank))
        if row.unique_key is not None:  # the next one of this call with this key meets it
            seen.holders[row.unique_key] = Holder(changed, holder.reservation)
    return other


async def sweep(link: Link, limit: int, now: int | None) -> list[Swept]:
    """See `Engine.sweep`."""
    limit = max(limit, 0)
    await limiting.tidy(link, now)
    expired = _decode_ids(await link.run("expire", [limit], now))
    swept = [Swept(job_id, State.EXPIRED) for job_id in expired]
    left = limit
    while left > 0:
        question = Question(lapsed=min(left, 500))
        part = await decided(link, "sweep", question, _taken_back, now)
        swept += part
        left -= len(part)
        if len(part) < 500:
            break
    return swept


def _taken_back(seen: Seen, plan: Plan) -> list[Swept]:
    swept = []
    for row in seen.rows:
        assert row is not None, "only jobs that are there have a lease"
        after = taken_back(row, seen.now)
        plan.change(row, msgspec.structs.asdict(after))
        plan.bereave(row.id)
        swept.append(Swept(row.id, after.state))
    return swept


def taken_back(row: JobRow, now: int) -> JobRow:
    """A job whose lease ran out, as it is without its holder."""
    values = rules.settled_values(row.priority, rules.lapse(row, now), now)
    return msgspec.structs.replace(row, **{**values, **rules.revoked_token(row, now)})


async def prune_jobs(link: Link, before: int, where: Filter, limit: int) -> int:
    """See `Engine.prune`."""
    removed = 0
    states = [state for state in (where.states or State) if state in FINAL]
    for state in states:
        check(state, Event.PRUNE, None)
    if where.ids:
        found = await queries.get(link, list(dict.fromkeys(where.ids)))
        rows = [
            (row.finished_at, row.id)
            for row in found
            if row is not None
            and where.matches(row)
            and row.state in states
            and row.finished_at is not None
            and row.finished_at < before
        ]
        ids = [job_id for _, job_id in sorted(rows)[:limit]]
        for part in chunks(ids):
            removed += await link.run("remove", [str(before), list(part)], repeat=True)
        return removed
    queues, tasks = list(where.queues) or False, list(where.tasks) or False
    after: Any = False
    while removed < limit:
        most = min(limit - removed, 1000)
        asked = [str(before), most, [str(state) for state in states], queues, tasks, after]
        ids, after = _decode_ended(await link.run("ended", asked, repeat=True))
        if ids:
            removed += await link.run("remove", [str(before), ids])
        if not after:
            break
    return removed


async def release(link: Link, key: str, owner: str | None) -> bool:
    """See `Engine.release_identity`."""
    asked = [key, False if owner is None else owner]
    return bool(await link.run("release", asked))


async def reservation(link: Link, key: str) -> Reservation | None:
    """See `Engine.identity`."""
    question = Question(keys=[key])
    return await decided(
        link, "identity", question, lambda seen, plan: seen.holders[key].reservation, None
    )
