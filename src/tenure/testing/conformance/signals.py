"""Signals: which writes are told, to whom, and which are not."""

from __future__ import annotations

import pytest

from tenure.core.outcomes import Cancelled, Completed, Errored, Released, ReleaseReason, Snoozed
from tenure.engines.protocol import Engine, Listener, Signal, Topic
from tenure.testing.conformance.kit import (
    LEASE,
    NOW,
    OTHER,
    Conformance,
    beat,
    boom,
    changed,
    finish,
    finished,
    job_id,
    new,
    put,
    running,
    take,
)

END = Signal(Topic.ANY, "end of the test")
EVERY = (Topic.QUEUE, Topic.DONE, Topic.CANCEL)
WAIT = 10.0


async def _heard(engine: Engine, listener: Listener) -> set[Signal]:
    """All that the listener was told up to now: a last signal says when to stop waiting."""
    await engine.notify([END])
    heard: set[Signal] = set()
    while END not in heard:
        signals = await listener.wait(WAIT)
        assert signals, "the listener was not told"
        heard |= signals
    return heard - {END}


def queue(name: str = "default") -> Signal:
    return Signal(Topic.QUEUE, name)


def done(n: int) -> Signal:
    return Signal(Topic.DONE, job_id(n))


def cancel(n: int) -> Signal:
    return Signal(Topic.CANCEL, job_id(n))


