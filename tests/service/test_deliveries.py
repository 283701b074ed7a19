# ruff: noqa: PT012 (how a block ends is what is tested)
"""Deliveries: how a block ends, and what is written then."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import msgspec
import pytest

from tenure import Cancel, Discard, Handoff, QueueService, Retry, Snooze, State
from tenure.core.job import Job
from tenure.deliveries import Delivery
from tenure.errors import EngineUnavailable, InvalidArguments, LeaseLost, PayloadError
from tests.service.receiving import Shop, add

pytestmark = pytest.mark.anyio


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop = Shop()
    async with shop.jobs:
        yield shop
    shop.keeper.close()


@pytest.fixture
async def jobs(url: str) -> AsyncIterator[QueueService]:
    async with QueueService(url, tasks=[add]) as jobs:
        yield jobs


async def one(jobs: QueueService, **options: Any) -> Delivery:
    """A new job, delivered."""
    await jobs.enqueue(add.options(**options), 1)
    receiver = jobs.receive(limit=1)
    [delivery] = await receiver.__aenter__()
    return delivery


async def end(jobs: QueueService, delivery: Delivery) -> Job:
    return await jobs.get(delivery.id)


# How it ends


async def test_a_block_that_ends_well_completes_the_job(jobs):
    delivery = await one(jobs)
    async with delivery as entered:
        assert entered is delivery
        assert delivery.arguments == {"a": 1}
        assert (delivery.task, delivery.attempt) == ("add", 1)
        assert delivery.job.state is State.RUNNING
        assert delivery.lease.remaining() > 20
        delivery.result = [1, {"two": 2}]
        assert delivery.result == [1, {"two": 2}]
    job = await end(jobs, delivery)
    assert (job.state, job.result) == (State.COMPLETED, [1, {"two": 2}])


async def test_without_a_result_there_is_none(jobs):
    delivery = await one(jobs)
    async with delivery:
        assert delivery.result is None
    assert (await end(jobs, delivery)).result is None


@pytest.mark.parametrize(
    ("directive", "state", "failures", "kind"),
    [
        (Retry(after=60), State.PENDING, 1, "Retry"),
        (Snooze(60), State.PENDING, 0, None),
        (Cancel("enough"), State.CANCELLED, 0, "cancelled"),
        (Discard("hopeless"), State.FAILED, 1, "Discard"),
        (ExceptionGroup("one", [Retry(after=60)]), State.PENDING, 1, "Retry"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_directives_end_the_job_and_go_no_further(jobs, directive, state, failures, kind):
    delivery = await one(jobs)
    async with delivery:
        raise directive
    job = await end(jobs, delivery)
    assert job.state is state
    assert job.row.failures == failures
    assert (job.error.kind if job.error else None) == kind
    if state is State.PENDING:
        assert job.row.available_at - (job.row.started_at or 0) >= 60_000_000


async def test_any_other_error_is_a_failure_and_goes_on(jobs):
    delivery = await one(jobs)
    with pytest.raises(ZeroDivisionError):
        async with delivery:
            _ = 1 / 0
    job = await end(jobs, delivery)
    assert job.state is State.PENDING  # under the retry policy, not at the end of the lease
    assert job.error is not None
    assert job.error.kind == "ZeroDivisionError"
    assert "1 / 0" in job.error.traceback


async def test_the_last_attempt_fails_for_good(jobs):
    delivery = await one(jobs, max_attempts=1)
    with pytest.raises(ValueError, match="bad"):
        async with delivery:
            raise ValueError("bad")
    assert (await end(jobs, delivery)).state is State.FAILED


async def test_a_handed_off_job_is_left_alone(shop):
    delivery = await one(shop.jobs)
    async with delivery:
        raise Handoff
    row = (await end(shop.jobs, delivery)).row
    assert row.state is State.RUNNING
    assert shop.keeper.active == 0
    assert await shop.jobs.receipts.ack(delivery.receipt, "elsewhere")
    assert (await end(shop.jobs, delivery)).result == "elsewhere"


async def test_a_handed_off_job_that_nobody_takes_lapses(shop):
    delivery = await one(shop.jobs)
    async with delivery:
        raise Handoff
    shop.clock.advance(31)
    async with shop.jobs.receive() as again:
        assert [each.id for each in again] == [delivery.id]
        assert again[0].job.row.lapses == 1


async def test_accepting_is_a_hand_off_inside_the_block(shop):
    delivery = await one(shop.jobs)
    async with delivery:
        lease = delivery.accept()
        assert lease is delivery.lease
        assert shop.keeper.active == 0
        assert lease.remaining() > 0
        with pytest.raises(RuntimeError, match="accepted already"):
            delivery.accept()
    assert (await end(shop.jobs, delivery)).state is State.RUNNING


async def test_an_error_after_accepting_writes_nothing(shop):
    delivery = await one(shop.jobs)
    with pytest.raises(ZeroDivisionError):
        async with delivery:
            delivery.accept()
            raise ZeroDivisionError
    assert (await end(shop.jobs, delivery)).state is State.RUNNING


async def test_an_accepted_delivery_can_not_be_entered(jobs):
    delivery = await one(jobs)
    delivery.accept()
    with pytest.raises(RuntimeError, match="accepted"):
        async with delivery:
            raise AssertionError
    assert (await end(jobs, delivery)).state is State.RUNNING


async def test_it_is_entered_once(jobs):
    delivery = await one(jobs)
    async with delivery:
        with pytest.raises(RuntimeError, match="started before"):
            await delivery.__aenter__()
    with pytest.raises(RuntimeError, match="accepted"):
        await delivery.__aenter__()
    with pytest.raises(RuntimeError, match="settled"):
        delivery.accept()
    assert (await end(jobs, delivery)).state is State.COMPLETED


async def test_bad_results_are_refused_where_they_are_set(jobs):
    delivery = await one(jobs, max_attempts=1)
    with pytest.raises(PayloadError):
        async with delivery:
            delivery.result = float("nan")
    assert (await end(jobs, delivery)).state is State.FAILED


async def test_an_unreadable_payload_is_a_failure_of_its_job_only(shop):
    await shop.jobs.enqueue(add, 1)
    async with shop.jobs.receive() as deliveries:
        [delivery] = deliveries
        bad = msgspec.structs.replace(delivery._held.row, payload=b"{")
        delivery._held.row = bad
        with pytest.raises(PayloadError):
            async with delivery:
                assert delivery.arguments
    assert (await end(shop.jobs, delivery)).state is State.PENDING


# Renewal


async def test_the_lease_is_renewed_until_the_block_ends(shop):
    delivery = await one(shop.jobs)
    async with delivery:
        for _ in range(10):
            shop.tick(10)
        assert shop.renewals == 10
        assert not delivery.lease.lost
    shop.tick(20)
    assert shop.renewals == 10
    assert (await end(shop.jobs, delivery)).state is State.COMPLETED


async def test_an_explicit_extension_counts_at_once(shop):
    delivery = await one(shop.jobs)
    async with delivery:
        await delivery.extend(100)
        assert delivery.lease.remaining() == 97
        row = (await end(shop.jobs, delivery)).row
        assert row.lease_until == shop.clock.time_us() + 100_000_000
        with pytest.raises(ValueError, match="seconds"):
            await delivery.extend(0.5)


async def test_an_extension_of_what_was_taken_raises(shop):
    delivery = await one(shop.jobs)
    with pytest.raises(LeaseLost):
        async with delivery:
            await shop.jobs.cancel(delivery.id, force=True)
            await delivery.extend(100)


async def test_an_extension_that_is_not_answered_raises(shop):
    delivery = await one(shop.jobs)
    async with delivery:
        shop.engine.fail("extend", times=3)
        over = threading.Event()

        def turn() -> None:
            while not over.wait(0.005):
                shop.clock.advance(0.1)

        turner = threading.Thread(target=turn)
        turner.start()
        with pytest.raises(EngineUnavailable):
            await delivery.extend(100)
        over.set()
        turner.join()


# Losing it


async def test_a_block_whose_lease_is_lost_is_cancelled_and_writes_nothing(shop):
    delivery = await one(shop.jobs)
    cleaned: list[bool] = []
    with pytest.raises(LeaseLost, match="lost"):
        async with delivery:
            await shop.jobs.cancel(delivery.id, force=True)
            shop.clock.advance(10)
            try:
                await anyio.sleep_forever()
            finally:
                cleaned.append(delivery.lease.lost)
    await asyncio.sleep(0)
    assert cleaned == [True]
    assert (await end(shop.jobs, delivery)).state is State.CANCELLED


async def test_a_lease_that_ran_out_is_never_started_and_given_back(shop):
    await shop.jobs.enqueue(add, 1)
    async with shop.jobs.receive() as deliveries:
        shop.engine.fail("extend", times=100)
        shop.clock.advance(28)
        with pytest.raises(LeaseLost, match="deadline"):
            async with deliveries[0]:
                raise AssertionError
    row = (await end(shop.jobs, deliveries[0])).row
    assert (row.state, row.lapses, row.failures) == (State.PENDING, 0, 0)


async def test_a_good_end_after_the_lease_ran_out_is_offered_to_the_store(shop):
    delivery = await one(shop.jobs)
    shop.engine.fail("extend", times=100)
    async with delivery:
        shop.clock.advance(40)
        assert delivery.lease.lost
    assert (await end(shop.jobs, delivery)).state is State.COMPLETED


async def test_a_good_end_after_somebody_took_over_raises(shop):
    delivery = await one(shop.jobs)
    shop.engine.fail("extend", times=100)
    with pytest.raises(LeaseLost):
        async with delivery:
            delivery.lease.on_signal = None  # as if the block could not be cancelled
            shop.clock.advance(40)
            async with shop.jobs.receive() as again:
                assert again[0].id == delivery.id
                again[0].accept()
    assert (await end(shop.jobs, delivery)).row.owner == again[0].job.row.owner


async def test_the_error_of_the_block_wins_over_the_lost_lease(shop, caplog):
    delivery = await one(shop.jobs)
    with pytest.raises(ZeroDivisionError):
        async with delivery:
            await shop.jobs.cancel(delivery.id, force=True)
            raise ZeroDivisionError
    assert "could not be written" in caplog.text


async def test_a_cancelled_job_cancels_its_block(shop):
    delivery = await one(shop.jobs)
    async with delivery:
        await shop.jobs.cancel(delivery.id)
        shop.clock.advance(10)
        await anyio.sleep_forever()
    assert (await end(shop.jobs, delivery)).state is State.CANCELLED


async def test_a_cancel_from_before_the_block_counts(shop):
    delivery = await one(shop.jobs)
    await shop.jobs.cancel(delivery.id)
    shop.tick(10)
    async with delivery:
        await anyio.sleep_forever()
    assert (await end(shop.jobs, delivery)).state is State.CANCELLED


# Being cancelled from outside


@pytest.mark.parametrize("how", ["task", "scope"])
async def test_a_block_that_is_cancelled_from_outside_gives_the_job_back(shop, how):
    delivery = await one(shop.jobs)
    inside = asyncio.Event()

    async def work() -> None:
        async with delivery:
            inside.set()
            await anyio.sleep_forever()

    if how == "task":
        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            await inside.wait()
            tasks.cancel_scope.cancel()
    row = (await end(shop.jobs, delivery)).row
    assert (row.state, row.releases, row.failures) == (State.PENDING, 1, 0)
    assert shop.keeper.active == 0


async def test_a_settlement_is_written_although_its_task_is_cancelled(shop):
    delivery = await one(shop.jobs)
    gate = shop.engine.hold("settle")

    async def work() -> None:
        async with delivery:
            pass

    task = asyncio.create_task(work())
    await gate.reached()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    gate.let_go()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await end(shop.jobs, delivery)).state is State.COMPLETED


# A store in trouble


async def test_a_settlement_is_tried_three_times(shop):
    delivery = await one(shop.jobs)
    shop.engine.fail("settle", times=2)
    async with delivery:
        pass
    assert (await end(shop.jobs, delivery)).state is State.COMPLETED


async def test_a_settlement_that_cannot_be_written_raises(shop):
    delivery = await one(shop.jobs)
    shop.engine.fail("settle", times=3)
    with pytest.raises(EngineUnavailable):
        async with delivery:
            pass
    assert shop.keeper.active == 0


async def test_a_lost_reply_is_no_second_settlement(shop):
    delivery = await one(shop.jobs)
    shop.engine.fail("settle", after=True)
    async with delivery:
        delivery.result = 1
    assert (await end(shop.jobs, delivery)).result == 1


# Streamed payloads


class Stream:
    """Notes when it is finished, and what the store held then."""

    def __init__(self, look: Callable[[], Any], error: Exception | None = None) -> None:
        self.look = look
        self.error = error
        self.seen: list[Any] = []

    def _note(self, how: str) -> None:
        self.seen.append((how, self.look()))
        if self.error is not None:
            raise self.error


class AsyncStream(Stream):
    async def afinalize(self) -> None:
        await asyncio.sleep(0)
        self._note("async")


class BothStream(AsyncStream):
    def finalize(self) -> None:
        self._note("plain")


class PlainStream(Stream):
    def finalize(self) -> None:
        self._note("plain")


EXITS = [None, Retry(after=1), Snooze(1), Handoff(), Cancel(), Discard(), ZeroDivisionError("no")]


@pytest.mark.parametrize("leaves", EXITS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    ("kind", "how"), [(AsyncStream, "async"), (BothStream, "async"), (PlainStream, "plain")]
)
async def test_a_stream_is_finished_before_the_settlement_on_every_exit(shop, leaves, kind, how):
    delivery = await one(shop.jobs)
    stream = kind(lambda: (shop.keeper.active, shop.engine.calls["settle"]))

    async def work() -> None:
        async with delivery:
            delivery.attach(stream)
            if leaves is not None:
                raise leaves

    if isinstance(leaves, ZeroDivisionError):
        with pytest.raises(ZeroDivisionError):
            await work()
    else:
        await work()
    assert stream.seen == [(how, (0, 0))]
    assert shop.engine.calls["settle"] == (0 if isinstance(leaves, Handoff) else 1)


async def test_a_stream_is_finished_when_the_block_is_cancelled(shop):
    delivery = await one(shop.jobs)
    stream = AsyncStream(lambda: None)
    with anyio.CancelScope() as scope:
        async with delivery:
            delivery.attach(stream)
            scope.cancel()
            await anyio.sleep_forever()
    assert len(stream.seen) == 1


async def test_a_stream_of_an_accepted_delivery_is_finished_too(shop):
    delivery = await one(shop.jobs)
    stream = AsyncStream(lambda: None)
    async with delivery:
        delivery.attach(stream)
        delivery.accept()
    assert len(stream.seen) == 1


async def test_a_stream_that_fails_fails_the_attempt(jobs):
    delivery = await one(jobs)
    with pytest.raises(OSError, match="cut off"):
        async with delivery:
            delivery.attach(AsyncStream(lambda: None, OSError("cut off")))
    job = await end(jobs, delivery)
    assert job.state is State.PENDING
    assert job.error is not None
    assert job.error.kind == "OSError"


@pytest.mark.parametrize(("leaves", "state"), [(Discard(), State.FAILED), (Cancel(), "cancelled")])
async def test_a_stream_that_fails_changes_no_other_end(jobs, leaves, state, caplog):
    delivery = await one(jobs)
    async with delivery:
        delivery.attach(AsyncStream(lambda: None, OSError("cut off")))
        raise leaves
    assert (await end(jobs, delivery)).state == state
    assert f"after {type(leaves).__name__}, finishing the payload" in caplog.text


# Without an event loop


def sync_one(jobs: QueueService, **options: Any) -> Any:
    jobs.sync.enqueue(add.options(**options), 1)
    [delivery] = jobs.sync.receive(limit=1).__enter__()
    return delivery


def test_sync_a_block_that_ends_well_completes_the_job(service):
    service.tasks.add(add)
    delivery = sync_one(service)
    with delivery as entered:
        assert entered is delivery
        delivery.result = delivery.arguments["a"] + 1
        delivery.extend(60)
        assert delivery.lease.remaining() > 50
    job = service.sync.get(delivery.id)
    assert (job.state, job.result) == (State.COMPLETED, 2)


@pytest.mark.parametrize("leaves", EXITS[1:], ids=lambda value: type(value).__name__)
def test_sync_blocks_end_as_async_ones_do(service, leaves):
    service.tasks.add(add)
    delivery = sync_one(service)
    stream = PlainStream(lambda: service.sync.get(delivery.id).state)

    def work() -> None:
        with delivery:
            delivery.attach(stream)
            raise leaves

    if isinstance(leaves, ZeroDivisionError):
        with pytest.raises(ZeroDivisionError):
            work()
    else:
        work()
    assert stream.seen == [("plain", State.RUNNING)]
    expected = {
        Retry: State.PENDING, Snooze: State.PENDING, Handoff: State.RUNNING,
        Cancel: State.CANCELLED, Discard: State.FAILED, ZeroDivisionError: State.PENDING,
    }  # fmt: skip
    assert service.sync.get(delivery.id).state is expected[type(leaves)]


def test_sync_a_stream_that_needs_an_event_loop_is_refused(service):
    service.tasks.add(add)
    delivery = sync_one(service, max_attempts=1)
    with pytest.raises(InvalidArguments, match="asynchronously"), delivery:
        delivery.attach(AsyncStream(lambda: None))
    assert service.sync.get(delivery.id).state is State.FAILED


def test_sync_an_interrupt_gives_the_job_back(service):
    service.tasks.add(add)
    delivery = sync_one(service)
    with pytest.raises(KeyboardInterrupt), delivery:
        raise KeyboardInterrupt
    assert service.sync.get(delivery.id).state is State.PENDING


def test_sync_a_lost_lease_raises_at_the_end(service):
    service.tasks.add(add)
    delivery = sync_one(service)
    with pytest.raises(LeaseLost), delivery:
        service.sync.cancel(delivery.id, force=True)
    assert service.sync.get(delivery.id).state is State.CANCELLED


def test_sync_a_stream_that_fails_fails_the_attempt(service):
    service.tasks.add(add)
    delivery = sync_one(service)
    with pytest.raises(OSError, match="cut off"), delivery:
        delivery.attach(PlainStream(lambda: None, OSError("cut off")))
    assert service.sync.get(delivery.id).state is State.PENDING


# In flight


@pytest.mark.parametrize("leaves", [Retry(after=60), Snooze(60), Handoff()], ids=repr)
async def test_a_renewal_in_flight_lands_before_what_it_could_undo(shop, leaves):
    delivery = await one(shop.jobs)
    gate = shop.engine.hold("extend")
    async with delivery:
        shop.clock.advance(10)
        await until_async(lambda: delivery.lease._flight)
        flight = delivery.lease._flight
        assert flight is not None
        ended = asyncio.create_task(leave(delivery, leaves))
        await until_async(lambda: flight.over._tell)
        assert shop.engine.calls["settle"] == 0
        gate.let_go()
        await ended
        assert flight.over.is_set()


async def leave(delivery: Delivery, error: Exception) -> None:
    """The end of the block, in a task of its own, so that a test can look at it."""
    delivery._scope, scope = anyio.CancelScope(), delivery._scope
    delivery._scope.__enter__()
    await delivery.__aexit__(type(error), error, None)
    delivery._scope = scope


async def until_async(condition: Callable[[], object]) -> None:
    with anyio.fail_after(10):
        while not condition():  # noqa: ASYNC110 (it comes from another thread)
            await anyio.sleep(0.002)
