"""What is said of a fleet, beyond what its engine finds."""

from __future__ import annotations

from tenure.core.fleet import Inspection, QueueSettings, WorkerInfo, notes

WORKER = WorkerInfo(id="w", queues=("q",), tasks=("b",), concurrency=1)


def codes(*findings):
    return [finding.code for finding in findings]


def test_nothing_is_said_of_what_is_well():
    found = Inspection(queues=(QueueSettings("q"),), tasks={"a": 1, "b": 2})
    assert notes(found, ["a"], [WORKER]) == ()
    assert notes(found, ["a", "b", "c"], []) == ()


def test_tasks_that_nobody_has():
    found = Inspection(tasks={"a": 1, "b": 2, "x": 3, "y": 4})
    [finding] = notes(found, ["a"], [WORKER])
    assert finding.code == "task-unknown"
    assert not finding.problem
    assert finding.text == "7 jobs have tasks that this app does not know: x, y"


def test_without_tasks_at_hand_nothing_is_known():
    assert notes(Inspection(tasks={"a": 1}), [], [WORKER]) == ()


def test_paused_queues():
    queues = tuple(QueueSettings(f"q{n}", paused=n != 3) for n in range(8))
    [finding] = notes(Inspection(queues=queues), [], [])
    assert finding.code == "queue-paused"
    assert not finding.problem
    assert finding.text == "7 queues are paused: q0, q1, q2, q4, q5, ..."
