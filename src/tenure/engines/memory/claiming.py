"""The arms of a claim, and what a sweep shares with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

from tenure.core import rules
from tenure.core.fair import FairKey, Turns, fair_key_of, keys_of
from tenure.core.job import JobRow
from tenure.core.query import Swept
from tenure.core.states import State
from tenure.engines.memory.lanes import Lanes
from tenure.engines.memory.limiting import Limiter, MemoryGate
from tenure.engines.memory.rows import Row, Rows, decode
from tenure.engines.protocol import Arm, Claim


class Claiming:
    """One claim at work. `bereft` names the jobs that it took from another holder."""

    def __init__(
        self, rows: Rows, limiter: Limiter, claim: Claim, paused: Collection[str], now: int
    ) -> None:
        self._rows = rows
        self._limiter = limiter
        self._claim = claim
        self._queues = [queue for queue in claim.queues if queue not in paused]
        self._room = dict(claim.room)
        self._now = now
        self._left = max(claim.limit, 0)
        self.bereft: list[str] = []

    def run(self) -> list[JobRow]:
        """All arms that are asked for; the rows taken."""
        claim, now = self._claim, self._now
        if Arm.PROMOTE in claim.arms:
            promote(self._rows, claim.queues, claim.limit, now)
            self._limiter.wake(claim.queues, claim.limit, now)
        if Arm.EXPIRED in claim.arms:
            expire(self._rows, claim.queues, claim.limit, now)
        taken: list[JobRow] = []
        if Arm.RESUME in claim.arms and claim.held is not None:
            taken += self._resume(frozenset(claim.held))
        if Arm.LAPSED in claim.arms:
            self._free_slots()
            lapsed = self._take(self._rows.leases, until=now)
            self.bereft += [row["id"] for row in lapsed]
            taken += self._hand_over(lapsed)
        if Arm.DUE in claim.arms:
            taken += self._hand_over(self._take_due())
        return taken

    def _free_slots(self) -> None:
        """Take back lapsed jobs that hold slots, and that this claim may not have itself."""
        held = [queue for queue, kept in self._limiter.of(self._queues).items() if kept.hold]
        lapsed = self._rows.leases.until(held, self._now)
        others = [job_id for job_id in lapsed if not self._wants(job_id)]
        for job_id in others[: self._left]:
            take_back_one(self._rows, self._rows[job_id], self._now)
            self.bereft.append(job_id)

    def _wants(self, job_id: str) -> bool:
        """Whether the claim may have a job of its queues."""
        claim, row = self._claim, self._rows[job_id]
        known = claim.tasks is None or row["task"] in claim.tasks
        return known and (not claim.ids or row["id"] in claim.ids)

    def _take_due(self) -> list[Row]:
        for queue, room in self._limiter.rooms(self._queues, self._now).items():
            self._room[queue] = min(room, self._room.get(queue, room))
        gate = MemoryGate(self._rows, self._limiter, self._queues, self._now)
        rows = self._take(
            self._rows.ready,
            fits=lambda job_id: self._in_time(job_id) and gate.fits(self._rows[job_id]),
            closed=lambda: gate.closed,
        )
        gate.close(self._queues)
        return rows

    def _resume(self, held: frozenset[str]) -> list[JobRow]:
        stray = [row for row in self._rows.held(self._claim.owner) if row["id"] not in held]
        stray.sort(key=lambda row: (row["lease_until"], row["id"]))
        del stray[self._left :]
        self._left -= len(stray)
        values = rules.resumed_values(self._claim.lease, self._now)
        return [self._write(row, decode(row), values) for row in stray]

    def _in_time(self, job_id: str) -> bool:
        expires_at = self._rows[job_id]["expires_at"]
        return expires_at is None or bool(expires_at > self._now)

    def _take(
        self,
        lanes: Lanes,
        *,
        until: int | None = None,
        fits: Callable[[str], bool] = lambda _: True,
        closed: Callable[[], bool] = lambda: False,
    ) -> list[Row]:
        """The first rows of these lanes that the claim may have; the caller writes them."""
        claim, room = self._claim, self._room
        if claim.ids:
            ids = self._named(lanes, until, fits)
        else:
            ids = lanes.take(
                self._queues,
                claim.tasks,
                self._left,
                until=until,
                fits=fits,
                room=room,
                closed=closed,
            )
        self._left -= len(ids)
        return [self._rows[job_id] for job_id in ids]

    def _named(self, lanes: Lanes, until: int | None, fits: Callable[[str], bool]) -> list[str]:
        """Of the jobs that the claim names, the first ones that it may have."""
        claim, room = self._claim, self._room
        found: list[tuple[int, str, str]] = []
        for job_id in frozenset(claim.ids):
            row = self._rows.get(job_id)
            if row is None or row["queue"] not in self._queues:
                continue
            if claim.tasks is not None and row["task"] not in claim.tasks:
                continue
            place = lanes.place(row["queue"], row["task"], job_id)
            if place is not None and (until is None or place <= until):
                found.append((place, job_id, row["queue"]))
        taken: list[str] = []
        for _, job_id, queue in sorted(found):
            if len(taken) < self._left and room.get(queue, 1) > 0 and fits(job_id):
                taken.append(job_id)
                if queue in room:
                    room[queue] -= 1
        return taken

    def _hand_over(self, rows: Iterable[Row]) -> list[JobRow]:
        """Give the jobs to the claim's owner, each under a new token and lease."""
        claim, given = self._claim, []
        for row in rows:
            before = decode(row)
            values = rules.claimed_values(before, claim.owner, claim.lease, self._now)
            given.append(self._write(row, before, values))
        return given

    def _write(self, row: Row, before: JobRow, values: dict[str, Any]) -> JobRow:
        self._rows.write(row, values)
        return msgspec.structs.replace(before, **values)


def promote(rows: Rows, queues: Iterable[str], limit: int, now: int) -> None:
    """Make the first `limit` jobs of these queues ready whose time has come."""
    ids = rows.waiting.take(queues, None, limit, until=now)
    before = [decode(rows[job_id]) for job_id in ids]
    turns = turns_of(rows, keys_of(before))
    for row in before:
        rank = turns.rank(fair_key_of(row), row.available_at, row.priority)
        rows.write(rows[row.id], rules.promoted_values(row.available_at, rank))


def turns_of(rows: Rows, keys: Iterable[FairKey]) -> Turns:
    """Who takes turns, as it stands."""
    last = {key: rows.last_turn(key) for key in keys}
    return Turns({key: rank for key, rank in last.items() if rank is not None})


def expire(rows: Rows, queues: Iterable[str] | None, limit: int, now: int) -> list[Swept]:
    """Expire the first `limit` jobs of these queues (None: of all) that may no longer start."""
    ids = rows.expiring.take(queues, None, limit, until=now)
    for job_id in ids:
        rows.write(rows[job_id], rules.expired_values(now))
    return [Swept(job_id, State.EXPIRED) for job_id in ids]


def take_back(rows: Rows, limit: int, now: int) -> list[Swept]:
    """Take the first `limit` jobs from holders whose lease ran out."""
    ids = rows.leases.take(None, None, limit, until=now)
    return [take_back_one(rows, rows[job_id], now) for job_id in ids]


def take_back_one(rows: Rows, row: Row, now: int) -> Swept:
    """Take a job from its holder, whose lease ran out."""
    before = decode(row)
    change = rules.lapse(before, now)
    values = rules.settled_values(before.priority, change, now)
    rows.write(row, {**values, **rules.revoked_token(before, now)})
    return Swept(before.id, change.state)
