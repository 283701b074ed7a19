"""Turns: ranks that jobs of different keys get."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenure.core.fair import Turns
from tenure.core.job import RANK_STEP, rank_of

KEY = ("q", "a", 0)


def test_without_a_key_the_rank_is_that_of_its_time():
    turns = Turns({KEY: 10**18})
    assert turns.rank(None, 7, 2) == rank_of(7, 2)


def test_each_comes_a_step_behind_the_last():
    turns = Turns({})
    assert [turns.rank(KEY, 7, 0) for _ in range(3)] == [7, 7 + RANK_STEP, 7 + 2 * RANK_STEP]


def test_nobody_ranks_before_its_own_time():
    assert Turns({KEY: 7}).rank(KEY, 3 * RANK_STEP, 0) == 3 * RANK_STEP


def test_an_earlier_one_does_not_take_a_later_place_from_the_next():
    turns = Turns({KEY: 10 * RANK_STEP})
    assert turns.rank(KEY, 0, 0) == 11 * RANK_STEP
    assert turns.rank(KEY, 0, 0) == 12 * RANK_STEP


JOBS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 10**6)), max_size=40)


@given(JOBS)
def test_the_backlogs_of_two_keys_take_turns(jobs: list[tuple[str, int]]):
    """While both have jobs left, neither is ever two places ahead."""
    turns = Turns({})
    ranked = sorted(
        (turns.rank(("q", key, 0), due, 0), number, key) for number, (key, due) in enumerate(jobs)
    )
    order = [key for _, _, key in ranked]
    shorter = min(order.count("a"), order.count("b"))
    for end in range(len(order)):
        a, b = order[:end].count("a"), order[:end].count("b")
        if max(a, b) <= shorter:
            assert abs(a - b) <= 1
