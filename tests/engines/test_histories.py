"""Random histories on every engine, compared with the engine in memory after each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import pytest

from tenure.core.job import JobRow, new_row
from tenure.core.outcomes import Settled, Settlement
from tenure.core.states import State
from tenure.engines.memory import MemoryEngine
from tenure.engines.protocol import Claim, Engine
from tenure.testing.conformance.histories import compare
from tenure.testing.conformance.kit import NOW, changed, new
from tenure.testing.conformance.ledger import Ledger

pytestmark = pytest.mark.anyio

OCCUR = {
    *"insert claim extend settle sweep cancel force requeue".split(),
    *"applied already lost lapsed settled taken gone Extended".split(),
    *"cancelled requested already_final not_found requeued not_final".split(),
    *(f"to {state}" for state in State),
    "due arm",
    "lapsed arm",
}


async def test_every_engine_answers_as_the_one_in_memory(
    fresh_engine: Callable[[], Engine], scaled: Callable[[int, int], int]
):
    tally: Counter[str] = Counter()
    for seed in range(scaled(60, 10_000)):
        async with MemoryEngine() as memory, fresh_engine() as engine:
            tally += await compare(memory, engine, seed, 60)
    assert OCCUR - tally.keys() == set()


async def test_a_history_is_the_same_each_time():
    tallies = []
    for _ in range(2):
        async with MemoryEngine() as one, MemoryEngine() as two:
            tallies.append(await compare(one, two, 7, 100))
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


@pytest.mark.parametrize("broken", [LongLease, Deaf, Unfenced])
async def test_a_broken_engine_is_found(broken: type[MemoryEngine]):
    async def some_histories() -> None:
        for seed in range(20):
            async with MemoryEngine() as memory, broken() as engine:
                await compare(memory, engine, seed, 60)

    with pytest.raises(AssertionError, match=r"seed \d+, step \d+: "):
        await some_histories()


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
async def test_the_ledger_refuses_what_cannot_be(
    before: JobRow | None, after: JobRow, message: str
):
    ledger = Ledger()
    if before is not None:
        ledger.stands([PENDING])
        if before.state is not State.PENDING:
            ledger.claimed([RUNNING])
            ledger.stands([RUNNING])
        ledger.stands([before])
    with pytest.raises(AssertionError, match=message):
        ledger.stands([after])


async def test_the_ledger_refuses_a_token_that_was_drawn_before():
    ledger = Ledger()
    ledger.stands([PENDING])
    ledger.claimed([RUNNING])
    ledger.stands([RUNNING])
    with pytest.raises(AssertionError, match="token"):
        ledger.claimed([changed(RUNNING, owner="b")])
