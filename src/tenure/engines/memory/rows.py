"""The rows of a store and every index over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tenure.core import columns
from tenure.core.job import COLUMNS, JobRow
from tenure.core.states import State
from tenure.engines.memory.lanes import Lanes

Row = dict[str, Any]
"""Column values by name, in the order of `COLUMNS`."""


def encode(row: JobRow) -> Row:
    """Raises `PayloadError` for what JSON cannot hold."""
    return dict(zip(COLUMNS, columns.to_columns(row), strict=True))


def decode(row: Row) -> JobRow:
    return columns.from_columns(list(row.values()))


class Rows:
    """Rows by id. A row is in the indexes that its values call for: nothing else changes rows.

    `changed` collects the rows written, for whoever wants to know what was.
    """

    def __init__(self) -> None:
        self.ready = Lanes()  # pending and ready, by rank
        self.waiting = Lanes()  # pending and not ready, by available_at
        self.expiring = Lanes()  # pending with a deadline, by expires_at
        self.leases = Lanes()  # running, by lease_until
        self.changed: list[Row] = []
        self._rows: dict[str, Row] = {}
        self._keys: dict[str, str] = {}  # unique key: the pending or running job that has it
        self._ticks: dict[tuple[str, int], str] = {}  # schedule and tick: job
        self._living: dict[str, dict[str, None]] = {}  # schedule: its pending and running jobs
        self._held: dict[str, dict[str, None]] = {}  # owner: its running jobs

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __getitem__(self, job_id: str) -> Row:
        return self._rows[job_id]

    def get(self, job_id: str) -> Row | None:
        return self._rows.get(job_id)

    def values(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def read(self, job_id: str) -> JobRow | None:
        """The row, decoded; None if there is none."""
        row = self._rows.get(job_id)
        return None if row is None else decode(row)

    def twin(self, key: str) -> JobRow | None:
        """The pending or running job that has a unique key."""
        job_id = self._keys.get(key)
        return None if job_id is None else decode(self._rows[job_id])

    def of_tick(self, schedule: str, tick: int) -> str | None:
        """The job of a tick."""
        return self._ticks.get((schedule, tick))

    def living(self, schedule: str) -> list[JobRow]:
        """The pending and running jobs of a schedule."""
        return [decode(self._rows[job_id]) for job_id in self._living.get(schedule, ())]

    def held(self, owner: str) -> list[Row]:
        """The running jobs of an owner."""
        return [self._rows[job_id] for job_id in self._held.get(owner, ())]

    def add(self, row: Row) -> None:
        """Keep an encoded row under an id that is new."""
        self._rows[row["id"]] = row
        if row["schedule"] is not None and row["tick"] is not None:
            self._ticks[row["schedule"], row["tick"]] = row["id"]
        self._index(row)
        self.changed.append(row)

    def write(self, row: Row, changes: Mapping[str, Any]) -> None:
        """Change the values of a row that is kept here."""
        values = columns.to_column_values(changes)  # first: what cannot be encoded changes nothing
        self._forget(row)
        row.update(values)
        self._index(row)
        self.changed.append(row)

    def remove(self, row: Row) -> None:
        self._forget(row)
        self._ticks.pop((row["schedule"], row["tick"]), None)
        del self._rows[row["id"]]

    def _index(self, row: Row) -> None:
        place = row["queue"], row["task"], row["id"]
        state = row["state"]
        if state == State.RUNNING:
            self.leases.put(*place, row["lease_until"])
            self._held.setdefault(row["owner"], {})[row["id"]] = None
        elif state == State.PENDING:
            if row["ready"]:
                self.ready.put(*place, row["rank"])
            else:
                self.waiting.put(*place, row["available_at"])
            if row["expires_at"] is not None:
                self.expiring.put(*place, row["expires_at"])
        else:
            return
        if row["unique_key"] is not None:
            self._keys[row["unique_key"]] = row["id"]
        if row["schedule"] is not None:
            self._living.setdefault(row["schedule"], {})[row["id"]] = None

    def _forget(self, row: Row) -> None:
        """Take the row, as it stands, out of the indexes."""
        place = row["queue"], row["task"], row["id"]
        for lanes in (self.ready, self.waiting, self.expiring, self.leases):
            lanes.drop(*place)
        if self._keys.get(row["unique_key"]) == row["id"]:
            del self._keys[row["unique_key"]]
        _discard(self._held, row["owner"], row["id"])
        _discard(self._living, row["schedule"], row["id"])


def _discard(index: dict[str, dict[str, None]], name: str | None, job_id: str) -> None:
    ids = index.get(name, {}) if name is not None else {}
    ids.pop(job_id, None)
    if name is not None and not ids:
        index.pop(name, None)
