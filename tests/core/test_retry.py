"""core/retry.py: waits grow, are bounded, and never vanish."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.durations import SECOND
from tenure.core.retry import DEFAULT_RETRY, SHORTEST, RetryPolicy
from tenure.errors import ConfigurationError
from tests.core.rows import policies

HUGE = pytest.param(10**5000, id="huge")  # too long to be written out
rolls = st.floats(0, 1, exclude_max=True)


def waits(policy: RetryPolicy, count: int, roll: float = 0.0) -> list[float]:
    return [policy.delay(n, roll) / SECOND for n in range(1, count + 1)]


def test_the_formula():
    assert waits(RetryPolicy(base=2, factor=3, cap=100, jitter=0), 6) == [2, 6, 18, 54, 100, 100]


def test_the_defaults_outlast_a_short_outage_and_grow():
    assert waits(DEFAULT_RETRY, 7) == [5, 15, 45, 135, 405, 1215, 3600]
    assert sum(waits(DEFAULT_RETRY, 3, roll=0.999)) > 50


def test_constant():
    assert waits(RetryPolicy.constant(4), 4, roll=0.9) == [4, 4, 4, 4]
    assert waits(RetryPolicy.constant(timedelta(minutes=1)), 2) == [60, 60]
    assert waits(RetryPolicy.constant(10, jitter=0.5), 2, roll=0.5) == [7.5, 7.5]


@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy.constant(0),
        RetryPolicy(base=0, factor=1),
        RetryPolicy(base=0, factor=1, jitter=1),
        RetryPolicy(base=1e-9, factor=1, cap=0.1),
    ],
)
def test_a_zero_base_waits_a_tenth_of_a_second(policy):
    assert policy.delay(1, 0.0) == policy.delay(50, 0.999) == SHORTEST == SECOND // 10


def test_a_zero_base_grows_as_well():
    assert waits(RetryPolicy(base=0, factor=2, jitter=0), 4) == [0.1, 0.2, 0.4, 0.8]


@given(policy=policies, n=st.integers(1, 60), roll=rolls)
def test_no_wait_is_shorter_than_the_floor_or_longer_than_the_cap(policy, n, roll):
    assert SHORTEST <= policy.delay(n, roll) <= max(SHORTEST, round(policy.cap * SECOND))


@given(policy=policies, n=st.integers(1, 60))
def test_without_jitter_waits_never_shrink(policy, n):
    assert policy.delay(n, 0.0) <= policy.delay(n + 1, 0.0)


@given(policy=policies, n=st.integers(1, 60), roll=rolls)
def test_jitter_only_shortens_and_at_most_by_its_share(policy, n, roll):
    plain, jittered = policy.delay(n, 0.0), policy.delay(n, roll)
    assert jittered <= plain
    assert jittered >= round(plain * (1 - policy.jitter)) - 1


def test_jitter_spreads_by_its_whole_share():
    policy = RetryPolicy(base=100, factor=1, jitter=0.2)
    assert (policy.delay(1, 0.0), policy.delay(1, 0.5)) == (100 * SECOND, 90 * SECOND)


@pytest.mark.timeout(5)
@pytest.mark.parametrize("n", [1000, 10**6, 2**31, 2**63, 10**30])
@pytest.mark.parametrize("policy", [RetryPolicy(jitter=0), RetryPolicy(5, 3, 3600, 0)])
def test_any_number_of_failures_meets_the_cap(policy, n):
    assert policy.delay(n, 0.0) == 3600 * SECOND


@pytest.mark.parametrize("name", ["base", "factor", "cap", "jitter"])
@pytest.mark.parametrize(
    "value",
    [-1, -0.001, float("nan"), float("inf"), float("-inf"), True, "1", None, 1e18, HUGE, b"1"],
)
def test_a_bad_value_is_refused_by_name(name, value):
    with pytest.raises(ConfigurationError, match=rf"^{name} must be "):
        RetryPolicy(**{name: value})


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"base": -1}, "base must be at least 0 and at most 31622400 seconds, not -1"),
        ({"cap": 0}, "cap must be at least 0.1 and at most 31622400 seconds, not 0"),
        ({"factor": 0.9}, "factor must be from 1 to 1000, not 0.9"),
        ({"factor": "2"}, "factor must be a number, not str"),
        ({"jitter": 1.1}, "jitter must be from 0 to 1, not 1.1"),
    ],
)
def test_the_message_says_what_is_allowed(values, text):
    with pytest.raises(ConfigurationError) as caught:
        RetryPolicy(**values)
    assert str(caught.value) == text


@pytest.mark.parametrize("value", [-1, float("nan"), timedelta(days=367), True])
def test_a_bad_constant_is_refused_by_name(value):
    with pytest.raises(ConfigurationError, match=r"^seconds must be "):
        RetryPolicy.constant(value)


def test_a_timedelta_is_taken_as_its_seconds():
    policy = RetryPolicy(base=timedelta(seconds=2), cap=timedelta(minutes=1), jitter=0)  # type: ignore[arg-type]
    assert policy == RetryPolicy(base=2.0, cap=60.0, jitter=0)
    assert policy.delay(1, 0.0) == 2 * SECOND


@given(policy=policies)
def test_a_stored_policy_is_read_back(policy):
    assert msgspec.json.decode(msgspec.json.encode(policy), type=RetryPolicy) == policy


def test_a_stored_policy_does_not_lean_on_the_defaults_of_whoever_reads_it():
    stored = msgspec.json.decode(msgspec.json.encode(RetryPolicy()))
    assert stored == {"base": 5.0, "factor": 3.0, "cap": 3600.0, "jitter": 0.2}
