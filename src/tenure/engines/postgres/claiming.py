"""The arms of a claim.

Mostly there is nothing but due jobs to take, and one statement finds that and takes them. If there
is more to do, or a claim asks for more, the arms follow each other in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tenure.core.fair import FairKey, Turns
from tenure.core.job import JobRow
from tenure.core.limits import Candidate, Gate, Limits
from tenure.core.states import State
from tenure.engines.postgres import limiting, rows
from tenure.engines.postgres.arrays import Bigints, Texts
from tenure.engines.postgres.floors import Floors, Lane
from tenure.engines.postgres.rows import to_row
from tenure.engines.postgres.steps import Ask, Effects, Rows, Steps
from tenure.engines.protocol import Arm, Claim

_SLACK = 32
"""How many candidates more than wanted a claim looks at, in case others take some of them now."""

_SPARE = 100
"""The same for limited queues, where some may have to be blocked."""

_PAUSES = 3
"""How often a claim that found nothing but locked jobs looks again."""


def is_simple(claim: Claim, floors: Floors) -> bool:
    """Whether one statement may be enough."""
    return (
        floors.limited.isdisjoint(claim.queues)
        and Arm.DUE in claim.arms
        and claim.tasks is not None
        and not claim.ids
        and not claim.room
        and (claim.held is None or Arm.RESUME not in claim.arms)
    )


def claim_due(out: Effects, claim: Claim, floors: Floors) -> Steps[list[JobRow] | None]:
    """Take due jobs by one statement; None, and nothing done, if other arms have work before it."""
    queues = tuple(dict.fromkeys(claim.queues))
    lanes = [(queue, task) for queue in queues for task in dict.fromkeys(claim.tasks or ())]
    arms = {name: arm in claim.arms for name, arm in _FIRST.items()}
    first = {**arms, "queues": Texts(queues)}
    taken, found = yield from _take_lanes(out, claim, lanes, claim.limit, floors, first)
    return None if found else taken


_FIRST = {"promote": Arm.PROMOTE, "expire": Arm.EXPIRED, "lapsed": Arm.LAPSED}
_NOT_FIRST = {**dict.fromkeys(_FIRST, False), "queues": Texts()}


def _take_lanes(
    out: Effects,
    claim: Claim,
    lanes: Sequence[Lane],
    most: int,
    floors: Floors,
    first: Mapping[str, Any],
) -> Steps[tuple[list[JobRow], bool]]:
    """Due jobs of lanes, in order; and whether other arms must come first, so that none is taken.

    Where many claims meet, the first candidates are being taken by others: then it looks further.
    """
    taken: list[JobRow] = []
    reach, pauses = most + _SLACK, _PAUSES
    values: dict[str, Any] = {
        **first,
        "lane_queues": Texts(queue for queue, _ in lanes),
        "lane_tasks": Texts(task for _, task in lanes),
        "owner": claim.owner,
        "lease": claim.lease,
        "now": out.now,
    }
    while len(taken) < most:
        asked = {"most": most - len(taken), "reach": reach, "floors": floors.of(lanes)}
        found = yield Ask("claim_due", values | asked)
        work, seen, microseconds = found[0][:3]
        if work:
            return taken, not taken
        rows = [to_row(row[3:]) for row in found if row[3] is not None]
        taken += rows
        floors.note(microseconds, rows)
        if seen >= reach:
            reach *= 4
        elif floors.lift():
            pass  # there may be more below
        elif taken or not seen or not pauses:
            break
        else:  # others have them all locked: to take them, or to change them
            pauses -= 1
            yield Ask("pause")
    taken.sort(key=lambda row: (row.rank, row.id))
    return taken, False


def claim(out: Effects, claim: Claim, floors: Floors) -> Steps[list[JobRow]]:
    """See `Engine.claim`, for any claim. To be run in one transaction."""
    if claim.limit <= 0:
        return []
    queues = tuple(dict.fromkeys(claim.queues))
    special = yield from limiting.lock(queues)
    now = (yield from rows.clock(out)) if special.paced else 0
    ((waiting, overdue),) = yield Ask("chores", {"queues": list(queues), "now": out.now})
    if Arm.PROMOTE in claim.arms:
        if waiting:
            yield from _promote(out, queues, claim.limit)
        yield from limiting.wake(out, special.limits, claim.limit, now)
    if Arm.EXPIRED in claim.arms and overdue:
        yield from expire(out, queues, claim.limit)
    taken: list[JobRow] = []
    if Arm.RESUME in claim.arms and claim.held is not None:
        held = {"owner": claim.owner, "held": list(claim.held), "most": claim.limit}
        again = yield Ask("resume", held | {"lease": claim.lease, "now": out.now})
        taken += [to_row(values[:-1]) for values in again]
    moving = tuple(queue for queue in queues if queue not in special.paused)
    room = Room(claim.limit - len(taken), claim.room)
    limited = {queue: given for queue, given in special.limits.items() if queue in moving}
    floors.limited.difference_update(queues)
    floors.limited.update(special.limits)
    if Arm.LAPSED in claim.arms and room.left and limited:
        yield from _free_slots(out, claim, limited, room.left)
    if Arm.LAPSED in claim.arms and room.left and moving:
        taken += yield from _take_lapsed(out, claim, moving, room)
    if Arm.DUE in claim.arms and room.left and limited:
        taken += yield from _take_limited(out, claim, moving, limited, room, now)
    elif Arm.DUE in claim.arms and room.left and moving:
        taken += yield from _take_due(out, claim, moving, room, floors)
    return taken


def _promote(out: Effects, queues: Sequence[str], limit: int) -> Steps[None]:
    asked = {"queues": list(queues), "most": limit, "now": out.now}
    takers: list[tuple[int, str, FairKey]] = []
    last: dict[FairKey, int] = {}
    for job_id, queue, fair_key, priority, available_at, rank in (yield Ask("promote", asked)):
        out.changes.append((job_id, queue, State.PENDING, True))
        if fair_key is not None:
            key = (queue, fair_key, priority)
            takers.append((available_at, job_id, key))
            if rank is not None:
                last[key] = rank
    if takers:
        turns = Turns(last)
        ranks = {i: turns.rank(key, due, key[2]) for due, i, key in sorted(takers)}
        yield Ask("take_turns", {"ids": Texts(ranks), "ranks": Bigints(ranks.values())})


def _free_slots(
    out: Effects, claim: Claim, limited: Mapping[str, Limits], limit: int
) -> Steps[None]:
    """Take back lapsed jobs that hold slots, and that the claim may not have itself."""
    asked = {
        "queues": [queue for queue, given in limited.items() if given.hold],
        "tasks": None if claim.tasks is None else list(claim.tasks),
        "ids": list(claim.ids) or None,
        "most": limit,
        "now": out.now,
    }
    if asked["queues"]:
        yield from rows.take_back(out, (yield Ask("lock_lapsed_others", asked)))


def _take_limited(
    out: Effects,
    claim: Claim,
    queues: Sequence[str],
    limited: Mapping[str, Limits],
    room: Room,
    now: int,
) -> Steps[list[JobRow]]:
    """Due jobs that the limits let through; those that they do not are blocked, up to a number."""
    room = room.within((yield from limiting.rooms(limited, now)))
    gate = Gate(limited, now)
    taken: list[JobRow] = []
    tried: set[str] = set()
    while room.left and not gate.closed:
        candidates = yield from _limited_candidates(out, claim, queues, room)
        candidates = [candidate for candidate in candidates if candidate.id not in tried]
        yield from limiting.inform(gate, candidates)
        seen = len(gate.parked)
        admitted: dict[str, Candidate] = {}
        left = Room(room.left, room.of_queue)
        for candidate in candidates:
            if not left.left or gate.closed:
                break
            if left.of(candidate.queue) and gate.admit(candidate):
                left.use_one(candidate.queue)
                admitted[candidate.id] = candidate
        yield from limiting.park(out, gate.parked[seen:])
        if not admitted and len(gate.parked) == seen:
            break
        tried.update(admitted)
        values = {"owner": claim.owner, "lease": claim.lease, "now": out.now}
        found = (yield Ask("take_due", values | {"ids": list(admitted)})) if admitted else []
        given = {values[0]: to_row(values) for values in found}
        room.use(given.values())
        taken += [given[job_id] for job_id in admitted if job_id in given]
        for job_id in admitted.keys() - given.keys():
            gate.withdraw(admitted[job_id])
    yield from limiting.close(gate, limited)
    return taken


def _limited_candidates(
    out: Effects, claim: Claim, queues: Sequence[str], room: Room
) -> Steps[list[Candidate]]:
    """The first due jobs, some more than there is room for."""
    if claim.ids:
        tasks = None if claim.tasks is None else list(claim.tasks)
        asked = {"ids": list(claim.ids), "queues": list(queues), "tasks": tasks, "now": out.now}
        return [Candidate(*values) for values in (yield Ask("limited_by_id", asked))]
    lanes = yield from _lanes([queue for queue in queues if room.of(queue)], claim.tasks)
    values = {
        "lane_queues": [queue for queue, _ in lanes],
        "lane_tasks": [task for _, task in lanes],
        "reach": room.left + _SPARE,
        "now": out.now,
    }
    return [Candidate(*values) for values in (yield Ask("limited_candidates", values))]


def expire(out: Effects, queues: Iterable[str], limit: int) -> Steps[list[str]]:
    """Expire up to `limit` overdue jobs of these queues; their ids, the first ones first."""
    asked = {"queues": list(dict.fromkeys(queues)), "most": limit, "now": out.now}
    ids = []
    for job_id, queue, key, ready in (yield Ask("expire", asked)):
        ids.append(job_id)
        out.changes.append((job_id, "", State.EXPIRED, False))
        if ready and key is not None:
            out.freed[queue, key] += 1
    return ids


class Room:
    """How many more jobs a claim may take, in all and of each queue."""

    def __init__(self, left: int, of_queue: Mapping[str, int]) -> None:
        self.left = left
        self.of_queue = dict(of_queue)

    def of(self, queue: str) -> int:
        """How many more of this queue."""
        return max(0, min(self.left, self.of_queue.get(queue, self.left)))

    def within(self, rooms: Mapping[str, int]) -> Room:
        """The same, but for queues that have even less room."""
        of_queue = self.of_queue
        less = {queue: min(room, of_queue.get(queue, room)) for queue, room in rooms.items()}
        return Room(self.left, of_queue | less)

    @property
    def uneven(self) -> bool:
        """Whether a queue may have less room than the claim."""
        return bool(self.of_queue)

    def first(self, candidates: Iterable[Sequence[Any]]) -> list[str]:
        """The first ones of (place, id, queue) that there is room for."""
        left, of_queue, ids = self.left, dict(self.of_queue), []
        for _, job_id, queue in candidates:
            if left <= 0:
                break
            if of_queue.get(queue, 1) > 0:
                ids.append(job_id)
                left -= 1
                if queue in of_queue:
                    of_queue[queue] -= 1
        return ids

    def use(self, rows: Iterable[JobRow]) -> None:
        """These were taken."""
        for row in rows:
            self.use_one(row.queue)

    def use_one(self, queue: str) -> None:
        """One of this queue was taken."""
        self.left -= 1
        if queue in self.of_queue:
            self.of_queue[queue] -= 1


def _take_lapsed(
    out: Effects, claim: Claim, queues: Sequence[str], room: Room
) -> Steps[list[JobRow]]:
    candidates = yield Ask(
        "lapsed_candidates",
        {
            "queues": list(queues),
            "tasks": None if claim.tasks is None else list(claim.tasks),
            "ids": list(claim.ids) or None,
            "now": out.now,
        },
    )
    rows = yield from _take_first(out, "take_lapsed", candidates, claim, room)
    out.hints += [row.id for row in rows]  # whoever held them before
    return rows


def _take_due(
    out: Effects, claim: Claim, queues: Sequence[str], room: Room, floors: Floors
) -> Steps[list[JobRow]]:
    if claim.ids:
        tasks = None if claim.tasks is None else list(claim.tasks)
        asked = {"ids": list(claim.ids), "queues": list(queues), "tasks": tasks, "now": out.now}
        candidates = yield Ask("due_by_id", asked)
        return (yield from _take_first(out, "take_due", candidates, claim, room))
    lanes = yield from _lanes(queues, claim.tasks)
    if not room.uneven:
        rows, _ = yield from _take_lanes(out, claim, lanes, room.left, floors, _NOT_FIRST)
        return rows
    return (yield from _take_within(out, claim, lanes, room))


def _take_within(
    out: Effects, claim: Claim, lanes: Sequence[Lane], room: Room
) -> Steps[list[JobRow]]:
    """Due jobs of lanes whose queues have room of their own."""
    taken: list[JobRow] = []
    reach = room.left + _SLACK
    while room.left > 0:
        open_lanes = [lane for lane in lanes if room.of(lane[0])]
        values = {
            "lane_queues": [q for q, _ in open_lanes],
            "lane_tasks": [t for _, t in open_lanes],
        }
        found = yield Ask("due_candidates", values | {"reach": reach, "now": out.now})
        rows = yield from _take_first(out, "take_due", found, claim, room)
        taken += rows
        if not rows:
            break
    taken.sort(key=lambda row: (row.rank, row.id))
    return taken


def _lanes(queues: Sequence[str], tasks: Sequence[str] | None) -> Steps[list[Lane]]:
    if tasks is not None:
        return [(queue, task) for queue in queues for task in dict.fromkeys(tasks)]
    found: Rows = yield Ask("ready_lanes", {"queues": list(queues)})
    return [(queue, task) for queue, task in found]


def _take_first(
    out: Effects, name: str, candidates: Rows, claim: Claim, room: Room
) -> Steps[list[JobRow]]:
    """Give the first of these jobs that there is room for, and nobody else takes, to the claim."""
    taken: list[JobRow] = []
    while candidates and room.left > 0:
        ids = room.first(candidates)
        if not ids:
            break
        values = {"ids": ids, "owner": claim.owner, "lease": claim.lease, "now": out.now}
        rows = {row[0]: to_row(row) for row in (yield Ask(name, values))}
        room.use(rows.values())
        taken += [rows[job_id] for job_id in ids if job_id in rows]
        tried = set(ids)
        candidates = [candidate for candidate in candidates if candidate[1] not in tried]
    return taken
