"""core/query.py: a filter is an "and" of fields, each an "or" of values."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tenure.core.query import Filter
from tenure.core.states import State
from tests.core.rows import pending

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
