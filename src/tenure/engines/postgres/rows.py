"""Rows between `core` and PostgreSQL, and the writing of whole ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tenure.core import rules
from tenure.core.columns import from_columns, to_columns
from tenure.core.job import COLUMNS, JobRow
from tenure.core.limits import Stand, frees
from tenure.core.query import Swept
from tenure.core.states import State
from tenure.engines.postgres.arrays import Texts
from tenure.engines.postgres.place import FLAGS
from tenure.engines.postgres.steps import Again, Ask, Effects, Rows, Steps

_WIDTH = len(COLUMNS)
_FLAGS = frozenset(COLUMNS.index(name) for name in FLAGS)


def to_row(values: Sequence[Any]) -> JobRow:
    """The row of values in the order of `COLUMNS`."""
    return from_columns(values)


def to_values(row: JobRow) -> dict[str, Any]:
    """A row as the values of a statement."""
    return {
        name: bool(value) if index in _FLAGS and value is not None else value
        for index, (name, value) in enumerate(zip(COLUMNS, to_columns(row), strict=True))
    }


def write(out: Effects, changed: Sequence[tuple[JobRow, Mapping[str, Any]]]) -> Steps[list[JobRow]]:
    """Write living rows, which must be locked, with these values changed; the new rows.

    Those that end go where ended jobs are kept.
    """
    rows = [msgspec.structs.replace(row, **values) for row, values in changed]
    live = [row for row in rows if not row.state.final]
    ended = [row for row in rows if row.state.final]
    if live:
        yield Ask("write_row", many=[to_values(row) for row in live])
    if ended:
        yield Ask("remove_living", {"ids": [row.id for row in ended]})
        yield Ask("insert_finished", many=[to_values(row) for row in ended])
    note(out, rows)
    left: set[str] = set()
    for (before, _), after in zip(changed, rows, strict=True):
        key = frees(_stand(before), _stand(after))
        if key is not None:
            out.freed[key] += 1
        if before.state is State.RUNNING and after.state is not State.RUNNING:
            left.add(before.queue)
    if left:
        for queue, _ in (yield Ask("limits_of", {"queues": Texts(sorted(left))})):
            out.leave(queue, None)
    return rows


def _stand(row: JobRow) -> Stand:
    return Stand(row.state, row.ready, row.blocked, row.queue, row.concurrency_key)


def take_back(out: Effects, found: Rows) -> Steps[list[Swept]]:
    """Take jobs from holders whose lease ran out; given locked, each after the store's time."""
    changed: list[tuple[JobRow, Mapping[str, Any]]] = []
    swept: list[Swept] = []
    for now, *values in found:
        row = to_row(values)
        change = rules.lapse(row, now)
        settled = rules.settled_values(row.priority, change, now)
        changed.append((row, settled | dict(rules.revoked_token(row, now))))
        swept.append(Swept(row.id, change.state))
    if changed:
        yield from write(out, changed)
        out.hints += [row.id for row, _ in changed]
    return swept


def insert_rows(rows: Iterable[JobRow]) -> Steps[None]:
    """Write new rows: those that ended already, too."""
    live: list[dict[str, Any]] = []
    ended: list[dict[str, Any]] = []
    for row in rows:
        (ended if row.state.final else live).append(to_values(row))
    if live:
        yield Ask("insert_row", many=live)
    if ended:
        yield Ask("insert_finished", many=ended)


def relock(rows: Sequence[JobRow]) -> Steps[None]:
    """Lock living rows that were read before; raises `Again` if one has changed since."""
    if rows:
        found = yield Ask("await_living", {"ids": [row.id for row in rows]})
        locked = {values[0]: to_row(values) for values in found}
        if any(locked.get(row.id) != row for row in rows):
            raise Again


def read(ids: Sequence[str]) -> Steps[dict[str, JobRow]]:
    """These jobs, living or not, by id."""
    if not ids:
        return {}
    return {values[0]: to_row(values) for values in (yield Ask("rows", {"ids": Texts(ids)}))}


def clock(out: Effects) -> Steps[int]:
    """The store's time."""
    ((now,),) = yield Ask("clock", {"now": out.now})
    instant: int = now
    return instant


def note(out: Effects, rows: Iterable[JobRow]) -> None:
    """Note what follows from rows as they were written."""
    out.changes += [(row.id, row.queue, row.state, row.ready) for row in rows]
