"""The arms of a claim.

Candidates are looked up per lane (queue and task) or per queue, each by the front of an index, and
merged here; so no arm ever walks past jobs of the future, of other queues or of unknown names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tenure.core.fair import fair_key_of, keys_of
from tenure.core.job import JobRow
from tenure.core.limits import Candidate, Gate, Limits
from tenure.core.states import State
from tenure.engines.protocol import Arm, Claim
from tenure.engines.sqlite import limiting
from tenure.engines.sqlite.operations import (
    SQL,
    as_list,
    expire,
    first_of_queues,
    take_back,
    to_row,
)
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
_LIMITED_IN_LANE = SQL["limited_in_lane"]
_LIMITED_BY_ID = SQL["limited_by_id"]

_SPARE = 100
"""How many more candidates than wanted one look at limited queues gives, as some may be blocked."""

_OVERDUE_REACH = 1000
"""How many overdue jobs of a lane one claim passes over. Those in front of it are few as long as
anybody claims or sweeps, since both remove them."""


def claim(tx: Transaction, claim: Claim, now: int) -> list[JobRow]:
    """See `Engine.claim`."""
    if claim.limit <= 0:  # SQLite reads a negative limit as none at all
        return []
    queues = tuple(dict.fromkeys(claim.queues))
    special = limiting.special(tx)
    if Arm.PROMOTE in claim.arms:
        _promote(tx, queues, claim.limit, now)
        limited = {q: special.limits[q] for q in queues if q in special.limits}
        limiting.wake(tx, limited, claim.limit, now)
    if Arm.EXPIRED in claim.arms:
        expire(tx, queues, claim.limit, now)
    taken: list[JobRow] = []
    if Arm.RESUME in claim.arms and claim.held is not None:
        taken += _resume(tx, claim, claim.held, now)
    moving = tuple(queue for queue in queues if queue not in special.paused)
    limited = {queue: special.limits[queue] for queue in moving if queue in special.limits}
    room = Room(claim.limit - len(taken), claim.room)
    if Arm.LAPSED in claim.arms and room.left:
        _free_slots(tx, claim, limited, room.left, now)
        lapsed = room.first(_lapsed(tx, claim, moving, room, now))
        taken += _take(tx, _CLAIM_LAPSED, lapsed, claim, now)
        tx.hints += lapsed  # whoever held them before
    if Arm.DUE in claim.arms and room.left and limited:
        taken += _take_limited(tx, claim, moving, limited, room, now)
    elif Arm.DUE in claim.arms and room.left:
        due = room.first(_due(tx, claim, moving, room, now))
        taken += _take(tx, _CLAIM_DUE, due, claim, now)
    return taken


Place = tuple[int, str, str]
"""A place in the order, an id, a queue."""


class Room:
    """How many more jobs a claim may take, in all and of each queue."""

    def __init__(self, left: int, of_queue: Mapping[str, int]) -> None:
        self.left = left
        self._of_queue = dict(of_queue)

    def of(self, queue: str) -> int:
        """How many more of this queue."""
        return max(0, min(self.left, self._of_queue.get(queue, self.left)))

    def within(self, rooms: Mapping[str, int]) -> Room:
        """The same, but for queues that have even less room."""
        of_queue = self._of_queue
        less = {queue: min(room, of_queue.get(queue, room)) for queue, room in rooms.items()}
        return Room(self.left, of_queue | less)

    @property
    def uneven(self) -> bool:
        """Whether a queue has less room than the claim, so that its candidates may be too many."""
        return bool(self._of_queue)

    def first(self, candidates: Iterable[Place]) -> list[str]:
        """The first ones there is room for, which they take."""
        ids = []
        for _, job_id, queue in candidates:
            if self.left <= 0:
                break
            if self.of(queue):
                ids.append(job_id)
                self.left -= 1
                if queue in self._of_queue:
                    self._of_queue[queue] -= 1
        return ids


def _resume(tx: Transaction, claim: Claim, held: Sequence[str], now: int) -> list[JobRow]:
    asked = {"owner": claim.owner, "held": as_list(held), "limit": claim.limit}
    ids = [row[0] for row in tx.execute(SQL["held_by"], asked)]
    return _take(tx, SQL["resume"], ids, claim, now) if ids else []


def _promote(tx: Transaction, queues: Sequence[str], limit: int, now: int) -> None:
    found = first_of_queues(tx, _WAITING, queues, limit, now)
    if found:
        ids = as_list(job_id for _, job_id, _ in found)
        takers = [to_row(values) for values in tx.execute(SQL["turn_takers"], {"ids": ids})]
        turns = limiting.turns(tx, keys_of(takers))
        tx.write(_PROMOTE, {"ids": ids})
        for row in takers:
            rank = turns.rank(fair_key_of(row), row.available_at, row.priority)
            tx.write(SQL["take_turn"], {"id": row.id, "rank": rank})
        tx.changes += [(job_id, queue, State.PENDING, True) for _, job_id, queue in found]


def _free_slots(
    tx: Transaction, claim: Claim, limited: Mapping[str, Limits], limit: int, now: int
) -> None:
    """Take back lapsed jobs that hold slots, and that the claim may not have itself."""
    held = [queue for queue, given in limited.items() if given.hold]
    if not held:
        return
    asked = {"queues": as_list(held), "now": now, "limit": limit}
    asked["tasks"] = None if claim.tasks is None else as_list(claim.tasks)
    asked["ids"] = as_list(claim.ids) if claim.ids else None
    for values in tx.execute(SQL["lapsed_others"], asked):
        take_back(tx, to_row(values), now)


def _take_limited(
    tx: Transaction,
    claim: Claim,
    queues: Sequence[str],
    limited: Mapping[str, Limits],
    room: Room,
    now: int,
) -> list[JobRow]:
    """Due jobs that the limits let through; those that they do not are blocked, up to a number."""
    room = room.within(limiting.rooms(tx, limited, now))
    gate = Gate(limited, now)
    taken: list[JobRow] = []
    while room.left and not gate.closed:
        candidates = _limited_candidates(tx, claim, queues, room, now)
        limiting.inform(tx, gate, candidates)
        seen = len(gate.parked)
        admitted = []
        for candidate in candidates:
            if not room.left or gate.closed:
                break
            if room.of(candidate.queue) and gate.admit(candidate):
                admitted += room.first([(candidate.place, candidate.id, candidate.queue)])
        limiting.park(tx, gate.parked[seen:])
        taken += _take(tx, _CLAIM_DUE, admitted, claim, now)
        if not admitted and len(gate.parked) == seen:
            break
    limiting.close(tx, gate, limited)
    return taken


def _limited_candidates(
    tx: Transaction, claim: Claim, queues: Sequence[str], room: Room, now: int
) -> list[Candidate]:
    """The first due jobs, some more than there is room for."""
    limit = room.left + _SPARE
    if claim.ids:
        asked: dict[str, Any] = {"queues": as_list(queues), "ids": as_list(claim.ids), "now": now}
        asked["tasks"] = None if claim.tasks is None else as_list(claim.tasks)
        return [Candidate(*values) for values in tx.execute(_LIMITED_BY_ID, asked)]
    found: list[Candidate] = []
    for queue, task in _lanes(tx, [queue for queue in queues if room.of(queue)], claim.tasks):
        values = {"queue": queue, "task": task, "now": now, "limit": limit}
        rows = tx.execute(_LIMITED_IN_LANE, values | {"reach": limit + _OVERDUE_REACH})
        found += [Candidate(*values) for values in rows]
    found.sort()
    return found[:limit]


def _lapsed(
    tx: Transaction, claim: Claim, queues: Sequence[str], room: Room, now: int
) -> list[Place]:
    # What runs is bounded by what workers can run, so looking at all of it is bounded as well.
    limit = -1 if room.uneven else room.left
    values: dict[str, Any] = {"queues": as_list(queues), "now": now, "limit": limit}
    if claim.tasks is not None:
        values["tasks"] = as_list(dict.fromkeys(claim.tasks))
    if claim.ids:
        statement = _LAPSED_BY_ID
        values = {"tasks": None, "ids": as_list(claim.ids)} | values
    else:
        statement = _LAPSED_IN_QUEUES if claim.tasks is None else _LAPSED_IN_LANES
    return tx.execute(statement, values)


def _due(tx: Transaction, claim: Claim, queues: Sequence[str], room: Room, now: int) -> list[Place]:
    if claim.ids:
        asked: dict[str, Any] = {"queues": as_list(queues), "ids": as_list(claim.ids)}
        asked["tasks"] = None if claim.tasks is None else as_list(claim.tasks)
        limit = -1 if room.uneven else room.left
        return tx.execute(_READY_BY_ID, asked | {"now": now, "limit": limit})
    lanes = _lanes(tx, [queue for queue in queues if room.of(queue)], claim.tasks)
    candidates: list[Place] = []
    for queue, task in lanes:
        limit = room.of(queue)
        values = {"queue": queue, "task": task, "now": now, "limit": limit}
        candidates += tx.execute(_READY_IN_LANE, values | {"reach": limit + _OVERDUE_REACH})
    if len(lanes) > 1:
        candidates.sort()
    return candidates


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
    """Give these jobs to the claim's owner; in their order, which RETURNING does not keep."""
    if not ids:
        return []
    values = {"ids": as_list(ids), "owner": claim.owner, "until": now + claim.lease, "now": now}
    rows = {values[0]: to_row(values) for values in tx.execute(statement, values)}
    return [rows[job_id] for job_id in ids]
