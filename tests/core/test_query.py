"""core/query.py: a filter is an "and" of fields, each an "or" of values."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tenure.core.query import CancelResult, Filter, RequeueResult
from tenure.core.states import State
from tests.core.rows import NOW, error, pending

ROW = pending()  # id a-job, task work, queue default
FIELDS = {
    "ids": ("a-job", "other"),
    "states": (State.PENDING, State.FAILED),
    "tasks": ("work", "other"),
    "queues": ("default", "other"),
}
CHOICES: dict[str, Callable[[Any, Any], tuple[tuple[Any, ...], bool]]] = {
    "unset": lambda hit, miss: ((), True),
    "hit": lambda hit, miss: ((hit,), True),
    "either": lambda hit, miss: ((miss, hit), True),
    "miss": lambda hit, miss: ((miss,), False),
}


@pytest.mark.parametrize("choice", list(itertools.product(CHOICES, repeat=4)))
def test_a_row_matches_when_every_given_field_has_its_value(choice):
    given: dict[str, Any] = {}
    verdicts: list[bool] = []
    for (name, values), kind in zip(FIELDS.items(), choice, strict=True):
        given[name], verdict = CHOICES[kind](*values)
        verdicts.append(verdict)
    assert Filter(**given).matches(ROW) is all(verdicts)


def test_values_are_compared_whole():
    assert not Filter(tasks=("wor",)).matches(ROW)
    assert not Filter(ids=("A-JOB",)).matches(ROW)


FULL = pending(
    unique_key="k",
    schedule="nightly",
    actor="ann",
    tags=("a", "b"),
    metadata={"n": 1, "yes": True, "none": None, "text": "1", "deep": {"n": 1}, "part": 1.0},
    error=error(message="Disk Full"),
    finished_at=NOW + 5,
)
LETS_THROUGH: list[tuple[dict[str, Any], bool]] = [
    ({"keys": ("k", "x")}, True),
    ({"keys": ("x",)}, False),
    ({"schedules": ("nightly",)}, True),
    ({"schedules": ("night",)}, False),
    ({"actors": ("ann",)}, True),
    ({"actors": ("Ann",)}, False),
    ({"tags": ("b",)}, True),
    ({"tags": ("x", "a")}, True),
    ({"tags": ("x",)}, False),
    ({"metadata": {"n": 1}}, True),
    ({"metadata": {"n": True}}, False),
    ({"metadata": {"n": "1"}}, False),
    ({"metadata": {"yes": True}}, True),
    ({"metadata": {"yes": 1}}, False),
    ({"metadata": {"none": None}}, True),
    ({"metadata": {"absent": None}}, False),
    ({"metadata": {"none": 0}}, False),
    ({"metadata": {"text": "1", "n": 1}}, True),
    ({"metadata": {"text": "1", "n": 2}}, False),
    ({"metadata": {"deep": 1}}, False),
    ({"metadata": {"part": 1}}, True),
    ({"error": "disk full"}, True),
    ({"error": "ValueError: Disk"}, True),
    ({"error": "disk  full"}, False),
    ({"created_from": NOW}, True),
    ({"created_from": NOW + 1}, False),
    ({"created_to": NOW}, False),
    ({"created_to": NOW + 1}, True),
    ({"finished_from": NOW + 5, "finished_to": NOW + 6}, True),
    ({"finished_from": NOW + 6}, False),
    ({"finished_to": NOW + 5}, False),
    ({"tags": ("a",), "error": "full", "metadata": {"n": 1}}, True),
    ({"tags": ("a",), "error": "empty", "metadata": {"n": 1}}, False),
    ({"tags": ("a",), "states": (State.RUNNING,)}, False),
]


@pytest.mark.parametrize(("given", "verdict"), LETS_THROUGH)
def test_what_a_filter_lets_through(given: dict[str, Any], verdict: bool):
    assert Filter(**given).matches(FULL) is verdict


@pytest.mark.parametrize(
    "given",
    [
        {"keys": ("k",)},
        {"schedules": ("s",)},
        {"actors": ("a",)},
        {"tags": ("a",)},
        {"metadata": {"n": None}},
        {"error": "x"},
        {"finished_from": 0},
        {"finished_to": NOW * 2},
    ],
)
def test_what_is_not_there_matches_nothing_that_is_asked(given: dict[str, Any]):
    assert not Filter(**given).matches(ROW)


def test_results_of_several_steps_are_one():
    one, other = CancelResult(("a",), ("b",), busy=("c",)), CancelResult(("d",), not_found=("e",))
    assert one.and_then(other) == CancelResult(("a", "d"), ("b",), (), ("e",), ("c",))
    both = RequeueResult(("a",), taken={"b": "c"}).and_then(RequeueResult((), ("d",), ("e",)))
    assert both == RequeueResult(("a",), ("d",), ("e",), {"b": "c"})
