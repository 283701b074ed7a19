"""What must hold in every history, whichever engine wrote it."""

from __future__ import annotations

from collections.abc import Iterable

from tenure.core.job import ERRORS_KEPT, JobRow
from tenure.core.states import TRANSITIONS, State

_STEPS = frozenset(
    (source, target) for step in TRANSITIONS for source in step.sources for target in step.targets
)


class Ledger:
    """Follows the rows of a store from step to step; raises `AssertionError` for what cannot be."""

    def __init__(self) -> None:
        self._rows: dict[str, JobRow] = {}
        self._holders: dict[tuple[str, int], str] = {}

    def claimed(self, rows: Iterable[JobRow]) -> None:
        """Note what a claim returned: every token is new, and greater than all before it."""
        for row in rows:
            before = self._rows.get(row.id)
            assert row.owner is not None, f"{row.id} was claimed for nobody"
            assert before is not None, f"{row.id} was claimed and never seen"
            assert row.token > before.token, f"{row.id}: token {before.token} -> {row.token}"
            assert (row.id, row.token) not in self._holders, f"{row.id}: token drawn twice"
            self._holders[row.id, row.token] = row.owner

    def stands(self, rows: Iterable[JobRow]) -> None:
        """Check the rows after a step, against the table and against the rows before it."""
        for row in rows:
            before = self._rows.get(row.id)
            if before is None:
                assert row.state is State.PENDING, f"{row.id} began as {row.state}"
            else:
                _follows(before, row)
            _is_whole(row)
            if row.state is State.RUNNING:
                holder = self._holders.get((row.id, row.token))
                assert holder == row.owner, f"{row.id} runs for {row.owner}, who never claimed it"
            self._rows[row.id] = row


def _follows(before: JobRow, after: JobRow) -> None:
    step = f"{after.id}: {before.state} -> {after.state}"
    if before.state is not after.state:
        assert (before.state, after.state) in _STEPS, f"{step} is not in the table"
    assert after.token >= before.token, f"{step}: token {before.token} -> {after.token}"
    assert after.claims in (before.claims, before.claims + 1), f"{step}: claims"
    taken = before.state is State.RUNNING and after.owner != before.owner
    assert after.token > before.token or not taken, f"{step}: another owner under one token"


def _is_whole(row: JobRow) -> None:
    """Check that the columns of a row agree with its state."""
    running = row.state is State.RUNNING
    assert (row.lease_until is not None) == running, f"{row.id}: {row.state} with a lease"
    assert (row.finished_at is not None) == row.state.final, f"{row.id}: {row.state}, finished_at"
    assert not row.ready or row.state is State.PENDING, f"{row.id}: {row.state} and ready"
    assert row.owner is not None or not running, f"{row.id} runs for nobody"
    assert len(row.errors) <= ERRORS_KEPT, f"{row.id}: {len(row.errors)} errors"
    assert row.failures <= row.max_attempts, f"{row.id}: {row.failures} failures"
