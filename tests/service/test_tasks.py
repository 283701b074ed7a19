"""Tasks: what can be one, under which name, and what it is told apart from."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tenure import JobContext, QueueService, Task, TaskRef, task
from tenure.errors import ConfigurationError, MissingDependency, UnknownTask
from tenure.signatures import INJECTED
from tenure.tasks import TaskSet, injected_values

if TYPE_CHECKING:
    from decimal import Decimal

pytestmark = pytest.mark.anyio


async def run_alone(jobs: QueueService, made: Any, *args: Any) -> Any:
    """The result of one job of this task, run by a worker."""
    handle = await jobs.enqueue(made, *args)
    await jobs.worker(burst=True, poll_max=0.01).run()
    return await handle.result(timeout=0)


class Adder:
    """Something that can be called, and has methods that can."""

    name = "not the task's name"

    def __init__(self, more: int) -> None:
        self.more = more
        self.options = "nor its options"

    def __call__(self, value: int) -> int:
        return value + self.more

    async def later(self, value: int) -> int:
        return value + self.more

    @staticmethod
    def fixed(value: int) -> int:
        return value + 100

    @classmethod
    def classy(cls, value: int) -> int:
        return value + 200


class Awaited:
    async def __call__(self, value: int) -> int:
        return value + 1000


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return wrapper


@logged
async def wrapped(value: int) -> int:
    return value


# What can be a task


@pytest.mark.parametrize(
    ("function", "result", "is_async"),
    [
        (lambda value: value, 1, False),
        (functools.partial(lambda base, value: base + value, 5), 6, False),
        (Adder(10), 11, False),
        (Adder(10).later, 11, True),
        (Adder.fixed, 101, False),
        (Adder.classy, 201, False),
        (Awaited(), 1001, True),
        (wrapped, 1, True),
        (functools.partial(wrapped), 1, True),
        (len, 3, False),
    ],
)
async def test_every_callable_can_be_a_task(function: Any, result: Any, is_async: bool) -> None:
    jobs = QueueService("memory://")
    made: Any = jobs.task(name="it")(function)
    assert (made.name, made.is_async) == ("it", is_async)
    argument: Any = "abc" if function is len else 1
    assert await made(argument) == result
    async with jobs:
        assert await run_alone(jobs, made, argument) == result


async def test_a_decorated_function_keeps_its_signature_and_types() -> None:
    made = task(wrapped)
    with pytest.raises(TypeError, match="value: Expected `int`"):
        made.bind("x")
    assert (made.name, made.__wrapped__) == ("wrapped", wrapped)  # type: ignore[attr-defined]


async def test_what_a_function_carries_does_not_get_into_the_task() -> None:
    async def body() -> None:
        """What it does."""

    body.name = "x"  # type: ignore[attr-defined]
    body.spec = body.options = None  # type: ignore[attr-defined]
    made = task(body)
    assert (made.name, made.__doc__) == ("body", "What it does.")
    assert made.options(priority=3).spec.priority == 3


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (Adder, "not <class .*Adder"),
        (generator, "is a generator"),
        (async_generator, "is a generator"),
        (3, "not 3"),
        ("name", "not 'name'"),
        (classmethod(lambda _: None), "not <classmethod"),
        (task(wrapped), "a task already; give it to the service by tasks="),
    ],
)
def test_what_cannot_be_a_task_is_refused(given: Any, word: str) -> None:
    for declare in (task, QueueService("memory://").task):
        with pytest.raises(ConfigurationError, match=word):
            declare(given)


@pytest.mark.parametrize("given", [lambda: None, functools.partial(wrapped), Awaited()])
def test_what_has_no_name_needs_one(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="needs a name="):
        task(given)


# Annotations


def test_annotations_may_refer_to_what_comes_later() -> None:
    assert task(forward).bind(Later()).payload == b'{"value":{"x":1}}'


def forward(value: Later) -> Later:
    return value


class Later(__import__("msgspec").Struct):  # type: ignore[misc]
    x: int = 1


def test_an_annotation_that_cannot_be_resolved_is_refused_at_the_call() -> None:
    def body(value: Decimal) -> None: ...

    made = task(body)
    with pytest.raises(ConfigurationError, match=r"task body .*'Decimal'.* at run time"):
        made.bind(3)  # type: ignore[arg-type]


# Injected parameters


def test_nobody_fills_an_unknown_injected_parameter() -> None:
    def asks(db: int = INJECTED) -> None: ...
    def vague(ctx=INJECTED): ...

    for function, name in ((asks, "db"), (vague, "ctx")):
        with pytest.raises(MissingDependency, match=f"{function.__name__}: .*'{name}'"):
            injected_values(task(function), object())


def test_the_context_fills_the_parameter_of_its_type() -> None:
    def body(*, ctx: JobContext = INJECTED) -> None: ...
    def careful(*, ctx: JobContext | None = INJECTED) -> None: ...

    context = JobContext.__new__(JobContext)
    for function in (body, careful):
        assert injected_values(task(function), context) == {"ctx": context}


# Names


def test_a_name_can_be_taken_once() -> None:
    jobs = QueueService("memory://")

    @jobs.task
    def first() -> None: ...

    @jobs.task(name="second", aliases=["old"])
    def other() -> None: ...

    for options in ({"name": "first"}, {"name": "old"}, {"name": "new", "aliases": ["second"]}):
        with pytest.raises(ConfigurationError, match="two tasks are named") as caught:

            @jobs.task(**options)
            def third() -> None: ...

        text = str(caught.value)
        assert text.count("test_tasks:") == 2
        assert len(set(text.split(": ", 1)[1].split(" and "))) == 2
    assert jobs.tasks.names == ("first", "old", "second")


def test_aliases_lead_to_the_task() -> None:
    known = TaskSet()
    made = task(name="new", aliases=["old", "older"])(generatorless)
    known.add(made)
    assert known.get("new") is known.get("old") is known.get("older") is made
    assert list(known) == [made]
    assert "old" in known
    assert "oldest" not in known
    with pytest.raises(UnknownTask, match="'oldest'; known: new, old, older"):
        known.get("oldest")
    with pytest.raises(UnknownTask, match="known: none"):
        TaskSet().get("x")


def generatorless() -> None: ...


def test_a_function_may_be_declared_twice_and_stays_as_it_was() -> None:
    known = TaskSet()
    made = task(priority=1)(generatorless)
    known.add(made)
    known.add(made.options(priority=9))
    assert known.get("generatorless") is made


def test_functions_within_functions_are_never_taken_for_one_another() -> None:
    known = TaskSet()

    def make(result: int) -> Task[[], int]:
        def inner() -> int:
            return result

        return task(inner)

    known.add(make(1))
    with pytest.raises(ConfigurationError, match="two tasks are named 'inner'"):
        known.add(make(2))


def test_a_reloaded_module_replaces_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "reloaded_tasks.py"
    file.write_text("from tenure import task\n@task(aliases=['old'])\ndef send(): return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("reloaded_tasks")
    known = TaskSet()
    known.collect([module])
    before = known.get("send")
    file.write_text("from tenure import task\n\n\n@task\ndef send(): return 22\n")
    importlib.invalidate_caches()
    module = importlib.reload(module)
    known.collect([module])
    del sys.modules["reloaded_tasks"]
    assert known.get("send") is module.send is not before
    assert known.names == ("send",)


def test_things_say_what_they_are() -> None:
    made = task(generatorless)
    assert repr(made) == f"<Task generatorless at {made.place}>"
    assert repr(TaskRef("a.b")) == "<TaskRef a.b>"
    assert repr(made.bind()) == "<BoundTask generatorless, 2 bytes>"
    assert repr(QueueService("memory://")) == "<QueueService memory://>"
