"""Cron rules: from one instant to the next, through every change of a zone's clock.

The calendar is cronsim's, asked about plain wall-clock time only; what a zone makes of that is
decided here. A rule whose hour field starts with `*` runs by the wall clock through repeated and
skipped hours alike. Any other has fixed times: one in a skipped hour comes right after the gap, one
in a repeated hour comes the first time only.
"""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from tenure.core.durations import LAST_INSTANT, instant, moment
from tenure.errors import ConfigurationError

if TYPE_CHECKING:
    from cronsim import CronSim

SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = 5
_CACHED = 1024
_SECOND = timedelta(seconds=1)
_EARLIEST = datetime(2000, 1, 1)  # noqa: DTZ001 (wall-clock time of no zone)
_NEAR = 48
"""Hours in which a change of the clock may repeat wall-clock times that have been; the largest
change there was took a day."""


class Cron:
    """One rule in one zone. Make it with `cron_rule`, which checks both."""

    def __init__(self, text: str, zone: ZoneInfo) -> None:
        from cronsim import CronSim, CronSimError  # here, as few need it

        fields = SHORTHANDS.get(text.strip().lower(), text).split()
        if len(fields) != _FIELDS:
            raise ConfigurationError(
                f"cron must have five fields (minute, hour, day, month, weekday), not {text!r}"
            )
        try:
            self._calendar = CronSim(" ".join(fields), _EARLIEST)
            next(copy.copy(self._calendar))
        except (CronSimError, AssertionError, TypeError, ValueError) as error:
            raise ConfigurationError(f"cron: {text!r} is no rule: {error}") from error
        except StopIteration:
            raise ConfigurationError(f"cron: {text!r} never comes true") from None
        self.fixed = not fields[1].startswith("*")
        self._zone = zone

    def after(self, at: int) -> int | None:
        """The first tick after the instant `at`; both in microseconds. None: never again."""
        try:
            now = moment(at).replace(microsecond=0)
            found = self._fixed(now) if self.fixed else self._running(now)
            following = instant(found, "tick")
        except (StopIteration, OverflowError, ValueError):
            return None  # the end of the calendar
        return following if following <= LAST_INSTANT else None

    def _fixed(self, now: datetime) -> datetime:
        calendar = self._from(_wall(now.astimezone(self._zone)))
        while True:
            found = self._instant(next(calendar))
            if found > now:
                return found

    def _instant(self, wall: datetime) -> datetime:
        """When this wall-clock time comes first; if it is skipped, the end of the gap."""
        found = wall.replace(tzinfo=self._zone, fold=0).astimezone(UTC)
        if _wall(found.astimezone(self._zone)) == wall:
            return found
        # Of a skipped time, the two readings lie on both sides of the change.
        late = wall.replace(tzinfo=self._zone, fold=1).astimezone(UTC)
        return self._change(min(found, late), max(found, late))

    def _running(self, now: datetime) -> datetime:
        """The first instant whose wall-clock time matches, stretch by stretch of one offset."""
        start, wall = now, _wall(now.astimezone(self._zone))
        while True:
            offset = self._offset(start)
            found = (next(self._from(wall)) - offset).replace(tzinfo=UTC)
            end = self._stretch_end(start, found, offset)
            if end is None:
                return found
            # The stretch that begins here: its very first second may match.
            start = end
            wall = _wall(end.astimezone(self._zone)) - _SECOND

    def _stretch_end(self, start: datetime, found: datetime, offset: timedelta) -> datetime | None:
        """Where the offset changes between `start` and `found`, if that matters to `found`."""
        for hours in range(1, _NEAR + 1):
            near = start + timedelta(hours=hours)
            if near >= found:
                break
            if self._offset(near) != offset:
                return self._change(start, near)
        if self._offset(found) != offset:
            return self._change(start, found)
        return None

    def _change(self, low: datetime, high: datetime) -> datetime:
        """The first second in `low`..`high` with another offset than `low` has."""
        offset = self._offset(low)
        while high - low > _SECOND:
            middle = low + timedelta(seconds=(high - low) // _SECOND // 2)
            if self._offset(middle) == offset:
                low = middle
            else:
                high = middle
        return high

    def _offset(self, at: datetime) -> timedelta:
        return at.astimezone(self._zone).utcoffset() or timedelta()

    def _from(self, wall: datetime) -> CronSim:
        """The wall-clock times of the rule after this one."""
        calendar = copy.copy(self._calendar)
        calendar.dt = wall
        return calendar


@lru_cache(_CACHED)
def cron_rule(text: str, timezone: str) -> Cron:
    """The rule. Raises `ConfigurationError` for what is none, never comes true, or has no zone."""
    return Cron(text, zone_of(timezone))


def zone_of(name: str) -> ZoneInfo:
    """The time zone of this name. Raises `ConfigurationError`."""
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError) as error:
        raise ConfigurationError(
            f"timezone must be a name like 'Europe/Berlin', not {name!r}"
        ) from error


def _wall(at: datetime) -> datetime:
    """The wall-clock time alone; comparing aware times of one zone would do the same."""
    return at.replace(tzinfo=None, fold=0)
