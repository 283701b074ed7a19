"""core/ticks.py: from tick to tick, and what becomes of those that were missed."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.durations import HOUR, LAST_INSTANT, SECOND, instant
from tenure.core.job import NewJob
from tenure.core.schedule import Fired, Schedule, Tick, advanced, firing
from tenure.core.ticks import (
    CATCH_UP_MAX,
    GRACE,
    Planned,
    Timing,
    after_finish,
    due_ticks,
    first_tick,
    jitter_of,
    next_tick,
    tick_id,
)
from tenure.errors import ConfigurationError

NOW = instant(datetime(2026, 1, 1, tzinfo=UTC), "now")
MINUTE = 60 * SECOND
EVERY = Timing(interval=MINUTE)
DAILY = Timing(cron="0 7 * * *")


@pytest.mark.parametrize(
    ("timing", "wanted"),
    [
        (EVERY, MINUTE),
        (Timing(interval=MINUTE, initial_delay=0), 0),
        (Timing(interval=MINUTE, initial_delay=5), 5),
        (Timing(interval=MINUTE, starts_at=NOW + 7), 7),
        (Timing(interval=MINUTE, starts_at=NOW), 0),
        (Timing(interval=MINUTE, starts_at=NOW - 1), MINUTE - 1),
        (Timing(interval=MINUTE, starts_at=NOW - MINUTE), 0),
        (Timing(interval=MINUTE, starts_at=NOW - 1, initial_delay=MINUTE), 2 * MINUTE - 1),
        (Timing(interval=MINUTE, ends_at=NOW + MINUTE), MINUTE),
        (Timing(interval=MINUTE, ends_at=NOW + MINUTE - 1), None),
        (DAILY, 7 * HOUR),
        (Timing(cron="* * * * *"), MINUTE),
        (Timing(cron="* * * * *", initial_delay=MINUTE - 1), MINUTE),
        (Timing(cron="* * * * *", initial_delay=MINUTE), 2 * MINUTE),
        (Timing(cron="* * * * *", starts_at=NOW + MINUTE), MINUTE),
        (Timing(cron="* * * * *", starts_at=NOW + MINUTE + 1), 2 * MINUTE),
        (Timing(cron="0 7 * * *", timezone="Asia/Tokyo"), 22 * HOUR),
        (Timing(cron="0 7 * * *", ends_at=NOW + 7 * HOUR - 1), None),
    ],
)
def test_the_first_tick(timing: Timing, wanted: int | None):
    assert first_tick(timing, NOW) == (None if wanted is None else NOW + wanted)


def test_ticks_follow_from_the_nominal_instant():
    assert next_tick(EVERY, NOW) == NOW + MINUTE
    assert next_tick(DAILY, NOW + 7 * HOUR) == NOW + 31 * HOUR
    assert next_tick(Timing(interval=MINUTE, ends_at=NOW + MINUTE), NOW) == NOW + MINUTE
    assert next_tick(Timing(interval=MINUTE, ends_at=NOW + MINUTE), NOW + MINUTE) is None
    assert next_tick(EVERY, LAST_INSTANT) is None


def test_from_finish_counts_from_the_end():
    timing = Timing(interval=MINUTE, from_finish=True)
    assert after_finish(timing, NOW, NOW + 5) == NOW + 5 + MINUTE
    assert after_finish(timing, NOW, NOW - HOUR) == NOW + MINUTE  # a clock went back
    daily = Timing(cron="0 7 * * *", from_finish=True)
    assert after_finish(daily, NOW + 7 * HOUR, NOW + 40 * HOUR) == NOW + 55 * HOUR
    assert due_ticks(timing, NOW, NOW + HOUR) == [Planned(NOW, None, None)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cron": "* * * * *", "interval": 1},
        {"interval": 0},
        {"interval": 1, "timezone": "Mars/Base"},
        {"cron": "x"},
        {"interval": 1, "catch_up": -1},
        {"interval": 1, "catch_up": CATCH_UP_MAX + 1},
        {"interval": 1, "starts_at": 2, "ends_at": 1},
    ],
)
def test_what_is_no_timing_is_refused(options: dict[str, object]):
    with pytest.raises(ConfigurationError):
        Timing(**options)  # type: ignore[arg-type]


def run(
    timing: Timing, start: int, local: int, store: int, *, leaps: bool = True
) -> tuple[list[int], int]:
    """What a store at `store` fires if a scheduler whose clock shows `local` offers it the ticks
    from `start` on until it says it is early; and the number of offers."""
    row = Schedule(name="s", source="api", task="t", next_at=start, revision=1)
    fired: list[int] = []
    offers = 0
    while row.next_at is not None:
        for planned in due_ticks(timing, row.next_at, local, leaps=leaps):
            job = NewJob(id="j", task="t")
            tick = Tick("s", 1, planned.at, planned.next_at, job, planned.missed_from, planned.leap)
            offers += 1
            plan = firing(row, tick, [], done=False, now=store)
            if plan.fired is Fired.EARLY:
                if not planned.leap:
                    return fired, offers
                leaps = False
                break
            assert plan.fired is not Fired.STALE
            if plan.fired is Fired.FIRED:
                fired.append(planned.at)
            row = advanced(row, tick)
    return fired, offers


def timings() -> st.SearchStrategy[Timing]:
    rules = ["* * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *", "0 0 1 * *"]
    cron = st.builds(Timing, cron=st.sampled_from(rules), catch_up=st.integers(1, 12))
    every = st.builds(
        Timing, interval=st.integers(MINUTE // 4, 3 * HOUR), catch_up=st.integers(1, 12)
    )
    return cron | every


@given(timings(), st.integers(0, 3 * 86_400 * SECOND), st.integers(-HOUR, 2 * HOUR))
def test_the_last_ones_that_were_missed_are_made_up_for(timing: Timing, asleep: int, ahead: int):
    """As many as the policy says, whatever the clock of the scheduler shows."""
    start = first_tick(timing, NOW) or 0
    store = NOW + asleep
    all_of, at = [], start
    while at <= store:
        all_of.append(at)
        at = next_tick(timing, at) or LAST_INSTANT
    fired, _ = run(timing, start, store + ahead, store)
    assert fired == all_of[-timing.catch_up :]


@pytest.mark.parametrize("rule", [{"interval": SECOND}, {"cron": "* * * * *"}])
@pytest.mark.parametrize("catch_up", [0, 1, 3])
def test_a_long_sleep_is_passed_over_at_once(rule: dict[str, object], catch_up: int):
    timing = Timing(**rule, catch_up=catch_up)  # type: ignore[arg-type]
    store = NOW + 365 * 24 * HOUR
    fired, offers = run(timing, NOW, store, store)
    assert offers < 40
    assert len(fired) == max(catch_up, 1)
    assert fired[-1] == store


def test_skip_fires_what_is_hardly_late():
    timing = Timing(cron="0 * * * *", catch_up=0)
    assert run(timing, NOW, NOW + GRACE - 1, NOW + GRACE - 1)[0] == [NOW]
    assert run(timing, NOW, NOW + GRACE, NOW + GRACE)[0] == []
    assert run(timing, NOW, NOW + 5 * HOUR, NOW + 5 * HOUR)[0] == [NOW + 5 * HOUR]


def test_skip_fires_one_at_a_time():
    timing = Timing(interval=SECOND, catch_up=0)
    late = NOW + 3 * SECOND
    assert run(timing, NOW, late, late)[0] == [late]


def test_what_is_offered():
    assert due_ticks(EVERY, NOW, NOW - HOUR) == [Planned(NOW, NOW + MINUTE, NOW + MINUTE)]
    three = Timing(interval=MINUTE, catch_up=3)
    assert due_ticks(three, NOW, NOW + MINUTE) == [
        Planned(NOW, NOW + MINUTE, NOW + 3 * MINUTE),
        Planned(NOW + MINUTE, NOW + 2 * MINUTE, NOW + 4 * MINUTE),
    ]
    last = Timing(interval=MINUTE, catch_up=3, ends_at=NOW + MINUTE)
    assert due_ticks(last, NOW, NOW + HOUR) == [
        Planned(NOW, NOW + MINUTE, None),
        Planned(NOW + MINUTE, None, None),
    ]
    far = due_ticks(EVERY, NOW, NOW + 1000 * MINUTE)
    assert far[0] == Planned(NOW, NOW + 1000 * MINUTE, NOW + 1000 * MINUTE, leap=True)
    assert len(due_ticks(EVERY, NOW, NOW + 1000 * MINUTE, leaps=False)) == 200


@given(timings())
def test_ticks_strictly_increase(timing: Timing):
    ticks: list[int] = []
    at = first_tick(timing, NOW)
    while at is not None and len(ticks) < 50:
        ticks.append(at)
        at = next_tick(timing, at)
    assert all(early < late for early, late in pairwise([NOW, *ticks]))


def test_jitter_is_the_same_for_all_and_spread():
    values = [jitter_of("s", NOW + n, 100) for n in range(2000)]
    assert values == [jitter_of("s", NOW + n, 100) for n in range(2000)]
    assert set(values) == set(range(101))
    assert jitter_of("s", NOW, 0) == 0
    assert [jitter_of("other", NOW + n, 10**9) for n in range(9)] != values[:9]


def test_ids_of_ticks():
    ids = [tick_id(name, NOW + n * SECOND) for name in "ab" for n in range(100)]
    assert len(set(ids)) == 200
    assert ids[:100] == sorted(ids[:100])
    assert all(each[14] == "7" and len(each) == 36 for each in ids)
