"""What each reading operation asks, on the connection of the reader thread."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.core.identity import Reservation
from tenure.core.job import JobRow
from tenure.core.query import Filter, Page, QueueStats
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
    paused = {row[0] for row in tx.execute(SQL["paused_queues"])}
    moving = [queue for queue in queues if queue not in paused]
    values: dict[str, str | int] = {"queues": as_list(moving), "now": now}
    if tasks is None:
        found = tx.execute(SQL["next_due_in_queues"], values)
    else:
        found = tx.execute(SQL["next_due_in_lanes"], values | {"tasks": as_list(tasks)})
    wait: int | None = found[0][0]
    return wait


def find(tx: Transaction, where: Filter, page: Page) -> list[JobRow]:
    """See `Engine.find`."""
    values = {
        "before": _AFTER_ALL if page.before is None else page.before,
        "limit": page.limit,
        "states": as_list(where.states) if where.states else None,
        "tasks": as_list(where.tasks) if where.tasks else None,
        "queues": as_list(where.queues) if where.queues else None,
        "schedules": as_list(where.schedules) if where.schedules else None,
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
