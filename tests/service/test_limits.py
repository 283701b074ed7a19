"""Keys of tasks, and what `jobs.queues` sets: what is taken, what is refused, and what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tenure import INJECTED, JobContext, QueueService, TaskRef, rate
from tenure.core.fleet import QueueSettings
from tenure.core.limits import NO_LIMITS, Limits, Rate
from tenure.errors import ConfigurationError, InvalidArguments, PayloadError
from tenure.keys import KEYS

pytestmark = pytest.mark.anyio


def resize(path: str, width: int = 800, *, ctx: JobContext = INJECTED) -> None: ...


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("k", "k"),
        (None, None),
        (lambda path: path, "a.jpg"),
        (lambda width: str(width), "800"),
        (lambda path, width: f"{path}/{width}", "a.jpg/800"),
        (lambda **arguments: "+".join(arguments), "path+width"),
        (lambda path, mode="x": path + mode, "a.jpgx"),
        (lambda: "constant", "constant"),
        (lambda path: None, None),
    ],
)
async def test_a_key_is_text_or_made_of_the_arguments(
    service: QueueService, name: str, key: Any, expected: str | None
):
    task = service.task(resize).options(**{name: key})
    handle = await service.enqueue(task, "a.jpg")
    assert getattr(await handle.job(), name) == expected


async def test_each_call_has_its_own(service: QueueService):
    task = service.task(fair_key=lambda path: path[0])(resize)
    handles = await service.enqueue_many([task.bind(path) for path in ("ab", "cd")])
    assert [(await handle.job()).fair_key for handle in handles] == ["a", "c"]
    plain = await service.enqueue(task.options(fair_key=None), "ab")
    assert (await plain.job()).fair_key is None


async def test_a_reference_makes_keys_of_what_it_is_given(service: QueueService):
    ref = TaskRef("elsewhere", rate_key=lambda to: to.upper())
    handle = await service.enqueue(ref, to="x", text="y")
    assert (await handle.job()).rate_key == "X"


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "1 to 512 bytes, not 0"),
        ("é" * 257, "1 to 512 bytes, not 514"),
        ("a\x00", "NUL"),
        ("\ud800", "surrogate"),
        (7, "must be text, not int"),
    ],
)
async def test_a_bad_key_is_refused_where_it_is_given(
    service: QueueService, name: str, key: Any, message: str
):
    task = service.task(resize)
    with pytest.raises(ConfigurationError, match=f"{name}.*{message}"):
        task.options(**{name: key})
    makers: dict[str, Any] = {name: lambda: key}
    made = task.options(**makers)
    with pytest.raises(PayloadError, match=f"{name}.*{message}"):
        await service.enqueue(made, "a.jpg")


async def test_a_function_that_takes_something_else_is_refused(service: QueueService):
    task = service.task(resize).options(concurrency_key=lambda user: user)
    with pytest.raises(InvalidArguments, match="wants 'user'; the arguments are path, width"):
        await service.enqueue(task, "a.jpg")


async def test_what_a_function_raises_comes_through(service: QueueService):
    def broken(path: str) -> str:
        raise KeyError(path)

    with pytest.raises(KeyError, match=r"a\.jpg"):
        service.task(resize).options(fair_key=broken).bind("a.jpg")


async def test_queues_are_paused_resumed_and_limited(service: QueueService):
    queues = service.queues
    assert await queues.settings() == []
    limits = Limits(concurrency=3, key_rate=Rate(100, 60_000_000, 5))
    given = await queues.limit("mail", concurrency=3, key_rate=rate(100, per=60, burst=5))
    assert given == QueueSettings("mail", False, limits)
    assert await queues.pause("mail") == QueueSettings("mail", True, limits)
    assert await queues.resume("mail") == QueueSettings("mail", False, limits)
    await queues.pause("a")
    assert await queues.settings() == [
        QueueSettings("a", True),
        QueueSettings("mail", False, limits),
    ]
    assert (await queues.limit("mail", key_concurrency=1)).limits == Limits(key_concurrency=1)
    assert (await queues.limit("mail")).limits == NO_LIMITS


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"concurrency": 0}, "concurrency must be an integer from 1 to 1000000, not 0"),
        ({"key_concurrency": True}, "key_concurrency must be an integer"),
        ({"rate": 5}, "rate must be a rate, as in tenure.rate"),
        ({"key_rate": "5/s"}, "key_rate must be a rate"),
    ],
)
async def test_a_bad_limit_is_refused(service: QueueService, limits: Any, message: str):
    with pytest.raises(ConfigurationError, match=message):
        await service.queues.limit("mail", **limits)
    assert await service.queues.settings() == []


@pytest.mark.parametrize("call", ["pause", "resume", "limit"])
async def test_a_queue_has_a_name(service: QueueService, call: str):
    change: Callable[[str], Any] = getattr(service.queues, call)
    with pytest.raises(ConfigurationError, match="queue must not hold commas"):
        await change("a,b")