class TestSignals(Conformance):
    """`listen(topics)` and `notify(signals)`"""

    async def test_new_jobs_wake_their_queues(self, engine: Engine) -> None:
        async with engine.listen(EVERY) as listener:
            await put(engine, new(1), new(2, queue="b"), new(3))
            assert await _heard(engine, listener) == {queue(), queue("b")}

    async def test_a_job_that_is_planned_wakes_its_queue(self, engine: Engine) -> None:
        # An idle worker may sleep until a later job is due.
        async with engine.listen(EVERY) as listener:
            await put(engine, new(1), new(2, queue="c", delay=5))
            assert await _heard(engine, listener) == {queue(), queue("c")}

    async def test_a_repeated_insert_wakes_nobody(self, engine: Engine) -> None:
        await put(engine, new(1))
        async with engine.listen(EVERY) as listener:
            await engine.insert([new(1)], now=NOW)
            assert await _heard(engine, listener) == set()

    @pytest.mark.parametrize(
        ("outcome", "wanted"),
        [
            (Completed(), {done(1)}),
            (Errored(boom(), retryable=False), {done(1)}),
            (Errored(boom(), after=5), {queue()}),
            (Errored(boom(), after=0), {queue()}),
            (Snoozed(5), {queue()}),
            (Snoozed(5000), {done(1)}),
            (Released(ReleaseReason.SHUTDOWN), {queue()}),
            (Cancelled(), {done(1)}),
        ],
    )
    async def test_a_settlement_tells_what_it_led_to(
        self,
        engine: Engine,
        outcome: Completed | Errored | Snoozed | Released | Cancelled,
        wanted: set[Signal],
    ) -> None:
        row = await running(engine, max_attempts=3, expires_in=1000)
        async with engine.listen(EVERY) as listener:
            await finish(engine, row, outcome)
            assert await _heard(engine, listener) == wanted

    async def test_a_settlement_of_a_cancelled_job_tells_its_end(self, engine: Engine) -> None:
        row = await running(engine, max_attempts=3)
        await engine.cancel([row.id], now=NOW)
        async with engine.listen(EVERY) as listener:
            await finish(engine, row, Errored(boom(), after=5))
            assert await _heard(engine, listener) == {done(1)}

    async def test_what_changes_nothing_tells_nothing(self, engine: Engine) -> None:
        row = await running(engine, 1)
        held = await running(engine, 2)
        await finish(engine, row)
        async with engine.listen(EVERY) as listener:
            await finish(engine, row)
            await finish(engine, changed(held, owner=OTHER))
            await engine.extend([beat(held), beat(row)], now=NOW)
            await engine.cancel([row.id, job_id(9)], now=NOW)
            await engine.requeue([held.id, job_id(9)], now=NOW)
            await engine.sweep(10, now=NOW)
            assert await take(engine, 10) == []
            assert await _heard(engine, listener) == set()

    async def test_a_cancelled_pending_job_is_done(self, engine: Engine) -> None:
        await put(engine, new(1))
        async with engine.listen(EVERY) as listener:
            await engine.cancel([job_id(1)], now=NOW)
            assert await _heard(engine, listener) == {done(1)}

    async def test_the_holder_of_a_running_job_is_asked(self, engine: Engine) -> None:
        row = await running(engine, 1)
        async with engine.listen(EVERY) as listener:
            await engine.cancel([row.id], now=NOW)
            assert await _heard(engine, listener) == {cancel(1)}

    async def test_force_tells_the_holder_and_the_end(self, engine: Engine) -> None:
        row = await running(engine, 1)
        async with engine.listen(EVERY) as listener:
            await engine.cancel([row.id], force=True, now=NOW)
            assert await _heard(engine, listener) == {cancel(1), done(1)}

    async def test_a_requeue_wakes_the_queue(self, engine: Engine) -> None:
        row = await finished(engine, queue="b")
        async with engine.listen(EVERY) as listener:
            await engine.requeue([row.id], now=NOW)
            assert await _heard(engine, listener) == {queue("b")}

    async def test_a_sweep_tells_what_it_did(self, engine: Engine) -> None:
        await running(engine, 1, queue="b")
        await running(engine, 2, max_lapses=0)
        await put(engine, new(3, expires_in=5))
        async with engine.listen((Topic.QUEUE, Topic.DONE)) as listener:
            await engine.sweep(10, now=NOW + LEASE)
            assert await _heard(engine, listener) == {queue("b"), done(2), done(3)}

    async def test_whoever_loses_a_lapsed_job_is_told(self, engine: Engine) -> None:
        swept = await running(engine, 1)
        async with engine.listen((Topic.CANCEL,)) as listener:
            await engine.sweep(10, now=NOW + LEASE)
            assert await _heard(engine, listener) == {cancel(1)}
            taken = await take(engine, now=NOW + LEASE)
            assert await _heard(engine, listener) == set()
            assert (await take(engine, now=NOW + 2 * LEASE, owner=OTHER))[0].lapses == 2
            assert await _heard(engine, listener) == {cancel(1)}
        assert [row.id for row in taken] == [swept.id]

    async def test_a_job_that_expires_in_a_claim_is_done(self, engine: Engine) -> None:
        await put(engine, new(1, expires_in=5))
        async with engine.listen((Topic.DONE,)) as listener:
            await take(engine, now=NOW + 5)
            assert await _heard(engine, listener) == {done(1)}

    async def test_only_the_asked_topics_come_through(self, engine: Engine) -> None:
        row = await running(engine, 1)
        async with engine.listen((Topic.CANCEL,)) as listener:
            await put(engine, new(2))
            await engine.cancel([row.id], force=True, now=NOW)
            assert await _heard(engine, listener) == {cancel(1)}

    async def test_any_comes_through_whatever_was_asked(self, engine: Engine) -> None:
        async with engine.listen(()) as listener:
            await engine.notify([queue(), Signal(Topic.ANY)])
            assert await _heard(engine, listener) == {Signal(Topic.ANY)}

    async def test_hints_of_others_come_through_once(self, engine: Engine) -> None:
        async with engine.listen((Topic.QUEUE,)) as listener:
            await engine.notify([queue("x"), queue("x"), queue("y")])
            assert await _heard(engine, listener) == {queue("x"), queue("y")}

    async def test_every_listener_is_told(self, engine: Engine) -> None:
        async with engine.listen(EVERY) as first, engine.listen(EVERY) as second:
            await put(engine, new(1))
            for listener in (first, second):
                assert await _heard(engine, listener) == {queue()}

    async def test_signals_cross_handles(self, engine: Engine) -> None:
        async with engine.side() as side, engine.listen(EVERY) as mine, side.listen(EVERY) as its:
            await put(engine, new(1))
            await put(side, new(2, queue="b"))
            assert await _heard(engine, its) == {queue(), queue("b")}
            assert await _heard(side, mine) == {queue(), queue("b")}

    async def test_a_signal_is_told_once(self, engine: Engine) -> None:
        async with engine.listen(EVERY) as listener:
            await put(engine, new(1))
            assert await _heard(engine, listener) == {queue()}
            assert await _heard(engine, listener) == set()
            assert await listener.wait(0) == frozenset()

    async def test_what_was_told_has_taken_effect(self, engine: Engine) -> None:
        async with engine.side() as side, engine.listen(EVERY) as listener:
            await put(side, new(1))
            assert queue() in await listener.wait(WAIT)
            assert len(await take(engine, 10)) == 1

    async def test_a_listener_that_left_is_no_obstacle(self, engine: Engine) -> None:
        async with engine.listen(EVERY):
            await put(engine, new(1))
        await put(engine, new(2))
        assert len(await take(engine, 10)) == 2
