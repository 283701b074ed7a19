"""core/states.py: the table of the life cycle is exactly the one that is promised."""

from __future__ import annotations

import itertools

import pytest

from tenure.core.states import FINAL, TRANSITIONS, Event, State, check, diagram
from tenure.errors import InvalidTransition

# Written out once more, by hand, so that a slip in the code's table does not pass unseen.
PROMISED = {
    ("pending", "promote", "pending"),
    ("pending", "claim", "running"),
    ("pending", "cancel", "cancelled"),
    ("pending", "rearm", "pending"),
    ("pending", "expire", "expired"),
    ("running", "request-cancel", "running"),
    ("running", "claim", "running"),
    ("running", "expire", "expired"),
    ("running", "lapse", "pending"),
    ("running", "lapse", "failed"),
    ("running", "lapse", "expired"),
    ("running", "lapse", "cancelled"),
    ("running", "complete", "completed"),
    ("running", "retry", "pending"),
    ("running", "fail", "failed"),
    ("running", "snooze", "pending"),
    ("running", "snooze", "expired"),
    ("running", "release", "pending"),
    ("running", "cancel", "cancelled"),
    *((final, "requeue", "pending") for final in ("completed", "failed", "cancelled", "expired")),
    *((final, "prune", None) for final in ("completed", "failed", "cancelled", "expired")),
}
EVERY = list(itertools.product(State, Event, [*State, None]))


@pytest.mark.parametrize(("source", "event", "target"), EVERY)
def test_a_step_is_allowed_exactly_if_it_is_promised(source, event, target):
    if (source, event, target) in PROMISED:
        check(source, event, target)
    else:
        with pytest.raises(InvalidTransition, match=f"a {source} job cannot {event} to"):
            check(source, event, target)


def test_every_promise_was_among_the_steps_tried():
    assert len(PROMISED & {(str(s), str(e), t and str(t)) for s, e, t in EVERY}) == len(PROMISED)


def test_every_event_and_every_state_has_a_use():
    assert {row.event for row in TRANSITIONS} == set(Event)
    assert {s for row in TRANSITIONS for s in row.sources} == set(State)


def test_no_step_is_listed_twice():
    steps = [(source, row.event) for row in TRANSITIONS for source in row.sources]
    assert len(steps) == len(set(steps))


def test_only_requeue_and_prune_move_a_final_job():
    for row in TRANSITIONS:
        if row.sources & FINAL:
            assert row.event in {Event.REQUEUE, Event.PRUNE}
    assert {s for s in State if s.final} == FINAL == set(State) - {State.PENDING, State.RUNNING}


def test_every_step_says_what_it_means():
    assert all(row.meaning and row.meaning[0].islower() for row in TRANSITIONS)


def test_the_diagram_has_an_arrow_for_every_step_and_no_other():
    lines = diagram().splitlines()
    assert lines[:2] == ["stateDiagram-v2", "    [*] --> pending: enqueue"]
    drawn = set()
    for line in lines[2:]:
        arrow, _, events = line.strip().partition(": ")
        source, target = arrow.split(" --> ")
        drawn |= {(source, e, None if target == "[*]" else target) for e in events.split(", ")}
    assert drawn == PROMISED


def test_the_diagram_has_one_arrow_between_two_states():
    arrows = [line.partition(": ")[0] for line in diagram().splitlines()]
    assert len(arrows) == len(set(arrows))
