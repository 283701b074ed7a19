"""When a schedule's ticks are, which of them were missed, and which of those count.

Ticks are whole microseconds since the epoch. Each follows from the one before by its nominal
instant, so late firing shifts nothing, and each is later than the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from typing import NamedTuple

import msgspec

from tenure.core.cron import cron_rule, zone_of
from tenure.core.durations import HOUR, LAST_INSTANT, SECOND
from tenure.core.ids import uuid7
from tenure.errors import ConfigurationError

GRACE = 60 * SECOND
"""How late a tick may be fired that is not to be made up for."""

CATCH_UP_MAX = 100
_BATCH = 200
_FEW = 50
"""So many ticks are passed over one by one."""


class Timing(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """When a schedule's ticks are: by `cron` or by `interval`. Durations and instants are in us.

    `from_finish`: the next tick counts from the end of the last tick's job. `jitter`: its job may
    wait this much longer. `initial_delay`: no tick so soon after the schedule was made; None: the
    first interval. `catch_up`: of the ticks that were missed, as many of the last ones are made up
    for.
    """

    cron: str | None = None
    interval: int | None = None
    from_finish: bool = False
    timezone: str = "UTC"
    jitter: int = 0
    initial_delay: int | None = None
    starts_at: int | None = None
    ends_at: int | None = None
    catch_up: int = 1

    def __post_init__(self) -> None:
        if (self.cron is None) == (self.interval is None):
            raise ConfigurationError("a schedule needs either cron or interval")
        if self.cron is not None:
            cron_rule(self.cron, self.timezone)
        else:
            zone_of(self.timezone)
        if self.interval is not None and self.interval < 1:
            raise ConfigurationError("interval must be longer than nothing")
        if not 0 <= self.catch_up <= CATCH_UP_MAX:
            raise ConfigurationError(f"misfire may make up for 0 to {CATCH_UP_MAX} ticks")
        if None not in (self.starts_at, self.ends_at) and self.starts_at > self.ends_at:  # type: ignore[operator]
            raise ConfigurationError("ends_at must not be before starts_at")


class Planned(NamedTuple):
    """What to offer to the store about one tick; see `core.schedule.Tick`."""

    at: int
    next_at: int | None
    missed_from: int | None
    leap: bool = False


def first_tick(timing: Timing, now: int) -> int | None:
    """The first tick of a schedule that is made or changed at `now`; None: there is none."""
    start = now + (timing.initial_delay or 0)
    if timing.interval is None:
        if timing.starts_at is not None:
            start = max(start, timing.starts_at - 1)
        return _bounded(timing, _following(timing, start))
    if timing.starts_at is not None:
        passed = max(start - timing.starts_at, 0)
        return _bounded(timing, timing.starts_at - (-passed // timing.interval) * timing.interval)
    return _bounded(timing, start if timing.initial_delay is not None else now + timing.interval)


def next_tick(timing: Timing, tick: int) -> int | None:
    """The tick after this one by its nominal instant; None: there is none."""
    return _bounded(timing, _following(timing, tick))


def after_finish(timing: Timing, tick: int, finished: int) -> int | None:
    """The tick after the one whose job ended at `finished`, for `from_finish`."""
    return _bounded(timing, _following(timing, max(tick, finished)))


def due_ticks(
    timing: Timing, tick: int, now: int, *, leaps: bool = True, most: int = _BATCH
) -> list[Planned]:
    """What to offer about `tick` and those after it, as far as they are due at `now`.

    There is always an offer for `tick` itself. `now` may be wrong, so that the store decides which
    are due and which were missed. With `leaps`, one offer passes over many missed ones at once.
    """
    planned: list[Planned] = []
    target = _leap(timing, tick, now) if leaps and not timing.from_finish else None
    if target is not None:
        planned.append(Planned(tick, target, target, leap=True))
        tick = target
    while len(planned) < most:
        following = None if timing.from_finish else next_tick(timing, tick)
        planned.append(Planned(tick, following, _missed_from(timing, tick, following)))
        if following is None or following > now:
            break
        tick = following
    return planned


def jitter_of(name: str, tick: int, jitter: int) -> int:
    """How much later (0..`jitter`) the job of this tick starts; the same for whoever asks."""
    return int.from_bytes(_digest(name, tick)[:8]) % (jitter + 1)


def tick_id(name: str, tick: int) -> str:
    """The id of the job of a tick: the same for whoever fires it."""
    digest = int.from_bytes(_digest(name, tick)[8:18])
    return uuid7(tick // 1000, digest & 0x3FF_FFFF, digest >> 32)


def _digest(name: str, tick: int) -> bytes:
    return sha256(f"{tick}:{name}".encode()).digest()


def _missed_from(timing: Timing, tick: int, following: int | None) -> int | None:
    """From when on this tick is passed over."""
    if timing.catch_up == 0:
        late = tick + GRACE
        return late if following is None else min(late, following)
    if following is None:
        return None
    return _bounded(timing, _nth(timing, following, timing.catch_up - 1))


def _nth(timing: Timing, tick: int, count: int) -> int | None:
    """The tick that comes `count` ticks after this one."""
    if timing.interval is not None:
        return tick + count * timing.interval
    return tick if not count else next(islice(_ticks(timing, tick), count - 1, None), None)


def _leap(timing: Timing, tick: int, now: int) -> int | None:
    """The first tick that counts at `now`, if there are many between `tick` and it."""
    kept = max(timing.catch_up, 1)
    if timing.interval is not None:
        missed = (now - tick) // timing.interval - kept + 1
        target = tick + missed * timing.interval if missed > _FEW else tick
    else:
        target = _recent(timing, tick, now, kept) or tick
    bounded = _bounded(timing, target)
    return bounded if bounded is not None and bounded > tick else None


def _recent(timing: Timing, tick: int, now: int, kept: int) -> int | None:
    """The earliest of the last `kept` ticks up to `now`, if it is found well after `tick`."""
    window = HOUR
    while (start := now - window) > tick:
        found = list(_until(_ticks(timing, start), now))[-kept:]
        if len(found) == kept:
            return found[0]
        window *= 2
    return None


def _ticks(timing: Timing, after: int) -> Iterator[int]:
    """The ticks after an instant or, of an interval, after a tick."""
    at = _following(timing, after)
    while at is not None:
        yield at
        at = _following(timing, at)


def _until(ticks: Iterator[int], end: int) -> Iterator[int]:
    for tick in ticks:
        if tick > end:
            return
        yield tick


def _following(timing: Timing, at: int) -> int | None:
    if timing.cron is not None:
        return cron_rule(timing.cron, timing.timezone).after(at)
    assert timing.interval is not None
    return at + timing.interval


def _bounded(timing: Timing, tick: int | None) -> int | None:
    last = LAST_INSTANT if timing.ends_at is None else min(timing.ends_at, LAST_INSTANT)
    return None if tick is None or tick > last else tick
