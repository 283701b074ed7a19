"""Steps that people and housekeeping take. No rule is here: values come from `core`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tenure.core import rules
from tenure.core.fair import fair_key_of, keys_of
from tenure.core.identity import FREE, Holder, taken_by
from tenure.core.job import JobRow
from tenure.core.query import CancelResult, Filter, RequeueResult, Swept
from tenure.core.states import FINAL, Event, State, check
from tenure.engines.postgres import limiting, rows
from tenure.engines.postgres.claiming import expire
from tenure.engines.postgres.inserting import holders
from tenure.engines.postgres.rows import to_row
from tenure.engines.postgres.steps import Ask, Effects, Steps

_TRIES = 4
"""How often a locked row is looked at again before it counts as busy."""


def sweep(out: Effects, limit: int) -> Steps[list[Swept]]:
    """See `Engine.sweep`. A row that its holder's own transaction locks is left to it."""
    if limit <= 0:
        return []
    queues = [row[0] for row in (yield Ask("overdue_queues"))]
    swept = [Swept(job_id, State.EXPIRED) for job_id in (yield from expire(out, queues, limit))]
    lapsed = yield Ask("lock_lapsed", {"most": limit, "now": out.now})
    swept += yield from rows.take_back(out, lapsed)
    yield Ask("forget_rates", {"now": out.now})
    yield from limiting.repair(out, limit)
    return swept


def cancel(out: Effects, ids: Sequence[str], force: bool) -> Steps[CancelResult]:
    """See `Engine.cancel`."""
    asked = list(dict.fromkeys(ids))
    found: dict[str, list[str]] = {name: [] for name in CancelResult.__struct_fields__}
    kinds = yield from cancel_each(out, asked, force=force)
    for job_id in asked:
        found[kinds[job_id]].append(job_id)
    return CancelResult(**{name: tuple(found[name]) for name in found})


def cancel_each(out: Effects, ids: Sequence[str], *, force: bool) -> Steps[dict[str, str]]:
    """Cancel jobs; for each, the field of the result that names it."""
    kinds: dict[str, str] = {}
    now = yield from rows.clock(out)
    left = list(ids)
    for turn in range(_TRIES):
        locked = [to_row(v) for v in (yield Ask("lock_living", {"ids": left}))] if left else []
        kinds |= yield from _cancel_locked(out, locked, force, now)
        left = [job_id for job_id in left if job_id not in kinds]
        there = yield from rows.read(left)
        for job_id in left:
            if job_id not in there:
                kinds[job_id] = "not_found"
            elif there[job_id].state.final:
                kinds[job_id] = "already_final"
        left = [job_id for job_id in left if job_id not in kinds]
        if not left:
            break
        if turn < _TRIES - 1:
            yield Ask("pause")
    return kinds | dict.fromkeys(left, "busy")


def _cancel_locked(
    out: Effects, locked: Sequence[JobRow], force: bool, now: int
) -> Steps[dict[str, str]]:
    ending: list[tuple[JobRow, Mapping[str, Any]]] = []
    asked: list[str] = []
    for row in locked:
        values = rules.cancelled_values(row, now, force=force)
        if row.state is State.RUNNING:
            out.hints.append(row.id)
        if "state" in values:
            ending.append((row, values))
        else:
            asked.append(row.id)
    if asked:
        yield Ask("request_cancel", {"ids": asked})
    if ending:
        yield from rows.write(out, ending)
    return dict.fromkeys(asked, "requested") | {row.id: "cancelled" for row, _ in ending}


def requeue(out: Effects, ids: Sequence[str], payload: bytes | None) -> Steps[RequeueResult]:
    """See `Engine.requeue`. A key that another takes meanwhile fails the statement."""
    result: dict[str, list[str]] = {"requeued": [], "not_final": [], "not_found": []}
    taken: dict[str, str] = {}
    asked = list(dict.fromkeys(ids))
    now = yield from rows.clock(out)
    ended = {v[0]: to_row(v) for v in (yield Ask("lock_finished", {"ids": asked}))}
    living = yield from rows.read([job_id for job_id in asked if job_id not in ended])
    held = yield from holders({row.unique_key for row in ended.values() if row.unique_key})
    turns = yield from limiting.turns(keys_of(ended.values()))
    revived: dict[str, JobRow] = {}
    for job_id in asked:
        row = ended.get(job_id)
        if row is None:
            result["not_final" if job_id in living else "not_found"].append(job_id)
            continue
        other = taken_by(row, held.get(row.unique_key or "", FREE))
        if other is not None:
            taken[job_id] = other
            continue
        result["requeued"].append(job_id)
        rank = turns.rank(fair_key_of(row), now, row.priority)
        values = rules.requeued_values(row, now, payload, rank)
        revived[job_id] = msgspec.structs.replace(row, **values)
        if row.unique_key is not None:  # of two that have one key the first gets it
            held[row.unique_key] = Holder(revived[job_id])
    if revived:
        yield Ask("remove_finished", {"ids": list(revived)})
        yield from rows.insert_rows(revived.values())
        rows.note(out, revived.values())
    return RequeueResult(**{name: tuple(found) for name, found in result.items()}, taken=taken)


def prune_jobs(before: int, where: Filter, limit: int) -> Steps[int]:
    """See `Engine.prune`."""
    asked: dict[str, Any] = {"before": before, "most": limit}
    for name in ("states", "tasks", "queues"):
        asked[name] = [str(value) for value in getattr(where, name)] or None
    if where.ids:
        found = yield Ask("prune_jobs_of_ids", asked | {"ids": list(where.ids)})
    else:
        states = FINAL.intersection(where.states) if where.states else FINAL
        found = yield Ask("prune_jobs", asked | {"states": sorted(map(str, states))})
    for (state,) in found:
        check(State(state), Event.PRUNE, None)
    return len(found)


def prune_events(before: int, limit: int) -> Steps[int]:
    """See `Engine.prune`."""
    return len((yield Ask("prune_events", {"before": before, "most": limit})))


def release(key: str, owner: str | None) -> Steps[bool]:
    """See `Engine.release_identity`."""
    return bool((yield Ask("release_reservation", {"key": key, "owner": owner})))
