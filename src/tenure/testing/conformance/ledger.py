"""What must hold in every history, whichever engine wrote it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tenure.core.fleet import QueueSettings
from tenure.core.job import ERRORS_KEPT, JobRow
from tenure.core.limits import Blocked
from tenure.core.states import TRANSITIONS, State

_STEPS = frozenset(
    (source, target) for step in TRANSITIONS for source in step.sources for target in step.targets
)


class Ledger:
    """Follows the rows of a store from step to step; raises `AssertionError` for what cannot be."""

    def __init__(self) -> None:
        self._rows: dict[str, JobRow] = {}
        self._holders: dict[tuple[str, int], str] = {}
        self._slots: dict[str, int | None] = {}
        self._running: Counter[tuple[str, str | None]] = Counter()

    def claimed(self, rows: Iterable[JobRow], held: Sequence[str] | None = None) -> Counter[str]:
        """Note what a claim returned; which arms brought it.

        Every token is new, and greater than all before it, but for what was resumed: jobs that the
        owner held before and did not list in `held`.
        """
        arms: Counter[str] = Counter()
        for row in rows:
            before = self._rows.get(row.id)
            assert row.owner is not None, f"{row.id} was claimed for nobody"
            assert before is not None, f"{row.id} was claimed and never seen"
            if row.token == before.token and held is not None:
                assert row.id not in held, f"{row.id} is held and was given again"
                assert (before.state, before.owner) == (State.RUNNING, row.owner), (
                    f"{row.id} was resumed by {row.owner}, but {before.state} for {before.owner}"
                )
                arms["resume arm"] += 1
                continue
            assert row.token > before.token, f"{row.id}: token {before.token} -> {row.token}"
            assert (row.id, row.token) not in self._holders, f"{row.id}: token drawn twice"
            self._holders[row.id, row.token] = row.owner
            arms["lapsed arm" if before.state is State.RUNNING else "due arm"] += 1
        return arms

    def limited(self, settings: QueueSettings) -> None:
        """Note how a queue is treated from now on."""
        self._slots[settings.queue] = settings.limits.key_concurrency

    def stands(self, rows: Mapping[str, JobRow | None]) -> Counter[str]:
        """Check the rows after a step, against the table and against the rows before it.

        Returns how many are blocked, by what.
        """
        there = [row for row in rows.values() if row is not None]
        for job_id in rows:
            if rows[job_id] is None:
                self._vanished(job_id)
        for row in there:
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
        _are_unique(there)
        self._slots_are_kept(there)
        return Counter(f"blocked by {row.blocked}" for row in there if row.blocked is not None)

    def _slots_are_kept(self, rows: Sequence[JobRow]) -> None:
        """Check that no key has more jobs at work than it may, or jobs that wait for a free slot.

        Who worked before a limit was lowered goes on.
        """
        keyed = [row for row in rows if row.concurrency_key is not None]
        running = Counter((r.queue, r.concurrency_key) for r in keyed if r.state is State.RUNNING)
        for key, count in running.items():
            most = self._slots.get(key[0])
            assert most is None or count <= max(most, self._running[key]), f"{count} run of {key}"
        self._running = running
        next_up = Counter((r.queue, r.concurrency_key, r.task) for r in keyed if r.ready)
        for row in keyed:
            if row.blocked == Blocked.CONCURRENCY:
                key, most = (row.queue, row.concurrency_key), self._slots.get(row.queue)
                assert most is not None, f"{row.id} waits for a slot where there is no limit"
                found = running[key] + next_up[*key, row.task]
                assert found >= most, f"{row.id} waits, but {found} of {most} slots are spoken for"

    def _vanished(self, job_id: str) -> None:
        before = self._rows.pop(job_id, None)
        if before is not None:
            assert before.state.final, f"{job_id} was {before.state} and is gone"
            # One that is inserted anew draws its tokens anew, from the store's time.
            self._holders = {key: v for key, v in self._holders.items() if key[0] != job_id}


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
    assert row.blocked is None or (row.state is State.PENDING and not row.ready), (
        f"{row.id}: {row.state}, ready {row.ready}, and blocked"
    )
    assert not row.ready or row.state is State.PENDING, f"{row.id}: {row.state} and ready"
    assert row.owner is not None or not running, f"{row.id} runs for nobody"
    assert len(row.errors) <= ERRORS_KEPT, f"{row.id}: {len(row.errors)} errors"
    # A job that was debounced may have fewer attempts now than it has failed.
    most = row.max_attempts if row.unique_key is None else row.failures
    assert row.failures <= most, f"{row.id}: {row.failures} failures"


def _are_unique(rows: Iterable[JobRow]) -> None:
    """Check that no two jobs have what only one may have."""
    keys: dict[str, str] = {}
    ticks: dict[tuple[str, int], str] = {}
    for row in rows:
        if row.unique_key is not None and not row.state.final:
            other = keys.setdefault(row.unique_key, row.id)
            assert other == row.id, f"{other} and {row.id} both have the key {row.unique_key!r}"
        if row.schedule is not None and row.tick is not None:
            other = ticks.setdefault((row.schedule, row.tick), row.id)
            assert other == row.id, f"{other} and {row.id} are of one tick"
