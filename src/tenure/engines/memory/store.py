"""What the handles of a memory engine share: all that is kept, one lock, the listeners."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from heapq import nlargest, nsmallest
from threading import Lock
from typing import Any

from tenure.core import columns, insertion, rules
from tenure.core.event import EventFilter, NewEvent, StoredEvent
from tenure.core.fair import fair_key_of, keys_of
from tenure.core.fleet import Inspection, QueueChange, QueueSettings, WorkerInfo, findings
from tenure.core.identity import FREE, Holder, Reservation, taken_by
from tenure.core.insertion import Inserted
from tenure.core.job import JobRow, NewJob, check_payload, new_row
from tenure.core.lease import Beat, Extension
from tenure.core.outcomes import Settled, Settlement
from tenure.core.query import (
    CancelResult,
    Filter,
    Found,
    Page,
    QueueStats,
    RequeueResult,
    Swept,
    within,
)
from tenure.core.schedule import Fired, Schedule, ScheduleChange, Tick, firing, tick_job
from tenure.core.states import Event, State, check
from tenure.engines.memory import claiming, settling
from tenure.engines.memory.claiming import Claiming
from tenure.engines.memory.fleet import Fleet, flawed, living_tasks
from tenure.engines.memory.history import History
from tenure.engines.memory.limiting import Limiter
from tenure.engines.memory.rows import Row, Rows, decode, encode
from tenure.engines.memory.schedules import Schedules
from tenure.engines.protocol import Claim, Prunable, Signal, Topic
from tenure.engines.signals import SignalHub, signals_of
from tenure.errors import DuplicateJob, PayloadError, UniquenessConflict


class MemoryStore:
    """Every public method is one atomic step, from any thread, and signals what it did after it."""

    def __init__(self, max_payload: int) -> None:
        self.hub = SignalHub()
        self._max_payload = max_payload
        self._lock = Lock()
        self._rows = Rows()
        self._limiter = Limiter(self._rows)
        self._reservations: dict[str, Reservation] = {}
        self._schedules = Schedules()
        self._history = History()
        self._fleet = Fleet()
        self._hints: list[Signal] = []

    def insert(self, jobs: Sequence[NewJob], now: int) -> list[Inserted]:
        with self._step():
            return self._insert(jobs, now)

    def claim(self, claim: Claim, now: int) -> list[JobRow]:
        with self._step():
            work = Claiming(self._rows, self._limiter, claim, self._fleet.paused, now)
            taken = work.run()
            self._hint(Topic.CANCEL, work.bereft)
            return taken

    def extend(self, beats: Sequence[Beat], now: int) -> list[Extension]:
        with self._step():
            return [settling.extend(self._rows, beat, now) for beat in beats]

    def settle(self, settlements: Sequence[Settlement], now: int) -> list[Settled]:
        with self._step():
            return [settling.settle(self._rows, settlement, now) for settlement in settlements]

    def sweep(self, limit: int, now: int) -> list[Swept]:
        with self._step():
            swept = claiming.expire(self._rows, None, limit, now)
            taken_back = claiming.take_back(self._rows, limit, now)
            self._hint(Topic.CANCEL, [job.id for job in taken_back])
            self._limiter.tidy(now)
            return swept + taken_back

    def get(self, ids: Sequence[str]) -> list[JobRow | None]:
        with self._lock:
            return [self._rows.read(job_id) for job_id in ids]

    def next_due(self, queues: Sequence[str], tasks: Sequence[str] | None, now: int) -> int | None:
        with self._lock:
            paused = self._fleet.paused
            moving = [queue for queue in dict.fromkeys(queues) if queue not in paused]
            waits = (self._wait(queue, tasks, now) for queue in moving)
            return min((wait for wait in waits if wait is not None), default=None)

    def cancel(self, ids: Sequence[str], force: bool, now: int) -> CancelResult:
        found: dict[str, list[str]] = {name: [] for name in CancelResult.__struct_fields__}
        with self._step():
            for job_id in dict.fromkeys(ids):
                found[self._cancel(job_id, now, force=force)].append(job_id)
        return CancelResult(**{name: tuple(found[name]) for name in found})

    def requeue(self, ids: Sequence[str], payload: bytes | None, now: int) -> RequeueResult:
        requeued, not_final, not_found, taken = [], [], [], {}
        check_payload(payload, self._max_payload)
        with self._step():
            ended = [row for job_id in ids if (row := self._rows.read(job_id)) is not None]
            turns = claiming.turns_of(self._rows, keys_of(ended))
            for job_id in dict.fromkeys(ids):
                row = self._rows.read(job_id)
                if row is None:
                    not_found.append(job_id)
                elif not row.state.final:
                    not_final.append(job_id)
                elif (other := taken_by(row, self._holder(row.unique_key))) is not None:
                    taken[job_id] = other
                else:
                    rank = turns.rank(fair_key_of(row), now, row.priority)
                    values = rules.requeued_values(row, now, payload, rank)
                    self._rows.write(self._rows[job_id], values)
                    requeued.append(job_id)
        return RequeueResult(tuple(requeued), tuple(not_final), tuple(not_found), taken)

    def prune(self, kind: Prunable, before: int, where: Filter, limit: int) -> int:
        with self._step():
            if kind is Prunable.EVENTS:
                return self._history.prune(before, limit)
            final = (self._rows[job_id] for job_id in self._matching(where, None))
            old = [r for r in final if State(r["state"]).final and r["finished_at"] < before]
            gone = nsmallest(limit, old, key=lambda row: (row["finished_at"], row["id"]))
            for row in gone:
                check(State(row["state"]), Event.PRUNE, None)
                self._rows.remove(row)
            return len(gone)

    def configure(self, change: QueueChange) -> QueueSettings:
        with self._step():
            settings = self._fleet.configure(change)
            self._limiter.configure(settings.queue, settings.limits)
            self._hint(Topic.QUEUE, [settings.queue])
            return settings

    def inspect(self, now: int) -> Inspection:
        with self._lock:
            found = findings(flawed(self._rows, now))
            return Inspection(found, self._fleet.settings, living_tasks(self._rows))

    def find(self, where: Filter, page: Page) -> Found:
        with self._lock:
            ids = nlargest(page.limit, self._matching(where, page.before))
            rows = [decode(self._rows[job_id]) for job_id in ids]
            return Found(rows, ids[-1] if len(ids) == page.limit else None)

    def stats(self, queues: Sequence[str], now: int) -> list[QueueStats]:
        with self._lock:
            counts: dict[str, dict[str, Any]] = {queue: {} for queue in queues}
            for row in self._rows.values():
                if not queues or row["queue"] in counts:
                    _count(counts.setdefault(row["queue"], {}), row, now)
            return [QueueStats(queue, **counts[queue]) for queue in sorted(counts)]

    def announce(self, worker: WorkerInfo, ttl: int, now: int) -> None:
        with self._lock:
            self._fleet.announce(worker, ttl, now)

    def workers(self, now: int) -> list[WorkerInfo]:
        with self._lock:
            return self._fleet.workers(now)

    def save_schedules(self, changes: Sequence[ScheduleChange]) -> list[Schedule | None]:
        with self._lock:
            return self._schedules.save(changes)

    def schedules(self) -> list[Schedule]:
        with self._lock:
            return self._schedules.all()

    def fire(self, ticks: Sequence[Tick], now: int) -> list[Fired]:
        with self._step():
            for tick in ticks:  # first: a job that cannot be kept changes nothing
                self._check_size(tick.job)
                encode(new_row(tick_job(tick), now))
            return [self._fire(tick, now) for tick in ticks]

    def identity(self, key: str) -> Reservation | None:
        with self._lock:
            return self._reservations.get(key)

    def release_identity(self, key: str, owner: str | None) -> bool:
        with self._lock:
            reservation = self._reservations.get(key)
            if reservation is None or owner not in (None, reservation.job_id):
                return False
            del self._reservations[key]
            return True

    def append(self, events: Sequence[NewEvent], now: int) -> None:
        with self._lock:
            self._history.append(events, now)

    def read(self, where: EventFilter, after: str | None, limit: int) -> list[StoredEvent]:
        with self._lock:
            return self._history.read(where, after, limit)

    @contextmanager
    def _step(self) -> Iterator[None]:
        """Hold the lock; then, without it, publish what follows from the rows written."""
        with self._lock:
            try:
                yield
            finally:
                self._limiter.pass_on()
                self._hint(Topic.QUEUE, self._limiter.told())
                changed, self._rows.changed = self._rows.changed, []
                signals, self._hints = self._hints, []
                if self.hub.listened:
                    signals += signals_of(
                        (row["id"], row["queue"], State(row["state"]), bool(row["ready"]))
                        for row in changed
                    )
        if signals:
            self.hub.publish(signals)

    def _wait(self, queue: str, tasks: Sequence[str] | None, now: int) -> int | None:
        """Microseconds until a job of a queue may start; None: that cannot be said."""
        least = self._limiter.wait(queue, now)
        if least is None:
            return None
        if self._rows.ready.first([queue], tasks) is not None:
            return least
        found = (self._rows.waiting.first([queue], tasks), self._limiter.first_wake(queue))
        due = min((at for at in found if at is not None), default=None)
        return None if due is None else max(0, due - now, least)

    def _hint(self, topic: Topic, keys: Sequence[str]) -> None:
        self._hints += [Signal(topic, key) for key in keys]

    def _insert(self, jobs: Sequence[NewJob], now: int) -> list[Inserted]:
        for job in jobs:
            self._check_size(job)
        keys = {job.unique_key for job in jobs if job.unique_key is not None}
        pairs = {
            (job.schedule, job.tick)
            for job in jobs
            if job.schedule is not None and job.tick is not None
        }
        ticks = {pair: self._rows.of_tick(*pair) for pair in pairs}
        turns = {
            (job.queue, job.fair_key, job.priority) for job in jobs if job.fair_key is not None
        }
        last = {key: self._rows.last_turn(key) for key in turns}
        plan = insertion.plan(
            jobs,
            now,
            known=self._rows,
            holders={key: self._holder(key) for key in keys},
            ticks={pair: job_id for pair, job_id in ticks.items() if job_id is not None},
            last={key: rank for key, rank in last.items() if rank is not None},
        )
        # First: what cannot be encoded changes nothing.
        rows = [encode(row) for row in plan.rows]
        for values in plan.updates.values():
            columns.to_column_values(values)
        for job_id, values in plan.updates.items():
            self._rows.write(self._rows[job_id], values)
        for row in rows:
            self._rows.add(row)
        self._reservations.update({kept.key: kept for kept in plan.reservations})
        return plan.answers

    def _check_size(self, job: NewJob) -> None:
        if len(job.payload) > self._max_payload:
            raise PayloadError(
                f"the payload of job {job.id} has {len(job.payload)} bytes; "
                f"at most {self._max_payload} can be stored"
            )

    def _holder(self, key: str | None) -> Holder:
        """Who has a unique key."""
        if key is None:
            return FREE
        reservation = self._reservations.get(key)
        if reservation is None:
            return Holder(self._rows.twin(key))
        return Holder(self._rows.read(reservation.job_id), reservation)

    def _cancel(self, job_id: str, now: int, *, force: bool) -> str:
        """Cancel one job; returns the field of the result that names it."""
        field, hint = settling.cancel(self._rows, job_id, now, force=force)
        if hint:
            self._hint(Topic.CANCEL, [job_id])
        return field

    def _fire(self, tick: Tick, now: int) -> Fired:
        plan = firing(
            self._schedules.get(tick.name),
            tick,
            self._rows.living(tick.name),
            done=self._rows.of_tick(tick.name, tick.at) is not None,
            now=now,
        )
        fired = plan.fired
        if plan.advances:
            self._schedules.advance(tick)
        for job_id in plan.cancel:
            self._cancel(job_id, now, force=False)
        if fired is Fired.FIRED and not self._insert_tick(tick, now):
            fired = Fired.SKIPPED
        return fired

    def _insert_tick(self, tick: Tick, now: int) -> bool:
        """Insert the job of a tick; whether anything was written."""
        written = len(self._rows.changed)
        try:
            self._insert([tick_job(tick)], now)
        except (DuplicateJob, UniquenessConflict):
            return False
        return len(self._rows.changed) > written

    def _matching(self, where: Filter, before: str | None) -> Iterator[str]:
        """Ids of the rows that pass; agrees with `Filter.matches` without decoding rows."""
        tests = [
            (name, frozenset(wanted))
            for name, wanted in (
                ("state", where.states),
                ("task", where.tasks),
                ("queue", where.queues),
                ("unique_key", where.keys),
                ("schedule", where.schedules),
                ("actor", where.actors),
            )
            if wanted
        ]
        for job_id in frozenset(where.ids) or self._rows:
            row = self._rows.get(job_id)
            if row is None or (before is not None and job_id >= before):
                continue
            if (
                all(row[name] in wanted for name, wanted in tests)
                and within(row["created_at"], where.created_from, where.created_to)
                and within(row["finished_at"], where.finished_from, where.finished_to)
                and (not where.looks_inside or columns.matches_inside(where, *_inside(row)))
            ):
                yield job_id


def _inside(row: Row) -> tuple[str | None, str | None, str | None]:
    return row["tags"], row["metadata"], row["error"]


def _count(counts: dict[str, Any], row: Row, now: int) -> None:
    """Add one row to the depths of its queue."""
    name = str(row["state"])
    if row["state"] == State.PENDING:
        if row["blocked"] is not None:
            counts["blocked"] = counts.get("blocked", 0) + 1
        waited = now - row["available_at"]
        if waited < 0:
            name = "scheduled"
        else:
            counts["oldest_due"] = max(waited, counts.get("oldest_due", 0))
    elif row["state"] == State.RUNNING and row["lease_until"] <= now:
        counts["lapsed"] = counts.get("lapsed", 0) + 1
    counts[name] = counts.get(name, 0) + 1
