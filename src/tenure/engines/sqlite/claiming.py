"""The arms of a claim.

Candidates are looked up per lane (queue and task) or per queue, each by the front of an index, and
merged here; so no arm ever walks past jobs of the future, of other queues or of unknown names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenure.core.job import JobRow
from tenure.core.states import State
from tenure.engines.protocol import Arm, Claim
from tenure.engines.sqlite.operations import SQL, as_list, expire, first_of_queues, to_row
from tenure.engines.sqlite.thread import Transaction

_WAITING = SQL["waiting_in_queue"]
_PROMOTE = SQL["promote"]
_LAPSED_IN_LANES = SQL["lapsed_in_lanes"]
_LAPSED_IN_QUEUES = SQL["lapsed_in_queues"]
_LAPSED_BY_ID = SQL["lapsed_by_id"]
_READY_LANES = SQL["ready_lanes"]
_READY_TASKS = SQL["ready_tasks"]
_READY_IN_LANE = SQL["ready_in_lane"]
_READY_BY_ID = SQL["ready_by_id"]
_CLAIM_DUE = SQL["claim_due"]
_CLAIM_LAPSED = SQL["claim_lapsed"]

_OVERDUE_REACH = 1000
"""How many overdue jobs of a lane one claim passes over. Those in front of it are few as long as
anybody claims or sweeps, since both remove them."""


def claim(tx: Transaction, claim: Claim, now: int) -> list[JobRow]:
    """See `Engine.claim`."""
    if claim.limit <= 0:  # SQLite reads a negative limit as none at all
        return []
    queues = tuple(dict.fromkeys(claim.queues))
    if Arm.PROMOTE in claim.arms:
        _promote(tx, queues, claim.limit, now)
    if Arm.EXPIRED in claim.arms:
        expire(tx, queues, claim.limit, now)
    taken: list[JobRow] = []
    if Arm.LAPSED in claim.arms:
        lapsed = _lapsed(tx, claim, queues, now)
        taken += _take(tx, _CLAIM_LAPSED, lapsed, claim, now)
        tx.hints += lapsed  # whoever held them before
    room = claim.limit - len(taken)
    if Arm.DUE in claim.arms and room > 0:
        taken += _take(tx, _CLAIM_DUE, _due(tx, claim, queues, room, now), claim, now)
    return taken


def _promote(tx: Transaction, queues: Sequence[str], limit: int, now: int) -> None:
    found = first_of_queues(tx, _WAITING, queues, limit, now)
    if found:
        tx.write(_PROMOTE, {"ids": as_list(job_id for _, job_id, _ in found)})
        tx.changes += [(job_id, queue, State.PENDING, True) for _, job_id, queue in found]


def _lapsed(tx: Transaction, claim: Claim, queues: Sequence[str], now: int) -> list[str]:
    values: dict[str, Any] = {"queues": as_list(queues), "now": now, "limit": claim.limit}
    if claim.tasks is not None:
        values["tasks"] = as_list(dict.fromkeys(claim.tasks))
    if claim.ids:
        statement = _LAPSED_BY_ID
        values = {"tasks": None, "ids": as_list(claim.ids)} | values
    else:
        statement = _LAPSED_IN_QUEUES if claim.tasks is None else _LAPSED_IN_LANES
    return [job_id for _, job_id in tx.execute(statement, values)]


def _due(tx: Transaction, claim: Claim, queues: Sequence[str], room: int, now: int) -> list[str]:
    if claim.ids:
        asked: dict[str, Any] = {"queues": as_list(queues), "ids": as_list(claim.ids)}
        asked["tasks"] = None if claim.tasks is None else as_list(claim.tasks)
        found = tx.execute(_READY_BY_ID, asked | {"now": now, "limit": room})
        return [job_id for _, job_id in found]
    lanes = _lanes(tx, queues, claim.tasks)
    candidates: list[tuple[int, str]] = []
    for queue, task in lanes:
        values = {"queue": queue, "task": task, "now": now, "limit": room}
        candidates += tx.execute(_READY_IN_LANE, values | {"reach": room + _OVERDUE_REACH})
    if len(lanes) > 1:
        candidates.sort()
    return [job_id for _, job_id in candidates[:room]]


def _lanes(
    tx: Transaction, queues: Sequence[str], tasks: Sequence[str] | None
) -> list[tuple[str, str]]:
    """The lanes to look into: with a ready job, unless there is but one."""
    if tasks is None:
        return [
            (queue, row[0])
            for queue in queues
            for row in tx.execute(_READY_TASKS, {"queue": queue})
        ]
    names = list(dict.fromkeys(tasks))
    if len(queues) == len(names) == 1:
        return [(queues[0], names[0])]
    return tx.execute(_READY_LANES, {"queues": as_list(queues), "tasks": as_list(names)})


def _take(
    tx: Transaction, statement: str, ids: Sequence[str], claim: Claim, now: int
) -> list[JobRow]:
    """Claim these jobs; in their order, which RETURNING does not keep."""
    if not ids:
        return []
    values = {"ids": as_list(ids), "owner": claim.owner, "until": now + claim.lease, "now": now}
    rows = {values[0]: to_row(values) for values in tx.execute(statement, values)}
    return [rows[job_id] for job_id in ids]
