"""core/job.py: the row that an insert writes, and the job as people read it."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core import codec
from tenure.core.durations import LAST_INSTANT
from tenure.core.job import COLUMNS, Job, NewJob, Progress, new_row, rank_of
from tenure.core.retry import RetryPolicy
from tenure.core.states import State
from tenure.errors import ConfigurationError, JobCancelled, JobEnded, JobExpired, JobFailed
from tests.core.rows import NOW, SECOND, error, job_rows, json_values, pending, running


def test_a_plain_insert_is_due_now():
    row = new_row(NewJob(id="i", task="t"), NOW)
    assert (row.state, row.ready, row.rank) == (State.PENDING, True, NOW)
    assert row.available_at == row.queued_at == row.created_at == NOW
    assert (row.token, row.claims, row.failures, row.lapses, row.releases) == (0,) * 5
    assert (row.max_attempts, row.max_lapses, row.max_interruptions) == (1, 3, 3)
    assert row.attempt == 1


def test_what_was_given_is_kept():
    given = NewJob(
        id="i",
        task="t",
        queue="q",
        priority=5,
        payload=b'{"a":1}',
        max_attempts=4,
        max_lapses=2,
        max_interruptions=9,
        timeout=1.5,
        retry=RetryPolicy(base=1),
        tags=("x",),
        headers={"h": "1"},
        metadata={"m": 1},
        description="d",
    )
    row = new_row(given, NOW)
    for name in set(NewJob.__struct_fields__) & set(COLUMNS) - {"expires_at"}:
        assert getattr(row, name) == getattr(given, name), name
    assert row.payload_size == 7
    assert row.rank == rank_of(NOW, 5)


def test_what_nobody_gave_is_empty():
    row = new_row(NewJob(id="i", task="t"), NOW)
    counted = {"token", "claims", "failures", "lapses", "releases"}
    filled = {"rank", "ready", "state", "available_at", "created_at", "queued_at", "payload_size"}
    for name in set(COLUMNS) - set(NewJob.__struct_fields__) - filled - counted:
        assert getattr(row, name) in (None, (), False), name
    assert row.errors == ()
    assert row.cancel_requested is False


@pytest.mark.parametrize(
    ("times", "due", "ready"),
    [
        ({}, NOW, True),
        ({"delay": 0}, NOW, True),
        ({"delay": 1}, NOW + 1, False),
        ({"run_at": NOW + 5}, NOW + 5, False),
        ({"run_at": NOW}, NOW, True),
        ({"run_at": NOW - 5}, NOW, True),
        ({"run_at": 0}, NOW, True),
        ({"run_at": NOW + 5, "delay": 99}, NOW + 5, False),
        ({"run_at": LAST_INSTANT}, LAST_INSTANT, False),
    ],
)
def test_when_a_new_job_is_due(times, due, ready):
    row = new_row(NewJob(id="i", task="t", priority=2, **times), NOW)
    assert (row.available_at, row.queued_at, row.ready) == (due, due, ready)
    assert row.rank == rank_of(due, 2)
    assert row.created_at == NOW


@pytest.mark.parametrize(
    ("times", "end"),
    [
        ({}, None),
        ({"expires_in": 5}, NOW + 5),
        ({"expires_in": 0}, NOW),
        ({"expires_at": 7}, 7),
        ({"expires_in": 5, "expires_at": 7}, NOW + 5),
    ],
)
def test_when_a_new_job_expires(times, end):
    assert new_row(NewJob(id="i", task="t", **times), NOW).expires_at == end


@pytest.mark.parametrize("name", ["delay", "run_at", "expires_in", "expires_at"])
def test_a_time_past_9999_is_refused_by_name(name):
    times: dict[str, Any] = {name: LAST_INSTANT + 1}
    with pytest.raises(ConfigurationError, match=f"^{name} leads past the year 9999$"):
        new_row(NewJob(id="i", task="t", **times), NOW)


def test_what_a_new_job_says_of_its_end_and_its_log_is_kept():
    job = NewJob(id="i", task="t", on_shutdown="fail", log_level=10, log_success=False, actor="me")
    row = new_row(job, NOW)
    assert (row.on_shutdown, row.log_level, row.log_success, row.actor) == ("fail", 10, False, "me")
    assert (row.executor, row.profile, row.remote_ref, row.dispatched_at) == (None,) * 4


def test_new_jobs_share_nothing():
    one, other = NewJob(id="a", task="t"), NewJob(id="b", task="t")
    assert one.headers is not other.headers
    assert one.metadata is not other.metadata


@pytest.mark.parametrize(
    ("row", "label"),
    [
        (pending(), "pending"),
        (pending(failures=1), "pending"),
        (pending(ready=False), "scheduled"),
        (pending(ready=False, failures=1), "retrying"),
        (pending(cancel_requested=True), "pending"),
        (running(), "running"),
        (running(failures=1), "running"),
        (running(cancel_requested=True), "cancelling"),
        (pending(state=State.COMPLETED, ready=False), "completed"),
        (pending(state=State.FAILED, ready=False, failures=1), "failed"),
        (pending(state=State.CANCELLED, ready=False, cancel_requested=True), "cancelled"),
        (pending(state=State.EXPIRED, ready=False), "expired"),
    ],
)
def test_the_label(row, label):
    assert Job(row).label == label
    assert repr(Job(row)) == f"<Job a-job work {label}>"


@pytest.mark.parametrize(
    ("state", "failures", "attempt"),
    [
        (State.PENDING, 0, 1),
        (State.PENDING, 2, 3),
        (State.RUNNING, 2, 3),
        (State.COMPLETED, 2, 3),
        (State.FAILED, 3, 3),
        (State.FAILED, 1, 1),
        (State.CANCELLED, 1, 2),
    ],
)
def test_the_attempt_is_that_which_runs_comes_or_was_the_last(state, failures, attempt):
    assert Job(pending(state=state, failures=failures)).attempt == attempt


def test_times_are_utc():
    job = Job(running(finished_at=NOW + 1_500_000, expires_at=LAST_INSTANT))
    assert job.created_at == job.available_at == job.started_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert job.created_at.tzinfo is UTC
    assert job.expires_at is not None
    assert job.expires_at.year == 9999
    assert job.lease_until is not None
    assert job.lease_until.second == 30
    assert job.duration == 1.5
    assert Job(running()).duration is None
    assert Job(pending()).finished_at is None


def test_values_are_decoded():
    row = running(payload=codec.encode({"n": [1]}), result=codec.encode("done"))
    assert Job(row).arguments == {"n": [1]}
    assert Job(row).result == "done"
    assert Job(pending()).result is None


@pytest.mark.parametrize(
    ("state", "failure", "text"),
    [
        (State.FAILED, error("ValueError", "boom"), "job a-job (work) failed: ValueError: boom"),
        (State.FAILED, None, "job a-job (work) failed"),
        (State.CANCELLED, None, "job a-job (work) cancelled"),
        (State.EXPIRED, error("E", "m"), "job a-job (work) expired: E: m"),
        (State.COMPLETED, error("E", "of an earlier attempt"), "job a-job (work) completed"),
    ],
)
def test_how_it_ended(state, failure, text):
    assert Job(pending(state=state, error=failure)).describe_end() == text


@pytest.mark.parametrize("kind", [JobEnded, JobFailed, JobCancelled, JobExpired])
@pytest.mark.parametrize(
    "again", [copy.copy, lambda e: pickle.loads(pickle.dumps(e))], ids=["copy", "pickle"]
)
def test_the_error_of_an_end_survives_being_copied(kind, again):
    raised = kind(Job(pending(state=State.FAILED, error=error())))
    copied = again(raised)
    assert type(copied) is kind
    assert copied.job == raised.job
    assert str(copied) == str(raised) == "job a-job (work) failed: ValueError: boom"


def test_to_dict_shows_times_as_text_and_structures_as_plain_values():
    job = Job(
        running(error=error(), errors=(error(),), progress=Progress(1, 2, "half"), tags=("x",))
    )
    values = job.to_dict()
    assert values["created_at"] == "2026-01-01T00:00:00Z"
    assert values["lease_until"] == "2026-01-01T00:00:30Z"
    assert values["finished_at"] is None
    assert values["label"] == values["state"] == "running"
    assert values["error"] == values["errors"][0]
    assert values["error"]["kind"] == "ValueError"
    assert values["progress"] == {"current": 1, "total": 2, "message": "half"}
    assert values["tags"] == ["x"] or values["tags"] == ("x",)
    assert values["arguments"] == {}


@given(
    job_rows(
        payload=st.dictionaries(st.text("abc"), json_values, max_size=3).map(codec.encode),
        result=st.none() | json_values.map(codec.encode),
    )
)
def test_to_dict_is_json(row):
    values = Job(row).to_dict()
    assert json.loads(json.dumps(values, allow_nan=False))["id"] == row.id
    assert type(values["state"]) is str


def test_jobs_are_compared_by_value_and_hashed_by_what_moves():
    one, same = Job(running()), Job(running())
    assert one == same
    assert hash(one) == hash(same)
    assert one != Job(running(token=NOW + 1))
    assert one != "a-job"
    assert len({one, same}) == 1


def test_a_row_is_not_to_be_changed():
    with pytest.raises(AttributeError):
        pending().state = State.FAILED  # type: ignore[misc]
    assert msgspec.structs.replace(pending(), failures=SECOND).attempt == SECOND + 1
