"""What the operations do to one job that is there, or is not."""

from __future__ import annotations

from typing import Any

from tenure.core import rules
from tenure.core.durations import SECOND
from tenure.core.lease import Beat, Extended, Extension, Lost
from tenure.core.outcomes import Settled, Settlement, Verdict
from tenure.core.states import State, check
from tenure.engines.memory.rows import Rows, decode


def extend(rows: Rows, beat: Beat, now: int) -> Extension:
    """See `Engine.extend`."""
    row = rows.get(beat.id)
    if row is None:
        return Lost("gone")
    if row["token"] != beat.token or row["owner"] != beat.owner:
        return Lost("taken")
    if row["state"] != State.RUNNING:
        return Lost("settled")
    if row["lease_until"] <= now:
        return Lost("lapsed")
    values: dict[str, Any] = {"lease_until": now + round(beat.seconds * SECOND)}
    if beat.progress is not None:
        values["progress"] = beat.progress
    rows.write(row, values)
    return Extended(beat.seconds, cancel_requested=bool(row["cancel_requested"]))


def settle(rows: Rows, settlement: Settlement, now: int) -> Settled:
    """See `Engine.settle`."""
    row = rows.get(settlement.id)
    if row is None:
        return Settled(settlement.id, Verdict.LOST)
    state = State(row["state"])
    if row["token"] != settlement.token or row["owner"] != settlement.owner:
        return Settled(settlement.id, Verdict.LOST, state)
    if state is not State.RUNNING:
        return Settled(settlement.id, Verdict.ALREADY, state)
    branch = settlement.if_cancel_requested if row["cancel_requested"] else settlement.next
    check(state, branch.event, branch.state)
    rows.write(row, rules.settled_values(row["priority"], branch, now))
    return Settled(settlement.id, Verdict.APPLIED, branch.state, branch.event)


def cancel(rows: Rows, job_id: str, now: int, *, force: bool) -> tuple[str, bool]:
    """The field of the result that names the job, and whether its holder is to be told."""
    row = rows.get(job_id)
    if row is None:
        return "not_found", False
    before = decode(row)
    if before.state.final:
        return "already_final", False
    values = rules.cancelled_values(before, now, force=force)
    rows.write(row, values)
    return "cancelled" if "state" in values else "requested", before.state is State.RUNNING
