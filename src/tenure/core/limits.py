"""Limits of queues and of keys: how many jobs may run at once, and how many may start in a time.

A slot is no object that could leak: it is a running row. How many jobs of a queue or of a key run
is counted when a claim asks, under a lock of the queue that claims alone take. So whatever ends an
attempt (a settlement, a sweep, a cancel by force) frees its slot in the same write.

A limit of a whole queue is room that a claim has for the queue. A limit of keys blocks jobs: a due
job that meets its limit in a claim is no longer ready, so no later claim walks past it, until a
slot of its key is freed or the rate of its key allows one more. It keeps its rank; `blocked` says
why it is not ready.

What an engine owes, beside what `engines.protocol` says of claims:

- No two claims count the same free slot: those of one limited queue take turns, and count running
  rows after their turn began.
- A slot of a key is freed by whatever writes a row such that `frees` names the key. For each slot
  freed, the operation's last act is to make ready the first blocked job (`rank, id`) of each task
  of that key. It must not miss a job that a claim blocks at this moment, nor one whose blocker was
  settled in a transaction of the caller; where a process may die in between, `sweep` makes up for
  it.
- The end of an attempt in a limited queue signals QUEUE.

A rate is kept as a theoretical arrival time (GCRA): the instant at which as many starts as there
were would be over if they came one interval apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from tenure.core.durations import Seconds, micros
from tenure.core.states import State
from tenure.errors import ConfigurationError

COUNT_MAX = 1_000_000
PERIOD_MAX = 31 * 86_400.0
PARKED_MAX = 1000
"""How many jobs one claim blocks at most: with so many in front of it, it ends early."""

OF_QUEUE = ""
"""The key under which a queue's own rate is kept; no job has it."""


class Blocked(StrEnum):
    """What a job that is due waits for."""

    CONCURRENCY = "concurrency"
    """As many jobs of its `concurrency_key` run as may."""

    RATE = "rate"
    """As many jobs of its `rate_key` were started as may be for now."""


