"""The leases of one client, in the order of their next events."""

from __future__ import annotations

import math
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count

from tenure.core.durations import micros
from tenure.core.job import Progress
from tenure.leases.client import LeaseClient
from tenure.leases.lease import Lease
from tenure.leases.request import Errand, Request

MAX_BATCH = 1000

_NEVER = -1


class Entry:
    """One kept lease. `at` is its next event: a renewal, or the deadline while one is in flight."""

    __slots__ = ("again", "at", "desk", "failures", "flight", "lease", "mark", "told")

    def __init__(self, lease: Lease, desk: Desk) -> None:
        self.lease = lease
        self.desk = desk
        self.at = 0.0
        self.mark = _NEVER  # of its one valid record in the heap
        self.flight: Request | None = None
        self.failures = 0
        self.again = False  # wanted while in flight: the answer may be older than the news
        self.told: Progress | None = None  # the last progress the store has

    def joins(self) -> float:
        """From when on the entry may go along with an earlier one of its client.

        A retry never does: it would undo the backoff.
        """
        if self.flight is not None or self.failures:
            return self.at
        return self.at - self.lease.times.interval / 4

    def leave(self) -> None:
        """It is not kept any more."""
        self.mark = _NEVER
        self.flight = None
        self.desk.size -= 1


class Desk:
    """What one client has to do."""

    def __init__(self, client: LeaseClient) -> None:
        self.client = client
        self.retry = client.retry
        self.step = max(1, micros(client.resolution, "resolution"))
        self.batch: int = getattr(client, "batch", MAX_BATCH)
        self.stateless: bool = getattr(client, "stateless", False)
        self.size = 0
        self.streak = 0
        self.flights = 0
        self.errands: list[Errand] = []
        self._heap: list[tuple[float, int, Entry]] = []
        self._marks = count()

    @property
    def empty(self) -> bool:
        """Whether there is nothing left to do."""
        return not (self.size or self.errands or self.flights)

    def place(self, entry: Entry, at: float) -> None:
        """Give the entry its next event; the record of any earlier plan is void from now on."""
        entry.at = at
        entry.mark = next(self._marks)
        heappush(self._heap, (at, entry.mark, entry))
        if len(self._heap) > 2 * self.size + 512:
            self._heap = [record for record in self._heap if record[2].mark == record[1]]
            heapify(self._heap)

    def first(self) -> Entry | None:
        """The entry with the earliest event."""
        heap = self._heap
        while heap:
            _, mark, entry = heap[0]
            if entry.mark == mark:
                return entry
            heappop(heap)
        return None

    def next_event(self) -> float:
        """When something is due here; infinite if nothing is."""
        entry = self.first()
        at = math.inf if entry is None else entry.at
        for errand in self.errands:
            if errand.request is None:
                at = min(at, errand.due_at())
        return at

    def ripe(self, now: float) -> Iterator[Entry]:
        """Take out the entries whose event has come, and renewals that go along with one."""
        tick = False
        while (entry := self.first()) is not None:
            if entry.at > now and not (tick and entry.joins() <= now):
                return
            heappop(self._heap)
            entry.mark = _NEVER
            tick = tick or not (entry.flight or entry.lease._over(now))
            yield entry
