"""core/rules.py but for decide(): admission, lapses, and the values that engines write."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.durations import LAST_INSTANT
from tenure.core.job import COLUMNS, Job, rank_of
from tenure.core.outcomes import Cancelled, Change, Errored, Expired, Snoozed
from tenure.core.rules import (
    admit,
    decide,
    lapse,
    requeued_values,
    revoked_token,
    settled_values,
)
from tenure.core.states import FINAL, Event, State
from tenure.errors import InvalidTransition
from tests.core.rows import NOW, SECOND, error, instants, int64s, job_rows, pending, running

FLAGS = (False, True)
DEADLINES = (None, NOW - 1, NOW, NOW + 1)
LAPSES = (0, 2, 3, 4)
BUDGETS = (0, 3)
GRID = list(itertools.product(FLAGS, DEADLINES, LAPSES, BUDGETS))


@pytest.mark.parametrize(("flag", "expires_at", "lapses", "budget"), GRID)
def test_admit_asks_for_the_flag_then_the_deadline_then_the_budget(
    flag, expires_at, lapses, budget
):
    outcome = admit(
        running(cancel_requested=flag, expires_at=expires_at, lapses=lapses, max_lapses=budget)
    )
    if flag:
        assert outcome == Cancelled()
    elif expires_at is not None and expires_at <= NOW:
        assert outcome == Expired()
    elif lapses > budget:
        assert isinstance(outcome, Errored)
        assert not outcome.retryable
        assert outcome.error.kind == "lapsed"
        assert f"vanished {lapses} times" in outcome.error.message
        assert outcome.error.message.endswith(f"the limit is {budget}")
    else:
        assert outcome is None


@pytest.mark.parametrize(("flag", "expires_at", "lapses", "budget"), GRID)
def test_a_sweep_asks_the_same_after_counting_its_own_lapse(flag, expires_at, lapses, budget):
    row = running(
        cancel_requested=flag,
        expires_at=expires_at,
        lapses=lapses,
        max_lapses=budget,
        failures=1,
        error=error("Old"),
        errors=(error("Old"),),
    )
    change = lapse(row, NOW)
    if flag:
        state = State.CANCELLED
    elif expires_at is not None and expires_at <= NOW:
        state = State.EXPIRED
    elif lapses + 1 > budget:
        state = State.FAILED
    else:
        state = State.PENDING
    assert (change.event, change.state, change.delay) == (Event.LAPSE, state, 0)
    assert (change.lapses, change.releases, change.result) == (lapses + 1, 0, None)
    kinds = [e.kind for e in change.errors]
    assert kinds == (["Old", "lapsed"] if state is State.FAILED else ["Old"])
    assert change.failures == (2 if state is State.FAILED else 1)


@pytest.mark.parametrize(("flag", "expires_at", "lapses", "budget"), GRID)
def test_a_sweep_and_a_claim_that_find_a_lapsed_job_agree(flag, expires_at, lapses, budget):
    row = running(cancel_requested=flag, expires_at=expires_at, lapses=lapses, max_lapses=budget)
    swept = lapse(row, NOW)
    claimed = msgspec.structs.replace(row, lapses=lapses + 1, claims=2, started_at=NOW)
    outcome = admit(claimed)
    if outcome is None:
        assert swept.state is State.PENDING
    else:
        settled = decide(claimed, outcome, now=NOW).next
        assert msgspec.structs.replace(settled, event=Event.LAPSE) == swept


def test_a_poison_job_ends_after_its_budget_of_lapses():
    row = running(max_lapses=3, max_attempts=10)
    ends = []
    for _ in range(4):
        change = lapse(row, NOW)
        ends.append(change.state)
        row = msgspec.structs.replace(row, lapses=change.lapses)
    assert ends == [State.PENDING, State.PENDING, State.PENDING, State.FAILED]


@pytest.mark.parametrize("state", [s for s in State if s is not State.RUNNING])
def test_only_a_running_job_lapses(state):
    with pytest.raises(InvalidTransition):
        lapse(pending(state=state), NOW)


@given(row=job_rows(state=st.just(State.RUNNING)), now=instants)
def test_admit_and_lapse_are_total(row, now):
    outcome = admit(row)
    if outcome is not None:
        assert decide(row, outcome, now=now).next.state in FINAL
    assert lapse(row, now).lapses == row.lapses + 1


def change(state: State, delay: int = 0) -> Change:
    return Change(
        event=Event.RETRY,
        state=state,
        delay=delay,
        failures=1,
        lapses=2,
        releases=3,
        result=b"r",
        error=error(),
        errors=(error(),),
    )


@pytest.mark.parametrize("state", sorted(FINAL))
def test_a_final_state_keeps_the_end_and_lets_the_lease_go(state):
    values = settled_values(7, change(state), NOW)
    assert values == {
        "state": state,
        "failures": 1,
        "lapses": 2,
        "releases": 3,
        "result": b"r",
        "error": error(),
        "errors": (error(),),
        "lease_until": None,
        "ready": False,
        "finished_at": NOW,
    }


@pytest.mark.parametrize(("delay", "ready"), [(0, True), (1, False), (5 * SECOND, False)])
def test_back_to_pending_starts_a_new_wait(delay, ready):
    values = settled_values(7, change(State.PENDING, delay), NOW)
    due = NOW + delay
    assert values["ready"] is ready
    assert values["available_at"] == values["queued_at"] == due
    assert values["rank"] == rank_of(due, 7)
    assert values["finished_at"] is None
    assert values["lease_until"] is None


def test_a_wait_beyond_the_year_9999_ends_there():
    values = settled_values(0, change(State.PENDING, LAST_INSTANT), NOW)
    assert values["available_at"] == LAST_INSTANT
    assert Job(pending(**values)).available_at.year == 9999


@pytest.mark.parametrize("state", [*sorted(FINAL), State.PENDING])
def test_token_and_owner_stay_so_that_a_repeated_settlement_is_recognised(state):
    values = settled_values(0, change(state), NOW)
    assert not values.keys() & {"token", "owner", "claims", "cancel_requested", "started_at"}
    assert values.keys() <= set(COLUMNS)


def test_what_a_snooze_writes_can_be_read_as_a_waiting_job():
    row = running(failures=1)
    values = settled_values(0, decide(row, Snoozed(SECOND), now=NOW).next, NOW)
    assert Job(msgspec.structs.replace(row, **values)).label == "retrying"


@given(row=job_rows(state=st.sampled_from(sorted(FINAL))), now=instants)
def test_a_requeue_starts_afresh_and_never_turns_the_token_back(row, now):
    values = requeued_values(row, now)
    again = msgspec.structs.replace(row, **values)
    assert again.state is State.PENDING
    assert again.ready
    assert (again.failures, again.lapses, again.releases) == (0, 0, 0)
    assert not again.cancel_requested
    assert (again.expires_at, again.started_at, again.finished_at) == (None, None, None)
    assert (again.result, again.progress, again.owner, again.lease_until) == (None,) * 4
    assert again.available_at == again.queued_at == now
    assert again.rank == rank_of(now, row.priority)
    assert (again.token, again.claims) == (row.token, row.claims)
    kept = ("payload", "max_attempts", "max_lapses", "retry", "tags", "metadata", "created_at")
    assert all(getattr(again, name) == getattr(row, name) for name in kept)


@pytest.mark.parametrize("state", [State.PENDING, State.RUNNING])
def test_only_a_final_job_is_requeued(state):
    with pytest.raises(InvalidTransition):
        requeued_values(pending(state=state), NOW)


@given(row=job_rows(token=st.integers(0, 2**62)), now=int64s)
def test_a_revoked_token_is_new_and_names_nobody(row, now):
    values = revoked_token(row, now)
    assert values["token"] > row.token
    assert values["token"] >= now
    assert values["owner"] is None
    assert values["lease_until"] is None
    assert len(values) == 3
