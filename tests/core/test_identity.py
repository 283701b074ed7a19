"""core/identity.py: who has a key, and what an insert does about it; every case in a table."""

from __future__ import annotations

import itertools

import pytest

from tenure.core.identity import (
    Create,
    Existing,
    Holder,
    OnConflict,
    Rearm,
    Reservation,
    Resolution,
    UniqueUntil,
    overdue,
    reservation_of,
    resolve,
    taken_by,
)
from tenure.core.job import JobRow, NewJob, new_row
from tenure.core.states import FINAL, State
from tenure.errors import DuplicateJob, UniquenessConflict
from tests.core.rows import NOW, pending, running

KEPT = {"unique_key": "k"}
UNTIL = (UniqueUntil.STARTED, UniqueUntil.FINISHED, UniqueUntil.FOREVER)


def job(until: str = UniqueUntil.FINISHED, policy: str = OnConflict.RETURN, **more) -> NewJob:
    return NewJob(
        id="new", task="work", unique_key="k", unique_until=until, on_conflict=policy, **more
    )


def row(state: State, until: str, **changes) -> JobRow:
    made = running if state is State.RUNNING else pending
    return made(id="old", state=state, unique_key="k", unique_until=until, **changes)


def reserved(by: str = "old") -> Reservation:
    return Reservation("k", by, NOW - 5)


@pytest.mark.parametrize(
    ("held", "wanted", "policy", "state", "flag"),
    list(
        itertools.product(
            UNTIL, UNTIL, OnConflict, (State.PENDING, State.RUNNING, None, *FINAL), (False, True)
        )
    ),
)
def test_every_case_of_a_taken_key(held, wanted, policy, state, flag):
    forever = held is UniqueUntil.FOREVER
    if not forever and (state is None or state.final):
        return  # nothing has the key then
    twin = None if state is None else row(state, held, cancel_requested=flag)
    reservation = reserved() if forever else None

    def resolved() -> Resolution:
        return resolve(job(wanted, policy), twin, reservation, NOW)

    if held != wanted:
        with pytest.raises(UniquenessConflict, match="'k' is taken until " + held):
            resolved()
    elif policy is OnConflict.RETURN:
        assert resolved() == Existing("old", cancelling=flag and twin is not None)
    elif policy is OnConflict.REPLACE and state is State.PENDING:
        answer = resolved()
        assert isinstance(answer, Rearm)
        assert answer.id == "old"
    else:
        with pytest.raises(DuplicateJob) as caught:
            resolved()
        assert (caught.value.existing, caught.value.key) == ("old", "k")


@pytest.mark.parametrize("until", UNTIL)
def test_a_free_key_is_created(until):
    assert resolve(job(until), None, None, NOW) == Create()


@pytest.mark.parametrize("policy", OnConflict)
@pytest.mark.parametrize(("held", "wanted"), list(itertools.product(UNTIL, UNTIL)))
def test_an_own_reservation_or_row_is_no_twin(held, wanted, policy):
    mine = pending(id="new", unique_key="k", unique_until=held)
    reservation = reserved("new") if held is UniqueUntil.FOREVER else None
    for twin in (mine, None) if reservation else (mine,):
        assert resolve(job(wanted, policy), twin, reservation, NOW) == Existing("new")


@pytest.mark.parametrize("policy", OnConflict)
@pytest.mark.parametrize(("held", "wanted"), list(itertools.product(UNTIL[:2], UNTIL)))
def test_an_overdue_twin_is_as_gone(held, wanted, policy):
    twin = row(State.PENDING, held, expires_at=NOW)
    assert resolve(job(wanted, policy), twin, None, NOW) == Create(overdue="old")


def test_a_policy_that_is_not_said_is_until_finished():
    twin = row(State.RUNNING, "finished")
    plain = NewJob(id="new", task="work", unique_key="k")
    assert resolve(plain, twin, None, NOW) == Existing("old")
    unsaid = pending(id="old", unique_key="k", unique_until=None)
    assert resolve(job(), unsaid, None, NOW) == Existing("old")


def test_replacing_writes_all_that_an_enqueue_says():
    new = job(policy=OnConflict.REPLACE, payload=b"[1]", queue="q", priority=3, delay=7, tick=9)
    twin = row(State.PENDING, "finished", failures=2, token=5, claims=2, schedule="s", tick=1)
    answer = resolve(new, twin, None, NOW)
    assert isinstance(answer, Rearm)
    made = new_row(new, NOW)
    kept = {"id", "created_at", "state", "token", "owner", "lease_until", "claims", "failures"}
    kept |= {"lapses", "releases", "schedule", "tick", "cancel_requested", "started_at"}
    kept |= {"finished_at", "result", "error", "errors", "progress"}
    assert not kept & answer.values.keys()
    for name, value in answer.values.items():
        assert value == getattr(made, name), name
    assert answer.values["available_at"] == answer.values["queued_at"] == NOW + 7
    assert answer.values["payload_size"] == 3


@pytest.mark.parametrize("until", UNTIL)
def test_only_forever_reserves(until):
    kept = reservation_of(job(until), NOW)
    assert kept == (Reservation("k", "new", NOW) if until is UniqueUntil.FOREVER else None)
    assert reservation_of(NewJob(id="new", task="work", unique_until=until), NOW) is None


def test_whose_key_refuses_a_requeue():
    ended = row(State.COMPLETED, "finished")
    twin = pending(id="twin", **KEPT)
    assert taken_by(ended, Holder()) is None
    assert taken_by(ended, Holder(twin)) == "twin"
    assert taken_by(ended, Holder(None, reserved("gone"))) == "gone"
    assert taken_by(ended, Holder(ended, reserved("old"))) is None
    assert taken_by(pending(id="old", state=State.FAILED), Holder(twin)) is None


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("expires_at", [None, NOW - 1, NOW, NOW + 1])
def test_only_a_pending_job_is_overdue(state, expires_at):
    wanted = state is State.PENDING and expires_at in (NOW - 1, NOW)
    assert overdue(row(state, "finished", expires_at=expires_at), NOW) == wanted
