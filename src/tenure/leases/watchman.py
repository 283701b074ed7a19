"""Looks at what the keeper does not control: event loops, clocks, and whether it runs itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tenure.leases.book import Book
from tenure.leases.filed import Filed
from tenure.leases.guard import Guard
from tenure.leases.journal import Journal
from tenure.leases.jumps import Jumps
from tenure.leases.lease import Lease
from tenure.leases.stalls import Sight, Stalls

STALLED = "stalled"


class Seen(NamedTuple):
    """What one look found."""

    loops: Sight
    doubted: list[Lease]


class Watchman:
    """Takes a look at every turn of the keeper, and acts on it when the lock is free again."""

    def __init__(self, stall_limits: tuple[float, float], journal: Journal) -> None:
        self._stalls = Stalls(*stall_limits)
        self._jumps = Jumps()
        self._journal = journal

    def look(self, book: Book, now: float, wall_us: int) -> Seen:
        """Under the lock. Leases that a jump of the wall clock makes doubtful are due at once."""
        doubted = book.question(now) if self._jumps.look(now, wall_us) else []
        sight = self._stalls.look(now, book.holders)
        if not len(book):
            self._stalls.rest()
            self._jumps.rest()
        return Seen(sight, doubted)

    def act(self, seen: Seen, book: Book, guard: Guard, now: float) -> Iterator[Filed]:
        """Ping and report; yields what came of leases whose loop stands still for too long."""
        if seen.doubted:
            self._journal.unverified(seen.doubted)
        if seen.loops.gap:
            self._journal.overslept(seen.loops.gap)
        for watched in seen.loops.pings:
            try:
                watched.holder.ping(watched.number)
            except Exception:  # closed: its leases may still be held, from elsewhere
                watched.holder.heard = watched.number
        for stall in seen.loops.news:
            with guard:
                leases = book.held_by(stall.holder)
            self._journal.stalled(stall, leases)
        for stall in seen.loops.standing:
            late = None if stall in seen.loops.ended else now
            with guard:
                filed = book.lose(stall.holder, STALLED, late)
            yield filed
