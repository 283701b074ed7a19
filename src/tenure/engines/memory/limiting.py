"""Limits at work: rooms and gates of a claim, and who goes on when they allow it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tenure.core import limits
from tenure.core.limits import OF_QUEUE, Blocked, Candidate, Cell, Gate, Key, Limits
from tenure.engines.memory.rows import Row, Rows


class Limiter:
    """The limits of all queues, and what is kept of their rates."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._limits: dict[str, Limits] = {}
        self._cells: dict[Key, Cell] = {}

    def of(self, queues: Iterable[str]) -> dict[str, Limits]:
        """Those of these queues that have limits."""
        return {queue: self._limits[queue] for queue in queues if queue in self._limits}

    def configure(self, queue: str, given: Limits) -> None:
        """From now on these hold; jobs that others held back are to be looked at anew."""
        before = self._limits.pop(queue, limits.NO_LIMITS)
        if given != limits.NO_LIMITS:
            self._limits[queue] = given
        if given.of_keys == before.of_keys:
            return
        for row in [r for r in self._rows.values() if r["queue"] == queue]:
            if row["blocked"] is not None:
                self._rows.write(row, limits.unblocked_values())
        for key in [key for key in self._cells if key[0] == queue and key[1] != OF_QUEUE]:
            self._cells[key] = self._cells[key]._replace(wake_at=None)

    def wake(self, queues: Iterable[str], most: int, now: int) -> None:
        """Make ready the blocked jobs of these queues whose rate allows more; of `most` keys."""
        rates = {q: kept.key_rate for q, kept in self.of(queues).items() if kept.key_rate}
        due = sorted(
            (cell.wake_at or 0, key)
            for key, cell in self._cells.items()
            if key[0] in rates and limits.wakes(cell, rates[key[0]], now)
        )
        for _, key in due[: max(most, 0)]:
            count, wake_at = limits.woken(self._cells[key], rates[key[0]], now, most)
            for row in self._rows.first_blocked(Blocked.RATE, key, count):
                self._rows.write(row, limits.unblocked_values())
            more = self._rows.is_blocked(Blocked.RATE, key)
            self._cells[key] = self._cells[key]._replace(wake_at=wake_at if more else None)

    def pass_on(self) -> None:
        """Give each slot that was freed to the next ones that wait for it."""
        freed = self._rows.freed.copy()
        self._rows.freed.clear()
        for key, count in sorted(freed.items()):
            for row in self._rows.first_blocked(Blocked.CONCURRENCY, key, count):
                self._rows.write(row, limits.unblocked_values())

    def told(self) -> list[str]:
        """The queues in which a job ended that held a slot of the queue."""
        left = sorted(queue for queue in self._rows.left if queue in self._limits)
        self._rows.left.clear()
        return left

    def rooms(self, queues: Iterable[str], now: int) -> dict[str, int]:
        """How many jobs those of these queues may start that are limited as a whole."""
        found = {}
        for queue, given in self.of(queues).items():
            key = (queue, OF_QUEUE)
            room = limits.room_of(given, self._rows.running[key], self._cells.get(key), now)
            if room is not None:
                found[queue] = room
        return found

    def wait(self, queue: str, now: int) -> int | None:
        """See `core.limits.wait_of`."""
        key = (queue, OF_QUEUE)
        given = self._limits.get(queue, limits.NO_LIMITS)
        return limits.wait_of(given, self._rows.running[key], self._cells.get(key), now)

    def first_wake(self, queue: str) -> int | None:
        """When the first jobs of a queue that its rates hold back are to be looked at."""
        found = (cell.wake_at for key, cell in self._cells.items() if key[0] == queue)
        return min((at for at in found if at is not None), default=None)

    def tidy(self, now: int) -> None:
        """Forget cells that say nothing any more."""
        self._cells = {k: cell for k, cell in self._cells.items() if not limits.is_over(cell, now)}

    def look_up(self, cells: dict[Key, Cell], key: Key) -> None:
        """Put what is kept of a rate into `cells`."""
        if key in self._cells:
            cells[key] = self._cells[key]

    def keep(self, changed: Mapping[Key, Cell]) -> None:
        self._cells.update(changed)


class MemoryGate(Gate):
    """A gate that looks up by itself what it must know."""

    def __init__(self, rows: Rows, limiter: Limiter, queues: Iterable[str], now: int) -> None:
        super().__init__(limiter.of(queues), now)
        self._rows = rows
        self._limiter = limiter

    def fits(self, row: Row) -> bool:
        """Whether a due job may start; then it counts."""
        candidate = Candidate(
            row["rank"], row["id"], row["queue"], row["concurrency_key"], row["rate_key"]
        )
        held, paced = self.unknown([candidate])
        for key in held:
            self.running[key] = self._rows.running[key]
        for key in paced:
            self._limiter.look_up(self.cells, key)
        return self.admit(candidate)

    def close(self, queues: Iterable[str]) -> None:
        """Write what follows: who is blocked, and what is left of each rate."""
        for queue in queues:
            self._limiter.look_up(self.cells, (queue, OF_QUEUE))
        self._limiter.keep(self.changed())
        for candidate, reason in self.parked:
            self._rows.write(self._rows[candidate.id], limits.blocked_values(reason))
