"""The options of a worker: checked where they are given."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tenure.errors import ConfigurationError, InvalidArguments
from tenure.worker.options import WorkerOptions


def test_the_defaults():
    options = WorkerOptions()
    assert (options.queues, options.concurrency, options.threads) == (("default",), 50, None)
    assert options.times.length == 30


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("queues", ()),
        ("queues", ("a b",)),
        ("concurrency", 0),
        ("concurrency", 10_001),
        ("concurrency", True),
        ("concurrency", 1.5),
        ("concurrency", None),
        ("threads", 0),
        ("lease", 0.5),
        ("lease", float("nan")),
        ("poll_max", 0),
        ("poll_max", 3601),
        ("shutdown_timeout", -1),
        ("stop_grace", 0),
        ("burst", "yes"),
        ("log_success", 1),
    ],
)
def test_a_bad_value_is_refused_by_name(name, value):
    with pytest.raises(ConfigurationError, match=name):
        WorkerOptions(**{name: value})


@pytest.mark.parametrize("queues", [5, None])
def test_queues_of_another_kind_are_refused_by_name(queues):
    with pytest.raises(ConfigurationError, match="queues"):
        WorkerOptions().changed({"queues": queues})


def test_an_unknown_option_is_named():
    with pytest.raises(InvalidArguments, match="'concurency'"):
        WorkerOptions().changed({"concurency": 5})  # type: ignore[typeddict-unknown-key]


def test_changes_are_a_checked_copy():
    options = WorkerOptions()
    changed = options.changed({"queues": "mail", "lease": timedelta(seconds=9)})
    assert (changed.queues, changed.times.interval) == (("mail",), 3)
    assert options.queues == ("default",)
    with pytest.raises(ConfigurationError, match="poll_max"):
        options.changed({"poll_max": -1})