class Rate(msgspec.Struct, frozen=True):
    """At most `count` starts in `period` microseconds, one interval apart; up to `burst` at once.

    The interval is `period / count`. With a burst of 1, no span of one period ever sees more than
    `count` starts; with more, up to `count + burst - 1`.
    """

    count: int
    period: int
    burst: int = 1

    @property
    def interval(self) -> int:
        """Microseconds from one start to the next."""
        return -(-self.period // self.count)

    @property
    def ahead(self) -> int:
        """Microseconds that the arrival time may be ahead when one more starts."""
        return (self.burst - 1) * self.interval

    @property
    def horizon(self) -> int:
        """Microseconds that the arrival time is ahead at most, unless it says nothing."""
        return 2 * self.burst * self.interval

    @property
    def longest(self) -> int:
        """Microseconds that the next start can be away at most."""
        return (self.burst + 1) * self.interval


def rate(count: int, per: Seconds = 1, burst: int = 1) -> Rate:
    """A checked rate: `count` (1 to 1,000,000) starts `per` seconds (0.001 to 31 days).

    `burst` (1 to 1,000,000) may start at once after a pause. Raises `ConfigurationError`.
    """
    period = micros(per, "per", minimum=0.001, maximum=PERIOD_MAX)
    for name, value in (("count", count), ("burst", burst)):
        check_count(value, name)
    return Rate(count, period, burst)


def check_count(value: Any, name: str) -> int:
    """The value, if it can bound how many; else `ConfigurationError` naming it."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= COUNT_MAX:
        raise ConfigurationError(f"{name} must be an integer from 1 to {COUNT_MAX}, not {value!r}")
    return value


class Limits(msgspec.Struct, frozen=True):
    """The limits of one queue; None: there is none.

    `concurrency` and `rate` bound the queue as a whole. `key_concurrency` bounds how many of its
    jobs with the same `concurrency_key` run at once, `key_rate` how many with the same `rate_key`
    start; a key of one queue is another one than the same text in another queue.
    """

    concurrency: int | None = None
    rate: Rate | None = None
    key_concurrency: int | None = None
    key_rate: Rate | None = None

    @property
    def of_keys(self) -> tuple[int | None, Rate | None]:
        """The part that blocks jobs: when it changes, all blocked jobs of the queue are ready."""
        return self.key_concurrency, self.key_rate

    @property
    def hold(self) -> bool:
        """Whether running jobs hold slots."""
        return self.concurrency is not None or self.key_concurrency is not None


NO_LIMITS = Limits()

Key = tuple[str, str]
"""A queue and one of its keys, or `OF_QUEUE`."""


class Cell(NamedTuple):
    """What is kept of one rate: its theoretical arrival time, and when blocked jobs may go on."""

    arrival: int
    wake_at: int | None = None


def allowed(rate: Rate, arrival: int | None, now: int) -> int:
    """How many may start now."""
    slack = now + rate.ahead - _bounded(rate, arrival, now)
    return slack // rate.interval + 1 if slack >= 0 else 0


def spent(rate: Rate, arrival: int | None, now: int, count: int) -> int:
    """The arrival time after `count` starts at `now`."""
    return _bounded(rate, arrival, now) + count * rate.interval


def next_start(rate: Rate, arrival: int | None, now: int) -> int:
    """When one more may start: `now` or later."""
    return max(now, _bounded(rate, arrival, now) - rate.ahead)


def _bounded(rate: Rate, arrival: int | None, now: int) -> int:
    """The arrival time, from now on.

    One burst leads it ahead by so many intervals. What is twice as far ahead is of another rate, or
    of a clock that was set back since: it begins anew, rather than to hold anybody back for long.
    """
    if arrival is None or arrival > now + rate.horizon:
        return now
    return max(arrival, now)


def is_over(cell: Cell, now: int) -> bool:
    """Whether a cell says no more than one that is not there."""
    return cell.wake_at is None and cell.arrival <= now


def wakes(cell: Cell, rate: Rate, now: int) -> bool:
    """Whether blocked jobs of the cell's key are to be looked at."""
    # Further ahead it cannot be, but for a clock that was set back.
    return cell.wake_at is not None and not now < cell.wake_at <= now + rate.longest


def woken(cell: Cell, rate: Rate, now: int, most: int) -> tuple[int, int]:
    """How many blocked jobs of each task become ready at a wake-up, at most `most`; and when the
    next ones are to be looked at, if any stay blocked."""
    count = min(allowed(rate, cell.arrival, now), most)
    return count, next_start(rate, spent(rate, cell.arrival, now, count), now)


def room_of(limits: Limits, running: int, cell: Cell | None, now: int) -> int | None:
    """How many jobs of a queue may be started now; None: any number."""
    rooms = []
    if limits.concurrency is not None:
        rooms.append(max(0, limits.concurrency - running))
    if limits.rate is not None:
        rooms.append(allowed(limits.rate, None if cell is None else cell.arrival, now))
    return min(rooms, default=None)


def wait_of(limits: Limits, running: int, cell: Cell | None, now: int) -> int | None:
    """Microseconds until a queue may start a job; None: not before one of its jobs ends."""
    if limits.concurrency is not None and running >= limits.concurrency:
        return None
    if limits.rate is None:
        return 0
    return next_start(limits.rate, None if cell is None else cell.arrival, now) - now


class Candidate(NamedTuple):
    """A due job in a claim."""

    place: int
    id: str
    queue: str
    concurrency_key: str | None
    rate_key: str | None


class Gate:
    """What the limits say to the due jobs of one claim, which come in claim order.

    `running` says how many jobs of a key run, `cells` what is known of its rate; whoever uses the
    gate puts in what `unknown` asks for before it meets candidates. `parked` is who was blocked.
    """

    def __init__(self, limits: Mapping[str, Limits], now: int) -> None:
        self._limits = limits
        self._now = now
        self.running: dict[Key, int] = {}
        self.cells: dict[Key, Cell] = {}
        self.parked: list[tuple[Candidate, Blocked]] = []
        self._taken: dict[str, int] = {}
        self._touched: set[Key] = set()
        self._waiting: set[Key] = set()

    @property
    def closed(self) -> bool:
        """Whether this claim has blocked as many as one may."""
        return len(self.parked) >= PARKED_MAX

    def unknown(self, candidates: Iterable[Candidate]) -> tuple[set[Key], set[Key]]:
        """The keys whose running jobs and whose cells are not known yet."""
        held: set[Key] = set()
        paced: set[Key] = set()
        for candidate in candidates:
            held_key, paced_key = self._keys(candidate)
            if held_key is not None and held_key not in self.running:
                held.add(held_key)
            if paced_key is not None and paced_key not in self.cells:
                paced.add(paced_key)
        return held, paced

    def admit(self, candidate: Candidate) -> bool:
        """Whether a job may start; then it counts. Else it is parked."""
        limits = self._limits.get(candidate.queue, NO_LIMITS)
        held, paced = self._keys(candidate)
        if held is not None:
            most = limits.key_concurrency or 0
            if self.running.get(held, 0) >= most:
                self.parked.append((candidate, Blocked.CONCURRENCY))
                return False
        if paced is not None and limits.key_rate is not None:
            cell = self.cells.get(paced, Cell(self._now))
            if not allowed(limits.key_rate, cell.arrival, self._now):
                self._waiting.add(paced)
                self.parked.append((candidate, Blocked.RATE))
                return False
            arrival = spent(limits.key_rate, cell.arrival, self._now, 1)
            self.cells[paced] = cell._replace(arrival=arrival)
            self._touched.add(paced)
        if held is not None:
            self.running[held] = self.running.get(held, 0) + 1
        self._taken[candidate.queue] = self._taken.get(candidate.queue, 0) + 1
        return True

    def withdraw(self, candidate: Candidate) -> None:
        """Another took a job that was admitted: it does not count."""
        held, paced = self._keys(candidate)
        if held is not None:
            self.running[held] -= 1
        key_rate = self._limits.get(candidate.queue, NO_LIMITS).key_rate
        if paced is not None and key_rate is not None:
            cell = self.cells[paced]
            self.cells[paced] = cell._replace(arrival=cell.arrival - key_rate.interval)
        self._taken[candidate.queue] -= 1

    def changed(self) -> dict[Key, Cell]:
        """The cells as they are to be kept, after the last candidate.

        Needs the queues' own cells to be in `cells`, where they are kept.
        """
        for queue, count in self._taken.items():
            rate = self._limits.get(queue, NO_LIMITS).rate
            if rate is not None:
                key = (queue, OF_QUEUE)
                cell = self.cells.get(key, Cell(self._now))
                arrival = spent(rate, cell.arrival, self._now, count)
                self.cells[key] = cell._replace(arrival=arrival)
                self._touched.add(key)
        self._taken.clear()
        for key in self._waiting:
            key_rate = self._limits[key[0]].key_rate
            cell = self.cells.get(key, Cell(self._now))
            if key_rate is not None:
                at = next_start(key_rate, cell.arrival, self._now)
                self.cells[key] = cell._replace(wake_at=at)
                self._touched.add(key)
        return {key: self.cells[key] for key in sorted(self._touched)}

    def _keys(self, candidate: Candidate) -> tuple[Key | None, Key | None]:
        limits = self._limits.get(candidate.queue, NO_LIMITS)
        held = paced = None
        if limits.key_concurrency is not None and candidate.concurrency_key is not None:
            held = (candidate.queue, candidate.concurrency_key)
        if limits.key_rate is not None and candidate.rate_key is not None:
            paced = (candidate.queue, candidate.rate_key)
        return held, paced


def given_up(parked: Iterable[tuple[Candidate, Blocked]]) -> Counter[Key]:
    """How many slots of each key those leave to others who are blocked, as `frees` says."""
    return Counter(
        (candidate.queue, candidate.concurrency_key)
        for candidate, reason in parked
        if reason is Blocked.RATE and candidate.concurrency_key is not None
    )


class Stand(NamedTuple):
    """The columns of a row that decide about slots."""

    state: State
    ready: bool
    blocked: str | None
    queue: str
    concurrency_key: str | None


def frees(before: Stand, after: Stand) -> Key | None:
    """The key of which the next blocked job is to be made ready, if this change calls for it.

    A job that ran runs no more; or one that was ready to take a slot will not take it.
    """
    if before.concurrency_key is None:
        return None
    key = (before.queue, before.concurrency_key)
    if before.state is State.RUNNING:
        return None if after.state is State.RUNNING else key
    if before.state is not State.PENDING or not before.ready or after.state is State.RUNNING:
        return None
    if after.blocked == Blocked.CONCURRENCY:
        return None  # there was no slot to take
    stays = after.state is State.PENDING and after.ready
    same = (after.queue, after.concurrency_key) == key
    return None if stays and same else key


def blocked_values(reason: Blocked) -> dict[str, Any]:
    """The columns that blocking a ready job writes."""
    return {"ready": False, "blocked": str(reason)}


def unblocked_values() -> dict[str, Any]:
    """The columns that end it."""
    return {"ready": True, "blocked": None}
