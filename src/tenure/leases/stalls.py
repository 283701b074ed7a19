"""Which event loops stand still: decided from pings and the time, without I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tenure.leases.holder import Holder

PING_EVERY = 2.0

SHORTEST_GAP = 3.0
"""The watcher looks about every second: less than this is no sign that it could not run."""


class Stall(NamedTuple):
    """A loop that has not answered for this many seconds."""

    holder: Holder
    seconds: float


class Watched:
    """What is known of one loop."""

    __slots__ = ("asked_at", "holder", "number", "warned")

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self.number = 0
        self.asked_at = 0.0
        self.warned = False

    @property
    def silent(self) -> bool:
        """Whether the last ping is still unanswered."""
        return self.holder.heard < self.number


class Sight(NamedTuple):
    """What one look found."""

    pings: list[Watched]
    """To be sent now."""
    news: list[Stall]
    """Loops that were just found to stand still."""
    standing: list[Stall]
    """All that stand still."""
    ended: list[Stall]
    """Loops that stand still for longer than anybody may."""
    gap: float
    """Seconds that the watcher itself did not run, if that is long; else 0."""


class Stalls:
    """Watches event loops: `warn` seconds of silence are reported, after `release` it is over."""

    def __init__(self, warn: float, release: float) -> None:
        self._warn = warn
        self._release = release
        self._gap = max(warn, SHORTEST_GAP)
        self._watched: dict[Holder, Watched] = {}
        self._looked_at: float | None = None

    def look(self, now: float, holders: Iterable[Holder]) -> Sight:
        """To be called every second or so with the loops that hold leases at `now`."""
        gap = 0.0 if self._looked_at is None else now - self._looked_at
        self._looked_at = now
        sight = Sight([], [], [], [], gap if gap >= self._gap else 0.0)
        known, self._watched = self._watched, {}
        for holder in holders:
            if holder.thread is None:
                continue
            watched = self._watched[holder] = known.get(holder) or Watched(holder)
            if watched.silent and sight.gap:
                # This process did not run, so neither could the loop: it gets its chance now.
                watched.asked_at = now
            self._judge(watched, now, sight)
        return sight

    def rest(self) -> None:
        """There is nothing to watch for a while: the next look does not count the time since."""
        self._looked_at = None

    def _judge(self, watched: Watched, now: float, sight: Sight) -> None:
        if not watched.silent:
            watched.warned = False
            if watched.number == 0 or now - watched.asked_at >= PING_EVERY:
                watched.number += 1
                watched.holder.heard = min(watched.holder.heard, watched.number - 1)
                watched.asked_at = now
                sight.pings.append(watched)
            return
        stall = Stall(watched.holder, now - watched.asked_at)
        if stall.seconds < self._warn:
            return
        sight.standing.append(stall)
        if not watched.warned:
            watched.warned = True
            sight.news.append(stall)
        if stall.seconds >= self._release:
            sight.ended.append(stall)
