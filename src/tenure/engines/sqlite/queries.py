"""What each reading operation asks, on the connection of the reader thread."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.core.columns import matches_inside
from tenure.core.identity import Reservation
from tenure.core.job import JobRow
from tenure.core.limits import Limits
from tenure.core.query import SCAN_MAX, Filter, Found, Page, QueueStats
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


def find(tx: Transaction, where: Filter, page: Page) -> Found:
    """See `Engine.find`."""
    values: dict[str, str | int | None] = {
        "before": _AFTER_ALL if page.before is None else page.before,
        "created_from": where.created_from,
        "created_to": where.created_to,
        "finished_from": where.finished_from,
        "finished_to": where.finished_to,
    }
    for name in ("states", "tasks", "queues", "keys", "schedules", "actors"):
        wanted = getattr(where, name)
        values[name] = as_list(wanted) if wanted else None
    floor = None
    if where.ids:
        values["ids"] = as_list(where.ids)
    else:
        end = tx.execute(SQL["scan_end"], {"before": values["before"], "scan": SCAN_MAX - 1})
        floor = end[0][0] if end else None
        values["floor"] = floor or ""
    among = "among_ids" if where.ids else "in_range"
    if where.looks_inside:
        inside = tx.execute(SQL[f"inside_{among}"], values)
        ids = [job_id for job_id, *texts in inside if matches_inside(where, *texts)][: page.limit]
        rows = [row for row in get(tx, ids) if row is not None and where.matches(row)]
    else:
        found = tx.execute(SQL[f"find_{among}"], values | {"limit": page.limit})
        rows = [to_row(row) for row in found]
        ids = [row.id for row in rows]
    return Found(rows, ids[-1] if len(ids) == page.limit else floor)


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
