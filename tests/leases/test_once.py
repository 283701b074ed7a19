"""Waiting for what happens once, in threads and event loops, and work that is not interrupted."""

from __future__ import annotations

import asyncio
import threading

import anyio
import pytest
import trio

from tenure.errors import ConfigurationError
from tenure.leases.holder import Holder
from tenure.leases.once import Once, in_thread, uninterrupted
from tests.leases.callers import Caller, every_loop, soon
from tests.leases.kit import until


def test_it_happens_once():
    once, told = Once(), []
    once.call(lambda: told.append(1))
    assert not once.is_set()
    assert not once.wait(0.001)
    once.set()
    once.set()
    assert told == [1]
    once.call(lambda: told.append(2))  # it has happened already
    assert told == [1, 2]
    assert once.wait()


def test_threads_wait_for_it():
    once = Once()
    threads = [threading.Thread(target=once.wait, args=(10,)) for _ in range(5)]
    for thread in threads:
        thread.start()
    until(lambda: len(once._tell) == 5)
    once.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


@every_loop
def test_event_loops_wait_for_it(by: Caller):
    async def main() -> None:
        once = Once()
        assert not await once.wait_async(0.001)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(once.wait_async)
            await soon(lambda: len(once._tell) == 6)
            threading.Thread(target=once.set).start()
        assert await once.wait_async()
        assert await once.wait_shielded(1)

    by.run(main)


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_waiter_whose_loop_is_gone_keeps_no_other_waiting(gone):
    once = Once()
    told: list[int] = []

    async def wait() -> None:
        await once.wait_async(0.001)

    for i in range(3):
        if i != gone:
            once.call(lambda i=i: told.append(i))  # type: ignore[misc]
        elif gone % 2:
            trio.run(wait)
        else:
            asyncio.run(wait())
    once.set()
    assert sorted(told) == [i for i in range(3) if i != gone]


def test_a_holder_is_the_loop_that_runs_here():
    assert Holder.find() is None
    with pytest.raises(ConfigurationError):
        Holder.here()

    async def main() -> Holder:
        assert Holder.here() == Holder.here()
        return Holder.here()

    first, second, third = asyncio.run(main()), asyncio.run(main()), trio.run(main)
    assert len({first, second, third}) == 3
    assert {first.thread, third.thread} == {threading.get_ident()}


@every_loop
@pytest.mark.parametrize("fails", [False, True])
def test_work_goes_on_to_its_end_when_its_caller_is_cancelled(by: Caller, fails):
    done: list[str] = []

    async def work() -> str:
        await anyio.sleep(0.01)
        done.append("work")
        if fails:
            raise ZeroDivisionError
        return "result"

    async def main() -> None:
        if not fails:
            assert await uninterrupted(work) == "result"
        else:
            with pytest.raises(ZeroDivisionError):
                await uninterrupted(work)
        with anyio.CancelScope() as scope:
            scope.cancel()
            try:
                await uninterrupted(work)
            except ZeroDivisionError:
                pass
            done.append("after")
            await anyio.sleep_forever()
        assert scope.cancel_called

    by.run(main)
    assert done[:2] == ["work", "work"]


def test_a_cancelled_task_hears_of_it_when_the_work_is_done():
    done: list[str] = []

    async def work() -> None:
        await anyio.sleep(0.02)
        done.append("work")

    async def main() -> None:
        task = asyncio.create_task(uninterrupted(work))
        for _ in range(5):
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert done == ["work"]

    asyncio.run(main())


@every_loop
def test_a_blocking_function_is_awaited_in_a_thread_of_its_own(by: Caller):
    names: list[str] = []

    def block() -> None:
        names.append(threading.current_thread().name)

    def fail() -> None:
        raise OSError("no")

    async def main() -> None:
        await in_thread(block)
        with pytest.raises(OSError, match="no"):
            await in_thread(fail)

    by.run(main)
    assert names == ["tenure-helper"]
