"""Limits: the arithmetic of rates, the gate of a claim, and who frees a slot."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.durations import SECOND
from tenure.core.limits import (
    OF_QUEUE,
    PARKED_MAX,
    Blocked,
    Candidate,
    Cell,
    Gate,
    Limits,
    Rate,
    Stand,
    allowed,
    frees,
    given_up,
    is_over,
    next_start,
    rate,
    room_of,
    spent,
    wait_of,
    wakes,
    woken,
)
from tenure.core.states import State
from tenure.errors import ConfigurationError

NOW = 1_700_000_000 * SECOND


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "count must be an integer from 1 to 1000000, not 0"),
        ({"count": True}, "count must be an integer"),
        ({"count": 1.5}, "count must be an integer"),
        ({"count": 1, "per": 0}, "per must be at least 0.001"),
        ({"count": 1, "per": "1"}, "per must be a number of seconds"),
        ({"count": 1, "per": 32 * 86_400}, "per must be at least 0.001 and at most 2678400"),
        ({"count": 1, "burst": 0}, "burst must be an integer from 1"),
    ],
)
def test_a_rate_is_checked(arguments: dict[str, Any], message: str):
    with pytest.raises(ConfigurationError, match=message):
        rate(**arguments)


def test_a_rate_is_kept_in_microseconds():
    assert rate(100, per=60, burst=5) == Rate(100, 60 * SECOND, 5)
    assert rate(3).interval == 333_334  # never faster than asked for


RATES = st.builds(Rate, st.integers(1, 50), st.integers(1000, 60 * SECOND), st.integers(1, 20))


@given(RATES, st.integers(0, 2**32))
def test_no_span_of_a_period_sees_more_than_may_start(limit: Rate, seed: int):
    dice, now, arrival = random.Random(seed), NOW, None
    starts: list[int] = []
    for _ in range(60):
        wanted = dice.randrange(1, 5)
        count = min(wanted, allowed(limit, arrival, now))
        if count:
            arrival = spent(limit, arrival, now, count)
        starts += [now] * count
        now += dice.choice((1, limit.interval, dice.randrange(1, limit.period * 2)))
    for first in starts:
        within = sum(first <= start < first + limit.period for start in starts)
        assert within <= limit.count + limit.burst - 1
        assert starts.count(first) <= limit.burst


@given(RATES, st.integers(1, 20))
def test_the_next_start_is_when_one_is_allowed_and_not_before(limit: Rate, count: int):
    taken = min(count, limit.burst)
    arrival = spent(limit, None, NOW, taken)
    at = next_start(limit, arrival, NOW)
    assert allowed(limit, arrival, at) >= 1
    assert at == NOW or allowed(limit, arrival, at - 1) == 0
    assert at <= NOW + limit.longest


def test_a_pause_gives_a_burst_and_no_more():
    limit = Rate(1, SECOND, 3)
    assert allowed(limit, None, NOW) == 3
    arrival = spent(limit, None, NOW, 3)
    assert [allowed(limit, arrival, NOW + n * SECOND) for n in range(6)] == [0, 1, 2, 3, 3, 3]


def test_a_clock_that_went_back_far_begins_anew():
    limit = Rate(1, SECOND, 2)
    arrival = spent(limit, None, NOW, 2)
    assert allowed(limit, arrival, NOW - 2 * SECOND) == 0
    assert allowed(limit, arrival, NOW - 2 * SECOND - 1) == 2


def test_a_cell_wakes_at_its_time_and_after_a_clock_went_back():
    limit = Rate(1, SECOND)
    assert not wakes(Cell(NOW), limit, NOW)
    assert wakes(Cell(NOW, NOW), limit, NOW)
    assert not wakes(Cell(NOW, NOW + 1), limit, NOW)
    assert not wakes(Cell(NOW, NOW + limit.longest), limit, NOW)
    assert wakes(Cell(NOW, NOW + limit.longest + 1), limit, NOW)


def test_a_cell_lets_as_many_go_as_may_start():
    limit = Rate(1, SECOND, 3)
    cell = Cell(spent(limit, None, NOW, 3), NOW + SECOND)
    assert woken(cell, limit, NOW + 2 * SECOND, 9) == (2, NOW + 3 * SECOND)
    assert woken(cell, limit, NOW + 2 * SECOND, 1) == (1, NOW + 2 * SECOND)


def test_a_cell_is_forgotten_once_it_says_nothing():
    assert is_over(Cell(NOW), NOW)
    assert not is_over(Cell(NOW + 1), NOW)
    assert not is_over(Cell(NOW, NOW), NOW)


@pytest.mark.parametrize(
    ("limits", "running", "room", "wait"),
    [
        (Limits(), 99, None, 0),
        (Limits(concurrency=3), 1, 2, 0),
        (Limits(concurrency=3), 3, 0, None),
        (Limits(concurrency=3), 5, 0, None),
        (Limits(rate=Rate(1, SECOND, 2)), 5, 1, 0),
        (Limits(rate=Rate(1, SECOND)), 5, 0, SECOND),
        (Limits(concurrency=1, rate=Rate(1, SECOND, 2)), 0, 1, 0),
    ],
)
def test_the_room_of_a_queue(limits: Limits, running: int, room: int | None, wait: int | None):
    cell = Cell(NOW + SECOND)
    assert room_of(limits, running, cell, NOW) == room
    assert wait_of(limits, running, cell, NOW) == wait


def candidate(n: int, held: str | None = None, paced: str | None = None) -> Candidate:
    return Candidate(n, f"job{n}", "q", held, paced)


def test_the_gate_counts_what_it_lets_through():
    gate = Gate({"q": Limits(key_concurrency=2)}, NOW)
    gate.running["q", "k"] = 1
    assert [gate.admit(candidate(n, "k")) for n in range(3)] == [True, False, False]
    assert gate.admit(candidate(3, "other"))
    assert gate.admit(candidate(4))
    assert [(job.id, reason) for job, reason in gate.parked] == [
        ("job1", Blocked.CONCURRENCY),
        ("job2", Blocked.CONCURRENCY),
    ]


def test_the_gate_takes_no_start_of_who_has_no_slot():
    gate = Gate({"q": Limits(key_concurrency=1, key_rate=Rate(1, SECOND))}, NOW)
    gate.running["q", "k"] = 1
    assert not gate.admit(candidate(0, "k", "r"))
    assert gate.admit(candidate(1, None, "r"))
    assert not gate.admit(candidate(2, None, "r"))
    assert gate.changed() == {("q", "r"): Cell(NOW + SECOND, NOW + SECOND)}


def test_the_gate_counts_the_starts_of_a_queue():
    gate = Gate({"q": Limits(rate=Rate(1, SECOND, 3))}, NOW)
    for n in range(2):
        assert gate.admit(candidate(n))
    assert gate.changed() == {("q", OF_QUEUE): Cell(NOW + 2 * SECOND)}


def test_what_another_took_does_not_count():
    gate = Gate({"q": Limits(key_concurrency=1, key_rate=Rate(1, SECOND), rate=Rate(1, 9))}, NOW)
    job = candidate(0, "k", "r")
    assert gate.admit(job)
    gate.withdraw(job)
    assert gate.changed()["q", "r"] == Cell(NOW)
    assert gate.changed()["q", OF_QUEUE] == Cell(NOW)
    assert gate.admit(candidate(1, "k", "r"))


def test_the_gate_closes_after_a_number():
    gate = Gate({"q": Limits(key_concurrency=1)}, NOW)
    gate.running["q", "k"] = 1
    for n in range(PARKED_MAX):
        assert not gate.closed
        gate.admit(candidate(n, "k"))
    assert gate.closed


def test_who_waits_for_a_rate_leaves_the_slot_to_others():
    parked = [
        (candidate(0, "k", "r"), Blocked.RATE),
        (candidate(1, "k"), Blocked.CONCURRENCY),
        (candidate(2, None, "r"), Blocked.RATE),
    ]
    assert given_up(parked) == {("q", "k"): 1}


READY = Stand(State.PENDING, True, None, "q", "k")
WAITING = READY._replace(ready=False)
RUNNING = READY._replace(state=State.RUNNING, ready=False)
DONE = RUNNING._replace(state=State.COMPLETED)
KEY = ("q", "k")


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        (RUNNING, DONE, KEY),
        (RUNNING, WAITING, KEY),
        (RUNNING, READY, KEY),
        (RUNNING, RUNNING, None),
        (READY, RUNNING, None),
        (READY, READY, None),
        (READY, DONE, KEY),
        (READY, WAITING, KEY),
        (READY, READY._replace(concurrency_key="l"), KEY),
        (READY, READY._replace(queue="r"), KEY),
        (READY, WAITING._replace(blocked="concurrency"), None),
        (READY, WAITING._replace(blocked="rate"), KEY),
        (WAITING, READY, None),
        (WAITING, DONE, None),
        (WAITING._replace(blocked="concurrency"), DONE, None),
        (RUNNING._replace(concurrency_key=None), DONE, None),
    ],
)
def test_who_frees_a_slot(before: Stand, after: Stand, key: tuple[str, str] | None):
    assert frees(before, after) == key
