"""What is kept, what is due, and what an answer means: the keeper's decisions.

No thread, no I/O and no clock in here: `now` (monotonic seconds) comes with every call, and the
keeper's lock is held around each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count

from tenure.core.job import Progress
from tenure.core.lease import Beat, Busy, Extended, Extension, Lost, retry_wait
from tenure.leases.client import LeaseClient
from tenure.leases.lease import DEADLINE, Lease

MAX_BATCH = 1000
LONGEST_REQUEST = 5.0
JITTER = 0.1
"""At most this part of an interval is taken off, the same for all leases of a process."""

TOO_LATE = 0.05
"""With less than this many seconds left, a failed renewal is not tried again."""

_NEVER = -1


class _Entry:
    """One kept lease. `at` is its next event: a renewal, or the deadline while one is in flight."""

    __slots__ = ("again", "at", "desk", "failures", "flight", "lease", "mark", "told")

    def __init__(self, lease: Lease, desk: _Desk) -> None:
        self.lease = lease
        self.desk = desk
        self.at = 0.0
        self.mark = _NEVER  # of its one valid record in the heap
        self.flight: Request | None = None
        self.failures = 0
        self.again = False  # nudged while in flight: the answer may be older than the hint
        self.told: Progress | None = None  # the last progress the store has

    def joins(self) -> float:
        """From when on the entry may go along with an earlier one of its client.

        A retry never does: it would undo the backoff.
        """
        if self.flight is not None or self.failures:
            return self.at
        return self.at - self.lease.times.interval / 4


class Request:
    """One `extend` to send: its beats, and how many seconds it may take."""

    __slots__ = ("beats", "client", "desk", "entries", "sent_at", "timeout")

    def __init__(self, desk: _Desk, entries: list[_Entry], now: float) -> None:
        self.desk = desk
        self.client = desk.client
        self.entries = entries
        self.sent_at = now
        self.timeout = min(LONGEST_REQUEST, *(e.lease.times.interval for e in entries))
        self.beats = [_beat(entry, now) for entry in entries]

    def examine(self, answers: Sequence[object]) -> None:
        """Raise `ValueError` unless these are one sound answer per beat."""
        if len(answers) != len(self.beats):
            raise ValueError(f"{len(answers)} answers to {len(self.beats)} beats")
        for answer in answers:
            if isinstance(answer, Extended):
                # A NaN would make a deadline that never passes.
                sound = isinstance(answer.seconds, int | float) and math.isfinite(answer.seconds)
            else:
                sound = isinstance(answer, Busy | Lost)
            if not sound:
                raise ValueError(f"not an answer to a beat: {answer!r}")


class Filed:
    """What came of a step: whom to tell, and what to write down."""

    __slots__ = ("busy", "cancelled", "delay", "extended", "lost", "requests", "streak")

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.extended: list[Lease] = []
        self.busy: list[Lease] = []
        self.lost: list[Lease] = []
        """Leases that were lost in this step and whose holders were not told before."""
        self.cancelled: list[Lease] = []
        """Leases whose cancel request came to be known in this step."""
        self.delay: float | None = None
        """Seconds until the retry of a failed request; None if nothing is left to be tried."""
        self.streak = 0
        """How many requests of this client have failed in a row."""


class _Desk:
    """The leases of one client, in the order of their next events."""

    def __init__(self, client: LeaseClient) -> None:
        self.client = client
        self.retry = client.retry
        self.size = 0
        self.streak = 0
        self._heap: list[tuple[float, int, _Entry]] = []
        self._marks = count()

    def place(self, entry: _Entry, at: float) -> None:
        """Give the entry its next event; the record of any earlier plan is void from now on."""
        entry.at = at
        entry.mark = next(self._marks)
        heappush(self._heap, (at, entry.mark, entry))
        if len(self._heap) > 2 * self.size + 512:
            self._heap = [record for record in self._heap if record[2].mark == record[1]]
            heapify(self._heap)

    def first(self) -> _Entry | None:
        """The entry with the earliest event."""
        heap = self._heap
        while heap:
            _, mark, entry = heap[0]
            if entry.mark == mark:
                return entry
            heappop(heap)
        return None

    def ripe(self, now: float) -> Iterator[_Entry]:
        """Take out the entries whose event has come, and renewals that go along with one."""
        tick = False
        while (entry := self.first()) is not None:
            if entry.at > now and not (tick and entry.joins() <= now):
                return
            heappop(self._heap)
            entry.mark = _NEVER
            tick = tick or not (entry.flight or entry.lease._over(now))
            yield entry


class Book:
    """All leases of a keeper. A lease has at most one extension in flight."""

    def __init__(self, jitter: float, roll: Callable[[], float]) -> None:
        """`jitter`: 0 to `JITTER`; `roll` returns random numbers in [0, 1)."""
        self._jitter = jitter
        self._roll = roll
        self._desks: dict[int, _Desk] = {}  # by identity: a client need not be hashable
        self._entries: dict[Lease, _Entry] = {}
        self._ids: dict[str, tuple[_Entry, ...]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, client: LeaseClient, leases: Iterable[Lease]) -> list[Lease]:
        """Keep these; returns those that were not kept before."""
        desk = self._desks.get(id(client))
        if desk is None:
            desk = self._desks[id(client)] = _Desk(client)
        added = []
        for lease in leases:
            if lease in self._entries:
                continue
            entry = self._entries[lease] = _Entry(lease, desk)
            self._ids[lease.id] = (*self._ids.get(lease.id, ()), entry)
            desk.size += 1
            desk.place(entry, self._renewal(lease))
            added.append(lease)
        return added

    def remove(self, leases: Iterable[Lease]) -> list[Lease]:
        """Forget these; returns those that were kept."""
        return [lease for lease in leases if self._drop(lease)]

    def discard(self, client: LeaseClient) -> list[Lease]:
        """Forget a client and its leases, which are returned."""
        desk = self._desks.get(id(client))
        found = self.remove([x for x, entry in self._entries.items() if entry.desk is desk])
        self._desks.pop(id(client), None)
        return found

    def close(self, reason: str) -> Filed:
        """Lose every lease, and forget them and all clients."""
        filed = Filed()
        for lease in list(self._entries):
            self._lose(lease, reason, filed)
        self._desks.clear()
        return filed

    def nudge(self, ids: Iterable[str], now: float) -> None:
        """Make these due; those in flight again, as soon as they are answered."""
        for name in ids:
            for entry in self._ids.get(name, ()):
                if entry.flight is None:
                    entry.desk.place(entry, now)
                else:
                    entry.again = True

    def carry_over(self, now: float) -> None:
        """The loop that sent the requests in flight is gone: their leases are due now."""
        for entry in self._entries.values():
            if entry.flight is not None:
                entry.flight = None
                entry.desk.place(entry, now)

    def next_wake(self) -> float | None:
        """When `due` has something to do again."""
        firsts = (desk.first() for desk in self._desks.values())
        return min((entry.at for entry in firsts if entry is not None), default=None)

    def due(self, now: float) -> Filed:
        """The requests to send now, and the leases whose deadline has passed.

        A request counts as in flight until `answered` or `failed` has been called for it.
        """
        filed = Filed()
        for desk in self._desks.values():
            ripe = []
            for entry in desk.ripe(now):
                if entry.lease._over(now):
                    self._lose(entry.lease, DEADLINE, filed)
                else:
                    ripe.append(entry)
            for start in range(0, len(ripe), MAX_BATCH):
                filed.requests.append(self._request(desk, ripe[start : start + MAX_BATCH], now))
        return filed

    def answered(self, request: Request, answers: Sequence[Extension], now: float) -> Filed:
        """File sound answers; those for leases removed or lost meanwhile are ignored."""
        filed = Filed()
        request.desk.streak = 0
        for entry, beat, answer in zip(request.entries, request.beats, answers, strict=True):
            if entry.flight is not request:
                continue
            entry.flight = None
            if isinstance(answer, Lost):
                self._lose(entry.lease, answer.reason, filed)
                continue
            if isinstance(answer, Extended) and beat.progress is not None:
                entry.told = beat.progress
            self._prolong(entry, request.sent_at, answer, now, filed)
        return filed

    def failed(self, request: Request, now: float) -> Filed:
        """Plan the retry of a request that was not answered, for all its leases together."""
        filed = Filed()
        request.desk.streak += 1
        filed.streak = request.desk.streak
        waiting = []
        for entry in request.entries:
            if entry.flight is not request:
                continue
            entry.flight = None
            entry.again = False
            entry.failures += 1
            if entry.lease._over(now):
                self._lose(entry.lease, DEADLINE, filed)
            else:
                waiting.append(entry)
        if waiting:
            self._retry(request.desk, waiting, now, filed)
        return filed

    def _renewal(self, lease: Lease) -> float:
        return min(lease._next_renewal(self._jitter), lease._deadline)

    def _request(self, desk: _Desk, entries: list[_Entry], now: float) -> Request:
        request = Request(desk, entries, now)
        for entry in entries:
            entry.flight = request
            entry.again = False
            desk.place(entry, entry.lease._deadline)
        return request

    def _prolong(
        self, entry: _Entry, sent_at: float, answer: Extended | Busy, now: float, filed: Filed
    ) -> None:
        lease = entry.lease
        if isinstance(answer, Extended):
            seconds, kind = answer.seconds, filed.extended
        else:
            # The holder's own transaction locks the row: as good as a full lease.
            seconds, kind = lease._asks(sent_at), filed.busy
        if not lease._prolong(sent_at, seconds, now):
            self._lose(lease, DEADLINE, filed)
            return
        kind.append(lease)
        if answer.cancel_requested and lease._request_cancel():
            filed.cancelled.append(lease)
        entry.failures = 0
        again, entry.again = entry.again, False
        entry.desk.place(entry, now if again else self._renewal(lease))

    def _retry(self, desk: _Desk, entries: list[_Entry], now: float, filed: Filed) -> None:
        backoff = desk.retry.delay(max(e.failures for e in entries), self._roll()) / 1e6
        deadlines = [entry.lease._deadline for entry in entries]
        hopeful = [deadline for deadline in deadlines if deadline - now > TOO_LATE]
        if hopeful:
            filed.delay = retry_wait(backoff, min(hopeful), now)
        for entry, deadline in zip(entries, deadlines, strict=True):
            if filed.delay is None or deadline - now <= TOO_LATE:
                desk.place(entry, deadline)
            else:
                desk.place(entry, now + filed.delay)

    def _lose(self, lease: Lease, reason: str, filed: Filed) -> None:
        self._drop(lease)
        if lease._lose(reason):
            filed.lost.append(lease)

    def _drop(self, lease: Lease) -> bool:
        entry = self._entries.pop(lease, None)
        if entry is None:
            return False
        entry.mark = _NEVER
        entry.flight = None
        entry.desk.size -= 1
        left = tuple(other for other in self._ids[lease.id] if other is not entry)
        if left:
            self._ids[lease.id] = left
        else:
            del self._ids[lease.id]
        return True


def _beat(entry: _Entry, now: float) -> Beat:
    lease = entry.lease
    progress = lease.progress
    fresh = None if progress is entry.told else progress
    return Beat(lease.id, lease.token, lease.owner, lease._asks(now), fresh)
