"""Which signals follow from a write."""

from tenure.core.states import FINAL, State
from tenure.engines.protocol import Signal, Topic
from tenure.engines.signals import signals_of


def test_ready_pending_rows_wake_their_queue_once():
    changes = [("1", "a", State.PENDING, True), ("2", "a", State.PENDING, True)]
    assert signals_of([*changes, ("3", "b", State.PENDING, True)]) == [
        Signal(Topic.QUEUE, "a"),
        Signal(Topic.QUEUE, "b"),
    ]


def test_rows_that_wait_wake_their_queue_too():
    assert signals_of([("1", "a", State.PENDING, False)]) == [Signal(Topic.QUEUE, "a")]


def test_rows_that_run_signal_nothing():
    assert signals_of([("2", "a", State.RUNNING, False)]) == []


def test_every_final_state_is_done():
    changes = [(str(state), "a", state, False) for state in State if state in FINAL]
    assert signals_of(changes) == [Signal(Topic.DONE, change[0]) for change in changes]


def test_nothing_written_signals_nothing():
    assert signals_of([]) == []
