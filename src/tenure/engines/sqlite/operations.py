"""What each writing operation does on the connection, within a transaction of the writer thread.

No rule is here: values come from `core`, statements from `statements.sql`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from tenure.core import insertion, rules
from tenure.core.columns import from_columns, to_column_values, to_columns
from tenure.core.fair import fair_key_of, keys_of
from tenure.core.identity import FREE, Holder, Reservation, taken_by
from tenure.core.insertion import Inserted, TickKey
from tenure.core.job import COLUMNS, JobRow, NewJob, new_row
from tenure.core.lease import Beat, Extended, Extension, Lost
from tenure.core.limits import Stand, frees
from tenure.core.outcomes import Change, Settled, Settlement, Verdict
from tenure.core.query import CancelResult, Filter, RequeueResult, Swept
from tenure.core.states import FINAL, Event, State, check
from tenure.engines.sqlite import limiting
from tenure.engines.sqlite.thread import Transaction
from tenure.errors import PayloadError

SQL = limiting.SQL

_INSERT = SQL["insert_job"]
_INSERT_PLAIN = SQL["insert_plain_job"]
_EXTEND = SQL["extend"]
_FENCES = SQL["fences"]
_SETTLE_FINAL = SQL["settle_final"]
_SETTLE_PENDING = SQL["settle_pending"]
_SETTLE_RESULT = SQL["settle_result"]
_ROW = SQL["row"]
_WRITE_ROW = SQL["write_row"]
_REQUEST_CANCEL = SQL["request_cancel"]
_encode = msgspec.json.Encoder().encode
_WIDTH = len(COLUMNS)
_PLAIN = tuple(
    """id task queue priority rank ready state token claims failures max_attempts lapses max_lapses
    releases max_interruptions available_at expires_at timeout retry cancel_requested payload codec
    payload_size created_at queued_at tags headers metadata description""".split()
)
"""The columns of `insert_plain_job`, in its order."""
_plain = itemgetter(*(COLUMNS.index(name) for name in _PLAIN))
_more = itemgetter(*(i for i, name in enumerate(COLUMNS) if name not in _PLAIN))
_NOTHING_MORE = (None,) * (_WIDTH - len(_PLAIN))


class _Fence(NamedTuple):
    """The columns of the statement `fences`, in its order."""

    id: str
    token: int
    owner: str | None
    state: str
    lease_until: int
    cancel_requested: int
    priority: int
    queue: str
    concurrency_key: str | None


def as_list(values: Iterable[str]) -> str:
    """Values as a statement takes a list."""
    return _encode(list(values)).decode()


def to_row(values: Sequence[Any]) -> JobRow:
    """The row of what `SELECT *` gave; columns of a newer schema are left out."""
    return from_columns(values[:_WIDTH])


def check_sizes(jobs: Iterable[NewJob], most: int) -> None:
    """Raise `PayloadError` for a payload of more than `most` bytes."""
    for job in jobs:
        if len(job.payload) > most:
            raise PayloadError(
                f"job {job.id} ({job.task}): the payload has {len(job.payload)} bytes; "
                f"at most {most} are allowed"
            )


def insert(tx: Transaction, jobs: Sequence[NewJob], now: int) -> list[Inserted]:
    """See `Engine.insert`."""
    if len(jobs) == 1 and _is_alone(jobs[0]):
        return [_insert_one(tx, jobs[0], now)]
    keys = {job.unique_key for job in jobs if job.unique_key is not None}
    pairs = {
        (job.schedule, job.tick)
        for job in jobs
        if job.schedule is not None and job.tick is not None
    }
    turns = {(job.queue, job.fair_key, job.priority) for job in jobs if job.fair_key is not None}
    plan = insertion.plan(
        jobs,
        now,
        known=_known(tx, [job.id for job in jobs]),
        holders=holders(tx, keys),
        ticks=_jobs_of_ticks(tx, pairs),
        last=limiting.last_turns(tx, turns),
    )
    for job_id, values in plan.updates.items():
        row = read_row(tx, job_id)
        assert row is not None, "only a twin that is there is changed"
        write_row(tx, row, values)
    _insert_rows(tx, plan.rows)
    for kept in plan.reservations:
        tx.write(SQL["reserve"], msgspec.structs.asdict(kept))
    # One change of each queue is enough to tell who waits for its jobs.
    first = {row.queue: row for row in plan.rows}.values()
    tx.changes += [(row.id, row.queue, row.state, row.ready) for row in first]
    tx.crowd = tx.crowd or len(plan.rows) > len(first)
    return plan.answers


def _is_alone(job: NewJob) -> bool:
    """Whether it is compared with no other job but one of its id."""
    return job.unique_key is None and job.tick is None and job.fair_key is None


def _insert_one(tx: Transaction, job: NewJob, now: int) -> Inserted:
    """A job that is compared with no other, but for its id, which the statement does."""
    row = new_row(job, now)
    created = _insert_rows(tx, [row]) > 0
    if created:
        tx.changes.append((row.id, row.queue, row.state, row.ready))
    return Inserted(job.id, created)


def _known(tx: Transaction, ids: Sequence[str]) -> set[str]:
    """Those of these ids that are taken."""
    # New ids are next to each other, so a look at their range saves the looks at each.
    if not ids or not tx.execute(SQL["any_between"], {"first": min(ids), "last": max(ids)}):
        return set()
    return {row[0] for row in tx.execute(SQL["known_ids"], {"ids": as_list(ids)})}


def holders(tx: Transaction, keys: Collection[str]) -> dict[str, Holder]:
    """Who has each of these unique keys; left out: nobody."""
    if not keys:
        return {}
    asked = {"keys": as_list(keys)}
    found = {
        row.unique_key: Holder(row)
        for row in map(to_row, tx.execute(SQL["twins"], asked))
        if row.unique_key is not None
    }
    for values in tx.execute(SQL["reservations"], asked):
        kept = Reservation(*values)
        found[kept.key] = Holder(read_row(tx, kept.job_id), kept)
    return found


def _jobs_of_ticks(tx: Transaction, pairs: Iterable[TickKey]) -> dict[TickKey, str]:
    found = {pair: job_of_tick(tx, *pair) for pair in pairs}
    return {pair: job_id for pair, job_id in found.items() if job_id is not None}


def job_of_tick(tx: Transaction, schedule: str, tick: int) -> str | None:
    """The id of the job of a tick, whatever became of it."""
    found = tx.execute(SQL["job_of_tick"], {"schedule": schedule, "tick": tick})
    return found[0][0] if found else None


def _insert_rows(tx: Transaction, rows: Iterable[JobRow]) -> int:
    """How many rows were written."""
    plain: list[tuple[Any, ...]] = []
    wide: list[list[Any]] = []
    for values in map(to_columns, rows):
        if _more(values) == _NOTHING_MORE:
            plain.append(_plain(values))
        else:
            wide.append(values)
    written = tx.execute_many(_INSERT_PLAIN, plain) if plain else 0
    return written + (tx.execute_many(_INSERT, wide) if wide else 0)


def extend(tx: Transaction, beats: Sequence[Beat], now: int) -> list[Extension]:
    """See `Engine.extend`."""
    fences = _fences(tx, [beat.id for beat in beats])
    answers = [_examine(beat, fences.get(beat.id), now) for beat in beats]
    last: dict[str, tuple[int, str | None]] = {}  # of two beats for one lease the later one counts
    for beat, answer in zip(beats, answers, strict=True):
        if isinstance(answer, Extended):
            until = now + round(beat.seconds * 1_000_000)
            progress = last[beat.id][1] if beat.id in last else None
            if beat.progress is not None:
                progress = to_column_values({"progress": beat.progress})["progress"]
            last[beat.id] = until, progress
    granted: dict[tuple[int, str | None], list[str]] = {}
    for job_id, values in last.items():
        granted.setdefault(values, []).append(job_id)
    for (until, progress), ids in granted.items():
        tx.write(_EXTEND, {"until": until, "progress": progress, "ids": as_list(ids)})
    return answers


def _examine(beat: Beat, fence: _Fence | None, now: int) -> Extension:
    if fence is None:
        return Lost("gone")
    if (fence.token, fence.owner) != (beat.token, beat.owner):
        return Lost("taken")
    if fence.state != State.RUNNING:
        return Lost("settled")
    if fence.lease_until <= now:
        return Lost("lapsed")
    return Extended(beat.seconds, bool(fence.cancel_requested))


def settle(tx: Transaction, settlements: Sequence[Settlement], now: int) -> list[Settled]:
    """See `Engine.settle`."""
    fences = _fences(tx, [item.id for item in settlements])
    applied: dict[tuple[Change, int], list[str]] = {}
    results: list[dict[str, Any]] = []
    answers: list[Settled] = []
    for item in settlements:
        fence = fences.get(item.id)
        if fence is None:
            answers.append(Settled(item.id, Verdict.LOST))
        elif (fence.token, fence.owner) != (item.token, item.owner):
            answers.append(Settled(item.id, Verdict.LOST, State(fence.state)))
        elif fence.state != State.RUNNING:
            answers.append(Settled(item.id, Verdict.ALREADY, State(fence.state)))
        else:
            change = item.if_cancel_requested if fence.cancel_requested else item.next
            alike = change
            if change.result is not None:  # what differs most, so it is written apart
                results.append({"id": item.id, "result": change.result})
                alike = msgspec.structs.replace(change, result=None)
            applied.setdefault((alike, fence.priority), []).append(item.id)
            tx.changes.append((item.id, fence.queue, change.state, change.delay == 0))
            tx.left.add(fence.queue)
            if fence.concurrency_key is not None:
                tx.freed[fence.queue, fence.concurrency_key] += 1
            fences[item.id] = fence._replace(state=change.state)  # it may be here twice
            answers.append(Settled(item.id, Verdict.APPLIED, change.state, change.event))
    for (change, priority), ids in applied.items():
        check(State.RUNNING, change.event, change.state)
        values = to_column_values(rules.settled_values(priority, change, now))
        statement = _SETTLE_FINAL if change.state.final else _SETTLE_PENDING
        tx.write(statement, values | {"ids": as_list(ids)})
    tx.execute_many(_SETTLE_RESULT, results)
    return answers


def _fences(tx: Transaction, ids: Sequence[str]) -> dict[str, _Fence]:
    """What decides about writes to these jobs, as far as they exist.

    It still holds when they are written to: either the transaction has the write lock, or (one of
    a caller that has only read so far) SQLite refuses its first write if the file has changed. So
    what is the same for several jobs is written by one statement, several times cheaper than one
    for each.
    """
    found = tx.execute(_FENCES, {"ids": as_list(ids)})
    return {row[0]: _Fence(*row) for row in found}


def sweep(tx: Transaction, limit: int, now: int) -> list[Swept]:
    """See `Engine.sweep`."""
    limit = max(limit, 0)  # SQLite reads a negative limit as none at all
    limiting.tidy(tx, now)
    queues = [row[0] for row in tx.execute(SQL["overdue_queues"])]
    swept = [Swept(job_id, State.EXPIRED) for job_id in expire(tx, queues, limit, now)]
    lapsed = tx.execute(SQL["lapsed_anywhere"], {"now": now, "limit": limit})
    return swept + [take_back(tx, to_row(values), now) for values in lapsed]


def take_back(tx: Transaction, row: JobRow, now: int) -> Swept:
    """Take a job from its holder, whose lease ran out."""
    change = rules.lapse(row, now)
    settled = rules.settled_values(row.priority, change, now)
    write_row(tx, row, settled | dict(rules.revoked_token(row, now)))
    tx.hints.append(row.id)
    return Swept(row.id, change.state)


def expire(tx: Transaction, queues: Iterable[str], limit: int, now: int) -> list[str]:
    """Expire up to `limit` overdue jobs of these queues; their ids, the first ones first."""
    found = first_of_queues(tx, SQL["overdue_in_queue"], queues, limit, now)
    ids = [job_id for _, job_id, _ in found]
    if ids:
        for queue, key, count in tx.execute(SQL["turns_given_up"], {"ids": as_list(ids)}):
            tx.freed[queue, key] += count
        tx.write(SQL["expire"], {"ids": as_list(ids), "now": now})
        tx.changes += [(job_id, "", State.EXPIRED, False) for job_id in ids]
    return ids


def first_of_queues(
    tx: Transaction, statement: str, queues: Iterable[str], limit: int, now: int
) -> list[tuple[int, str, str]]:
    """The first `limit` of (place, id, queue), from an index that is ordered within a queue."""
    found = [
        (place, job_id, queue)
        for queue in dict.fromkeys(queues)
        for place, job_id in tx.execute(statement, {"queue": queue, "now": now, "limit": limit})
    ]
    found.sort()
    return found[:limit]


def write_row(tx: Transaction, row: JobRow, values: Mapping[str, Any]) -> None:
    """Write `row` with these values changed, and note what follows from it."""
    new = msgspec.structs.replace(row, **values)
    tx.write(_WRITE_ROW, dict(zip(COLUMNS, to_columns(new), strict=True)))
    tx.changes.append((new.id, new.queue, new.state, new.ready))
    key = frees(_stand(row), _stand(new))
    if key is not None:
        tx.freed[key] += 1
    if row.state is State.RUNNING and new.state is not State.RUNNING:
        tx.left.add(row.queue)


def _stand(row: JobRow) -> Stand:
    return Stand(row.state, row.ready, row.blocked, row.queue, row.concurrency_key)


def read_row(tx: Transaction, job_id: str) -> JobRow | None:
    """One job."""
    found = tx.execute(_ROW, {"id": job_id})
    return to_row(found[0]) if found else None


def cancel(tx: Transaction, ids: Sequence[str], force: bool, now: int) -> CancelResult:
    """See `Engine.cancel`."""
    found: dict[str, list[str]] = {name: [] for name in CancelResult.__struct_fields__}
    for job_id in dict.fromkeys(ids):
        found[cancel_one(tx, job_id, now, force=force)].append(job_id)
    return CancelResult(**{name: tuple(found[name]) for name in found})


def cancel_one(tx: Transaction, job_id: str, now: int, *, force: bool) -> str:
    """Cancel one job; the field of the result that names it."""
    row = read_row(tx, job_id)
    if row is None:
        return "not_found"
    if row.state.final:
        return "already_final"
    values = rules.cancelled_values(row, now, force=force)
    if row.state is State.RUNNING:
        tx.hints.append(job_id)
    if "state" not in values:
        tx.write(_REQUEST_CANCEL, {"id": job_id})
        return "requested"
    write_row(tx, row, values)
    return "cancelled"


def requeue(tx: Transaction, ids: Sequence[str], payload: bytes | None, now: int) -> RequeueResult:
    """See `Engine.requeue`."""
    requeued, not_final, not_found, taken = [], [], [], {}
    there = map(to_row, tx.execute(SQL["rows"], {"ids": as_list(ids)}))
    turns = limiting.turns(tx, keys_of(there))
    for job_id in dict.fromkeys(ids):
        row = read_row(tx, job_id)
        if row is None:
            not_found.append(job_id)
        elif not row.state.final:
            not_final.append(job_id)
        elif (other := _taken_by(tx, row)) is not None:
            taken[job_id] = other
        else:
            rank = turns.rank(fair_key_of(row), now, row.priority)
            write_row(tx, row, rules.requeued_values(row, now, payload, rank))
            requeued.append(job_id)
    return RequeueResult(tuple(requeued), tuple(not_final), tuple(not_found), taken)


def _taken_by(tx: Transaction, row: JobRow) -> str | None:
    if row.unique_key is None:
        return None
    return taken_by(row, holders(tx, [row.unique_key]).get(row.unique_key, FREE))


def prune_jobs(tx: Transaction, before: int, where: Filter, limit: int) -> int:
    """See `Engine.prune`."""
    asked: dict[str, Any] = {"before": before, "limit": limit}
    for name in ("states", "tasks", "queues"):
        values = getattr(where, name)
        asked[name] = as_list(values) if values else None
    if where.ids:
        found = tx.execute(SQL["ended_of_ids"], asked | {"ids": as_list(where.ids)})
    else:
        states = FINAL.intersection(where.states) if where.states else FINAL
        lanes = [tx.execute(SQL["ended_before"], asked | {"state": str(one)}) for one in states]
        found = sorted(row for lane in lanes for row in lane)[:limit]
    for _, _, state in found:
        check(State(state), Event.PRUNE, None)
    return tx.write(SQL["remove_jobs"], {"ids": as_list(job_id for _, job_id, _ in found)})
