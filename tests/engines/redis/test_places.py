"""URLs, and what is refused about them; servers that cannot be used, or should not."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest
from redis.exceptions import AskError, MovedError, ResponseError

from tenure.engines.open import open_engine
from tenure.engines.redis import RedisEngine, place_of
from tenure.engines.redis.faults import Fault, fault_of, is_reply, refused
from tenure.engines.redis.health import _eviction, _memory, _persistence
from tenure.engines.redis.opening import _check_server, product
from tenure.errors import ConfigurationError, EngineUnavailable, SchemaError, TenureError
from tests.servers.valkey import ValkeyServer, free_port, program, running

CANARY = "s3cr3t"


@pytest.mark.parametrize(
    ("url", "fields"),
    [
        ("redis://", {"kind": "redis", "hosts": (("localhost", 6379),), "db": 0}),
        ("redis://h:1234/5", {"hosts": (("h", 1234),), "db": 5}),
        ("redis://h?db=5", {"hosts": (("h", 6379),), "db": 5}),
        ("redis://[::1]:7/", {"hosts": (("::1", 7),)}),
        ("redis://u:p%40ss@h", {"username": "u", "password": "p@ss"}),
        ("redis://:pw@h", {"username": None, "password": "pw"}),
        ("valkey://h", {"kind": "redis", "shown": "redis://h"}),
        (
            "rediss://h?cafile=/ca.pem&verify=no",
            {"kind": "rediss", "cafile": "/ca.pem", "verify": False},
        ),
        ("valkeys://h", {"kind": "rediss"}),
        ("unix:///run/r.sock?db=2", {"kind": "unix", "path": "/run/r.sock", "db": 2, "hosts": ()}),
        ("unix://:pw@/run/r.sock", {"path": "/run/r.sock", "password": "pw"}),
        (
            "redis+sentinel://a:1,b/main/3?sentinel_password=x",
            {
                "hosts": (("a", 1), ("b", 26379)),
                "service": "main",
                "db": 3,
                "sentinel_password": "x",
            },
        ),
        ("valkey+cluster://a:1,b:2", {"kind": "redis+cluster", "hosts": (("a", 1), ("b", 2))}),
        ("redis://h?namespace=shop&timeout=2.5", {"namespace": "shop", "timeout": 2.5}),
    ],
)
def test_what_a_url_names(url: str, fields: dict[str, Any]):
    place = place_of(url)
    assert {name: getattr(place, name) for name in fields} == fields
    assert open_engine(url).url == place.shown
    assert open_engine(url).traits.name == place.kind


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("redis://h/x", "number"),
        ("redis://h/1/2", "database"),
        ("redis://h/1?db=2", "database"),
        ("redis://h:port/", "port"),
        ("redis://a,b/", "several hosts"),
        ("redis://a,,b/", "host"),
        ("redis://h?nonsense=1", "nonsense"),
        ("redis://h?timeout=0", "timeout"),
        ("redis://h?timeout=soon", "timeout"),
        ("redis://h?timeout=1&timeout=2", "twice"),
        ("redis://h?namespace=a{b}", "namespace"),
        ("redis://h?namespace=", "namespace"),
        ("redis://h?verify=perhaps", "verify"),
        ("redis://h?sentinel_password=x", "sentinel_password"),
        ("redis+sentinel://h", "service"),
        ("redis+cluster://h/1", "cluster"),
        ("unix://host/run/r.sock", "socket"),
        ("unix://", "socket"),
    ],
)
def test_what_is_wrong_is_named(url: str, word: str):
    with pytest.raises(ConfigurationError, match=word):
        open_engine(url)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://user:{CANARY}@host",
        f"redis+sentinel://user:{CANARY}@a:1,b:2/main?sentinel_password={CANARY}",
        f"unix://:{CANARY}@/run/r.sock",
    ],
)
def test_secrets_are_not_shown(url: str):
    engine = open_engine(url)
    assert CANARY not in engine.url
    assert CANARY not in repr(engine)


def test_nothing_is_imported_before_it_is_used():
    script = """
import sys
sys.modules["redis"] = None
import tenure
from tenure.engines.open import open_engine
from tenure.errors import ConfigurationError
assert "tenure.engines.redis" not in sys.modules
try:
    open_engine("redis://host")
