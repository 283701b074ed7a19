"""Who is told of a single job, and on which connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
import redis

from tenure.core.durations import SECOND
from tenure.engines.protocol import Claim, Signal, Topic
from tenure.engines.redis import RedisEngine, place_of
from tests.engines.redis.conftest import make_job

pytestmark = pytest.mark.anyio

NEWS = Signal(Topic.QUEUE, "default")
END = Signal(Topic.ANY, "")


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that no event tells."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def told(listener, engine: RedisEngine) -> bool:
    """Whether a listener was told of the queue up to now."""
    await engine.notify([END])
    heard: set[Signal] = set()
    while END not in heard:
        heard |= await listener.wait(10)
    return NEWS in heard


async def test_of_one_job_one_process_is_told_each_in_its_turn(valkey_store: str):
    place = place_of(valkey_store)
    async with (
        RedisEngine(place) as a,
        RedisEngine(place) as b,
        RedisEngine(place) as c,
        a.listen({Topic.QUEUE}, ["default"]) as first,
        b.listen({Topic.QUEUE}, ["default"]) as second,
    ):
        turns = []
        for _ in range(4):
            await c.insert([make_job()])
            turns.append((await told(first, c), await told(second, c)))
        assert all(one != other for one, other in turns)
        assert turns[0] != turns[1]
        assert turns[0::2] == [turns[0]] * 2
        await c.insert([make_job(), make_job()])
        assert await told(first, c)
        assert await told(second, c)


async def test_who_is_busy_is_told_last(valkey_store: str):
    place = place_of(valkey_store)
    claim = Claim(owner="a", limit=1, lease=SECOND)
    async with (
        RedisEngine(place) as busy,
        RedisEngine(place) as hungry,
        RedisEngine(place) as c,
        busy.listen({Topic.QUEUE}, ["default"]) as first,
        hungry.listen({Topic.QUEUE}, ["default"]) as second,
    ):
        await c.insert([make_job()])
        assert len(await busy.claim(claim)) == 1  # all that it asked for: it is full
        await hungry.claim(claim)
        await told(first, c)
        await told(second, c)
        for _ in range(3):
            await c.insert([make_job()])
            assert not await told(first, c)
            assert await told(second, c)


async def test_who_died_is_passed_over(valkey_store: str, look: redis.Redis):
    place = place_of(valkey_store)
    look.zadd(f"{place.prefix}ears:default", {f"dead{n}": n for n in range(5)})
    async with RedisEngine(place) as a:
        listening = a.listen({Topic.QUEUE}, ["default"])
        async with listening as listener:
            await a.insert([make_job()])
            assert NEWS in await listener.wait(10)
        assert look.exists(f"{place.prefix}ears:default") == 0


async def test_messages_of_somebody_else_do_no_harm(valkey_store: str, look: redis.Redis):
    place = place_of(valkey_store)
    async with RedisEngine(place) as engine, engine.listen(set(Topic)) as listener:
        for channel in ("any", "done", "cancel", "queue"):
            for data in (b"\xff\xfe", b"", b"\x93\x01"):
                look.publish(f"{place.prefix}!{channel}", data)
        await engine.insert([make_job(), make_job()])
        heard: set[Signal] = set()
        while NEWS not in heard:
            more = await listener.wait(10)
            assert more
            heard |= more


async def test_listeners_of_a_handle_share_one_connection(valkey_store: str, look: redis.Redis):
    def subscribed() -> int:
        return sum(int(c["sub"]) > 0 for c in look.client_list())

    before = subscribed()
    async with RedisEngine(place_of(valkey_store)) as engine:
        assert subscribed() == before
        async with (
            engine.listen({Topic.DONE}),
            engine.listen({Topic.QUEUE}, ["a", "b"]),
            engine.listen({Topic.CANCEL}),
        ):
            assert subscribed() == before + 1
        await until(lambda: subscribed() == before)


async def test_a_process_hears_no_more_than_somebody_wants(valkey_store: str, look: redis.Redis):
    place = place_of(valkey_store)
    async with (
        RedisEngine(place) as engine,
        RedisEngine(place) as other,
        engine.listen({Topic.DONE}) as listener,
    ):
        found = look.pubsub_channels(f"{place.prefix}*")
        assert set(found) == {f"{place.prefix}!any".encode(), f"{place.prefix}!done".encode()}
        await other.insert([make_job()])
        assert not await told(listener, other)
