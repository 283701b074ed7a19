"""The rows of a store and every index over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tenure.core import columns, limits
from tenure.core.fair import FairKey
from tenure.core.job import COLUMNS, JobRow
from tenure.core.limits import Blocked, Key, Stand
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

    `changed` collects the rows written, for whoever wants to know what was; `freed` how many slots
    of each key, and `left` the queues, in which jobs stopped running or gave up their turn.
    """

    def __init__(self) -> None:
        self.ready = Lanes()  # pending and ready, by rank
        self.waiting = Lanes()  # pending and neither ready nor blocked, by available_at
        self.blocked = Lanes()  # blocked, in lanes by reason, queue and key; by rank
        self.expiring = Lanes()  # pending with a deadline, by expires_at
        self.leases = Lanes()  # running, by lease_until
        self.changed: list[Row] = []
        self.freed: Counter[Key] = Counter()
        self.left: set[str] = set()
        self.running: Counter[Key] = Counter()  # by queue and key, and by queue
        self._rows: dict[str, Row] = {}
        self._keys: dict[str, str] = {}  # unique key: the pending or running job that has it
        self._ticks: dict[tuple[str, int], str] = {}  # schedule and tick: job
        self._living: dict[str, dict[str, None]] = {}  # schedule: its pending and running jobs
        self._held: dict[str, dict[str, None]] = {}  # owner: its running jobs
        self._turns: dict[FairKey, dict[str, None]] = {}  # due and waiting, by who takes turns

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
        before = _stand(row)
        self._forget(row)
        row.update(values)
        self._index(row)
        self.changed.append(row)
        after = _stand(row)
        key = limits.frees(before, after)
        if key is not None:
            self.freed[key] += 1
        if before.state is State.RUNNING and after.state is not State.RUNNING:
            self.left.add(row["queue"])

    def remove(self, row: Row) -> None:
        self._forget(row)
        self._ticks.pop((row["schedule"], row["tick"]), None)
        del self._rows[row["id"]]

    def first_blocked(self, reason: Blocked, key: Key, count: int) -> list[Row]:
        """The first blocked jobs of a key, up to `count` of each task."""
        lane = blocked_lane(reason, *key)
        ids = [
            job_id
            for task in self.blocked.names(lane)
            for job_id in self.blocked.take([lane], [task], count)
        ]
        return [self._rows[job_id] for job_id in ids]

    def is_blocked(self, reason: Blocked, key: Key) -> bool:
        """Whether any job of a key is blocked for this reason."""
        return bool(self.blocked.names(blocked_lane(reason, *key)))

    def last_turn(self, key: FairKey) -> int | None:
        """The highest rank among the jobs of a key that are due and wait."""
        ranks = (self._rows[job_id]["rank"] for job_id in self._turns.get(key, ()))
        return max(ranks, default=None)

    def _index(self, row: Row) -> None:
        place = row["queue"], row["task"], row["id"]
        state = row["state"]
        if state == State.RUNNING:
            for key in _slots(row):
                self.running[key] += 1
            self.leases.put(*place, row["lease_until"])
            self._held.setdefault(row["owner"], {})[row["id"]] = None
        elif state == State.PENDING:
            if row["ready"]:
                self.ready.put(*place, row["rank"])
            elif row["blocked"] is not None:
                self.blocked.put(_lane(row), row["task"], row["id"], row["rank"])
            else:
                self.waiting.put(*place, row["available_at"])
            if row["expires_at"] is not None:
                self.expiring.put(*place, row["expires_at"])
            turn = _turn(row)
            if turn is not None and (row["ready"] or row["blocked"] is not None):
                self._turns.setdefault(turn, {})[row["id"]] = None
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
        if row["blocked"] is not None:
            self.blocked.drop(_lane(row), row["task"], row["id"])
        if row["state"] == State.RUNNING:
            for key in _slots(row):
                self.running[key] -= 1
                if not self.running[key]:
                    del self.running[key]
        turn = _turn(row)
        if turn is not None:
            ids = self._turns.get(turn, {})
            ids.pop(row["id"], None)
            if not ids:
                self._turns.pop(turn, None)
        if self._keys.get(row["unique_key"]) == row["id"]:
            del self._keys[row["unique_key"]]
        _discard(self._held, row["owner"], row["id"])
        _discard(self._living, row["schedule"], row["id"])


def blocked_lane(reason: str, queue: str, key: str) -> str:
    """The name of the lane of blocked jobs."""
    return f"{reason} {queue} {key}"  # no queue has a space in its name


def _lane(row: Row) -> str:
    key = row["concurrency_key" if row["blocked"] == Blocked.CONCURRENCY else "rate_key"]
    return blocked_lane(row["blocked"], row["queue"], key)


def _slots(row: Row) -> list[Key]:
    """What a running job counts for: its queue, and its key."""
    queue, key = row["queue"], row["concurrency_key"]
    return [(queue, limits.OF_QUEUE), *([(queue, key)] if key is not None else [])]


def _turn(row: Row) -> FairKey | None:
    return None if row["fair_key"] is None else (row["queue"], row["fair_key"], row["priority"])


def _stand(row: Row) -> Stand:
    return Stand(
        State(row["state"]),
        bool(row["ready"]),
        row["blocked"],
        row["queue"],
        row["concurrency_key"],
    )


def _discard(index: dict[str, dict[str, None]], name: str | None, job_id: str) -> None:
    ids = index.get(name, {}) if name is not None else {}
    ids.pop(job_id, None)
    if name is not None and not ids:
        index.pop(name, None)
