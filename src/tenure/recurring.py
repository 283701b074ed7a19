"""The options of a recurring job, as users give them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, TypedDict

import msgspec

from tenure.core.durations import Seconds, instant, micros
from tenure.core.schedule import Overlap
from tenure.core.ticks import CATCH_UP_MAX, Timing
from tenure.errors import ConfigurationError, InvalidArguments

INTERVAL_MIN = 0.1
_LONGEST = 100 * 366 * 86_400.0

Misfire = Literal["skip", "once", "all"] | int
"""What to do about ticks that were missed; an integer: make up for so many of the last ones."""

_MISFIRES: Mapping[object, int] = {"skip": 0, "once": 1, "all": CATCH_UP_MAX}


class ScheduleChanges(TypedDict, total=False):
    """The options of a schedule by name; see `ScheduleOptions`."""

    cron: str | None
    interval: Seconds | None
    timezone: str
    jitter: Seconds
    initial_delay: Seconds | None
    starts_at: datetime | None
    ends_at: datetime | None
    misfire: Misfire
    overlap: Literal["allow", "skip", "cancel"]
    from_finish: bool


class ScheduleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """When a recurring job runs.

    - `cron`: five fields (minute, hour, day of month, month, weekday), or `@hourly`, `@daily`,
      `@weekly`, `@monthly`, `@yearly`.
    - `interval`: or every so many seconds (at least 0.1).
    - `timezone`: of the cron rule, as `Europe/Berlin`. Default `UTC`.
    - `jitter`: each job waits up to so many seconds longer.
    - `initial_delay`: seconds from the making of the schedule to the earliest first tick; of an
      interval it is the first tick. Default: none, of an interval the interval.
    - `starts_at`, `ends_at` (aware datetimes): no tick before, none after; an interval counts from
      `starts_at`.
    - `misfire`: ticks that were missed are passed over (`skip`: those more than a minute late),
      made up for by the last of them (`once`, the default), or by up to 100 (`all`), or by so many
      of the last ones (an integer, 1 to 100).
    - `overlap`: while a job of an earlier tick is pending or running, start another one all the
      same (`allow`, the default), none (`skip`), or cancel the earlier one (`cancel`).
    - `from_finish`: the next tick counts from the end of the last tick's job.

    Raises `ConfigurationError` naming the option and what is allowed.
    """

    cron: str | None = None
    interval: Seconds | None = None
    timezone: str = "UTC"
    jitter: Seconds = 0
    initial_delay: Seconds | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    misfire: Misfire = "once"
    overlap: Literal["allow", "skip", "cancel"] = "allow"
    from_finish: bool = False

    def check_schedule(self) -> None:
        """Raise `ConfigurationError` for options that make no schedule; none at all are fine."""
        if self.cron is not None or self.interval is not None:
            self.timing()
            return
        for name in ScheduleOptions.__struct_fields__:
            if getattr(self, name) != getattr(_NONE, name):
                raise ConfigurationError(f"{name} is of use with cron or interval only")

    @property
    def recurring(self) -> bool:
        return self.cron is not None or self.interval is not None

    def timing(self) -> Timing:
        """The rule for the ticks."""
        _check_kinds(self)
        return Timing(
            cron=self.cron,
            interval=_micros(self.interval, "interval", INTERVAL_MIN),
            from_finish=self.from_finish,
            timezone=self.timezone,
            jitter=micros(self.jitter, "jitter", maximum=_LONGEST),
            initial_delay=_micros(self.initial_delay, "initial_delay"),
            starts_at=None if self.starts_at is None else instant(self.starts_at, "starts_at"),
            ends_at=None if self.ends_at is None else instant(self.ends_at, "ends_at"),
            catch_up=_catch_up(self.misfire),
        )


_NONE = ScheduleOptions()


def changed_timing(timing: Timing, changes: ScheduleChanges) -> Timing:
    """The rule with some options replaced; giving one of cron and interval replaces the other.

    Raises as `schedule_options` does.
    """
    given = set(changes)
    checked: ScheduleChanges = {**changes}
    if given.isdisjoint(("cron", "interval")):
        checked["interval"] = 1  # stands for what stays, so that all can be checked
    else:
        given |= {"cron", "interval"}
    new = msgspec.structs.asdict(schedule_options(checked).timing())
    fields = {"catch_up" if name == "misfire" else name for name in given - {"overlap"}}
    return msgspec.structs.replace(timing, **{name: new[name] for name in fields})


def schedule_options(changes: ScheduleChanges) -> ScheduleOptions:
    """Checked options of a schedule.

    Raises `InvalidArguments` for an unknown one, `ConfigurationError` for a bad value.
    """
    unknown = changes.keys() - set(ScheduleOptions.__struct_fields__)
    if unknown:
        known = ", ".join(ScheduleOptions.__struct_fields__)
        raise InvalidArguments(f"unknown option {min(unknown)!r}; the options are {known}")
    options = ScheduleOptions(**changes)
    options.timing()
    return options


def _check_kinds(options: ScheduleOptions) -> None:
    for name in ("cron", "timezone"):
        value = getattr(options, name)
        if not isinstance(value, str) and not (name == "cron" and value is None):
            raise ConfigurationError(f"{name} must be text, not {type(value).__name__}")
    if options.overlap not in tuple(Overlap):
        allowed = ", ".join(Overlap)
        raise ConfigurationError(f"overlap must be one of {allowed}, not {options.overlap!r}")
    if not isinstance(options.from_finish, bool):
        raise ConfigurationError(f"from_finish must be True or False, not {options.from_finish!r}")


def _micros(value: Seconds | None, name: str, minimum: float = 0) -> int | None:
    return None if value is None else micros(value, name, minimum=minimum, maximum=_LONGEST)


def _catch_up(misfire: object) -> int:
    if isinstance(misfire, str) and misfire in _MISFIRES:
        return _MISFIRES[misfire]
    whole = isinstance(misfire, int) and not isinstance(misfire, bool)
    if not whole or not 1 <= misfire <= CATCH_UP_MAX:  # type: ignore[operator]
        allowed = ", ".join(map(repr, _MISFIRES))
        raise ConfigurationError(
            f"misfire must be one of {allowed} or an integer from 1 to {CATCH_UP_MAX}, "
            f"not {misfire!r}"
        )
    return misfire  # type: ignore[return-value]
