"""core/reports.py: nothing that a run says can keep its outcome from being saved."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.codec import check_text
from tenure.core.job import JobError, Progress
from tests.core.rows import errors, progresses

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("name", ["kind", "message", "traceback"])
@pytest.mark.parametrize(
    ("text", "kept"),
    [("a\x00b", "a\\x00b"), ("\udce4", "\\udce4"), ("é\ud800\x00", "é\\ud800\\x00"), ("é", "é")],
)
def test_text_of_an_error_is_escaped(name, text, kept):
    given = {"kind": "", "message": ""} | {name: text}
    assert getattr(JobError(**given), name) == kept


@given(errors)
def test_an_error_can_always_be_saved(failure):
    for text in (failure.kind, failure.message, failure.traceback):
        check_text(text, "error")
    assert msgspec.json.decode(msgspec.json.encode(failure), type=JobError) == failure


@given(progresses)
def test_progress_can_always_be_saved(progress):
    check_text(progress.message, "progress")
    assert msgspec.json.decode(msgspec.json.encode(progress), type=Progress) == progress


@pytest.mark.parametrize(
    ("current", "total", "expected"),
    [
        (1, 2, (1, 2)),
        (0.5, None, (0.5, None)),
        (NAN, 2, (0, 2)),
        (INF, INF, (0, None)),
        (1, NAN, (1, None)),
        (-INF, -INF, (0, None)),
        (10**400, 10**400, (0, None)),
    ],
)
def test_numbers_that_are_none(current, total, expected):
    progress = Progress(current, total)
    assert (progress.current, progress.total) == expected


@given(st.text())
def test_plain_text_stays_the_same_object_where_it_can(text):
    if text.isascii() and "\x00" not in text:
        assert JobError("k", text).message is text
