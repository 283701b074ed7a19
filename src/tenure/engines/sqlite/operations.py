"""What each writing operation does on the connection, within a transaction of the writer thread.

No rule is here: values come from `core`, statements from `statements.sql`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from tenure.core import rules
from tenure.core.columns import from_columns, to_column_values, to_columns
from tenure.core.job import COLUMNS, JobRow, NewJob, new_row
from tenure.core.lease import Beat, Extended, Extension, Lost
from tenure.core.outcomes import Settled, Settlement, Verdict
from tenure.core.query import CancelResult, RequeueResult, Swept
from tenure.core.states import Event, State, check
from tenure.engines import sql
from tenure.engines.protocol import Inserted
from tenure.engines.sqlite.thread import Transaction

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


def insert(tx: Transaction, jobs: Sequence[NewJob], now: int) -> list[Inserted]:
    """See `Engine.insert`."""
    known: set[str] = set()
    if len(jobs) > 1:  # of many rows SQLite tells only how many were written
        found = tx.execute(_KNOWN_IDS, {"ids": as_list(job.id for job in jobs)})
        known = {row[0] for row in found}
    fresh: list[NewJob] = []
    answers: list[Inserted] = []
    for job in jobs:
        created = job.id not in known
        if created:
            known.add(job.id)
            fresh.append(job)
        answers.append(Inserted(job.id, created))
    if _insert_rows(tx, fresh, now) < len(fresh):  # a single one, whose id was not looked up
        return [Inserted(job.id, False) for job in jobs]
    return answers


def _insert_rows(tx: Transaction, jobs: Iterable[NewJob], now: int) -> int:
    """How many rows were written. They are made one by one as SQLite asks for them."""
    wide: list[list[Any]] = []
    ready: dict[str, JobRow] = {}

    def plain() -> Iterator[tuple[Any, ...]]:
        for job in jobs:
            row = new_row(job, now)
            if row.ready:
                ready[row.queue] = row
            values = to_columns(row)
            if _more(values) == _NOTHING_MORE:
                yield _plain(values)
            else:
                wide.append(values)

    written = tx.execute_many(_INSERT_PLAIN, plain()) + tx.execute_many(_INSERT, wide)
    if written:
        tx.changes += [(row.id, row.queue, row.state, row.ready) for row in ready.values()]
    return written


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
        tx.changes.append((item.id, "", item.next.state, False))
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
    tx.changes.append((item.id, queue, change.state, change.delay == 0))
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


def write_row(tx: Transaction, row: JobRow, values: dict[str, Any]) -> None:
    """Write `row` with these values changed, and note what follows from it."""
    new = msgspec.structs.replace(row, **values)
    tx.write(_WRITE_ROW, dict(zip(COLUMNS, to_columns(new), strict=True)))
    tx.changes.append((new.id, new.queue, new.state, new.ready))


def _row(tx: Transaction, job_id: str) -> JobRow | None:
    found = tx.execute(_ROW, {"id": job_id})
    return to_row(found[0]) if found else None


def cancel(tx: Transaction, ids: Sequence[str], force: bool, now: int) -> CancelResult:
    """See `Engine.cancel`."""
    cancelled: list[str] = []
    requested: list[str] = []
    already_final: list[str] = []
    not_found: list[str] = []
    for job_id in dict.fromkeys(ids):
        row = _row(tx, job_id)
        if row is None:
            not_found.append(job_id)
        elif row.state.final:
            already_final.append(job_id)
        elif row.state is State.RUNNING and not force:
            tx.write(_REQUEST_CANCEL, {"id": job_id})
            tx.hints.append(job_id)
            requested.append(job_id)
        else:
            _cancel(tx, row, now)
            cancelled.append(job_id)
    return CancelResult(tuple(cancelled), tuple(requested), tuple(already_final), tuple(not_found))


def _cancel(tx: Transaction, row: JobRow, now: int) -> None:
    check(row.state, Event.CANCEL, State.CANCELLED)
    values: dict[str, Any] = {"state": State.CANCELLED, "ready": False, "finished_at": now}
    if row.state is State.RUNNING:
        values |= rules.revoked_token(row, now)
        tx.hints.append(row.id)
    write_row(tx, row, values)


def requeue(tx: Transaction, ids: Sequence[str], now: int) -> RequeueResult:
    """See `Engine.requeue`."""
    requeued: list[str] = []
    not_final: list[str] = []
    not_found: list[str] = []
    for job_id in dict.fromkeys(ids):
        row = _row(tx, job_id)
        if row is None:
            not_found.append(job_id)
        elif not row.state.final:
            not_final.append(job_id)
        else:
            write_row(tx, row, rules.requeued_values(row, now))
            requeued.append(job_id)
    return RequeueResult(tuple(requeued), tuple(not_final), tuple(not_found))
