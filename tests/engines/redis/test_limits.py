"""What limits need on this engine: exact arithmetic, bounded steps, and nothing left half done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from tenure.core import limits
from tenure.core.durations import SECOND
from tenure.core.fleet import QueueChange
from tenure.core.job import RANK_STEP, JobRow
from tenure.core.limits import NO_LIMITS, Blocked, Limits, Rate
from tenure.core.outcomes import Completed, Errored
from tenure.core.reports import JobError
from tenure.core.rules import decide
from tenure.core.states import State
from tenure.engines.redis import RedisEngine, limiting
from tenure.engines.redis.limiting import UNBLOCKED
from tenure.engines.redis.scripts import script
from tenure.engines.terms import Claim, Signal, Topic
from tests.engines.redis.conftest import make_job
from tests.servers.valkey import ValkeyServer

NOW = 1_700_000_000_000_000
LEASE = 60 * SECOND
Calculate = Callable[..., Any]

RATES = st.builds(
    Rate,
    st.sampled_from((1, 3, 1_000_000)),
    st.sampled_from((1000, SECOND, 86_400 * SECOND, 31 * 86_400 * SECOND)),
    st.sampled_from((1, 2, 7, 1_000_000)),
)


def claim(limit: int = 100, **fields: Any) -> Claim:
    return Claim(**{"owner": "w", "limit": limit, "lease": LEASE, **fields})


@pytest.fixture(scope="session")
def calculate(valkey_server: ValkeyServer):
    """Runs an expression of Lua with what claims have, for a rate, an arrival, now and a count."""
    text = script("unblock").text.decode().partition("local queue, count")[0]
    setting = "local rate = cjson.decode(ARGV[3])\nlocal arrival = ARGV[4] ~= '' and ARGV[4] or nil"
    with valkey_server.client() as client:

        def run(expression: str, rate: Rate, arrival: int | None, count: int) -> Any:
            given = limiting._encode(limiting._numbers(rate))
            told = "" if arrival is None else arrival
            whole = f"{text}\n{setting}\nreturn {expression}"
            return client.eval(whole, 1, "{x}:", NOW, given, given, told, count)

        yield run


@given(rate=RATES, data=st.data(), most=st.integers(0, 20))
def test_scripts_calculate_as_core_does(
    calculate: Calculate, rate: Rate, data: st.DataObject, most: int
):
    edges = [NOW, NOW + rate.ahead, NOW + rate.horizon, NOW + rate.interval]
    near = st.sampled_from([edge + step for edge in edges for step in (-1, 0, 1)])
    wide = st.integers(NOW - rate.horizon, NOW + 2 * rate.horizon)
    arrival = data.draw(st.none() | near | wide)
    begun = "{flow().starts(rate, arrival, ARGV[1], tonumber(ARGV[5]))}"
    count, after = calculate(begun, rate, arrival, most)
    assert count == min(most, limits.allowed(rate, arrival, NOW))
    assert int(after) == limits.spent(rate, arrival, NOW, count)
    start = calculate("flow().next_start(rate, arrival, ARGV[1])", rate, arrival, 0)
    assert int(start) == limits.next_start(rate, arrival, NOW)


@pytest.mark.anyio
async def test_jobs_that_new_limits_let_go_are_let_go_in_bounded_steps(
    engine: RedisEngine, look: redis.Redis
):
    await engine.configure(QueueChange("default", limits=Limits(key_concurrency=1)))
    jobs = [make_job(concurrency_key="k") for _ in range(2 * UNBLOCKED + 10)]
    await engine.insert(jobs, now=NOW)
    for _ in range(3):
        await engine.claim(claim(), now=NOW)
    prefix = engine._place.prefix
    assert look.zcard(f"{prefix}blocked:default") == len(jobs) - 1
    await engine.configure(QueueChange("default", limits=NO_LIMITS))
    assert look.zcard(f"{prefix}blocked:default") == 0
    assert look.zcard(f"{prefix}ready:7:defaultt") == len(jobs) - 1
    assert not look.exists(f"{prefix}freeing")
    assert len(await engine.claim(claim(1000), now=NOW)) == 1000


@pytest.mark.anyio
async def test_a_sweep_does_what_a_killed_change_of_limits_has_left(
    engine: RedisEngine, look: redis.Redis, monkeypatch: pytest.MonkeyPatch
):
    await engine.configure(
        QueueChange("default", limits=Limits(key_concurrency=1, key_rate=Rate(1, 10**9)))
    )
    jobs = [make_job(concurrency_key="k", rate_key=f"r{n % 2}") for n in range(4)]
    jobs += [make_job(rate_key="s") for _ in range(4)]
    await engine.insert(jobs, now=NOW)
    assert len(await engine.claim(claim(), now=NOW)) == 2
    with monkeypatch.context() as patched:

        async def killed(*_: Any) -> None:
            raise ConnectionError

        patched.setattr(limiting, "unblock_all", killed)
        with pytest.raises(ConnectionError):
            await engine.configure(QueueChange("default", limits=NO_LIMITS))
    assert await engine.claim(claim(), now=NOW) == []
    await engine.sweep(1, now=NOW)
    assert len(await engine.claim(claim(), now=NOW)) == 6
    prefix = engine._place.prefix
    assert not look.exists(f"{prefix}wakes:default", f"{prefix}freeing", f"{prefix}blocked:default")


@pytest.mark.anyio
async def test_rates_that_say_nothing_are_forgotten(engine: RedisEngine, look: redis.Redis):
    await engine.configure(QueueChange("default", limits=Limits(key_rate=Rate(1, SECOND))))
    await engine.insert([make_job(rate_key=f"r{n}") for n in range(50)], now=NOW)
    await engine.insert([make_job(rate_key="late")], now=NOW + SECOND)
    await engine.claim(claim(50), now=NOW)
    await engine.claim(claim(), now=NOW + SECOND)
    prefix = engine._place.prefix
    assert look.hlen(f"{prefix}rates:default") == 51
    await engine.sweep(1, now=NOW + SECOND)
    assert look.hkeys(f"{prefix}rates:default") == [b"late"]
    await engine.sweep(1, now=NOW + 2 * SECOND)
    assert not look.exists(f"{prefix}rates:default", f"{prefix}spent:default", f"{prefix}paced")


@pytest.mark.anyio
async def test_a_holder_that_another_took_back_is_left_alone(
    engine: RedisEngine, monkeypatch: pytest.MonkeyPatch
):
    """Between the look of a claim and its second step somebody else may take over the job."""
    await engine.configure(QueueChange("default", limits=Limits(concurrency=1)))
    gone = make_job(task="gone")
    await engine.insert([gone], now=NOW)
    await engine.insert([make_job()], now=NOW)
    await engine.claim(claim(tasks=("gone",)), now=NOW)
    later = NOW + LEASE
    run = engine._opened("test").link.run
    overtaken: list[JobRow] = []

    async def overtake(name: str, arguments: Any = (), *more: Any, **options: Any) -> Any:
        if name == "claim" and arguments[-1] and not overtaken:
            overtaken.extend(await engine.claim(claim(owner="v", tasks=("gone",)), now=later))
        return await run(name, arguments, *more, **options)

    monkeypatch.setattr(engine._opened("test").link, "run", overtake)
    assert await engine.claim(claim(tasks=("t",)), now=later) == []
    assert await engine.get([gone.id]) == overtaken != []


@pytest.mark.anyio
async def test_a_job_that_is_taken_back_for_good_is_told(engine: RedisEngine):
    await engine.configure(QueueChange("default", limits=Limits(concurrency=1)))
    await engine.insert([make_job(task="gone", max_lapses=0)], now=NOW)
    await engine.insert([make_job()], now=NOW)
    [row] = await engine.claim(claim(tasks=("gone",)), now=NOW)
    async with engine.listen({Topic.DONE, Topic.CANCEL}) as listener:
        [other] = await engine.claim(claim(tasks=("t",)), now=NOW + LEASE)
        told = set(await listener.wait(10))
        while len(told) < 2:
            told |= await listener.wait(10)
    assert told == {Signal(Topic.DONE, row.id), Signal(Topic.CANCEL, row.id)}
    [failed] = await engine.get([row.id])
    assert failed is not None
    assert (failed.state, other.task) == (State.FAILED, "t")


@pytest.mark.anyio
async def test_a_holder_that_the_claim_does_not_name_gives_way(engine: RedisEngine):
    await engine.configure(QueueChange("default", limits=Limits(key_concurrency=1)))
    lost, wanted = make_job(concurrency_key="k"), make_job(concurrency_key="k")
    await engine.insert([lost], now=NOW)
    await engine.insert([wanted], now=NOW)
    assert len(await engine.claim(claim(), now=NOW)) == 1
    later = NOW + LEASE
    rows = []
    for _ in range(2):  # the first may only free the slot
        rows += await engine.claim(claim(owner="v", ids=(wanted.id,)), now=later)
    assert [row.id for row in rows] == [wanted.id]


@pytest.mark.anyio
async def test_a_turn_is_over_when_a_job_comes_back_at_once(engine: RedisEngine):
    await engine.insert([make_job(fair_key="f", max_attempts=2) for _ in range(2)], now=NOW)
    row = (await engine.claim(claim(), now=NOW))[1]
    assert row.rank == NOW + RANK_STEP
    again = Errored(JobError(kind="E", message="boom"), after=0)
    await engine.settle([decide(row, again, now=NOW + 1)], now=NOW + 1)
    assert [back.rank for back in await engine.claim(claim(), now=NOW + 1)] == [NOW + 1]


@pytest.mark.anyio
async def test_what_limits_hold_back_counts_as_pending(engine: RedisEngine):
    await engine.configure(QueueChange("default", limits=Limits(key_concurrency=1)))
    jobs = [make_job(concurrency_key="k") for _ in range(3)]
    await engine.insert(jobs, now=NOW)
    [row] = await engine.claim(claim(), now=NOW)
    [stats] = await engine.stats(now=NOW + 5)
    assert (stats.pending, stats.running, stats.oldest_due) == (2, 1, 5)
    [held] = [row for row in await engine.get([jobs[1].id]) if row is not None]
    assert (held.state, held.blocked) == (State.PENDING, Blocked.CONCURRENCY)
    await engine.settle([decide(row, Completed(), now=NOW)], now=NOW)
    assert [(await engine.claim(claim(), now=NOW))[0].id] == [jobs[1].id]
