"""Rows between `core` and PostgreSQL, and the writing of whole ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tenure.core.columns import from_columns, to_columns
from tenure.core.job import COLUMNS, JobRow
from tenure.engines.postgres.arrays import Texts
from tenure.engines.postgres.place import FLAGS
from tenure.engines.postgres.steps import Again, Ask, Effects, Steps

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
    return rows


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
