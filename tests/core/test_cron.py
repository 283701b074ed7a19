"""core/cron.py: what a rule means, and laws that hold through every change of every clock."""

from __future__ import annotations

import calendar
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest

from tenure.core.cron import SHORTHANDS, cron_rule
from tenure.core.durations import SECOND, instant, moment
from tenure.errors import ConfigurationError

HOUR = timedelta(hours=1)
FIRST, LAST = datetime(2020, 1, 1, tzinfo=UTC), datetime(2041, 1, 1, tzinfo=UTC)
BERLIN = "Europe/Berlin"


def after(rule: str, zone: str, start: datetime, count: int = 1) -> list[datetime]:
    """The first ticks after an instant, in the zone."""
    cron, at, found = cron_rule(rule, zone), instant(start, "start"), []
    for _ in range(count):
        following = cron.after(at)
        assert following is not None
        assert following > at
        found.append(moment(following).astimezone(ZoneInfo(zone)))
        at = following
    return found


def within(rule: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """All ticks in `start <= tick < end`."""
    cron, at = cron_rule(rule, zone), instant(start, "start") - 1
    found: list[datetime] = []
    while (following := cron.after(at)) is not None and moment(following) < end:
        assert following > at
        found.append(moment(following))
        at = following
    return found


def shown(ticks: list[datetime]) -> list[str]:
    return [tick.strftime("%d %H:%M%z") for tick in ticks]


@lru_cache
def changes(zone: str) -> tuple[datetime, ...]:
    """The instants from 2020 to 2040 at which the zone's clock is changed."""
    info, at, found = ZoneInfo(zone), FIRST, []
    before = at.astimezone(info).utcoffset()
    while at < LAST:
        later = at + timedelta(days=7)
        now = later.astimezone(info).utcoffset()
        if now != before:
            found += _changes_within(info, at, later)
        at, before = later, now
    return tuple(found)


def _changes_within(info: ZoneInfo, low: datetime, high: datetime) -> list[datetime]:
    if low.astimezone(info).utcoffset() == high.astimezone(info).utcoffset():
        return []
    if high - low <= timedelta(minutes=1):
        return [high]
    middle = low + timedelta(minutes=(high - low) // timedelta(minutes=1) // 2)
    return [*_changes_within(info, low, middle), *_changes_within(info, middle, high)]


def zones(count: int) -> list[str]:
    """So many zones whose clocks are changed, the same in every run."""
    names = sorted(name for name in available_timezones() if name != "localtime")
    odd = ["Australia/Lord_Howe", "America/Havana", "Africa/Casablanca", "Asia/Beirut", BERLIN]
    return odd + random.Random(7).sample(names, min(count, len(names)))


def matches(rule: str, wall: datetime) -> bool:
    """Whether a wall-clock minute matches, by the text of the rule alone: numbers, `*`, `*/n`,
    `a-b` and lists, with `*` for the day or the weekday."""
    minute, hour, day, month, weekday = rule.split()
    values = (
        (minute, wall.minute, 0), (hour, wall.hour, 0), (day, wall.day, 1), (month, wall.month, 1),
        (weekday, wall.isoweekday() % 7, 0),
    )  # fmt: skip
    return all(_field(text, value, first) for text, value, first in values)


def _field(text: str, value: int, first: int) -> bool:
    for part in text.split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        if span == "*":
            if (value - first) % int(step or 1) == 0:
                return True
        elif int(low) <= value <= int(high or low):
            return True
    return False


RUNNING = ["*/15 * * * *", "30 * * * *", "*/7 */2 * * *", "0 */3 * * 1-5", "* * 1,29,31 * *"]
FIXED = [
    "30 2 * * *",
    "0 0 * * *",
    "*/20 0-3 * * *",
    "15 1,2,3 * * *",
    "59 23 * * 6,0",
    "5 2 29 * *",
]


@pytest.fixture
def sampled(scaled: Callable[[int, int], int]) -> list[str]:
    return zones(scaled(6, 10_000))


def test_rules_of_a_running_clock_match_every_minute_of_it(sampled: list[str]):
    """Every elapsed minute whose wall-clock time matches is a tick, and no other is."""
    for zone in sampled:
        info = ZoneInfo(zone)
        for change in changes(zone)[:: max(len(changes(zone)) // 8, 1)]:
            start, end = change - 4 * HOUR, change + 4 * HOUR
            minutes = [start + timedelta(minutes=n) for n in range(8 * 60)]
            for rule in RUNNING:
                wanted = [at for at in minutes if matches(rule, at.astimezone(info))]
                assert within(rule, zone, start, end) == wanted, (zone, change, rule)


def test_fixed_times_come_once_a_day_through_every_change(sampled: list[str]):
    """Each wall-clock time once: the first of two, and right after the gap if it is skipped."""
    for zone in sampled:
        for change in changes(zone)[:: max(len(changes(zone)) // 8, 1)]:
            for rule in FIXED:
                _check_fixed(rule, zone, change)


def _check_fixed(rule: str, zone: str, change: datetime) -> None:
    info = ZoneInfo(zone)
    wall = change.astimezone(info).replace(tzinfo=None, hour=0, minute=0, second=0)
    walls = [wall + timedelta(minutes=n) for n in range(-24 * 60, 48 * 60)]
    wanted = set()
    for each in walls:
        if not matches(rule, each):
            continue
        at = each.replace(tzinfo=info).astimezone(UTC)
        there = at.astimezone(info).replace(tzinfo=None) == each
        wanted.add(at if there else change)
    start = walls[0].replace(tzinfo=info).astimezone(UTC)
    end = walls[-1].replace(tzinfo=info).astimezone(UTC)
    # What lies at the very start may belong to a gap before it.
    found = within(rule, zone, start + 2 * HOUR, end - 2 * HOUR)
    assert found == sorted(at for at in wanted if start + 2 * HOUR <= at < end - 2 * HOUR), (
        zone,
        change,
        rule,
    )


def test_any_rule_moves_on_from_any_instant(sampled: list[str]):
    """From instants all around a change, the next tick is the first of those there are."""
    for zone in sampled:
        for change in changes(zone)[:: max(len(changes(zone)) // 3, 1)]:
            for rule in (*RUNNING, *FIXED):
                all_of = within(rule, zone, change - 3 * HOUR, change + 40 * HOUR)
                for minutes in range(-120, 121, 37):
                    at = change + timedelta(minutes=minutes)
                    following = next((tick for tick in all_of if tick > at), None)
                    if following is not None:
                        [found] = after(rule, zone, at)
                        assert found.astimezone(UTC) == following, (zone, change, rule, at)


@pytest.mark.parametrize(
    ("rule", "month", "day", "wanted"),
    [
        ("30 2 * * *", 3, 28, "28 02:30+0100, 29 03:00+0200, 30 02:30+0200"),
        ("30 2 * * *", 10, 24, "24 02:30+0200, 25 02:30+0200, 26 02:30+0100"),
        ("*/20 2 * * *", 3, 29, "29 03:00+0200, 30 02:00+0200, 30 02:20+0200"),
        ("0,20 2,3 * * *", 3, 29, "29 03:00+0200, 29 03:20+0200, 30 02:00+0200"),
        ("30 * * * *", 3, 29, "29 01:30+0100, 29 03:30+0200, 29 04:30+0200"),
        ("30 * * * *", 10, 25, "25 02:30+0200, 25 02:30+0100, 25 03:30+0100"),
    ],
)
def test_the_nights_on_which_the_clocks_change(rule: str, month: int, day: int, wanted: str):
    found = after(rule, BERLIN, datetime(2026, month, day, tzinfo=UTC), 3)
    assert ", ".join(shown(found)) == wanted


@pytest.mark.parametrize(("day", "hours"), [(29, 23), (28, 24)])
def test_each_elapsed_quarter_of_a_day_is_a_tick(day: int, hours: int):
    start = datetime(2026, 3, day, tzinfo=ZoneInfo(BERLIN)).astimezone(UTC)
    assert len(within("*/15 * * * *", BERLIN, start, start + hours * HOUR)) == 4 * hours


def test_the_long_day_has_a_hundred_quarters():
    start = datetime(2026, 10, 25, tzinfo=ZoneInfo(BERLIN)).astimezone(UTC)
    assert len(within("*/15 * * * *", BERLIN, start, start + 25 * HOUR)) == 100


def test_no_weekday_is_lost_with_the_gap():
    start = datetime(2021, 3, 12, 6, 1, tzinfo=UTC)
    assert shown(after("0 0 * * mon-fri", "US/Central", start, 2)) == [
        "15 00:00-0500",
        "16 00:00-0500",
    ]


def test_leap_days():
    start = datetime(2024, 2, 29, 9, tzinfo=UTC)
    found = after("0 9 29 2 *", "UTC", start, 3)
    assert [tick.date() for tick in found] == [date(y, 2, 29) for y in (2028, 2032, 2036)]
    [far] = after("0 9 29 2 *", "UTC", datetime(2096, 3, 1, tzinfo=UTC))
    assert far.date() == date(2104, 2, 29)
    assert after("0 9 29 2 *", "UTC", datetime(2024, 2, 29, 8, tzinfo=UTC))[0].year == 2024


def test_the_ends_of_months():
    ends = [
        date(y, m, calendar.monthrange(y, m)[1]) for y in range(2023, 2030) for m in range(1, 13)
    ]
    found = after("0 0 L * *", "UTC", datetime(2022, 12, 31, 12, tzinfo=UTC), len(ends))
    assert [tick.date() for tick in found] == ends
    found = after("0 0 31 * *", "UTC", datetime(2022, 12, 31, 12, tzinfo=UTC), 7)
    assert [tick.month for tick in found] == [1, 3, 5, 7, 8, 10, 12]


def test_hours_of_weekdays_after_a_leap_day():
    found = after("0 * * * 1-5", "UTC", datetime(2016, 2, 29, 11, tzinfo=UTC), 14)
    assert [tick.hour for tick in found] == [*range(12, 24), 0, 1]
    assert found[12].date() == date(2016, 3, 1)


def test_day_and_weekday_are_either_of_both():
    """As in Debian: both restricted, either will do; one with a star, both must hold."""
    found = after("0 0 13 * 5", "UTC", datetime(2026, 2, 1, tzinfo=UTC), 5)
    assert [tick.day for tick in found] == [6, 13, 20, 27, 6]
    found = after("0 0 */2 * 5", "UTC", datetime(2026, 2, 1, tzinfo=UTC), 3)
    assert [tick.day for tick in found] == [13, 27, 13]


def test_a_second_and_a_half():
    """A tick is after the instant, and whole minutes are found from any fraction of a second."""
    at = instant(datetime(2026, 1, 1, tzinfo=UTC), "at")
    rule = cron_rule("* * * * *", "UTC")
    assert rule.after(at) == at + 60 * SECOND
    assert rule.after(at - 1) == at
    assert rule.after(at + 59_500_000) == at + 60 * SECOND


@pytest.mark.parametrize(("short", "long"), SHORTHANDS.items())
def test_shorthands(short: str, long: str):
    start = datetime(2026, 5, 5, 5, tzinfo=UTC)
    assert after(short.upper(), BERLIN, start, 3) == after(long, BERLIN, start, 3)


@pytest.mark.parametrize(
    "rule",
    [
        "", "*", "* * * *", "* * * * * *", "@reboot", "@never", "60 * * * *", "* 24 * * *",
        "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *", "5-1 * * * *",
        "x * * * *", "0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 L/0 * *", "-1 * * * *",
        "1.5 * * * *", "٣ * * * *", "0 0 * * MON#6", "0 0 */8 * MON#5", "0 0 * * L", ", * * * *",
    ],
)  # fmt: skip
def test_what_is_no_rule_or_never_comes_true_is_refused(rule: str):
    with pytest.raises(ConfigurationError, match="cron"):
        cron_rule(rule, "UTC")


@pytest.mark.parametrize("zone", ["", "Europe/Nowhere", "../etc/passwd", "/etc/localtime", "CET\0"])
def test_no_zone(zone: str):
    with pytest.raises(ConfigurationError, match="timezone"):
        cron_rule("* * * * *", zone)


def test_the_end_of_the_calendar():
    rule = cron_rule("0 0 1 1 *", BERLIN)
    assert rule.after(instant(datetime(9999, 6, 1, tzinfo=UTC), "at")) is None
    assert (
        cron_rule("0 0 29 2 *", "UTC").after(instant(datetime(9997, 1, 1, tzinfo=UTC), "x")) is None
    )


def test_ticks_are_apart_by_whole_minutes_through_twenty_years():
    cron = cron_rule("0 4 * * *", "America/New_York")
    ticks = within("0 4 * * *", "America/New_York", FIRST, LAST)
    assert len(ticks) == (LAST - FIRST).days
    assert {late - early for early, late in pairwise(ticks)} == {23 * HOUR, 24 * HOUR, 25 * HOUR}
    assert cron.after(instant(ticks[0], "at")) == instant(ticks[1], "at")
