"""The arithmetic of scripts: exact over all of 64 bits, in whatever locale."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from importlib import resources
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.durations import LAST_INSTANT
from tenure.core.identity import UniqueUntil
from tenure.core.job import RANK_STEP
from tenure.core.limits import PARKED_MAX
from tenure.core.outcomes import Completed, Snoozed, Verdict
from tenure.core.rules import decide
from tenure.engines.protocol import Arm, Claim
from tenure.engines.redis import RedisEngine
from tenure.engines.redis.rows import FIELDS, lane_of, of_lane
from tenure.engines.redis.scripts import script
from tenure.engines.sql import read_text
from tests.engines.redis.conftest import make_job
from tests.servers.valkey import ValkeyServer

LOW, HIGH = -(2**63), 2**63 - 1
CORNERS = sorted(
    {
        value + near
        for value in (
            9 * 10**15 - 2,
            LOW,
            -(2**53),
            -(10**15),
            -(10**9),
            0,
            10**9,
            10**15,
            2**53,
            LAST_INSTANT,
            HIGH,
        )
        for near in (-2, -1, 0, 1, 2)
        if LOW <= value + near <= HIGH
    }
)
TEXTS = st.lists(st.sampled_from((0, 65, 97, 255)), max_size=5).map(bytes)
NUMBERS = st.one_of(st.sampled_from(CORNERS), st.integers(LOW, HIGH))
Calculate = Callable[..., Any]


@pytest.fixture(scope="session")
def calculate(valkey_server: ValkeyServer):
    """Runs an expression of Lua with what `numbers.lua` has."""
    text = read_text("tenure.engines.redis", "scripts/parts/numbers.lua")
    with valkey_server.client() as client:
        yield lambda expression, *values: client.eval(f"{text}\nreturn {expression}", 0, *values)


def place(number: int) -> bytes:
    return (number + 2**63).to_bytes(8, "big")


@given(numbers=st.lists(NUMBERS, min_size=1, max_size=20))
def test_places_are_the_bytes_of_the_numbers(calculate: Calculate, numbers: list[int]):
    made = calculate("{place(ARGV[1])}", numbers[0])[0]
    assert made == place(numbers[0])


def test_every_corner_has_its_place(calculate: Calculate):
    for number in CORNERS:
        assert calculate("place(ARGV[1])", number) == place(number)


@given(a=NUMBERS, b=NUMBERS)
def test_sums_and_comparisons_are_exact(calculate: Calculate, a: int, b: int):
    less = calculate("is_less(ARGV[1], ARGV[2]) and 1 or 0", a, b)
    assert less == int(a < b)
    if LOW <= a + b <= HIGH:
        assert int(calculate("sum(ARGV[1], ARGV[2])", a, b)) == a + b


def test_every_pair_of_corners_is_added(calculate: Calculate):
    for a, b in itertools.product(CORNERS[::2], CORNERS):
        if LOW <= a + b <= HIGH:
            assert int(calculate("sum(ARGV[1], ARGV[2])", a, b)) == a + b, (a, b)


@given(a=TEXTS, b=TEXTS)
def test_texts_are_compared_by_their_bytes(calculate: Calculate, a: bytes, b: bytes):
    assert calculate("is_before(ARGV[1], ARGV[2]) and 1 or 0", a, b) == int(a < b)


@pytest.mark.parametrize("queue", ["", "a", "a:b", "12:x", "näme", "名", "\n"])
@pytest.mark.parametrize("task", ["", "t", "3:t", "é"])
def test_a_lane_keeps_queue_and_task_apart(queue: str, task: str):
    assert of_lane(lane_of(queue, task)) == (queue, task)


@pytest.mark.anyio
async def test_the_order_of_claims_is_exact_over_the_whole_range(
    engine: RedisEngine, look: redis.Redis, valkey_store: str
):
    """Ranks that differ by one, where doubles are 1,024 apart; put there by hand."""
    jobs = [make_job(task=f"t{n % 3}") for n in range(len(CORNERS))]
    await engine.insert(jobs)
    prefix = engine._place.prefix
    for job, rank in zip(jobs, CORNERS, strict=True):
        lane = lane_of("default", job.task)
        look.hset(f"{prefix}job:{job.id}", "rank", str(rank))
        look.delete(f"{prefix}ready:{lane}")
    for job, rank in zip(jobs, CORNERS, strict=True):
        look.zadd(
            f"{prefix}ready:{lane_of('default', job.task)}", {place(rank) + job.id.encode(): 0}
        )
    claim = Claim(owner="w", limit=7, lease=10**6, arms=frozenset({Arm.DUE}))
    taken = []
    while rows := await engine.claim(claim):
        taken += [row.rank for row in rows]
    assert taken == CORNERS


@pytest.mark.anyio
@pytest.mark.parametrize("token", [5, 10**15, 2**53, 2**53 + 1, 2**62 + 1, HIGH - 1])
async def test_a_token_is_one_more_however_large_it_is(
    engine: RedisEngine, look: redis.Redis, token: int
):
    job = make_job()
    await engine.insert([job], now=10)
    look.hset(f"{engine._place.prefix}job:{job.id}", "token", str(token))
    [row] = await engine.claim(Claim(owner="w", limit=1, lease=10**6), now=20)
    assert row.token == max(token + 1, 20)
    [answer] = await engine.settle([decide(row, Completed(), now=20)], now=20)
    assert answer.verdict is Verdict.APPLIED
    [after] = await engine.get([job.id])
    assert after is not None
    assert after.token == row.token


@pytest.mark.anyio
async def test_times_beyond_the_exact_doubles_are_kept_to_the_microsecond(engine: RedisEngine):
    now = 1_700_000_000_000_000
    times = [LAST_INSTANT - 1, LAST_INSTANT, 2**53 + 1, LAST_INSTANT - 3]
    jobs = [make_job(run_at=at, priority=p) for at in times for p in (0, 7, -32768)]
    await engine.insert(jobs, now=now)
    rows = await engine.get([job.id for job in jobs])
    for job, row in zip(jobs, rows, strict=True):
        assert row is not None
        assert row.available_at == job.run_at
        assert row.rank == (job.run_at or 0) - job.priority * RANK_STEP
    assert await engine.next_due(["default"], now=now) == 2**53 + 1 - now


@pytest.mark.anyio
async def test_a_delay_past_the_calendar_ends_with_it(engine: RedisEngine):
    job = make_job()
    await engine.insert([job])
    [row] = await engine.claim(Claim(owner="w", limit=1, lease=10**6))
    await engine.settle([decide(row, Snoozed(LAST_INSTANT), now=0)])
    [after] = await engine.get([job.id])
    assert after is not None
    assert (after.available_at, after.rank) == (LAST_INSTANT, LAST_INSTANT)


def test_what_scripts_know_of_core_comes_from_core():
    text = script("insert").text.decode()
    assert f'is_less("{LAST_INSTANT}", instant)' in text
    assert f"* {RANK_STEP}" in text
    assert f">= {PARKED_MAX}" in script("claim").text.decode()
    assert f"row[{FIELDS.index('lane') + 1}]" in text
    assert ", ".join(f'"{name}"' for name in FIELDS) in text
    assert f'== "{UniqueUntil.FOREVER}"' in text
    assert f'== "{UniqueUntil.STARTED}"' in script("claim").text.decode()


def test_every_script_says_what_its_keys_and_arguments_are():
    folder = resources.files("tenure.engines.redis") / "scripts"
    names = [path.name for path in folder.iterdir() if path.name.endswith(".lua")]
    assert len(names) > 15
    for name in names:
        head = "".join(
            itertools.takewhile(
                lambda line: line.startswith("--"),
                (folder / name).read_text("utf-8").splitlines(keepends=True),
            )
        )
        assert "KEYS[1]" in head, name
        assert "include: " in head, name
        assert re_numbered(head), name


def re_numbered(head: str) -> bool:
    """Whether what is asked or answered is said."""
    return "ARGV[" in head or "Answers" in head
