"""core/lease.py: how long, how often, how early, and when again."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.lease import (
    DEFAULT_LEASE,
    LeaseTimes,
    lease_times,
    message_times,
    retry_wait,
    rounded_up,
    stepped,
    throttle_wait,
)
from tenure.errors import ConfigurationError


@pytest.mark.parametrize(
    ("length", "interval", "times"),
    [
        (DEFAULT_LEASE, None, LeaseTimes(30.0, 10.0, 3.0)),
        (30, 10, LeaseTimes(30.0, 10.0, 3.0)),
        (30, 1, LeaseTimes(30.0, 1.0, 3.0)),
        (timedelta(minutes=1), timedelta(seconds=5), LeaseTimes(60.0, 5.0, 6.0)),
        (1, None, LeaseTimes(1.0, 1 / 3, 0.2)),
        (2, None, LeaseTimes(2.0, 2 / 3, 0.2)),
        (86_400, None, LeaseTimes(86_400.0, 28_800.0, 8640.0)),
    ],
)
def test_times(length, interval, times):
    assert lease_times(length, interval) == times


@given(st.integers(1, 864_000))
def test_a_third_of_any_lease_is_accepted(tenths):
    third = timedelta(milliseconds=100 * tenths)
    if 1 <= third.total_seconds() * 3 <= 86_400:
        assert lease_times(3 * third, third).interval == third.total_seconds()


@given(st.floats(1, 86_400))
def test_two_renewals_fit_before_the_holder_gives_up(length):
    times = lease_times(length)
    assert 2 * times.interval <= times.length - times.margin
    assert 0 < times.interval <= times.length / 3
    assert times.margin >= 0.2


@pytest.mark.parametrize("length", [0, 0.999, 86_400.5, -1, float("nan"), True, "30", 1e18])
def test_a_bad_length_is_refused_by_name(length):
    with pytest.raises(ConfigurationError, match=r"^lease must be "):
        lease_times(length)


@pytest.mark.parametrize("interval", [0, 0.01, -1, float("inf"), True, "1", 10.000001, 31])
def test_a_bad_interval_is_refused_by_name(interval):
    with pytest.raises(ConfigurationError, match=r"^renewal interval must be "):
        lease_times(30, interval)


def test_the_message_names_the_longest_interval():
    with pytest.raises(ConfigurationError, match=r"third of the lease \(10 seconds\), not 11$"):
        lease_times(30, 11)


@pytest.mark.parametrize(
    ("backoff", "deadline", "now", "expected"),
    [
        (1.0, 100.0, 0.0, 1.0),
        (60.0, 100.0, 0.0, 50.0),
        (60.0, 100.0, 98.0, 1.0),
        (60.0, 100.0, 100.0, 0.0),
        (60.0, 100.0, 200.0, 0.0),
        (0.0, 100.0, 0.0, 0.0),
    ],
)
def test_a_failed_renewal_is_tried_within_half_of_what_is_left(backoff, deadline, now, expected):
    assert retry_wait(backoff, deadline, now) == expected


# Message services


def test_a_message_lease_is_300_seconds_unless_told_otherwise():
    assert message_times() == LeaseTimes(300.0, 60.0, 30.0)


@pytest.mark.parametrize(
    ("length", "interval"),
    [(30, 10), (45, 10), (50, 10), (60, 12), (100, 20), (300, 60), (600, 60), (3600, 60)],
)
def test_a_message_lease_is_renewed_every_fifth_of_it_from_ten_to_sixty_seconds(length, interval):
    times = message_times(length)
    assert times.interval == interval
    assert times.interval <= times.length / 3
    assert times.margin == length / 10


@pytest.mark.parametrize(
    ("length", "resolution", "seconds"),
    [(30.2, 1, 31), (299.99, 1, 300), (31, 0, 31), (30.25, 0, 30.25), (31, 10, 40),
     (timedelta(minutes=1), timedelta(seconds=7), 63)],
)  # fmt: skip
def test_a_message_lease_is_rounded_up_to_the_services_steps(length, resolution, seconds):
    assert message_times(length, resolution).length == seconds


@pytest.mark.parametrize("bad", [True, False, math.nan, math.inf, -1, 0, 1, 29.99, 3600.01, "60"])
def test_a_message_lease_out_of_range_is_refused(bad):
    with pytest.raises(ConfigurationError, match="lease"):
        message_times(bad)


def test_a_lease_below_the_services_resolution_is_refused():
    with pytest.raises(ConfigurationError, match="at least 60 seconds"):
        message_times(30, 60)


@pytest.mark.parametrize(("value", "seconds"), [(0, 0), (1, 1), (1.2, 2), (3600, 3600)])
def test_explicit_extensions_go_in_whole_steps(value, seconds):
    assert stepped(value, "seconds", 1) == seconds


@pytest.mark.parametrize("bad", [0.5, 0.999999, -0.1, 3600.5, math.nan, True])
def test_explicit_extensions_out_of_range_are_refused(bad):
    with pytest.raises(ConfigurationError, match="seconds"):
        stepped(bad, "seconds", 1)


@pytest.mark.parametrize(("after", "wait"), [(5, 5), (0, 1), (-7, 1), (0.5, 1), (61, 60), (60, 60)])
def test_a_throttled_renewal_waits_from_a_second_to_an_interval(after, wait):
    assert throttle_wait(after, 60.0) == wait


def test_rounding_up_needs_no_floats():
    assert rounded_up(10**18 + 1, 10**6) == 10**18 + 10**6
    assert rounded_up(7, 0) == 7
