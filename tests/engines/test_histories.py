"""Random histories on every engine, compared with the engine in memory after each step."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from tenure.core.job import JobRow, new_row
from tenure.core.limits import Blocked
from tenure.core.outcomes import Settled, Settlement
from tenure.core.query import RequeueResult
from tenure.core.schedule import Fired, Tick
from tenure.core.states import FINAL, State
from tenure.engines.memory import MemoryEngine
from tenure.engines.protocol import Claim, Engine
from tenure.testing.conformance.histories import compare
from tenure.testing.conformance.kit import NOW, changed, job_id, new
from tenure.testing.conformance.ledger import Ledger

OCCUR = {
    *"insert claim extend settle sweep cancel force requeue configure fire append announce".split(),
    *"leave save_schedule remove_schedule release_identity".split(),
    *"applied already lost lapsed settled taken gone Extended".split(),
    *"cancelled requested already_final not_found requeued not_final".split(),
    *"created twin replaced DuplicateJob UniquenessConflict".split(),
    *(str(fired) for fired in Fired),
    *(f"to {state}" for state in State),
    *(f"swept to {state}" for state in (State.PENDING, *FINAL) if state is not State.COMPLETED),
    *("due arm", "lapsed arm", "resume arm", "twin, cancelling", "paused", "requeue taken"),
    *(f"blocked by {reason}" for reason in Blocked),
    *(f"{op} {word}" for op in ("prune jobs", "prune events") for word in ("yes", "no")),
    *(f"release_identity {word}" for word in ("yes", "no")),
    *("save_schedule refused", "remove_schedule yes", "remove_schedule no", "Schedule"),
}
"""Every operation and every kind of answer: a history in which one is missing proves too little."""


EXAMPLES = {"postgres": 40, "redis": 40}
"""How many histories of an engine are tried; a server takes about ten times as long for one."""


@pytest.mark.timeout(3600)
def test_every_engine_answers_as_the_one_in_memory(
    request: pytest.FixtureRequest,
    fresh_engine: Callable[[], Engine],
    scaled: Callable[[int, int], int],
):
    name = request.node.callspec.params["fresh_engine"]
    examples = scaled(EXAMPLES.get(name, 300), 10_000)
    tally = compare(MemoryEngine, fresh_engine, examples=examples, steps=50)
    if examples >= 300:  # in fewer histories not everything has to occur
        assert {kind for kind in OCCUR if not tally[kind]} == set()


def test_a_history_is_the_same_each_time():
    tallies = [compare(MemoryEngine, MemoryEngine, examples=5) for _ in range(2)]
    assert tallies[0] == tallies[1]


class LongLease(MemoryEngine):
    """Gives a microsecond too much."""

    async def claim(self, claim: Claim, *, now: int | None = None) -> list[JobRow]:
        longer = msgspec.structs.replace(claim, lease=claim.lease + 1)
        return await super().claim(longer, now=now)


class Deaf(MemoryEngine):
    """Does not hear that a cancel was requested."""

    async def settle(
        self, settlements: Sequence[Settlement], *, now: int | None = None
    ) -> list[Settled]:
        deaf = [msgspec.structs.replace(s, if_cancel_requested=s.next) for s in settlements]
        return await super().settle(deaf, now=now)


class Unfenced(MemoryEngine):
    """Takes every settlement for the holder's."""

    async def settle(
        self, settlements: Sequence[Settlement], *, now: int | None = None
    ) -> list[Settled]:
        rows = await self.get([s.id for s in settlements])
        shown = [
            s if row is None else msgspec.structs.replace(s, token=row.token, owner=row.owner or "")
            for s, row in zip(settlements, rows, strict=True)
        ]
        return await super().settle(shown, now=now)


class Greedy(MemoryEngine):
    """Gives a queue's jobs though there is no room."""

    async def claim(self, claim: Claim, *, now: int | None = None) -> list[JobRow]:
        return await super().claim(msgspec.structs.replace(claim, room={}), now=now)


class Forgetful(MemoryEngine):
    """Does not look whether a key is taken when a job comes back."""

    async def requeue(
        self, ids: Sequence[str], *, payload: bytes | None = None, now: int | None = None
    ) -> RequeueResult:
        answer = await super().requeue(ids, payload=payload, now=now)
        return msgspec.structs.replace(answer, taken={})


