"""What each reading operation asks, on the connection of the reader thread."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.core.identity import Reservation
from tenure.core.job import JobRow
from tenure.core.limits import Limits
from tenure.core.query import Filter, Page, QueueStats
from tenure.engines.sqlite import limiting
from tenure.engines.sqlite.operations import SQL, as_list, to_row
from tenure.engines.sqlite.thread import Transaction

_AFTER_ALL = "\U0010ffff"
"""Sorts behind every id, so that the first page is a range of the index as well."""


def get(tx: Transaction, ids: Sequence[str]) -> list[JobRow | None]:
    """See `Engine.get`."""
    rows = {values[0]: to_row(values) for values in tx.execute(SQL["rows"], {"ids": as_list(ids)})}
    return [rows.get(job_id) for job_id in ids]


def next_due(
    tx: Transaction, queues: Sequence[str], tasks: Sequence[str] | None, now: int
) -> int | None:
    """See `Engine.next_due`."""
    special = limiting.special(tx)
    moving = [queue for queue in dict.fromkeys(queues) if queue not in special.paused]
    waits = [_first_due(tx, [q for q in moving if q not in special.limits], tasks, now)]
    waits += [
        _first_allowed(tx, queue, special.limits[queue], tasks, now)
        for queue in moving
        if queue in special.limits
    ]
    return min((wait for wait in waits if wait is not None), default=None)


def _first_due(
    tx: Transaction, queues: Sequence[str], tasks: Sequence[str] | None, now: int
) -> int | None:
    values: dict[str, str | int] = {"queues": as_list(queues), "now": now}
    if tasks is None:
        found = tx.execute(SQL["next_due_in_queues"], values)
    else:
        found = tx.execute(SQL["next_due_in_lanes"], values | {"tasks": as_list(tasks)})
    wait: int | None = found[0][0]
    return wait


def _first_allowed(
    tx: Transaction, queue: str, given: Limits, tasks: Sequence[str] | None, now: int
) -> int | None:
    """Microseconds until a job of a limited queue may start; None: that cannot be said."""
    least = limiting.wait(tx, queue, given, now)
    if least is None:
        return None
    wake_at = limiting.first_wake(tx, queue)
    waits = (_first_due(tx, [queue], tasks, now), None if wake_at is None else wake_at - now)
    due = min((wait for wait in waits if wait is not None), default=None)
    return None if due is None else max(due, least)


def find(tx: Transaction, where: Filter, page: Page) -> list[JobRow]:
    """See `Engine.find`."""
    values = {
        "before": _AFTER_ALL if page.before is None else page.before,
        "limit": page.limit,
        "states": as_list(where.states) if where.states else None,
        "tasks": as_list(where.tasks) if where.tasks else None,
        "queues": as_list(where.queues) if where.queues else None,
    }
    if where.ids:
        found = tx.execute(SQL["find_by_id"], values | {"ids": as_list(where.ids)})
    else:
        found = tx.execute(SQL["find"], values)
    return [to_row(row) for row in found]


def stats(tx: Transaction, queues: Sequence[str], now: int) -> list[QueueStats]:
    """See `Engine.stats`."""
    values = {"queues": as_list(queues) if queues else None, "now": now}
    found = {row[0]: QueueStats(*row) for row in tx.execute(SQL["stats"], values)}
    for queue in queues:
        found.setdefault(queue, QueueStats(queue))
    return [found[queue] for queue in sorted(found)]


def reservation(tx: Transaction, key: str) -> Reservation | None:
    """See `Engine.identity`."""
    found = tx.execute(SQL["reservations"], {"keys": as_list([key])})
    return Reservation(*found[0]) if found else None
