"""The pool: bounded, nothing lost, nothing kept alive."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import random
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial

import pytest

from tenure.executors.threads import Places, ThreadPool
from tests.worker.kit import until

pytestmark = pytest.mark.anyio


async def test_many_functions_each_run_once_in_few_threads():
    pool = ThreadPool(8)
    lock, seen, names = threading.Lock(), [], set()

    def work(n: int) -> int:
        with lock:
            seen.append(n)
            names.add(threading.current_thread().name)
        return n

    results = await asyncio.gather(*(pool.submit(partial(work, n)) for n in range(10_000)))
    assert results == list(range(10_000))
    assert sorted(seen) == results
    assert len(names) <= 8
    assert all(name.startswith("tenure-thread-") for name in names)
    assert pool.threads <= 8
    pool.close()


async def test_no_more_threads_than_work():
    pool = ThreadPool(8, idle_seconds=30)
    for n in range(20):
        assert await pool.submit(partial(int, n)) == n
        await until(lambda: pool._idle == pool.threads)
    assert pool.threads == 1
    pool.close()


async def test_as_many_at_once_as_there_are_threads():
    pool = ThreadPool(4)
    barrier = threading.Barrier(4, timeout=10)
    await asyncio.gather(*(pool.submit(barrier.wait) for _ in range(8)))
    pool.close()


async def test_idle_threads_end():
    pool = ThreadPool(4, idle_seconds=0.05)
    barrier = threading.Barrier(4, timeout=10)
    await asyncio.gather(*(pool.submit(barrier.wait) for _ in range(4)))
    assert pool.threads == 4
    await until(lambda: pool.threads == 0)
    assert await pool.submit(lambda: "again") == "again"
    pool.close()


async def test_close_ends_idle_threads_at_once_and_takes_nothing_more():
    pool = ThreadPool(2, idle_seconds=60)
    await pool.submit(lambda: None)
    pool.close()
    await until(lambda: pool.threads == 0, 5)
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(lambda: None)


async def test_what_was_taken_before_the_close_is_run():
    pool = ThreadPool(1)
    gate = threading.Event()
    first, second = pool.submit(lambda: gate.wait(10)), pool.submit(lambda: "run")
    pool.close()
    gate.set()
    assert (await first, await second) == (True, "run")
    await until(lambda: pool.threads == 0)


async def test_exceptions_come_back_whatever_they_are():
    pool = ThreadPool(2)

    def raising(error: BaseException) -> Callable[[], None]:
        def work() -> None:
            raise error

        return work

    for error in (ValueError("broken"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()):
        future = pool.submit(raising(error))
        await asyncio.wait({future})
        assert future.exception() is error
    with pytest.raises(RuntimeError, match="StopIteration") as caught:
        await pool.submit(raising(StopIteration(1)))
    assert isinstance(caught.value.__cause__, StopIteration)
    assert await pool.submit(lambda: "well") == "well"
    pool.close()


async def test_context_variables_are_copied_each_time():
    pool = ThreadPool(1)
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")

    def work() -> str:
        before = variable.get()
        variable.set("from the thread")
        return before

    variable.set("one")
    assert await pool.submit(work) == "one"
    variable.set("two")
    assert await pool.submit(work) == "two"
    assert variable.get() == "two"
    pool.close()


async def test_a_cancelled_future_disturbs_nobody():
    pool = ThreadPool(1)
    gate = threading.Event()
    future = pool.submit(lambda: gate.wait(10))
    future.cancel()
    gate.set()
    assert await pool.submit(lambda: "next") == "next"
    pool.close()


async def test_an_idle_thread_keeps_nothing_alive():
    class Large:
        pass

    pool = ThreadPool(1)
    large = Large()
    gone = weakref.ref(large)
    await pool.submit(partial(id, large))
    del large
    await until(lambda: gc.collect() >= 0 and gone() is None, 5)
    assert pool.threads == 1
    pool.close()


async def test_a_loop_that_is_gone_harms_no_thread():
    pool = ThreadPool(1)
    gate = threading.Event()

    def lonely() -> None:
        async def main() -> None:
            pool.submit(lambda: gate.wait(10))

        asyncio.run(main())

    await asyncio.to_thread(lonely)
    gate.set()
    assert await pool.submit(lambda: "next") == "next"
    pool.close()


async def test_without_a_thread_nothing_is_run_or_counted(monkeypatch: pytest.MonkeyPatch):
    pool = ThreadPool(2)
    run: list[str] = []

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            pool.submit(lambda: run.append("refused"))
    assert pool.threads == 0
    await pool.submit(lambda: run.append("taken"))
    assert run == ["taken"]
    assert pool.threads == 1
    pool.close()


async def test_with_one_thread_the_rest_waits_when_no_more_can_be_had(
    monkeypatch: pytest.MonkeyPatch,
):
    pool = ThreadPool(2)
    gate = threading.Event()
    first = pool.submit(lambda: gate.wait(10))

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        second = pool.submit(lambda: "waited")
    assert pool.threads == 1
    gate.set()
    assert (await first, await second) == (True, "waited")
    pool.close()


async def test_no_wake_up_is_lost(scaled: Callable[[int, int], int]):
    """Threads that go idle, end and start all the time, on the edge of their idle limit."""
    pool = ThreadPool(3, idle_seconds=0.001)
    dice = random.Random(7)
    for n in range(scaled(1500, 100_000)):
        burst = [pool.submit(partial(int, n)) for _ in range(dice.randrange(1, 4))]
        async with asyncio.timeout(10):
            assert await asyncio.gather(*burst) == [n] * len(burst)
        if dice.random() < 0.3:
            time.sleep(dice.choice((0.0008, 0.001, 0.0012)))
    assert pool.threads <= 3
    await until(lambda: pool.threads == 0)
    assert (pool._idle, len(pool._work)) == (0, 0)
    pool.close()


async def test_places_go_to_who_waits_longest():
    places = Places(2)
    first, second, third, fourth = (places.take() for _ in range(4))
    assert [p.done() for p in (first, second, third, fourth)] == [True, True, False, False]
    places.give_back()
    assert [third.done(), fourth.done()] == [True, False]
    fourth.cancel()
    fifth = places.take()
    places.give_back()
    assert fifth.done()
    for _ in range(2):
        places.give_back()
    assert [places.take().done() for _ in range(3)] == [True, True, False]
