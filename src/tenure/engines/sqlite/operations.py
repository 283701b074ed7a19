"""What each writing operation does on the connection, within a transaction of the writer thread.

No rule is here: values come from `core`, statements from `statements.sql`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from tenure.core import insertion, rules
from tenure.core.columns import from_columns, to_column_values, to_columns
from tenure.core.identity import FREE, Holder, Reservation, taken_by
from tenure.core.insertion import Inserted, TickKey
from tenure.core.job import COLUMNS, JobRow, NewJob
from tenure.core.lease import Beat, Extended, Extension, Lost
from tenure.core.outcomes import Settled, Settlement, Verdict
from tenure.core.query import CancelResult, Filter, RequeueResult, Swept
from tenure.core.states import Event, State, check
from tenure.engines import sql
from tenure.engines.sqlite.thread import Transaction
from tenure.errors import PayloadError

SQL = sql.load("tenure.engines.sqlite", "statements.sql")

_KNOWN_IDS = SQL["known_ids"]
_INSERT = SQL["insert_job"]
_INSERT_PLAIN = SQL["insert_plain_job"]
_EXTEND = SQL["extend"]
_FENCE = SQL["fence"]
_SETTLE_FINAL = SQL["settle_final"]
_SETTLE_PENDING = SQL["settle_pending"]
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
    keys = {job.unique_key for job in jobs if job.unique_key is not None}
    pairs = {
        (job.schedule, job.tick)
        for job in jobs
        if job.schedule is not None and job.tick is not None
    }
    known: set[str] = set()
    if len(jobs) > 1 or keys or pairs:  # of a plain single row the statement itself tells
        found = tx.execute(_KNOWN_IDS, {"ids": as_list(job.id for job in jobs)})
        known = {row[0] for row in found}
    plan = insertion.plan(
        jobs, now, known=known, holders=holders(tx, keys), ticks=_jobs_of_ticks(tx, pairs)
    )
    for job_id, values in plan.updates.items():
        row = read_row(tx, job_id)
        assert row is not None, "only a twin that is there is changed"
        write_row(tx, row, values)
    if _insert_rows(tx, plan.rows) < len(plan.rows):  # only ever a single one
        return [Inserted(job.id, False) for job in jobs]
    for kept in plan.reservations:
        tx.write(SQL["reserve"], msgspec.structs.asdict(kept))
    # One change of each queue is enough to tell who waits for its jobs.
    first = {row.queue: row for row in plan.rows}.values()
    tx.changes += [(row.id, row.queue, row.state) for row in first]
    return plan.answers


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
    wide: list[list[Any]] = []

    def plain() -> Iterator[tuple[Any, ...]]:
        for values in map(to_columns, rows):
            if _more(values) == _NOTHING_MORE:
                yield _plain(values)
            else:
                wide.append(values)

    return tx.execute_many(_INSERT_PLAIN, plain()) + tx.execute_many(_INSERT, wide)


def extend(tx: Transaction, beats: Sequence[Beat], now: int) -> list[Extension]:
    """See `Engine.extend`."""
    return [_extend(tx, beat, now) for beat in beats]


def _extend(tx: Transaction, beat: Beat, now: int) -> Extension:
    progress = to_column_values({"progress": beat.progress})["progress"]
    values = {
        "id": beat.id,
        "token": beat.token,
        "owner": beat.owner,
        "until": now + round(beat.seconds * 1_000_000),
        "progress": progress,
        "now": now,
    }
    found = tx.execute(_EXTEND, values)
    if found:
        return Extended(beat.seconds, bool(found[0][0]))
    row = _fence(tx, beat.id)
    if row is None:
        return Lost("gone")
    token, owner, state = row[:3]
    if (token, owner) != (beat.token, beat.owner):
        return Lost("taken")
    return Lost("lapsed" if state == State.RUNNING else "settled")


def settle(tx: Transaction, settlements: Sequence[Settlement], now: int) -> list[Settled]:
    """See `Engine.settle`."""
    return [_settle(tx, settlement, now) for settlement in settlements]


def _settle(tx: Transaction, item: Settlement, now: int) -> Settled:
    # An end without a cancel request is one statement; only the rest is looked at first.
    if item.next.state.final and _write(tx, item, 0, 0, now):
        tx.changes.append((item.id, "", item.next.state))
        return Settled(item.id, Verdict.APPLIED, item.next.state, item.next.event)
    row = _fence(tx, item.id)
    if row is None:
        return Settled(item.id, Verdict.LOST)
    token, owner, state, flag, priority, queue = row
    if (token, owner) != (item.token, item.owner):
        return Settled(item.id, Verdict.LOST, State(state))
    if state != State.RUNNING:
        return Settled(item.id, Verdict.ALREADY, State(state))
    _write(tx, item, flag, priority, now)
    change = item.if_cancel_requested if flag else item.next
    tx.changes.append((item.id, queue, change.state))
    return Settled(item.id, Verdict.APPLIED, change.state, change.event)


def _write(tx: Transaction, item: Settlement, flag: int, priority: int, now: int) -> int:
    """Write the branch that belongs to the cancel flag, where the row still has that flag."""
    change = item.if_cancel_requested if flag else item.next
    check(State.RUNNING, change.event, change.state)
    values = to_column_values(rules.settled_values(priority, change, now))
    values |= {"id": item.id, "token": item.token, "owner": item.owner, "flag": flag}
    return tx.write(_SETTLE_FINAL if change.state.final else _SETTLE_PENDING, values)


def _fence(tx: Transaction, job_id: str) -> Any:
    found = tx.execute(_FENCE, {"id": job_id})
    return found[0] if found else None


def sweep(tx: Transaction, limit: int, now: int) -> list[Swept]:
    """See `Engine.sweep`."""
    limit = max(limit, 0)  # SQLite reads a negative limit as none at all
    queues = [row[0] for row in tx.execute(SQL["overdue_queues"])]
    swept = [Swept(job_id, State.EXPIRED) for job_id in expire(tx, queues, limit, now)]
    for values in tx.execute(SQL["lapsed_anywhere"], {"now": now, "limit": limit}):
        row = to_row(values)
        change = rules.lapse(row, now)
        settled = rules.settled_values(row.priority, change, now)
        write_row(tx, row, settled | dict(rules.revoked_token(row, now)))
        tx.hints.append(row.id)
        swept.append(Swept(row.id, change.state))
    return swept


def expire(tx: Transaction, queues: Iterable[str], limit: int, now: int) -> list[str]:
    """Expire up to `limit` overdue jobs of these queues; their ids, the first ones first."""
    found = first_of_queues(tx, SQL["overdue_in_queue"], queues, limit, now)
    ids = [job_id for _, job_id, _ in found]
    if ids:
        tx.write(SQL["expire"], {"ids": as_list(ids), "now": now})
        tx.changes += [(job_id, "", State.EXPIRED) for job_id in ids]
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
    tx.changes.append((new.id, new.queue, new.state))


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


def requeue(tx: Transaction, ids: Sequence[str], now: int) -> RequeueResult:
    """See `Engine.requeue`."""
    requeued, not_final, not_found, taken = [], [], [], {}
    for job_id in dict.fromkeys(ids):
        row = read_row(tx, job_id)
        if row is None:
            not_found.append(job_id)
        elif not row.state.final:
            not_final.append(job_id)
        elif (other := _taken_by(tx, row)) is not None:
            taken[job_id] = other
        else:
            write_row(tx, row, rules.requeued_values(row, now))
            requeued.append(job_id)
    return RequeueResult(tuple(requeued), tuple(not_final), tuple(not_found), taken)


def _taken_by(tx: Transaction, row: JobRow) -> str | None:
    if row.unique_key is None:
        return None
    return taken_by(row, holders(tx, [row.unique_key]).get(row.unique_key, FREE))


def prune_jobs(tx: Transaction, before: int, where: Filter, limit: int) -> int:
    """See `Engine.prune`."""
    asked: dict[str, Any] = {"before": before, "limit": limit}
    for name in ("ids", "states", "tasks", "queues"):
        values = getattr(where, name)
        asked[name] = as_list(values) if values else None
    found = tx.execute(SQL["ended_before"], asked)
    for _, state in found:
        check(State(state), Event.PRUNE, None)
    return tx.write(SQL["remove_jobs"], {"ids": as_list(job_id for job_id, _ in found)})
