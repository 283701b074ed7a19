"""What each writing operation does on the connection, within a transaction of the writer thread.

No rule is here: values come from `core`, statements from `statements.sql`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from tenure.core import rules
from tenure.core.columns import from_columns, to_column_values, to_columns
from tenure.core.job import COLUMNS, JobRow, NewJob, new_row
from tenure.core.lease import Beat, Extended, Extension, Lost
from tenure.core.outcomes import Change, Settled, Settlement, Verdict
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
    fences = _fences(tx, [beat.id for beat in beats])
    answers = [_examine(beat, fences.get(beat.id), now) for beat in beats]
    granted: dict[tuple[int, str | None], list[str]] = {}
    for beat, answer in zip(beats, answers, strict=True):
        if isinstance(answer, Extended):
            until = now + round(beat.seconds * 1_000_000)
            progress = None
            if beat.progress is not None:
                progress = to_column_values({"progress": beat.progress})["progress"]
            granted.setdefault((until, progress), []).append(beat.id)
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

    It holds until the end of the transaction, since nobody else can write meanwhile. So what it
    allows is written to all jobs alike by one statement, which is several times cheaper than a
    statement for each.
    """
    found = tx.execute(_FENCES, {"ids": as_list(ids)})
    return {row[0]: _Fence(*row) for row in found}


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
