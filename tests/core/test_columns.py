"""core/columns.py: every column goes to a table and comes back as it was."""

from __future__ import annotations

import sqlite3
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.columns import from_columns, to_column_values, to_columns, unreadable
from tenure.core.job import COLUMNS, JobRow, Progress
from tenure.core.retry import RetryPolicy
from tenure.core.states import State
from tenure.errors import PayloadError
from tests.core.rows import error, errors, job_rows, pending, running

AWKWARD = "ünï \U0001f600 '\";-- \\ \r\n\t{}[]"


def back(row: JobRow) -> JobRow:
    return from_columns(to_columns(row))


@given(job_rows())
def test_every_row_comes_back(row):
    assert back(row) == row


@given(job_rows())
def test_columns_hold_only_what_drivers_take(row):
    for name, value in zip(COLUMNS, to_columns(row), strict=True):
        assert value is None or type(value) in {int, str, float, bytes}, name


@given(job_rows())
def test_named_values_agree_with_whole_rows(row):
    everything = {name: getattr(row, name) for name in COLUMNS}
    assert list(to_column_values(everything).values()) == to_columns(row)


ODD: dict[str, list[Any]] = {
    "str": ["", AWKWARD],
    "str | None": [None, "", AWKWARD],
    "int": [0, -(2**63), 2**63 - 1],
    "int | None": [None, 0, 2**63 - 1],
    "float | None": [None, 0.0, 5e-324, 1.7e308],
    "bool": [False, True],
    "bool | None": [None, False, True],
    "bytes": [b"", bytes(range(256))],
    "bytes | None": [None, b"", bytes(range(256))],
    "State": list(State),
    "RetryPolicy | None": [None, RetryPolicy(), RetryPolicy(0, 1, 0.1, 0)],
    "JobError | None": [None, error("", ""), error(AWKWARD, AWKWARD)],
    "tuple[JobError, ...]": [(), (error(AWKWARD), error(""))],
    "Progress | None": [None, Progress(0), Progress(-1.5, 0, AWKWARD)],
    "tuple[str, ...]": [(), ("",), (AWKWARD, "")],
    "Mapping[str, str]": [{}, {"": ""}, {AWKWARD: AWKWARD}],
    "Mapping[str, Any]": [{}, {"": None}, {AWKWARD: [None, {"": 2**64 - 1}], "f": -0.0}],
}


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, kind in JobRow.__annotations__.items() for value in ODD[str(kind)]],
)
def test_each_column_comes_back_when_empty_and_when_awkward(name, value):
    again = getattr(back(msgspec.structs.replace(pending(), **{name: value})), name)
    assert again == value
    assert type(again) is type(value)


def test_flags_come_back_as_bools_and_states_as_states():
    for row in (pending(log_success=True), running(cancel_requested=True, log_success=False)):
        again = back(row)
        assert again.ready is row.ready
        assert again.cancel_requested is row.cancel_requested
        assert again.log_success is row.log_success
        assert again.state is row.state
    assert back(pending()).log_success is None


@given(job_rows())
def test_a_table_of_sqlite_keeps_them(row):
    with sqlite3.connect(":memory:") as connection:
        values = to_columns(row)
        marks = ", ".join("?" * len(values))
        names = ", ".join(f'"{name}"' for name in COLUMNS)
        connection.execute(f"create table jobs ({names})")
        connection.execute(f"insert into jobs values ({marks})", values)
        assert from_columns(connection.execute("select * from jobs").fetchone()) == row
    connection.close()


def test_no_two_rows_share_a_live_object():
    row = pending()
    one, other = back(row), back(row)
    one.metadata["x"] = 1  # type: ignore[index]
    one.headers["x"] = "1"  # type: ignore[index]
    assert other.metadata == other.headers == {} == back(row).metadata


def test_a_row_is_cut_off_from_what_the_caller_still_holds():
    mine = {"list": [1]}
    stored = to_columns(pending(metadata=mine))
    mine["list"].append(2)
    assert from_columns(stored).metadata == {"list": [1]}


def test_any_mapping_may_be_given():
    row = pending(metadata=MappingProxyType({"a": 1}), headers=MappingProxyType({"b": "2"}))
    assert back(row).metadata == {"a": 1}
    assert back(row).headers == {"b": "2"}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"metadata": {"a": [float("nan")]}}, r"metadata\.a\[0\]: nan cannot be stored"),
        ({"metadata": {"a": 2**64}}, r"metadata\.a: integers beyond 64 bits"),
        ({"metadata": {"a": "\x00"}}, r"metadata\.a: text with a NUL"),
        ({"metadata": {1: 2}}, r"metadata: key 1 is int"),
        ({"headers": {"a": "\udce4"}}, r"headers\.a: text with a lone surrogate"),
        ({"tags": ("ok", "no\x00")}, r"tags\[1\]: text with a NUL"),
    ],
)
def test_what_json_cannot_hold_is_refused_and_not_bent(changes, text):
    with pytest.raises(PayloadError, match=f"^{text}"):
        to_columns(pending(**changes))
    with pytest.raises(PayloadError, match=f"^{text}"):
        to_column_values(changes)


@given(st.lists(errors, min_size=1, max_size=10), st.floats(), st.floats(), st.text())
def test_whatever_a_run_reports_can_be_saved_and_read(reported, current, total, message):
    row = running(
        error=reported[-1], errors=tuple(reported), progress=Progress(current, total, message)
    )
    assert back(row) == row
    assert not any("\x00" in str(value) for value in to_columns(row))
    assert not any("\\u0000" in str(value) for value in to_columns(row))


@pytest.mark.parametrize(
    ("name", "stored"),
    [("retry", '{"base": 1, "factor": 2, "cap": 9, "jitter": 0}'), ("errors", "[]")],
)
def test_text_of_another_version_is_read(name, stored):
    values = to_columns(pending())
    values[COLUMNS.index(name)] = stored
    assert getattr(from_columns(values), name) in {RetryPolicy(1, 2, 9, 0), ()}


@pytest.mark.parametrize(
    ("name", "stored", "read"),
    [
        ("retry", "{", None),
        ("retry", '{"base": -1}', None),
        ("error", "[]", None),
        ("errors", '{"a": 1}', ()),
        ("tags", "7", ()),
        ("headers", '{"a": 1}', {}),
        ("metadata", "\x00", {}),
        ("progress", '"half"', None),
    ],
)
def test_text_that_cannot_be_read_is_named_and_taken_as_empty(name, stored, read):
    values = to_columns(pending())
    values[COLUMNS.index(name)] = stored
    row = from_columns(values)
    assert getattr(row, name) == read
    assert unreadable(row) == name
    assert unreadable(pending()) is None
