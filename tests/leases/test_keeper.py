"""The keeper with its thread: I/O, signals, diagnostics, life and death."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import partial

import anyio
import pytest

from tenure.core.job import Progress
from tenure.core.lease import Busy, Extended, Lost
from tenure.core.retry import RetryPolicy
from tenure.leases import keeper as keeper_module
from tenure.leases import link as link_module
from tenure.leases.holder import Holder
from tenure.leases.keeper import LeaseKeeper
from tenure.leases.process import default_keeper
from tenure.observe.hooks import Hooks
from tests.leases.kit import Answer, Client, Desk, grant, hang, opened, until


def quiet(desk: Desk):
    until(desk.settled)


def tick(desk: Desk, seconds: float = 10.0):
    desk.clock.advance(seconds)
    quiet(desk)


def retries(desk: Desk):
    return desk.named("lease.transient_retry") + desk.named("lease.unexpected_retry")


def retried(desk: Desk, times: int) -> bool:
    return len(retries(desk)) == times


def test_leases_are_renewed_in_one_batch_on_the_keepers_thread(desk):
    client = Client()
    leases = desk.leases(5)
    desk.keeper.register(client, leases)
    assert desk.keeper.active == 5
    assert client.opened == 0
    tick(desk)
    assert [len(batch) for batch in client.batches] == [5]
    assert client.threads == {"tenure-lease-keeper"}
    assert client.opened == 1
    assert all(lease.remaining() == 27 for lease in leases)
    for _ in range(20):
        tick(desk)
    assert len(client.batches) == 21
    assert client.opened == 1
    assert not any(lease.lost for lease in leases)


def test_the_thread_is_a_daemon_and_starts_on_first_use():
    keeper = LeaseKeeper()
    assert keeper._runner is None
    desk = Desk()
    desk.keeper.register(Client(), [desk.lease()])
    runner = desk.keeper._runner
    assert runner is not None
    assert runner._thread.daemon
    desk.keeper.close()
    keeper.close()


def test_registering_nothing_starts_nothing(desk):
    desk.keeper.register(Client(), [])
    assert desk.keeper._runner is None


def test_a_removed_lease_is_left_alone(desk):
    client = Client()
    lease, other = desk.leases(2)
    desk.keeper.register(client, [lease, other])
    desk.keeper.remove([lease])
    desk.keeper.remove([lease])
    assert desk.keeper.active == 1
    tick(desk)
    assert [beat.id for beat in client.beats] == ["j1"]
    assert len(desk.named("lease.stopped")) == 1


def test_an_answer_after_removal_is_ignored(desk):
    gate = threading.Event()

    async def late(beats):
        await opened(gate)
        return [Lost("settled")]

    client = Client(late)
    lease = desk.lease()
    desk.keeper.register(client, [lease])
    desk.clock.advance(10)
    until(lambda: client.batches)
    desk.keeper.remove([lease])
    gate.set()
    until(lambda: not client.flying)
    desk.keeper.close()
    assert desk.signals == []
    assert lease._reason is None


def test_a_nudge_renews_now(desk):
    async def cancelled(beats):
        return [Extended(beat.seconds, cancel_requested=True) for beat in beats]

    client = Client(cancelled)
    lease = desk.lease()
    desk.keeper.register(client, [lease])
    desk.keeper.nudge(["j1", "unknown"])
    until(lambda: desk.signals)
    assert desk.signals == [("j1", None, True, "tenure-lease-callbacks")]
    assert lease.cancel_requested
    assert not lease.lost
    tick(desk)
    assert len(desk.signals) == 1


def test_a_hanging_client_delays_no_other_and_its_leases_are_lost_in_time(desk):
    stuck, good = Client(hang), Client()
    lost, held = desk.lease("stuck"), desk.lease("good")
    desk.keeper.register(stuck, [lost])
    desk.keeper.register(good, [held])
    for _ in range(4):
        desk.clock.advance(10)
        until(lambda: held.remaining() == 27 and not good.flying)
    until(lambda: desk.signals)
    assert desk.signals == [("stuck", "deadline", False, "tenure-lease-callbacks")]
    assert not held.lost


def test_a_client_that_resists_cancellation_holds_up_its_own_leases_only(desk):
    gate = threading.Event()

    async def stubborn(beats):
        with anyio.CancelScope(shield=True):
            await opened(gate)
        return [Extended(beat.seconds) for beat in beats]

    stuck, good = Client(stubborn), Client()
    lost, held = desk.lease("stuck", 1.0), desk.lease("good", 1.0)
    desk.keeper.register(stuck, [lost])
    desk.keeper.register(good, [held])
    for _ in range(4):
        desk.clock.advance(0.34)
        until(lambda: held.remaining() > 0.7)
    until(lambda: desk.signals)
    assert len(stuck.batches) == 1
    assert lost.reason == "deadline"
    gate.set()
    until(lambda: not stuck.flying)
    assert stuck.overlaps == 0


def test_a_request_is_cut_off_and_retried(desk):
    answers: list[Answer] = [hang]

    async def first_hangs(beats):
        return await (answers.pop() if answers else grant)(beats)

    client = Client(first_hangs)
    lease = desk.lease(length=1.0)
    desk.keeper.register(client, [lease])
    desk.clock.advance(0.34)
    until(lambda: desk.named("lease.transient_retry"))
    (retry,) = desk.named("lease.transient_retry")
    assert retry.facts["error"] == "TimeoutError"
    tick(desk, 0.3)
    assert len(client.batches) == 2
    assert not lease.lost


def raising(error: BaseException, *, times: int = 1) -> Answer:
    left = [error] * times

    async def answer(beats):
        if left:
            raise left.pop()
        return [Extended(beat.seconds) for beat in beats]

    return answer


@pytest.mark.parametrize(
    "error",
    [OSError("down"), ValueError("odd"), SystemExit(3), asyncio.CancelledError()],
    ids=repr,
)
def test_whatever_extend_raises_is_transient(desk, error):
    client = Client(raising(error))
    lease, other = desk.lease(), desk.lease("other")
    desk.keeper.register(client, [lease])
    desk.keeper.register(Client(), [other])
    desk.clock.advance(10)
    until(lambda: retries(desk))
    expected = isinstance(error, OSError)
    assert retries(desk)[0].name == f"lease.{'transient' if expected else 'unexpected'}_retry"
    tick(desk, 0.5)
    assert len(client.batches) == 2
    assert lease.remaining() == 27
    assert desk.named("lease.keeper_died") == []


@pytest.mark.parametrize(("after", "waits"), [(6, 6.0), (0, 1.0), (600, 10.0), (None, 0.5)])
def test_an_exception_may_say_when_to_come_back(desk, after, waits):
    error = OSError("slow down")
    error.retry_after = after  # type: ignore[attr-defined]
    client = Client(raising(error))
    desk.keeper.register(client, [desk.lease()])
    desk.clock.advance(10)
    until(lambda: retries(desk))
    assert retries(desk)[0].facts["delay"] == min(waits, 8.5)  # half of what is left
    tick(desk, min(waits, 8.5))
    assert len(client.batches) == 2


@pytest.mark.parametrize("answers", [[], [Extended(30.0)] * 2, [object()], None])
def test_unsound_answers_are_transient(desk, answers, caplog):
    async def wrong(beats):
        return answers

    client = Client(wrong)
    lease = desk.lease()
    desk.keeper.register(client, [lease])
    desk.clock.advance(10)
    until(lambda: retries(desk))
    assert "could not be renewed" in caplog.text
    assert not lease.lost


def test_a_streak_of_failures_warns_once(desk, caplog):
    client = Client(raising(OSError("down"), times=3))
    desk.keeper.register(client, desk.leases(3))
    desk.clock.advance(10)
    for count in range(1, 4):
        until(partial(retried, desk, count))
        desk.clock.advance(5)
    quiet(desk)
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "3 leases could not be renewed" in warnings[0].getMessage()
    client.answer = raising(OSError("again"))
    tick(desk)
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 2


def test_an_open_that_fails_is_retried(desk):
    class Shy(Client):
        async def open(self) -> None:
            await super().open()
            if self.opened < 3:
                raise OSError("not yet")

    client = Shy()
    lease = desk.lease()
    desk.keeper.register(client, [lease])
    desk.clock.advance(10)
    for count in (1, 2):
        until(partial(retried, desk, count))
        desk.clock.advance(1)
    quiet(desk)
    assert client.opened == 3
    assert len(client.batches) == 1
    assert not lease.lost


def test_leases_of_a_client_that_never_opens_are_lost_at_their_deadline(desk):
    class Closed(Client):
        async def open(self) -> None:
            raise OSError("never")

    client = Closed()
    desk.keeper.register(client, [desk.lease()])
    while not desk.signals:
        desk.clock.advance(1)
        until(lambda: desk.signals or not desk.keeper._book.next_wake() or desk.settled())
    assert desk.signals[0][:2] == ("j1", "deadline")
    desk.keeper.close()
    assert client.closed == 0


def test_opening_outlives_the_request_that_waits_for_it(desk):
    gate = threading.Event()

    class Slow(Client):
        async def open(self) -> None:
            await super().open()
            await opened(gate)

    client = Slow(retry=RetryPolicy.constant(0.1))
    lease = desk.lease(length=1.0)
    desk.keeper.register(client, [lease])
    desk.clock.advance(0.34)
    until(lambda: desk.named("lease.transient_retry"))
    gate.set()
    tick(desk, 0.1)
    assert client.opened == 1
    assert not lease.lost


def test_a_definitive_answer_is_told(desk, caplog):
    async def taken(beats):
        return [Lost("taken")]

    lease = desk.lease()
    desk.keeper.register(Client(taken), [lease])
    desk.clock.advance(10)
    until(lambda: desk.signals)
    assert desk.signals == [("j1", "taken", False, "tenure-lease-callbacks")]
    assert lease.lost
    assert "the lease of j1 is lost: taken" in caplog.text
    (lost,) = desk.named("lease.lost")
    assert lost.facts == {
        "id": "j1", "token": 1, "owner": "me", "seconds": 30.0, "reason": "taken"
    }  # fmt: skip
    assert desk.keeper.active == 0


def test_busy_is_not_lost(desk):
    async def busy(beats):
        return [Busy()]

    lease = desk.lease()
    desk.keeper.register(Client(busy), [lease])
    for _ in range(10):
        tick(desk)
    assert not lease.lost
    assert desk.signals == []


def test_progress_reaches_the_store(desk):
    client = Client()
    lease = desk.lease()
    desk.keeper.register(client, [lease])
    lease.report(Progress(3, 10, "go"))
    tick(desk)
    tick(desk)
    assert [beat.progress for beat in client.beats] == [Progress(3, 10, "go"), None]


def test_a_suspension_is_noticed_when_the_process_wakes(desk, monkeypatch):
    assert keeper_module.LONGEST_WAIT <= 1
    monkeypatch.setattr(keeper_module, "LONGEST_WAIT", 0.05)
    client = Client()
    desk.clock.on_advance = lambda: None  # the loop's own timers have not moved
    desk.keeper.register(client, [desk.lease()])
    desk.clock.advance(3600)
    until(lambda: desk.signals, 5)
    assert desk.signals[0][:2] == ("j1", "deadline")
    assert client.batches == []


def test_a_keeper_that_overslept_is_woken_by_whoever_comes(desk):
    client = Client()
    desk.keeper.register(client, [desk.lease("old")])
    until(lambda: desk.keeper._planned == desk.clock.now + 10)
    desk.clock.on_advance = lambda: None
    desk.clock.advance(20)
    woken = []
    desk.keeper._runner.wake = lambda: woken.append(True)
    desk.keeper.register(client, [desk.lease("new")])
    assert woken


# Signals


def test_signals_are_posted_where_the_holder_wants_them(desk):
    posted: list[Callable[[], None]] = []
    lease = desk.lease(holder=Holder(posted.append))
    desk.keeper.register(Client(), [lease])
    desk.clock.advance(27)
    until(lambda: posted)
    assert desk.signals == []
    posted.pop()()
    assert desk.signals == [("j1", "deadline", False, threading.current_thread().name)]
    assert posted == []


def test_signals_reach_an_event_loop(desk):
    async def main() -> None:
        told = asyncio.Event()
        loop = asyncio.get_running_loop()
        threads = []

        def signal(lease):
            threads.append(threading.current_thread())
            told.set()

        lease = desk.lease(on_signal=signal, holder=Holder(loop.call_soon_threadsafe))
        desk.keeper.register(Client(), [lease])
        desk.clock.advance(27)
        await asyncio.wait_for(told.wait(), 10)
        assert threads == [threading.current_thread()]

    asyncio.run(main())


def test_a_closed_loop_is_no_harm(desk):
    loop = asyncio.new_event_loop()
    loop.close()
    gone, fine = desk.lease("gone", holder=Holder(loop.call_soon_threadsafe)), desk.lease("fine")
    desk.keeper.register(Client(), [gone, fine])
    desk.clock.advance(27)
    until(lambda: desk.signals)
    until(lambda: desk.named("lease.signal_failed"))
    assert gone.lost
    assert [signal[0] for signal in desk.signals] == ["fine"]


def test_a_callback_that_fails_or_calls_the_keeper_is_no_harm(desk):
    def failing(lease):
        raise RuntimeError("no")

    def using(lease):
        desk.keeper.remove([lease])
        desk.keeper.nudge(["x"])
        desk.signal(lease)

    bad, good = desk.lease("bad", on_signal=failing), desk.lease("good", on_signal=using)
    silent = desk.lease("silent", on_signal=None)
    desk.keeper.register(Client(), [bad, silent, good])
    desk.clock.advance(27)
    until(lambda: desk.signals)
    assert len(desk.named("lease.signal_failed")) == 1


def test_a_callback_that_blocks_does_not_stop_renewals(desk):
    gate = threading.Event()
    client = Client()
    desk.keeper.register(Client(hang), [desk.lease("a", on_signal=lambda _: gate.wait(20))])
    desk.clock.advance(27)
    lease = desk.lease("b")
    desk.keeper.register(client, [lease])
    tick(desk)
    assert lease.remaining() == 27
    gate.set()


def test_hooks_that_fail_change_nothing(desk):
    def failing(happening):
        raise RuntimeError("no")

    desk.hooks.add(failing)
    lease = desk.lease()
    desk.keeper.register(Client(), [lease])
    tick(desk)
    assert lease.remaining() == 27
    assert desk.hooks.failures > 0


def test_what_happens_can_be_followed(desk):
    async def first_fails(beats):
        if len(client.batches) == 1:
            raise OSError("down")
        return [Extended(30.0)]

    client = Client(first_fails)
    lease = desk.lease()
    desk.keeper.register(client, [lease])
    desk.clock.advance(10)
    until(lambda: desk.named("lease.transient_retry"))
    tick(desk, 0.5)
    desk.keeper.remove([lease])
    desk.keeper.close()
    assert [happening.name for happening in desk.happenings] == [
        "lease.keeper_start",
        "lease.keeper_ready",
        "lease.registered",
        "lease.extend_attempt",
        "lease.transient_retry",
        "lease.extend_attempt",
        "lease.extend_ok",
        "lease.stopped",
        "lease.keeper_shutdown",
    ]
    retry = desk.named("lease.transient_retry")[0].facts
    assert retry == {
        "leases": 1, "delay": 0.5, "streak": 1, "error": "OSError", "message": "down"
    }  # fmt: skip


def test_nothing_is_gathered_for_nobody(monkeypatch):
    def gathered(lease):
        raise AssertionError("somebody gathered facts")

    monkeypatch.setattr("tenure.leases.journal._facts", gathered)
    monkeypatch.setattr(logging.getLogger("tenure.leases"), "level", logging.INFO)
    desk = Desk()
    desk.keeper = LeaseKeeper(desk.clock, Hooks())
    lease = desk.lease()
    desk.keeper.register(Client(), [lease])
    tick(desk)
    desk.keeper.remove([lease])
    desk.keeper.close()


# Many


def test_ten_thousand_leases_cost_ten_requests_a_tick(desk):
    client = Client()
    leases = desk.leases(10_000)
    desk.keeper.register(client, leases)
    for _ in range(3):
        tick(desk)
    assert [len(batch) for batch in client.batches] == [1000] * 30
    assert threading.active_count() < 20
    desk.keeper.remove(leases)
    assert desk.keeper.active == 0


# Life and death


def test_closing_loses_what_is_left_tells_and_ends_the_thread(desk):
    client, unused = Client(), Client()
    leases = desk.leases(3)
    desk.keeper.register(client, leases)
    desk.keeper.register(unused, [desk.lease("unused")])
    desk.keeper.nudge(["j0"])
    quiet(desk)
    runner = desk.keeper._runner
    desk.keeper.close()
    desk.keeper.close()
    assert runner is not None
    assert not runner._thread.is_alive()
    assert {lease.reason for lease in leases} == {"closed"}
    until(lambda: len(desk.signals) == 4)
    assert client.closed == 1
    assert unused.opened == unused.closed == 0
    assert desk.keeper.active == 0
    desk.keeper.remove(leases)
    desk.keeper.nudge(["j1"])
    desk.keeper.discard(client)
    with pytest.raises(RuntimeError, match="closed"):
        desk.keeper.register(client, [desk.lease("late")])


def test_closing_cuts_off_requests_and_has_a_bound(desk):
    client = Client(hang)
    desk.keeper.register(client, [desk.lease()])
    desk.clock.advance(10)
    until(lambda: client.flying)
    desk.keeper.close()
    assert not client.flying
    assert client.closed == 1


def test_closing_does_not_wait_for_ever(desk):
    gate = threading.Event()

    async def stubborn(beats):
        with anyio.CancelScope(shield=True):
            await opened(gate)
        return []

    client = Client(stubborn)
    desk.keeper.register(client, [desk.lease()])
    desk.clock.advance(10)
    until(lambda: client.flying)
    runner = desk.keeper._runner
    desk.keeper.discard(client, timeout=0.02)
    desk.keeper.close(timeout=0.02)
    assert len(desk.named("lease.stop_timeout")) == 2
    gate.set()
    assert runner is not None
    assert runner.join(10)


def test_closing_from_the_keepers_own_threads_does_not_hang(desk):
    done = threading.Event()

    async def closing(beats):
        desk.keeper.discard(client)
        desk.keeper.close()
        done.set()
        return []

    client = Client(closing)
    desk.keeper.register(client, [desk.lease(on_signal=lambda _: desk.keeper.close())])
    desk.clock.advance(10)
    assert done.wait(4)


def test_discarding_a_client_drops_its_leases_and_closes_it(desk):
    client, other = Client(), Client()
    lease = desk.lease()
    desk.keeper.register(client, [lease])
    desk.keeper.register(other, [desk.lease("other")])
    tick(desk)
    client.answer = hang
    desk.clock.advance(10)
    until(lambda: client.flying)
    desk.keeper.discard(client)
    assert client.closed == 1
    assert not client.flying
    assert desk.keeper.active == 1
    assert not lease.lost
    desk.keeper.discard(client)
    assert client.closed == 1
    quiet(desk)
    client.answer = other.answer
    desk.keeper.register(client, [desk.lease("again")])
    tick(desk)
    assert client.opened == 2
    assert [beat.id for beat in client.batches[-1]] == ["again"]


def test_a_client_that_hangs_in_close_is_left_behind(desk, monkeypatch):
    monkeypatch.setattr(link_module, "CLOSE_TIMEOUT", 0.05)

    class Clinging(Client):
        async def close(self) -> None:
            await anyio.sleep_forever()

    client = Clinging()
    desk.keeper.register(client, [desk.lease()])
    tick(desk)
    desk.keeper.discard(client, timeout=0.02)
    assert desk.named("lease.stop_timeout")
    runner = desk.keeper._runner
    assert runner is not None
    desk.keeper.close()
    assert not runner._thread.is_alive()


def break_once(desk: Desk, monkeypatch):
    """Make the keeper's next look fail as only a defect of its own could."""
    book = desk.keeper._book
    due = book.due

    def broken(now):
        monkeypatch.setattr(book, "due", due)
        raise MemoryError("broken")

    monkeypatch.setattr(book, "due", broken)


