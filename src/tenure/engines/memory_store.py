"""What the handles of a memory engine share: rows, their indexes, one lock, the listeners."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import nlargest
from threading import Lock
from typing import Any

from tenure.core import columns, rules
from tenure.core.durations import SECOND
from tenure.core.job import COLUMNS, JobRow, NewJob, new_row, next_token
from tenure.core.lease import Beat, Extended, Extension, Lost
from tenure.core.outcomes import Settled, Settlement, Verdict
from tenure.core.query import CancelResult, Filter, Page, QueueStats, RequeueResult, Swept
from tenure.core.states import Event, State, check
from tenure.engines.lanes import Lanes
from tenure.engines.protocol import Arm, Claim, Inserted, Signal, Topic
from tenure.engines.signals import SignalHub, signals_of
from tenure.errors import PayloadError

Row = dict[str, Any]
"""Column values by name, in the order of `COLUMNS`."""


class MemoryStore:
    """Every public method is one atomic step, from any thread, and signals what it did after it.

    A row is in the indexes that its state calls for: `_write` is the only place that changes rows.
    """

    def __init__(self, max_payload: int) -> None:
        self.hub = SignalHub()
        self._max_payload = max_payload
        self._lock = Lock()
        self._rows: dict[str, Row] = {}
        self._ready = Lanes()  # pending and ready, by rank
        self._waiting = Lanes()  # pending and not ready, by available_at
        self._expiring = Lanes()  # pending with a deadline, by expires_at
        self._leases = Lanes()  # running, by lease_until
        self._changed: list[Row] = []
        self._cancels: list[Signal] = []

    def insert(self, jobs: Sequence[NewJob], now: int) -> list[Inserted]:
        rows = [new_row(job, now) for job in jobs]
        for row in rows:
            if row.payload_size > self._max_payload:
                raise PayloadError(
                    f"the payload of job {row.id} has {row.payload_size} bytes; "
                    f"at most {self._max_payload} can be stored"
                )
        values = [dict(zip(COLUMNS, columns.to_columns(row), strict=True)) for row in rows]
        with self._step():
            return [Inserted(row["id"], self._add(row)) for row in values]

    def claim(self, claim: Claim, now: int) -> list[JobRow]:
        with self._step():
            if Arm.PROMOTE in claim.arms:
                self._promote(claim, now)
            if Arm.EXPIRED in claim.arms:
                self._expire(claim.queues, claim.limit, now)
            taken: list[Row] = []
            if Arm.LAPSED in claim.arms:
                taken += self._take_lapsed(claim, now)
            if Arm.DUE in claim.arms:
                taken += self._take_due(claim, claim.limit - len(taken), now)
            return [_read(row) for row in taken]

    def extend(self, beats: Sequence[Beat], now: int) -> list[Extension]:
        with self._step():
            return [self._extend(beat, now) for beat in beats]

    def settle(self, settlements: Sequence[Settlement], now: int) -> list[Settled]:
        with self._step():
            return [self._settle(settlement, now) for settlement in settlements]

    def sweep(self, limit: int, now: int) -> list[Swept]:
        with self._step():
            swept = self._expire(None, limit, now)
            for job_id in self._leases.take(None, None, limit, until=now):
                row = self._rows[job_id]
                before = _read(row)
                change = rules.lapse(before, now)
                values = rules.settled_values(before.priority, change, now)
                self._write(row, {**values, **rules.revoked_token(before, now)})
                swept.append(Swept(job_id, change.state))
            return swept

    def get(self, ids: Sequence[str]) -> list[JobRow | None]:
        with self._lock:
            rows = [self._rows.get(job_id) for job_id in ids]
            return [None if row is None else _read(row) for row in rows]

    def next_due(self, queues: Sequence[str], tasks: Sequence[str] | None, now: int) -> int | None:
        with self._lock:
            if self._ready.first(queues, tasks) is not None:
                return 0
            due = self._waiting.first(queues, tasks)
            return None if due is None else max(0, due - now)

    def cancel(self, ids: Sequence[str], force: bool, now: int) -> CancelResult:
        found: dict[str, list[str]] = {name: [] for name in CancelResult.__struct_fields__}
        with self._step():
            for job_id in dict.fromkeys(ids):
                found[self._cancel(job_id, force, now)].append(job_id)
        return CancelResult(**{name: tuple(found[name]) for name in found})

    def requeue(self, ids: Sequence[str], now: int) -> RequeueResult:
        found: dict[str, list[str]] = {name: [] for name in RequeueResult.__struct_fields__}
        with self._step():
            for job_id in dict.fromkeys(ids):
                found[self._requeue(job_id, now)].append(job_id)
        return RequeueResult(**{name: tuple(found[name]) for name in found})

    def find(self, where: Filter, page: Page) -> list[JobRow]:
        with self._lock:
            ids = nlargest(page.limit, self._matching(where, page.before))
            return [_read(self._rows[job_id]) for job_id in ids]

    def stats(self, queues: Sequence[str], now: int) -> list[QueueStats]:
        with self._lock:
            counts: dict[str, dict[str, Any]] = {queue: {} for queue in queues}
            for row in self._rows.values():
                if not queues or row["queue"] in counts:
                    _count(counts.setdefault(row["queue"], {}), row, now)
            return [QueueStats(queue, **counts[queue]) for queue in sorted(counts)]

    @contextmanager
    def _step(self) -> Iterator[None]:
        """Hold the lock; then, without it, publish what follows from the rows written."""
        with self._lock:
            try:
                yield
            finally:
                changed, self._changed = self._changed, []
                signals, self._cancels = self._cancels, []
                if self.hub.listened:
                    signals += signals_of(
                        (row["id"], row["queue"], State(row["state"]), bool(row["ready"]))
                        for row in changed
                    )
        if signals:
            self.hub.publish(signals)

    def _add(self, row: Row) -> bool:
        if row["id"] in self._rows:
            return False
        self._rows[row["id"]] = row
        self._index(row)
        self._changed.append(row)
        return True

    def _write(self, row: Row, changes: Mapping[str, Any]) -> None:
        values = columns.to_column_values(changes)  # first: what cannot be encoded changes nothing
        place = row["queue"], row["task"], row["id"]
        for lanes in (self._ready, self._waiting, self._expiring, self._leases):
            lanes.drop(*place)
        row.update(values)
        self._index(row)
        self._changed.append(row)

    def _index(self, row: Row) -> None:
        place = row["queue"], row["task"], row["id"]
        if row["state"] == State.RUNNING:
            self._leases.put(*place, row["lease_until"])
        elif row["state"] == State.PENDING:
            if row["ready"]:
                self._ready.put(*place, row["rank"])
            else:
                self._waiting.put(*place, row["available_at"])
            if row["expires_at"] is not None:
                self._expiring.put(*place, row["expires_at"])

    def _promote(self, claim: Claim, now: int) -> None:
        for job_id in self._waiting.take(claim.queues, None, claim.limit, until=now):
            check(State.PENDING, Event.PROMOTE, State.PENDING)
            row = self._rows[job_id]
            self._write(row, {"ready": True, "queued_at": row["available_at"]})

    def _expire(self, queues: Iterable[str] | None, limit: int, now: int) -> list[Swept]:
        ids = self._expiring.take(queues, None, limit, until=now)
        for job_id in ids:
            self._end_pending(self._rows[job_id], Event.EXPIRE, State.EXPIRED, now)
        return [Swept(job_id, State.EXPIRED) for job_id in ids]

    def _end_pending(self, row: Row, event: Event, state: State, now: int) -> None:
        check(State.PENDING, event, state)
        self._write(row, {"state": state, "ready": False, "finished_at": now})

    def _take_lapsed(self, claim: Claim, now: int) -> list[Row]:
        rows = self._take(self._leases, claim, claim.limit, until=now)
        for row in rows:
            self._hand_over(row, claim, now, {"lapses": row["lapses"] + 1})
        return rows

    def _take_due(self, claim: Claim, limit: int, now: int) -> list[Row]:
        def in_time(job_id: str) -> bool:
            expires_at = self._rows[job_id]["expires_at"]
            return expires_at is None or bool(expires_at > now)

        rows = self._take(self._ready, claim, limit, fits=in_time)
        for row in rows:
            self._hand_over(row, claim, now, {})
        return rows

    def _take(
        self,
        lanes: Lanes,
        claim: Claim,
        limit: int,
        *,
        until: int | None = None,
        fits: Callable[[str], bool] = lambda _: True,
    ) -> list[Row]:
        """The first rows of these lanes that the claim may have; the caller writes them."""
        if not claim.ids:
            ids = lanes.take(claim.queues, claim.tasks, limit, until=until, fits=fits)
            return [self._rows[job_id] for job_id in ids]
        found: list[tuple[int, str]] = []
        for job_id in frozenset(claim.ids) & self._rows.keys():
            queue, task = self._rows[job_id]["queue"], self._rows[job_id]["task"]
            if queue in claim.queues and (claim.tasks is None or task in claim.tasks):
                place = lanes.place(queue, task, job_id)
                if place is not None and (until is None or place <= until) and fits(job_id):
                    found.append((place, job_id))
        return [self._rows[job_id] for _, job_id in sorted(found)[: max(limit, 0)]]

    def _hand_over(self, row: Row, claim: Claim, now: int, more: Mapping[str, Any]) -> None:
        """Give the job to the claim's owner, under a new token and lease."""
        check(State(row["state"]), Event.CLAIM, State.RUNNING)
        values = {
            "state": State.RUNNING,
            "ready": False,
            "token": next_token(row["token"], now),
            "owner": claim.owner,
            "lease_until": now + claim.lease,
            "claims": row["claims"] + 1,
            "started_at": now,
            "finished_at": None,
        }
        self._write(row, {**values, **more})

    def _extend(self, beat: Beat, now: int) -> Extension:
        row = self._rows.get(beat.id)
        if row is None:
            return Lost("gone")
        if row["token"] != beat.token or row["owner"] != beat.owner:
            return Lost("taken")
        if row["state"] != State.RUNNING:
            return Lost("settled")
        if row["lease_until"] <= now:
            return Lost("lapsed")
        values: dict[str, Any] = {"lease_until": now + round(beat.seconds * SECOND)}
        if beat.progress is not None:
            values["progress"] = beat.progress
        self._write(row, values)
        return Extended(beat.seconds, cancel_requested=bool(row["cancel_requested"]))

    def _settle(self, settlement: Settlement, now: int) -> Settled:
        row = self._rows.get(settlement.id)
        if row is None:
            return Settled(settlement.id, Verdict.LOST)
        state = State(row["state"])
        if row["token"] != settlement.token or row["owner"] != settlement.owner:
            return Settled(settlement.id, Verdict.LOST, state)
        if state is not State.RUNNING:
            return Settled(settlement.id, Verdict.ALREADY, state)
        branch = settlement.if_cancel_requested if row["cancel_requested"] else settlement.next
        check(state, branch.event, branch.state)
        self._write(row, rules.settled_values(row["priority"], branch, now))
        return Settled(settlement.id, Verdict.APPLIED, branch.state, branch.event)

    def _cancel(self, job_id: str, force: bool, now: int) -> str:
        """Cancel one job; returns the field of the result that names it."""
        row = self._rows.get(job_id)
        if row is None:
            return "not_found"
        state = State(row["state"])
        if state.final:
            return "already_final"
        if state is State.PENDING:
            self._end_pending(row, Event.CANCEL, State.CANCELLED, now)
            return "cancelled"
        self._cancels.append(Signal(Topic.CANCEL, job_id))
        if not force:
            check(state, Event.REQUEST_CANCEL, state)
            self._write(row, {"cancel_requested": True})
            return "requested"
        check(state, Event.CANCEL, State.CANCELLED)
        ended = {"state": State.CANCELLED, "ready": False, "finished_at": now}
        self._write(row, {**ended, **rules.revoked_token(_read(row), now)})
        return "cancelled"

    def _requeue(self, job_id: str, now: int) -> str:
        """Requeue one job; returns the field of the result that names it."""
        row = self._rows.get(job_id)
        if row is None:
            return "not_found"
        if not State(row["state"]).final:
            return "not_final"
        self._write(row, rules.requeued_values(_read(row), now))
        return "requeued"

    def _matching(self, where: Filter, before: str | None) -> Iterator[str]:
        """Ids of the rows that pass; agrees with `Filter.matches` without decoding rows."""
        tests = [
            (name, frozenset(wanted))
            for name, wanted in (
                ("state", where.states),
                ("task", where.tasks),
                ("queue", where.queues),
            )
            if wanted
        ]
        for job_id in frozenset(where.ids) or self._rows:
            row = self._rows.get(job_id)
            if row is None or (before is not None and job_id >= before):
                continue
            if all(row[name] in wanted for name, wanted in tests):
                yield job_id


def _read(row: Row) -> JobRow:
    return columns.from_columns(list(row.values()))


def _count(counts: dict[str, Any], row: Row, now: int) -> None:
    """Add one row to the depths of its queue."""
    name = str(row["state"])
    if row["state"] == State.PENDING:
        waited = now - row["available_at"]
        if waited < 0:
            name = "scheduled"
        else:
            counts["oldest_due"] = max(waited, counts.get("oldest_due", 0))
    elif row["state"] == State.RUNNING and row["lease_until"] <= now:
        counts["lapsed"] = counts.get("lapsed", 0) + 1
    counts[name] = counts.get(name, 0) + 1
