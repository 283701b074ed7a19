"""Which signals follow from a write."""

from tenure.core.states import FINAL, State
from tenure.engines.protocol import Signal, Topic
from tenure.engines.signals import signals_of


def test_pending_rows_wake_their_queue_once():
    changes = [("1", "a", State.PENDING), ("2", "a", State.PENDING)]
    assert signals_of([*changes, ("3", "b", State.PENDING)]) == [
        Signal(Topic.QUEUE, "a"),
        Signal(Topic.QUEUE, "b"),
    ]


def test_rows_that_run_signal_nothing():
    assert signals_of([("2", "a", State.RUNNING)]) == []


def test_every_final_state_is_done():
    changes = [(str(state), "a", state) for state in State if state in FINAL]
    assert signals_of(changes) == [Signal(Topic.DONE, change[0]) for change in changes]


def test_nothing_written_signals_nothing():
    assert signals_of([]) == []