def test_the_next_registration_starts_a_dead_thread_again(desk, monkeypatch, caplog):
    client = Client()
    lease = desk.lease()
    desk.keeper.register(client, [lease])
    tick(desk)
    client.answer = hang
    desk.clock.advance(10)
    until(lambda: client.flying)
    break_once(desk, monkeypatch)
    desk.look()
    until(lambda: desk.named("lease.keeper_died"))
    assert "died" in caplog.text
    assert desk.keeper._runner is None
    client.answer = Client().answer
    desk.keeper.register(client, [desk.lease("new")])
    quiet(desk)
    assert lease.remaining() == 27  # it was in flight when the thread died, so it went at once
    assert client.opened == 2
    assert not lease.lost
    tick(desk)
    assert {beat.id for beat in client.batches[-1]} == {"j1", "new"}


def test_a_thread_that_dies_after_a_while_is_followed_at_once(desk, monkeypatch):
    client = Client()
    lease = desk.lease()
    desk.keeper.register(client, [lease])
    runner = desk.keeper._runner
    assert runner is not None
    runner._since = 0.0
    break_once(desk, monkeypatch)
    desk.look()
    until(lambda: desk.keeper._runner not in (None, runner))
    tick(desk)
    assert lease.remaining() == 27


def test_a_startup_error_is_reported_and_nothing_is_recorded(desk, monkeypatch):
    def failing(*args, **options):
        raise OSError("no more files")

    with monkeypatch.context() as patch:
        patch.setattr(anyio, "run", failing)
        with pytest.raises(RuntimeError, match="no more files"):
            desk.keeper.register(Client(), [desk.lease()])
    assert desk.keeper.active == 0
    lease = desk.lease()
    desk.keeper.register(Client(), [lease])
    tick(desk)
    assert lease.remaining() == 27


