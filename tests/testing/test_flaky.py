"""Faults on demand: what is told to go wrong does, and nothing else."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from tenure.core.lease import Extended
from tenure.core.outcomes import Verdict
from tenure.engines.memory import MemoryEngine
from tenure.engines.protocol import (
    Core,
    Engine,
    Events,
    Identities,
    Operate,
    Query,
    Schedules,
    Signal,
    Topic,
)
from tenure.errors import ConfigurationError, EngineUnavailable
from tenure.testing.conformance.kit import (
    NOW,
    beat,
    finish,
    ids,
    job_id,
    new,
    numbered,
    put,
    stored,
    take,
    take_one,
)
from tenure.testing.flaky import OPERATIONS, Flaky, Rates

pytestmark = pytest.mark.anyio
PARTS = (Core, Operate, Query, Schedules, Identities, Events)


@pytest.fixture
async def flaky():
    async with Flaky(MemoryEngine()) as engine:
        yield engine


def test_every_operation_that_answers_later_can_fail():
    named = {
        name
        for part in PARTS
        for name, member in vars(part).items()
        if inspect.iscoroutinefunction(member) and not name.startswith("__")
    }
    assert named == OPERATIONS
    for name in OPERATIONS:
        ours, theirs = getattr(Flaky, name), getattr(Engine, name)
        assert inspect.signature(ours) == inspect.signature(theirs)


async def test_without_faults_it_is_the_engine(flaky: Flaky):
    engine: Engine = flaky
    await put(engine, new(1))
    row = await take_one(engine)
    assert await engine.extend([beat(row)], now=NOW) == [Extended(30.0)]
    assert (await finish(engine, row)).verdict is Verdict.APPLIED
    assert (engine.url, engine.traits.name) == ("memory://", "memory")
    assert flaky.calls == {"insert": 1, "claim": 1, "extend": 1, "settle": 1}
    assert flaky.faults == {}


async def test_a_failure_before_leaves_no_trace(flaky: Flaky):
    flaky.fail("insert", times=2)
    for _ in range(2):
        with pytest.raises(EngineUnavailable, match="insert"):
            await put(flaky, new(1))
        assert await flaky.get(numbered(1)) == [None]
    await put(flaky, new(1))
    assert flaky.faults == {"insert": 2}


async def test_a_failure_after_leaves_the_effect(flaky: Flaky):
    flaky.fail("insert", after=True)
    with pytest.raises(EngineUnavailable):
        await put(flaky, new(1))
    assert (await stored(flaky, 1)).id == job_id(1)


async def test_the_error_can_be_chosen(flaky: Flaky):
    flaky.fail("get", error=OSError("cable"))
    with pytest.raises(OSError, match="cable"):
        await flaky.get([])


async def test_faults_come_in_the_order_given(flaky: Flaky):
    flaky.fail("insert", after=True)
    flaky.delay("insert", 0)
    flaky.fail("insert")
    for number, fails in ((1, True), (2, False), (3, True), (4, False)):
        if fails:
            with pytest.raises(EngineUnavailable):
                await put(flaky, new(number))
        else:
            await put(flaky, new(number))
    there = [row is not None for row in await flaky.get(numbered(1, 2, 3, 4))]
    assert there == [True, True, False, True]


@pytest.mark.parametrize("after", [False, True])
async def test_an_operation_can_be_held(flaky: Flaky, after: bool):
    gate = flaky.hold("insert", after=after)
    task = asyncio.create_task(put(flaky, new(1)))
    await gate.reached()
    (row,) = await flaky.get(numbered(1))
    assert (row is not None) == after
    assert not task.done()
    gate.let_go()
    await task
    assert (await stored(flaky, 1)).id == job_id(1)


async def test_sides_share_the_script(flaky: Flaky):
    flaky.fail("get")
    async with flaky.side() as side:
        with pytest.raises(EngineUnavailable):
            await side.get([])
        await put(side, new(1))
    assert (flaky.calls, flaky.faults) == ({"get": 1, "insert": 1}, {"get": 1})
    assert (await stored(flaky, 1)).id == job_id(1)


async def test_healing_forgets_what_was_to_come():
    rates = {"get": Rates(fail=1.0)}
    async with Flaky(MemoryEngine(), rates=rates) as flaky:
        flaky.fail("find")
        with pytest.raises(EngineUnavailable):
            await flaky.get([])
        flaky.heal()
        await flaky.get([])


async def test_a_lost_hint_is_no_error(flaky: Flaky):
    flaky.fail("notify")
    async with flaky.listen((Topic.QUEUE,)) as listener:
        await flaky.notify([Signal(Topic.QUEUE, "lost")])
        await flaky.notify([Signal(Topic.QUEUE, "told")])
        assert await listener.wait(10) == {Signal(Topic.QUEUE, "told")}


@pytest.mark.parametrize("name", ["extent", "side", "__aenter__"])
def test_an_unknown_operation_is_refused(name: str):
    flaky = Flaky(MemoryEngine())
    for script in (flaky.fail, flaky.hold):
        with pytest.raises(ConfigurationError, match="insert"):
            script(name)
    with pytest.raises(ConfigurationError):
        Flaky(MemoryEngine(), rates={name: Rates()})


async def _random(seed: int) -> tuple[list[bool], list[str]]:
    """Which of many inserts raised, and what is there after them."""
    rates = {"insert": Rates(fail=0.2, lose=0.2, delay=0.1, longest=0.0)}
    raised = []
    async with Flaky(MemoryEngine(), seed=seed, rates=rates) as flaky:
        for n in range(200):
            try:
                await put(flaky, new(n))
                raised.append(False)
            except EngineUnavailable:
                raised.append(True)
        return raised, ids(await take(flaky, 1000))


async def test_chance_is_seeded_and_keeps_to_its_rates():
    raised, there = await _random(1)
    assert (raised, there) == await _random(1)
    assert raised != (await _random(2))[0]
    kept = [job_id(n) in there for n in range(200)]
    failed = sum(1 for n in range(200) if not kept[n])
    lost = sum(1 for n in range(200) if kept[n] and raised[n])
    assert 20 < failed < 60
    assert 20 < lost < 60
    assert all(raised[n] for n in range(200) if not kept[n])
