"""What each reading operation asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenure.core.columns import matches_inside
from tenure.core.identity import Reservation
from tenure.core.job import JobRow
from tenure.core.query import SCAN_MAX, Filter, Found, Page, QueueStats
from tenure.engines.postgres import limiting, rows
from tenure.engines.postgres.arrays import Texts
from tenure.engines.postgres.rows import to_row
from tenure.engines.postgres.steps import Ask, Effects, Steps

_AFTER_ALL = "\U0010ffff"
"""Sorts behind every id, so that the first page is a range of the index as well."""


def get(ids: Sequence[str]) -> Steps[list[JobRow | None]]:
    """See `Engine.get`."""
    found = yield from rows.read(list(dict.fromkeys(ids)))
    return [found.get(job_id) for job_id in ids]


def next_due(out: Effects, queues: Sequence[str], tasks: Sequence[str] | None) -> Steps[int | None]:
    """See `Engine.next_due`."""
    first, limited = yield from _first_due(out, queues, tasks, limited=False)
    waits = [first]
    if limited:
        given = {
            q: limiting.read(t) for q, t in (yield Ask("limits_of", {"queues": Texts(limited)}))
        }
        now = yield from rows.clock(out)
        allowed = yield from limiting.waits(given, now)
        for queue, (least, wake) in allowed.items():
            first, _ = yield from _first_due(out, [queue], tasks, limited=True)
            due = min((wait for wait in (first, wake) if wait is not None), default=None)
            waits.append(None if due is None else max(due, least))
    return min((wait for wait in waits if wait is not None), default=None)


def _first_due(
    out: Effects, queues: Sequence[str], tasks: Sequence[str] | None, *, limited: bool
) -> Steps[tuple[int | None, list[str]]]:
    """When the first job of these queues is due, `limited` or not; which of them are limited."""
    values: dict[str, Any] = {"queues": Texts(queues), "now": out.now, "limited": limited}
    if tasks is None:
        found = yield Ask("next_due_in_queues", values)
    else:
        found = yield Ask("next_due_in_lanes", values | {"tasks": Texts(tasks)})
    ((wait, names),) = found
    return wait, names


def find(where: Filter, page: Page) -> Steps[Found]:
    """See `Engine.find`."""
    before = _AFTER_ALL if page.before is None else page.before
    values: dict[str, Any] = {
        "before": before,
        "created_from": where.created_from,
        "created_to": where.created_to,
        "finished_from": where.finished_from,
        "finished_to": where.finished_to,
    }
    for name in ("states", "tasks", "queues", "keys", "schedules", "actors"):
        values[name] = [str(value) for value in getattr(where, name)] or None
    floor = None
    if where.ids:
        values["ids"] = list(dict.fromkeys(where.ids))
    else:
        end = yield Ask("scan_end", {"before": before, "scan": SCAN_MAX})
        floor = end[0][0] if end else None
        values["floor"] = floor or ""
    among = "among_ids" if where.ids else "in_range"
    if where.looks_inside:
        inside = yield Ask(f"inside_{among}", values)
        ids = [job_id for job_id, *texts in inside if matches_inside(where, *texts)][: page.limit]
        found = yield from get(ids)
        rows = [row for row in found if row is not None and where.matches(row)]
    else:
        asked = values | {"most": page.limit}
        rows = [to_row(row) for row in (yield Ask(f"find_{among}", asked))]
        ids = [row.id for row in rows]
    return Found(rows, ids[-1] if len(ids) == page.limit else floor)


def stats(out: Effects, queues: Sequence[str]) -> Steps[list[QueueStats]]:
    """See `Engine.stats`."""
    asked = {"queues": list(queues) or None, "now": out.now}
    found = {row[0]: QueueStats(*row) for row in (yield Ask("stats", asked))}
    for queue in queues:
        found.setdefault(queue, QueueStats(queue))
    return [found[queue] for queue in sorted(found)]


def reservation(key: str) -> Steps[Reservation | None]:
    """See `Engine.identity`."""
    found = yield Ask("reservations", {"keys": [key]})
    return Reservation(*found[0]) if found else None
