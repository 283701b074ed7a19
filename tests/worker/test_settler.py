"""Outcomes are written once, in few calls, whatever the store does."""

from __future__ import annotations

import asyncio
import time

import pytest

from tenure.core.outcomes import Completed, Settled, Settlement, Verdict
from tenure.core.rules import decide
from tenure.core.states import State
from tenure.engines.protocol import Claim
from tenure.errors import EngineUnavailable
from tenure.worker.settler import Settler
from tests.worker.kit import House, until
from tests.worker.puppet import Strings

pytestmark = pytest.mark.anyio


async def held(house: House, count: int) -> list[Settlement]:
    """Settlements of jobs that were claimed."""

    async def body() -> None:
        pass

    task = house.task(body)
    for _ in range(count):
        await house.put(task)
    rows = await house.engine.claim(Claim(owner="me", limit=count, lease=60_000_000))
    return [decide(row, Completed(b"1"), now=row.started_at or 0) for row in rows]


def started(house: House) -> Settler:
    settler = Settler(house.engine)
    settler.start()
    return settler


async def test_what_comes_during_a_write_goes_together_in_the_next(moved: tuple[House, Strings]):
    house, strings = moved
    settler = started(house)
    answers = [settler.settle(s) for s in await held(house, 50)]
    assert {a.verdict for a in await asyncio.gather(*answers)} == {Verdict.APPLIED}
    assert strings.sizes["settle"] == [50]
    assert await settler.close(5) == 0


async def test_a_failure_before_the_effect_is_tried_again(moved: tuple[House, Strings]):
    house, strings = moved
    settler = started(house)
    strings.before["settle"] = [EngineUnavailable("away"), EngineUnavailable("away")]
    [settlement] = await held(house, 1)
    answer = await settler.settle(settlement)
    assert (answer.verdict, answer.state) == (Verdict.APPLIED, State.COMPLETED)
    assert strings.calls["settle"] == 3
    await settler.close(5)


async def test_a_failure_after_the_effect_doubles_nothing(moved: tuple[House, Strings]):
    house, strings = moved
    settler = started(house)
    strings.after["settle"] = [EngineUnavailable("the reply was lost")]
    [settlement] = await held(house, 1)
    answer = await settler.settle(settlement)
    assert (answer.verdict, answer.state) == (Verdict.ALREADY, State.COMPLETED)
    await settler.close(5)


async def test_a_store_that_refuses_one_outcome_takes_the_others(moved: tuple[House, Strings]):
    house, strings = moved
    settler = started(house)
    settlements = await held(house, 20)
    poison = settlements[7]

    async def choke(name: str, args: tuple[list[Settlement]]) -> None:
        if name == "settle" and poison in args[0]:
            raise TypeError("cannot be stored")

    strings.on_call = choke
    answers = await asyncio.gather(*map(settler.settle, settlements), return_exceptions=True)
    refused = answers.pop(7)
    assert isinstance(refused, TypeError)
    assert all(isinstance(a, Settled) and a.verdict is Verdict.APPLIED for a in answers)
    assert await settler.close(5) == 0


async def test_an_answer_of_the_wrong_length_is_no_answer(memory: tuple[House, Strings]):
    house, _ = memory
    settler = started(house)
    real = house.engine.settle

    class Short:
        async def settle(self, settlements: list[Settlement]) -> list[Settled]:
            answers = await real(settlements)
            return answers if len(answers) == 1 else answers[1:]

    settler._engine = Short()  # type: ignore[assignment]
    answers = await asyncio.gather(*map(settler.settle, await held(house, 3)))
    assert {answer.state for answer in answers} == {State.COMPLETED}
    await settler.close(5)


async def test_a_busy_row_is_tried_again_without_holding_up_others(memory: tuple[House, Strings]):
    house, _ = memory
    settler = started(house)
    first, *others = await held(house, 5)
    real, seen = house.engine.settle, []

    class Busy:
        async def settle(self, settlements: list[Settlement]) -> list[Settled]:
            seen.append(time.monotonic())
            if first in settlements and len(seen) < 4:
                rest = await real([s for s in settlements if s is not first])
                return [Settled(first.id, Verdict.BUSY), *rest]
            return await real(settlements)

    settler._engine = Busy()  # type: ignore[assignment]
    busy = settler.settle(first)
    await until(lambda: seen)
    for settlement in others:
        answer = await asyncio.wait_for(settler.settle(settlement), 1)
        assert answer.verdict is Verdict.APPLIED
    assert (await busy).verdict is Verdict.APPLIED
    assert len(seen) < 10
    await settler.close(5)


async def test_closing_writes_what_is_left(moved: tuple[House, Strings]):
    house, _ = moved
    settler = started(house)
    answers = [settler.settle(s) for s in await held(house, 5)]
    assert await settler.close(5) == 0
    assert {(await a).verdict for a in answers} == {Verdict.APPLIED}


async def test_closing_is_bounded_while_the_store_is_away(moved: tuple[House, Strings]):
    house, strings = moved
    settler = started(house)
    settlements = await held(house, 5)
    strings.fail("settle")
    answers = [settler.settle(s) for s in settlements]
    begun = time.monotonic()
    assert await settler.close(0.1) == 5
    assert time.monotonic() - begun < 2
    assert all(answer.cancelled() for answer in answers)


async def test_closing_is_bounded_by_an_engine_that_does_not_answer(
    memory: tuple[House, Strings],
):
    house, strings = memory
    settler = started(house)
    [settlement] = await held(house, 1)

    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    strings.on_call = hang
    answer = settler.settle(settlement)
    assert await settler.close(0.05) == 1
    assert answer.cancelled()


async def test_after_the_end_nobody_waits_for_an_answer(memory: tuple[House, Strings]):
    house, _ = memory
    settler = Settler(house.engine)
    [settlement] = await held(house, 1)
    assert settler.settle(settlement).cancelled()
    settler.start()
    await settler.close(1)
    assert settler.settle(settlement).cancelled()
    assert await settler.close(1) == 0


async def test_a_settler_that_dies_leaves_nobody_waiting(
    memory: tuple[House, Strings], caplog: pytest.LogCaptureFixture
):
    house, _ = memory
    settler = started(house)
    settlements = await held(house, 2)

    class Deadly:
        async def settle(self, settlements: list[Settlement]) -> list[Settled]:
            raise GeneratorExit

    settler._engine = Deadly()  # type: ignore[assignment]
    answer = settler.settle(settlements[0])
    await asyncio.wait({answer}, timeout=5)
    assert answer.cancelled()
    assert settler.settle(settlements[1]).cancelled()
    assert "outcomes are not written any more" in caplog.text
    await settler.close(1)