class Generous(MemoryEngine):
    """Fires a tick a microsecond early."""

    async def fire(self, ticks: Sequence[Tick], *, now: int | None = None) -> list[Fired]:
        return await super().fire(ticks, now=None if now is None else now + 1)


@pytest.mark.parametrize("broken", [LongLease, Deaf, Unfenced, Greedy, Forgetful, Generous])
def test_a_broken_engine_is_found(broken: type[MemoryEngine]):
    with pytest.raises(AssertionError, match=r"step \d+: "):
        compare(MemoryEngine, broken, examples=300, shrink=False)


@pytest.mark.soak
def test_a_history_that_fails_is_made_short():
    with pytest.raises(AssertionError, match=r"step \d+: ") as caught:
        compare(MemoryEngine, LongLease, steps=10)
    shown = str(caught.value).splitlines()
    assert len([line for line in shown if re.match(r"\d+: ", line)]) <= 3


PENDING = new_row(new(1), NOW)
RUNNING = changed(
    PENDING, state=State.RUNNING, ready=False, token=NOW, owner="a", lease_until=NOW, claims=1
)
DONE = changed(RUNNING, state=State.COMPLETED, lease_until=None, finished_at=NOW)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (PENDING, DONE, "not in the table"),
        (DONE, changed(RUNNING, token=NOW + 1), "not in the table"),
        (RUNNING, changed(RUNNING, token=NOW - 1), "token"),
        (RUNNING, changed(RUNNING, owner="b"), "another owner"),
        (RUNNING, changed(RUNNING, claims=3), "claims"),
        (RUNNING, changed(RUNNING, ready=True), "ready"),
        (RUNNING, changed(RUNNING, lease_until=None), "with a lease"),
        (RUNNING, changed(DONE, finished_at=None), "finished_at"),
        (RUNNING, changed(RUNNING, token=NOW + 5), "never claimed"),
        (None, RUNNING, "began as"),
    ],
)
def test_the_ledger_refuses_what_cannot_be(before: JobRow | None, after: JobRow, message: str):
    ledger = Ledger()
    if before is not None:
        ledger.stands({PENDING.id: PENDING})
        if before.state is not State.PENDING:
            ledger.claimed([RUNNING])
            ledger.stands({PENDING.id: RUNNING})
        ledger.stands({PENDING.id: before})
    with pytest.raises(AssertionError, match=message):
        ledger.stands({PENDING.id: after})


def _running() -> Ledger:
    ledger = Ledger()
    ledger.stands({PENDING.id: PENDING})
    assert ledger.claimed([RUNNING]) == {"due arm": 1}
    ledger.stands({PENDING.id: RUNNING})
    return ledger


def test_the_ledger_refuses_a_token_that_was_drawn_before():
    with pytest.raises(AssertionError, match="token"):
        _running().claimed([changed(RUNNING, owner="b")])


def test_the_ledger_knows_a_resumption():
    ledger = _running()
    assert ledger.claimed([RUNNING], held=()) == {"resume arm": 1}
    assert ledger.claimed([changed(RUNNING, token=NOW + 1)]) == {"lapsed arm": 1}
    with pytest.raises(AssertionError, match="given again"):
        _running().claimed([RUNNING], held=(RUNNING.id,))
    with pytest.raises(AssertionError, match="resumed by b"):
        _running().claimed([changed(RUNNING, owner="b")], held=())


def test_the_ledger_lets_only_final_jobs_go():
    ledger = _running()
    with pytest.raises(AssertionError, match="is gone"):
        ledger.stands({PENDING.id: None})
    ledger = _running()
    ledger.stands({PENDING.id: DONE})
    ledger.stands({PENDING.id: None})
    ledger.stands({PENDING.id: PENDING})
    ledger.claimed([RUNNING])


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"unique_key": "k"}, "both have the key"), ({"schedule": "s", "tick": 1}, "of one tick")],
)
def test_the_ledger_refuses_twins(fields: dict[str, Any], message: str):
    one = changed(PENDING, **fields)
    two = changed(one, id=job_id(2))
    with pytest.raises(AssertionError, match=message):
        Ledger().stands({one.id: one, two.id: two})
    if "unique_key" in fields:
        ledger = _running()
        ledger.stands({PENDING.id: changed(DONE, **fields), two.id: two})
