"""Rows for the tests of the core: plain ones, and every odd one that the types allow."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from tenure.core.durations import LAST_INSTANT
from tenure.core.job import PRIORITY_MAX, PRIORITY_MIN, JobError, JobRow, NewJob, Progress, new_row
from tenure.core.retry import RetryPolicy
from tenure.core.states import State

NOW = 1_767_225_600_000_000  # 2026-01-01
SECOND = 1_000_000


def error(kind: str = "ValueError", message: str = "boom", attempt: int = 1) -> JobError:
    return JobError(kind=kind, message=message, traceback="tb", attempt=attempt, at=NOW)


def pending(**changes: Any) -> JobRow:
    return msgspec.structs.replace(new_row(NewJob(id="a-job", task="work"), NOW), **changes)


def running(**changes: Any) -> JobRow:
    claimed = {
        "state": State.RUNNING,
        "ready": False,
        "token": NOW,
        "owner": "host:1:abc",
        "lease_until": NOW + 30 * SECOND,
        "claims": 1,
        "started_at": NOW,
        "max_attempts": 3,
    }
    return pending(**claimed | changes)


texts = st.text(max_size=20)
counts = st.integers(0, 5) | st.just(2**31)
instants = st.integers(0, LAST_INSTANT)
int64s = st.integers(-(2**63), 2**63 - 1)
storable = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | storable,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(storable, inner, max_size=3),
    max_leaves=8,
)
errors = st.builds(
    JobError,
    kind=st.text(),
    message=st.text(),
    traceback=st.text(),
    attempt=counts,
    at=instants,
)
policies = st.builds(
    RetryPolicy,
    base=st.floats(0, 1e6),
    factor=st.floats(1, 1000),
    cap=st.floats(0.1, 1e6),
    jitter=st.floats(0, 1),
)
progresses = st.builds(
    Progress, current=st.floats(), total=st.none() | st.floats(), message=st.text()
)


def job_rows(**fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[JobRow]:
    """Any row; `fixed` names the columns to draw from elsewhere."""
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "str": storable,
        "str | None": st.none() | storable,
        "int": counts,
        "int | None": st.none() | instants,
        "float | None": st.none() | st.floats(0, 1e9),
        "bool": st.booleans(),
        "bool | None": st.none() | st.booleans(),
        "bytes": st.binary(max_size=20),
        "bytes | None": st.none() | st.binary(max_size=20),
        "State": st.sampled_from(State),
        "RetryPolicy | None": st.none() | policies,
        "JobError | None": st.none() | errors,
        "tuple[JobError, ...]": st.lists(errors, max_size=10).map(tuple),
        "Progress | None": st.none() | progresses,
        "tuple[str, ...]": st.lists(storable, max_size=3).map(tuple),
        "Mapping[str, str]": st.dictionaries(storable, storable, max_size=3),
        "Mapping[str, Any]": st.dictionaries(storable, json_values, max_size=3),
    }
    columns = {name: kinds[str(kind)] for name, kind in JobRow.__annotations__.items()}
    columns |= {
        "priority": st.integers(PRIORITY_MIN, PRIORITY_MAX),
        "rank": int64s,
        "token": st.integers(0, 2**63 - 1),
        "available_at": instants,
        "created_at": instants,
        "queued_at": instants,
        "log_level": st.none() | st.integers(0, 50),
    }
    return st.builds(JobRow, **columns | fixed)
