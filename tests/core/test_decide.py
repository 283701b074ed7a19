"""decide(): every outcome of every running row, in a table that is written out by hand."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.job import JobRow
from tenure.core.outcomes import (
    Cancelled,
    Completed,
    Errored,
    Expired,
    Outcome,
    Released,
    ReleaseReason,
    Snoozed,
)
from tenure.core.retry import DEFAULT_RETRY, RetryPolicy
from tenure.core.rules import decide
from tenure.core.states import Event, State, check
from tenure.errors import InvalidTransition
from tests.core.rows import NOW, SECOND, error, errors, instants, job_rows, pending, running

ERROR = error("NewError")
OLD = error("OldError")
OUTCOMES: dict[str, Outcome] = {
    "completed": Completed(b"1"),
    "empty": Completed(),
    "errored": Errored(ERROR),
    "after": Errored(ERROR, after=7 * SECOND),
    "at once": Errored(ERROR, after=0),
    "hopeless": Errored(ERROR, retryable=False),
    "hopeless, after": Errored(ERROR, retryable=False, after=7),
    "snoozed": Snoozed(60 * SECOND),
    "snoozed 0": Snoozed(0),
    "shutdown": Released(ReleaseReason.SHUTDOWN),
    "store": Released(ReleaseReason.STORE),
    "unstarted": Released(ReleaseReason.UNSTARTED),
    "cancelled": Cancelled(),
    "cancelled, why": Cancelled(ERROR),
    "expired": Expired(),
}
GRID: list[Any] = list(
    itertools.product(
        OUTCOMES,
        (0, 1, 2, 4),  # failures
        (1, 2, 3, 5),  # max_attempts
        (0, 2, 3),  # releases
        (0, 3),  # max_interruptions
        (None, NOW, NOW + 60 * SECOND, NOW + 61 * SECOND),  # expires_at
    )
)


def expected(name: str, row: JobRow) -> tuple[Event, State, int, int, int, str | None]:
    """(event, state, delay, failures, releases, appended kind), in the words of the design."""
    failures, releases = row.failures, row.releases
    spent = failures + 1 >= row.max_attempts
    backoff = DEFAULT_RETRY.delay(failures + 1, 0.0)
    over = releases + 1 > row.max_interruptions
    late = row.expires_at is not None and row.expires_at < NOW + 60 * SECOND
    match name:
        case "completed" | "empty":
            return Event.COMPLETE, State.COMPLETED, 0, failures, releases, None
        case "hopeless" | "hopeless, after":
            return Event.FAIL, State.FAILED, 0, failures + 1, releases, "NewError"
        case "errored" | "after" | "at once" if spent:
            return Event.FAIL, State.FAILED, 0, failures + 1, releases, "NewError"
        case "errored" | "after" | "at once":
            delay = {"errored": backoff, "after": 7 * SECOND, "at once": 0}[name]
            return Event.RETRY, State.PENDING, delay, failures + 1, releases, "NewError"
        case "snoozed" if late:
            return Event.SNOOZE, State.EXPIRED, 0, failures, releases, None
        case "snoozed":
            return Event.SNOOZE, State.PENDING, 60 * SECOND, failures, releases, None
        case "snoozed 0":
            return Event.SNOOZE, State.PENDING, 0, failures, releases, None
        case "store" | "unstarted":
            return Event.RELEASE, State.PENDING, 0, failures, releases, None
        case "shutdown" if not over:
            return Event.RELEASE, State.PENDING, 0, failures, releases + 1, None
        case "shutdown" if spent:
            return Event.FAIL, State.FAILED, 0, failures + 1, releases + 1, "interrupted"
        case "shutdown":
            return Event.RETRY, State.PENDING, backoff, failures + 1, releases + 1, "interrupted"
        case "cancelled":
            return Event.CANCEL, State.CANCELLED, 0, failures, releases, None
        case "cancelled, why":
            return Event.CANCEL, State.CANCELLED, 0, failures, releases, "NewError"
        case "expired":
            return Event.EXPIRE, State.EXPIRED, 0, failures, releases, None
    raise AssertionError(name)


def grid_row(
    failures: int, allowed: int, releases: int, cap: int, expires_at: int | None
) -> JobRow:
    return running(
        failures=failures,
        max_attempts=allowed,
        releases=releases,
        max_interruptions=cap,
        expires_at=expires_at,
        lapses=2,
        error=OLD,
        errors=(OLD,),
    )


@pytest.mark.parametrize("name", OUTCOMES)
def test_the_next_branch_is_as_the_table_says(name):
    for _, *cells in (cells for cells in GRID if cells[0] == name):
        row = grid_row(*cells)
        change = decide(row, OUTCOMES[name], now=NOW).next
        event, state, delay, failures, releases, appended = expected(name, row)
        assert (change.event, change.state, change.delay) == (event, state, delay), cells
        assert (change.failures, change.releases, change.lapses) == (failures, releases, 2), cells
        assert change.result == (b"1" if name == "completed" else None)
        if appended is None:
            assert (change.error, change.errors) == (OLD, (OLD,)), cells
        else:
            assert change.error is not None
            assert change.error.kind == appended
            assert change.errors == (OLD, change.error), cells


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_requested_cancel_wins_over_all_but_completion(name):
    outcome = OUTCOMES[name]
    for _, *cells in (cells for cells in GRID if cells[0] == name):
        row = grid_row(*cells)
        settlement = decide(row, outcome, now=NOW)
        branch = settlement.if_cancel_requested
        if isinstance(outcome, Completed):
            assert branch == settlement.next
            continue
        assert (branch.event, branch.state, branch.delay) == (Event.CANCEL, State.CANCELLED, 0)
        assert (branch.failures, branch.releases, branch.lapses) == (row.failures, row.releases, 2)
        assert branch.result is None
        own = isinstance(outcome, Errored | Cancelled) and outcome.error is not None
        assert branch.errors == ((OLD, ERROR) if own else (OLD,)), name
        assert branch.error == (ERROR if own else OLD)


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_settlement_shows_the_claim_it_ends(name):
    settlement = decide(running(token=41), OUTCOMES[name], now=NOW)
    assert (settlement.id, settlement.token, settlement.owner) == ("a-job", 41, "host:1:abc")


@pytest.mark.parametrize("state", [s for s in State if s.final])
@pytest.mark.parametrize("name", OUTCOMES)
def test_a_final_job_cannot_be_settled(name, state):
    with pytest.raises(InvalidTransition):
        decide(pending(state=state), OUTCOMES[name], now=NOW)


def test_the_policy_of_the_row_counts_and_not_the_default():
    row = running(retry=RetryPolicy(base=1, factor=2, jitter=0.5), failures=1)
    assert decide(row, Errored(ERROR), now=NOW).next.delay == 2 * SECOND
    assert decide(row, Errored(ERROR), now=NOW, roll=0.5).next.delay == 1.5 * SECOND


@pytest.mark.parametrize(("roll", "delay"), [(0.0, 100), (0.5, 110), (1.0, 120)])
def test_a_wait_is_spread_by_what_was_asked_for(roll, delay):
    """Never less than the wait itself: a server said not to come back before."""
    outcome = Errored(ERROR, after=100, spread=0.2)
    assert decide(running(max_attempts=2), outcome, now=NOW, roll=roll).next.delay == delay


@pytest.mark.parametrize("releases", [0, 3])
@pytest.mark.parametrize("failures", [0, 1])
def test_a_job_that_must_not_be_begun_twice_fails_at_a_shutdown(releases, failures):
    row = running(max_attempts=5, on_shutdown="fail", releases=releases, failures=failures)
    change = decide(row, Released(ReleaseReason.SHUTDOWN), now=NOW).next
    assert (change.event, change.state) == (Event.FAIL, State.FAILED)
    assert (change.failures, change.releases) == (failures + 1, releases + 1)
    assert change.error is not None
    assert (change.error.kind, change.error.attempt) == ("interrupted", failures + 1)
    for reason in (ReleaseReason.STORE, ReleaseReason.UNSTARTED):
        assert decide(row, Released(reason), now=NOW).next.state is State.PENDING


@pytest.mark.parametrize("choice", [None, "release", "run_out"])
def test_other_jobs_are_given_back(choice):
    row = running(on_shutdown=choice)
    assert decide(row, Released(ReleaseReason.SHUTDOWN), now=NOW).next.event is Event.RELEASE


def test_an_explicit_wait_is_not_jittered():
    row = running(retry=RetryPolicy(jitter=1.0))
    assert decide(row, Errored(ERROR, after=9), now=NOW, roll=0.9).next.delay == 9


def test_the_whole_budget_is_used_and_no_more():
    row = running(max_attempts=3)
    for attempt in (1, 2, 3):
        change = decide(row, Errored(ERROR), now=NOW).next
        assert change.failures == attempt
        assert change.state is (State.FAILED if attempt == 3 else State.PENDING)
        row = msgspec.structs.replace(row, failures=change.failures)


def test_shutdowns_are_free_up_to_the_cap_and_then_cost_attempts():
    """Deploys must not burn retries, and a job that never finishes must not live for ever."""
    row = running(max_attempts=2, max_interruptions=3)
    seen = []
    for _ in range(5):
        change = decide(row, Released(ReleaseReason.SHUTDOWN), now=NOW).next
        seen.append((change.event, change.failures, change.releases))
        row = msgspec.structs.replace(row, failures=change.failures, releases=change.releases)
    assert seen == [
        (Event.RELEASE, 0, 1),
        (Event.RELEASE, 0, 2),
        (Event.RELEASE, 0, 3),
        (Event.RETRY, 1, 4),
        (Event.FAIL, 2, 5),
    ]


def test_an_interruption_says_how_often_and_how_often_it_may():
    change = decide(running(releases=3), Released(ReleaseReason.SHUTDOWN), now=NOW).next
    assert change.error is not None
    assert change.error.message == "interrupted by 4 shutdowns; the limit is 3"
    assert (change.error.attempt, change.error.at) == (1, NOW)


@pytest.mark.parametrize(("late", "state"), [(-1, State.EXPIRED), (0, State.PENDING)])
def test_a_snooze_past_the_deadline_expires(late, state):
    row = running(expires_at=NOW + 10 + late)
    assert decide(row, Snoozed(10), now=NOW).next.state is state


def test_ten_errors_are_kept_and_the_oldest_goes():
    row = running(max_attempts=99)
    for number in range(12):
        change = decide(row, Errored(error(f"E{number}")), now=NOW).next
        row = msgspec.structs.replace(row, failures=change.failures, errors=change.errors)
    assert [e.kind for e in row.errors] == [f"E{n}" for n in range(2, 12)]


def test_cancelled_without_a_reason_does_not_repeat_the_last_error():
    row = running(error=OLD, errors=(OLD,))
    settlement = decide(row, Cancelled(), now=NOW)
    assert settlement.next.errors == settlement.if_cancel_requested.errors == (OLD,)


OUTCOME_OF_ANY_KIND = (
    st.builds(Completed, st.none() | st.binary())
    | st.builds(Errored, errors, st.booleans(), st.none() | instants)
    | st.builds(Snoozed, instants)
    | st.builds(Released, st.sampled_from(ReleaseReason))
    | st.builds(Cancelled, st.none() | errors)
    | st.just(Expired())
)


@given(
    row=job_rows(state=st.just(State.RUNNING)),
    outcome=OUTCOME_OF_ANY_KIND,
    now=instants,
    roll=st.floats(0, 1, exclude_max=True),
)
def test_decide_is_total(row, outcome, now, roll):
    settlement = decide(row, outcome, now=now, roll=roll)
    for branch in (settlement.next, settlement.if_cancel_requested):
        check(State.RUNNING, branch.event, branch.state)
        assert branch.delay >= 0
        assert branch.delay == 0 or branch.state is State.PENDING
        assert branch.failures >= row.failures
        assert branch.lapses == row.lapses
        assert branch.releases >= row.releases
        assert len(branch.errors) <= 10
        assert (branch.result is None) or isinstance(outcome, Completed)
    assert settlement == decide(row, outcome, now=now, roll=roll)
    assert msgspec.json.decode(msgspec.json.encode(settlement), type=type(settlement)) == settlement
