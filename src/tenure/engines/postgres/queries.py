"""What each reading operation asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenure.core.identity import Reservation
from tenure.core.job import JobRow
from tenure.core.query import Filter, Page, QueueStats
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


def find(where: Filter, page: Page) -> Steps[list[JobRow]]:
    """See `Engine.find`."""
    values: dict[str, Any] = {
        "before": _AFTER_ALL if page.before is None else page.before,
        "most": page.limit,
        "states": [str(state) for state in where.states] or None,
        "tasks": list(where.tasks) or None,
        "queues": list(where.queues) or None,
    }
    if where.ids:
        found = yield Ask("find_by_id", values | {"ids": list(dict.fromkeys(where.ids))})
    else:
        found = yield Ask("find", values)
    return [to_row(values) for values in found]


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
