"""The numbers of a job: its rank in the queue and its fencing token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.durations import HOUR, LAST_INSTANT
from tenure.core.job import PRIORITY_MAX, PRIORITY_MIN, next_token, rank_of
from tests.core.rows import NOW, instants

priorities = st.integers(PRIORITY_MIN, PRIORITY_MAX)


@pytest.mark.parametrize("queued_at", [0, NOW, LAST_INSTANT])
@pytest.mark.parametrize("priority", [PRIORITY_MIN, -1, 0, 1, PRIORITY_MAX])
def test_a_rank_fits_64_bits(queued_at, priority):
    assert -(2**63) <= rank_of(queued_at, priority) < 2**63


@pytest.mark.parametrize("priority", [PRIORITY_MIN, PRIORITY_MAX])
def test_a_rank_of_this_century_is_exact_as_a_float(priority):
    for queued_at in range(NOW, NOW + 50):
        assert int(float(rank_of(queued_at, priority))) == rank_of(queued_at, priority)
    assert abs(rank_of(4_102_444_800_000_000, priority)) < 2**53  # the year 2100


def test_a_higher_priority_is_earlier():
    assert rank_of(NOW, 1) < rank_of(NOW, 0) < rank_of(NOW, -1)


@given(instants, st.integers(PRIORITY_MIN, PRIORITY_MAX - 1))
def test_one_unit_of_priority_is_worth_one_hour(queued_at, priority):
    assert rank_of(queued_at + HOUR, priority + 1) == rank_of(queued_at, priority)
    assert rank_of(queued_at + HOUR - 1, priority + 1) < rank_of(queued_at, priority)
    assert rank_of(queued_at + HOUR + 1, priority + 1) > rank_of(queued_at, priority)


@given(instants, instants, priorities)
def test_within_a_priority_it_is_first_in_first_out(one, other, priority):
    assert (rank_of(one, priority) < rank_of(other, priority)) == (one < other)


def test_the_step_can_be_chosen():
    assert rank_of(100, 2, step=10) == 80
    assert rank_of(100, 2, step=0) == 100


def test_equal_ranks_fall_back_to_the_id_which_is_older_first():
    jobs = [(rank_of(NOW, 0), "b"), (rank_of(NOW + HOUR, 1), "a"), (rank_of(NOW, 1), "c")]
    assert [name for _, name in sorted(jobs)] == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("old", "now", "token"),
    [
        (0, NOW, NOW),
        (NOW, NOW, NOW + 1),
        (NOW, NOW - 5, NOW + 1),
        (NOW, NOW + 1, NOW + 1),
        (7, -9, 8),
    ],
)
def test_a_token_follows_the_clock_and_never_goes_back(old, now, token):
    assert next_token(old, now) == token


@given(st.lists(st.integers(-(10**9), 10**9)))
def test_tokens_grow_whatever_the_clock_does(steps):
    token, now = 0, NOW
    for step in steps:
        now += step
        new = next_token(token, now)
        assert new > token
        assert new >= now
        token = new
