"""One service, used from several loops, from trio, and from threads with no loop at all."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import trio

from tenure import QueueService, handles
from tenure.errors import EngineUnavailable
from tests.service.conftest import End


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def work(service: QueueService) -> Any:
    @service.task
    async def work(n: int = 0) -> int:
        return n

    return work


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handles, "_POLL_SECONDS", 0.02)


def portals() -> int:
    return sum(thread.name == "tenure-portal" for thread in threading.enumerate())


async def is_listening(service: QueueService) -> None:
    """Returns when a waiter has had its first look."""
    engine: Any = service._life.engine
    real, looked = engine.get, asyncio.Event()

    async def get(ids: Any) -> Any:
        rows = await real(ids)
        looked.set()
        return rows

    engine.get = get
    await looked.wait()
    engine.get = real


# Loops


def test_two_loops_one_after_the_other(service: QueueService, work: Any) -> None:
    handle = asyncio.run(service.enqueue(work))

    async def again() -> None:
        assert (await handle.job()).id == handle.id
        with pytest.raises(TimeoutError):
            await handle.wait(0.001)
        await service.enqueue(work)
        assert len(await service.find()) == 2

    asyncio.run(again())
    asyncio.run(again_and_close(service))
    assert portals() == 0


async def again_and_close(service: QueueService) -> None:
    async with service:
        assert len(await service.find()) == 2


def test_waiting_goes_on_in_the_next_loop(service: QueueService, work: Any, end: End) -> None:
    async def abandoned() -> str:
        handle = await service.enqueue(work)
        asyncio.create_task(handle.wait())  # noqa: RUF006
        await asyncio.sleep(0)
        return handle.id

    async def again() -> Any:
        waiting = asyncio.create_task(service.handle(job_id).result())
        await is_listening(service)
        await end(service, job_id)
        return await waiting

    job_id = asyncio.run(abandoned())
    assert asyncio.run(again()) == "done"


def test_a_loop_that_stands_still_is_left(service: QueueService, work: Any) -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(service.enqueue(work))
    assert len(service.sync.find()) == 1
    assert portals() == 1
    assert len(loop.run_until_complete(service.find())) == 1
    loop.run_until_complete(service.close())
    assert portals() == 0
    loop.close()


def test_another_loop_is_served_by_the_first(
    service: QueueService, work: Any, pool: ThreadPoolExecutor
) -> None:
    async def main() -> None:
        await service.open()
        handle = await asyncio.wrap_future(pool.submit(asyncio.run, service.enqueue(work, 3)))
        assert (await handle.job()).arguments == {"n": 3}
        asked = pool.submit(asyncio.run, handle.wait(0.001))
        with pytest.raises(TimeoutError, match=handle.id):
            await asyncio.wrap_future(asked)
        await service.close()

    asyncio.run(main())


def test_leaving_a_call_from_another_loop_ends_it_at_home(
    service: QueueService, work: Any, pool: ThreadPoolExecutor
) -> None:
    async def elsewhere(job_id: str, leave: asyncio.Event) -> None:
        task = asyncio.create_task(service.wait(job_id))
        leaving.set_result((asyncio.get_running_loop(), leave))
        await leave.wait()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    async def main() -> None:
        handle = await service.enqueue(work)
        done = pool.submit(lambda: asyncio.run(elsewhere(handle.id, asyncio.Event())))
        loop, leave = await asyncio.wrap_future(leaving)
        await is_listening(service)
        waiter = service._life.waiter()
        assert waiter._waiting
        loop.call_soon_threadsafe(leave.set)
        await asyncio.wrap_future(done)
        if waiter._watch is not None:
            await waiter._watch
        assert not waiter._waiting
        await service.close()

    leaving: Future[Any] = Future()
    asyncio.run(main())


def test_the_end_of_the_home_loop_is_told(
    service: QueueService, work: Any, pool: ThreadPoolExecutor
) -> None:
    calls: list[Future[Any]] = []

    async def main() -> None:
        handle = await service.enqueue(work)
        calls.append(pool.submit(service.sync.handle(handle.id).wait))
        await is_listening(service)
        calls.append(pool.submit(lambda: asyncio.run(handle.wait())))
        await is_listening(service)

    asyncio.run(main())
    for call in calls:
        with pytest.raises(EngineUnavailable, match="during the call"):
            call.result(timeout=20)
    assert len(service.sync.find()) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_drops_a_call_is_noticed(service: QueueService, work: Any) -> None:
    """A call that is posted while a loop is being closed is never begun."""
    service.sync.open()
    loop = asyncio.new_event_loop()
    service._home.leave()
    service._home._loop = loop
    loop.is_running = lambda: True  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(service._home.run_sync, service.find)
        while not loop._ready:  # type: ignore[attr-defined]
            pass
        del loop.is_running
        [handle] = loop._ready  # type: ignore[attr-defined]
        loop.close()
        with pytest.raises(EngineUnavailable, match="during the call"):
            call.result(timeout=20)
    del handle, call
    gc.collect()  # the call was never begun, and Python says so
    assert service.sync.find() == []


# Threads without a loop


def test_a_thread_needs_no_loop(service: QueueService, work: Any) -> None:
    assert service.sync.enqueue(work, 5).job().arguments == {"n": 5}
    assert portals() == 1
    service.sync.close()
    assert portals() == 0
    assert len(service.sync.find()) == 1


def test_many_threads_share_one_portal(
    service: QueueService, work: Any, pool: ThreadPoolExecutor
) -> None:
    handles = list(pool.map(lambda n: service.sync.enqueue(work, n), range(40)))
    jobs = list(pool.map(lambda handle: handle.job(), handles))
    assert portals() == 1
    assert len({job.id for job in jobs}) == len(service.sync.find()) == 40


def test_a_thread_is_served_by_a_running_loop(service: QueueService, work: Any) -> None:
    async def main() -> None:
        await service.open()
        handle = await asyncio.to_thread(service.sync.enqueue, work, 7)
        assert (await service.get(handle.id)).arguments == {"n": 7}
        assert portals() == 0
        await asyncio.to_thread(service.sync.close)
        assert not service._life.begun

    asyncio.run(main())


def test_blocking_the_home_loop_is_refused(service: QueueService, work: Any) -> None:
    async def main() -> None:
        await service.open()
        with pytest.raises(RuntimeError, match="await the async method instead"):
            service.sync.find()
        with pytest.raises(RuntimeError, match="await the async method instead"):
            service.sync.close()
        assert await service.find() == []
        await service.close()

    asyncio.run(main())


def test_a_running_loop_may_come_after_a_portal(service: QueueService, work: Any) -> None:
    service.sync.enqueue(work, 1).job()

    async def main() -> Any:
        handle = await service.enqueue(work, 2)
        await service.worker(burst=True, poll_max=0.01).run()
        return await handle.result(timeout=0)

    assert asyncio.run(main()) == 2
    assert portals() == 1


def test_the_callers_context_goes_along(service: QueueService) -> None:
    import contextvars

    variable = contextvars.ContextVar("variable", default="unset")

    async def read() -> str:
        return variable.get()

    variable.set("set")
    assert service._home.run_sync(read) == "set"


def test_closing_ends_a_blocked_call(
    service: QueueService, work: Any, pool: ThreadPoolExecutor
) -> None:
    handle = service.sync.enqueue(work)
    call = pool.submit(handle.wait)
    service._home.run_sync(lambda: is_listening(service))
    service.sync.close()
    with pytest.raises(EngineUnavailable, match="closed"):
        call.result(timeout=20)
    assert portals() == 0


@pytest.mark.parametrize("round_", range(5))
def test_closing_under_load_leaves_nobody_waiting(
    service: QueueService, work: Any, pool: ThreadPoolExecutor, round_: int
) -> None:
    def use(n: int) -> Any:
        try:
            return service.sync.enqueue(work, n).id
        except EngineUnavailable as error:
            return error

    calls = [pool.submit(use, n) for n in range(60)]
    calls[round_ * 5].result()
    service.sync.close()
    results = [call.result(timeout=20) for call in calls]
    stored = {job.id for job in service.sync.find()}
    assert {result for result in results if isinstance(result, str)} <= stored


def test_an_interrupt_ends_the_call_at_home(service: QueueService, work: Any) -> None:
    ended = threading.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(EngineUnavailable, match=r"within 0\.01 seconds"):
        service._home.run_sync(forever, timeout=0.01)
    assert ended.wait(20)


# trio


def test_trio_uses_the_portal(service: QueueService, work: Any) -> None:
    async def main() -> None:
        async with service:
            handle = await service.enqueue(work, 4)
            assert (await handle.job()).arguments == {"n": 4}
            with pytest.raises(TimeoutError, match=handle.id):
                await handle.wait(0.01)
            assert portals() == 1
        assert portals() == 0
        assert len(await service.find()) == 1

    trio.run(main)


def test_any_number_of_trio_tasks_may_wait(service: QueueService, work: Any) -> None:
    """More than trio has threads for: none of them may keep the others from working."""
    service_end: Callable[[str], Awaitable[Any]] = service.cancel

    async def main() -> None:
        handles = await service.enqueue_many(work.bind(n) for n in range(100))
        async with trio.open_nursery() as nursery:
            for handle in handles:
                nursery.start_soon(handle.wait)
            await trio.testing.wait_all_tasks_blocked()
            for handle in handles:
                await service_end(handle.id)

    trio.run(main)


def test_leaving_a_call_from_trio_ends_it_at_home(service: QueueService, work: Any) -> None:
    async def main() -> None:
        handle = await service.enqueue(work)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(handle.wait)
            await trio.to_thread.run_sync(
                lambda: service._home.run_sync(lambda: is_listening(service))
            )
            nursery.cancel_scope.cancel()

        async def left() -> None:
            waiter = service._life.waiter()
            if waiter._watch is not None:
                await waiter._watch
            assert not waiter._waiting

        await trio.to_thread.run_sync(lambda: service._home.run_sync(left))

    trio.run(main)
