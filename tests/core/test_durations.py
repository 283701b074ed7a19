"""core/durations.py: what is a duration, what is an instant, and what the refusals say."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.durations import EPOCH, LAST_INSTANT, instant, micros, moment
from tenure.errors import ConfigurationError

EAST, WEST = timezone(timedelta(hours=14)), timezone(-timedelta(hours=14))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (0.0, 0),
        (-0.0, 0),
        (1, 1_000_000),
        (1.5, 1_500_000),
        (0.1, 100_000),
        (1e-6, 1),
        (4e-7, 0),
        (timedelta(), 0),
        (timedelta(microseconds=1), 1),
        (timedelta(days=1, microseconds=1), 86_400_000_001),
        (253_402_300_799, 253_402_300_799_000_000),
    ],
)
def test_a_duration_in_whole_microseconds(value, expected):
    got = micros(value, "delay")
    assert got == expected
    assert type(got) is int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "delay must be a number of seconds or a timedelta, not bool"),
        (False, "delay must be a number of seconds or a timedelta, not bool"),
        ("1", "delay must be a number of seconds or a timedelta, not str"),
        (None, "delay must be a number of seconds or a timedelta, not NoneType"),
        (1j, "delay must be a number of seconds or a timedelta, not complex"),
        (float("nan"), "delay must be finite, not nan"),
        (float("inf"), "delay must be finite, not inf"),
        (float("-inf"), "delay must be finite, not -inf"),
    ],
)
def test_what_is_no_duration(value, text):
    with pytest.raises(ConfigurationError) as caught:
        micros(value, "delay")
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (-1, "-1"),
        (-0.001, "-0.001"),
        (timedelta(seconds=-2), "-2"),
        (timedelta.min, "-8.63999999136e+13"),
        (timedelta.max, "8.64e+13"),
        (1e18, "1e+18"),
        (-1e18, "-1e+18"),
        (10**18, "1e+18"),
        (1.7e308, "1.7e+308"),
        (-1.7e308, "-1.7e+308"),
        (10**400, "a number beyond all floats"),
        pytest.param(-(10**5000), "a number beyond all floats", id="huge"),
    ],
)
def test_too_little_or_too_much(value, shown):
    with pytest.raises(ConfigurationError) as caught:
        micros(value, "delay")
    assert str(caught.value) == (
        f"delay must be at least 0 and at most 253402300800 seconds, not {shown}"
    )


def test_the_bounds_belong_to_the_range():
    assert micros(1, "x", minimum=1, maximum=2) == 1_000_000
    assert micros(2, "x", minimum=1, maximum=2) == 2_000_000
    assert micros(-3, "x", minimum=-5) == -3_000_000
    for value in (0.999999, 2.000001):
        with pytest.raises(ConfigurationError, match=r"^x must be at least 1 and at most 2 sec"):
            micros(value, "x", minimum=1, maximum=2)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=2_000_000)))
def test_a_timedelta_loses_nothing(value):
    assert timedelta(microseconds=micros(value, "x")) == value


@given(st.integers() | st.floats() | st.timedeltas())
def test_any_number_is_a_duration_or_refused_by_name(value):
    message = "delay must be "
    try:
        total = micros(value, "delay")
    except ConfigurationError as error:
        message = str(error)
        total = 0
    assert 0 <= total <= LAST_INSTANT
    assert message.startswith("delay must be ")


@given(st.integers(0, LAST_INSTANT), st.integers(-1439, 1439))
def test_an_instant_is_the_same_in_every_time_zone(value, minutes):
    utc = moment(value)
    assert utc.tzinfo is UTC
    assert instant(utc, "x") == value
    shift = timedelta(minutes=minutes)
    if (
        timedelta(days=1)
        < utc - EPOCH
        < datetime.max.replace(tzinfo=UTC) - EPOCH - timedelta(days=1)
    ):
        assert instant(utc.astimezone(timezone(shift)), "x") == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (EPOCH, 0),
        (datetime(1970, 1, 1, 14, tzinfo=EAST), 0),
        (datetime(2026, 1, 1, tzinfo=UTC), 1_767_225_600_000_000),
        (datetime(2026, 7, 1, 2, tzinfo=ZoneInfo("Europe/Berlin")), 1_782_864_000_000_000),
        (datetime.max.replace(tzinfo=UTC), LAST_INSTANT),
        (datetime.max.replace(tzinfo=EAST), LAST_INSTANT - 14 * 3_600_000_000),
    ],
)
def test_instants(value, expected):
    assert instant(value, "run_at") == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime(2026, 1, 1), "run_at must have a time zone; 2026-01-01T00:00:00 is naive"),  # noqa: DTZ001
        (datetime.min, "run_at must have a time zone; 0001-01-01T00:00:00 is naive"),  # noqa: DTZ901
        (datetime.max, "run_at must have a time zone; 9999-12-31T23:59:59.999999 is naive"),  # noqa: DTZ901
        (date(2026, 1, 1), "run_at must be a datetime, not date"),
        (1_767_225_600, "run_at must be a datetime, not int"),
        (None, "run_at must be a datetime, not NoneType"),
    ],
)
def test_what_is_no_instant(value, text):
    with pytest.raises(ConfigurationError) as caught:
        instant(value, "run_at")
    assert str(caught.value) == text


@pytest.mark.parametrize(
    "value",
    [
        EPOCH - timedelta(microseconds=1),
        datetime(1970, 1, 1, tzinfo=EAST),
        datetime.min.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=EAST),
        datetime.min.replace(tzinfo=WEST),
        datetime.max.replace(tzinfo=WEST),
    ],
)
def test_instants_that_nothing_can_show(value):
    with pytest.raises(ConfigurationError, match=r"^run_at must lie between 1970 and 9999, not "):
        instant(value, "run_at")


def test_the_last_moment():
    assert moment(LAST_INSTANT) == datetime.max.replace(tzinfo=UTC)
    assert moment(0) == EPOCH