except ConfigurationError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "tenure[redis]" in done.stdout


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (ResponseError("READONLY You can't write against a read only replica."), Fault.NOT_NOW),
        (ResponseError("Error running script: @user_script:3: -READONLY You can't"), Fault.NOT_NOW),
        (ResponseError("LOADING Redis is loading the dataset in memory"), Fault.NOT_NOW),
        (ResponseError("BUSY Redis is busy running a script."), Fault.NOT_NOW),
        (ResponseError("MASTERDOWN Link with MASTER is down"), Fault.NOT_NOW),
        (ResponseError("Error: @user_script: 12: -OOM command not allowed"), Fault.FULL),
        (ResponseError("command not allowed when used memory > 'maxmemory'."), Fault.FULL),
        (ResponseError("MISCONF Redis is configured to save RDB snapshots"), Fault.CANNOT_WRITE),
        (ResponseError("NOREPLICAS Not enough good replicas to write."), Fault.CANNOT_WRITE),
        (ResponseError("NOPERM User x has no permissions"), Fault.FORBIDDEN),
        (ResponseError("user_script:1: attempt to index a nil value"), None),
        (AskError("1 127.0.0.1:7000"), Fault.NOT_NOW),
        (MovedError("1 127.0.0.1:7000"), Fault.MOVED),
    ],
)
def test_what_a_refusal_means(error: Exception, fault: Fault | None):
    assert fault_of(error) is fault
    assert is_reply(error)
    assert isinstance(refused("insert", error, fault), TenureError)


@pytest.mark.parametrize(
    ("server", "old"),
    [
        ({"redis_version": "6.2.0"}, False),
        ({"redis_version": "6.0.16"}, True),
        ({"redis_version": "8.0.1"}, False),
        ({"redis_version": "7.2.4", "valkey_version": "7.2.5"}, False),
        ({"redis_version": "7.2.4", "valkey_version": "7.1.0"}, True),
        ({}, True),
    ],
)
def test_servers_that_are_too_old_are_refused(server: dict[str, str], old: bool):
    if not old:
        _check_server(server)
        return
    with pytest.raises(SchemaError, match="or newer"):
        _check_server(server)
    assert product(server)[0] in ("redis", "valkey")


def test_what_endangers_jobs_is_found():
    assert [f.code for f in _eviction({"maxmemory_policy": "allkeys-lru"})] == ["server-evicts"]
    assert [*_eviction({"maxmemory_policy": "volatile-lru"}), *_eviction({})] == []
    assert [f.code for f in _memory({"maxmemory": "100", "used_memory": "95"})] == [
        "memory-nearly-full"
    ]
    assert [*_memory({"maxmemory": "0", "used_memory": "95"})] == []
    assert [f.code for f in _persistence({"aof_enabled": "0"})] == ["not-persistent"]
    assert [*_persistence({"aof_enabled": "1"})] == []


@pytest.mark.anyio
async def test_what_a_restart_would_lose_is_said_once(caplog: pytest.LogCaptureFixture):
    if program() is None:
        pytest.skip("there is no Valkey server here")
    caplog.set_level(logging.WARNING, "tenure.redis")
    with running(maxmemory="50mb", maxmemory_policy="allkeys-lru") as server:
        engine = RedisEngine(place_of(server.url()))
        for _ in range(2):
            async with engine, engine.side():
                pass
        texts = [record.getMessage() for record in caplog.records]
        assert len(texts) == 2
        assert "throws away jobs" in texts[0]
        assert "append-only" in texts[1]
        async with engine:
            codes = {f.code: f.problem for f in (await engine.inspect()).findings}
        assert codes == {"server-evicts": True, "not-persistent": False}


@pytest.mark.anyio
async def test_a_wrong_password_and_no_server_are_told_apart(valkey_server: ValkeyServer):
    with pytest.raises(ConfigurationError, match="user") as caught:
        async with RedisEngine(place_of(f"redis://u:{CANARY}@127.0.0.1:{valkey_server.port}")):
            pass
    assert CANARY not in str(caught.value)
    with pytest.raises(EngineUnavailable):
        async with RedisEngine(place_of(f"redis://127.0.0.1:{free_port()}/?timeout=0.5")):
            pass


@pytest.mark.anyio
async def test_a_store_of_a_newer_library_is_refused(
    valkey_store: str, valkey_server: ValkeyServer
):
    place = place_of(valkey_store)
    assert await RedisEngine(place).migrate() == 1
    with valkey_server.client() as client:
        client.hset(f"{place.prefix}meta", mapping={"version": "9", "min_library": "1"})
        async with RedisEngine(place) as engine:
            assert await engine.migrate() == 9
        client.hset(f"{place.prefix}meta", "min_library", "2")
    with pytest.raises(SchemaError, match="newer version"):
        async with RedisEngine(place):
            pass


@pytest.mark.anyio
async def test_a_socket_will_do(tmp_path):
    if program() is None:
        pytest.skip("there is no Valkey server here")
    with running(unixsocket=str(tmp_path / "s")) as server:
        async with RedisEngine(place_of(f"unix://{tmp_path}/s")) as engine:
            assert await engine.stats() == []
        direct = RedisEngine(place_of(f"unix://{tmp_path}/s")).direct()
        assert direct.insert([]) == []
        direct.close()
        assert server.pid