def test_no_thread_to_be_had_is_reported(desk, monkeypatch):
    def failing(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", failing)
        with pytest.raises(RuntimeError, match="can't start"):
            desk.keeper.register(Client(), [desk.lease()])
    assert desk.keeper.active == 0
    desk.keeper.register(Client(), [desk.lease()])
    assert desk.keeper.active == 1


def test_a_thread_that_does_not_report_is_given_up(desk, monkeypatch):
    gate = threading.Event()
    others = set(threading.enumerate())  # the process may have its own keeper, alive and well
    run = anyio.run

    def slow(*args, **options):
        gate.wait(20)
        return run(*args, **options)

    monkeypatch.setattr(keeper_module, "START_TIMEOUT", 0.02)
    with monkeypatch.context() as patch:
        patch.setattr(anyio, "run", slow)
        with pytest.raises(RuntimeError, match="did not start within"):
            desk.keeper.register(Client(), [desk.lease()])
        started = set(threading.enumerate()) - others
        late = [t for t in started if t.name == "tenure-lease-keeper"]
    gate.set()
    for thread in late:
        thread.join(10)
        assert not thread.is_alive()
    assert desk.keeper.active == 0


def test_the_process_has_one_keeper_and_a_new_one_after_it_was_closed():
    first = default_keeper()
    assert default_keeper() is first
    first.close()
    assert default_keeper() is not first
