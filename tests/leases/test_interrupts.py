"""Signal handlers, finalizers, and a keeper thread that comes, goes and comes back."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import warnings
from functools import partial

import pytest

from tenure.core.lease import Extended
from tenure.leases import LeaseKeeper, LeaseRenewal
from tenure.leases.guard import Guard
from tenure.leases.runner import Runner
from tests.leases.kit import Client, opened, until


def always(receipt, seconds):
    return seconds


# The lock that may be interrupted


def test_what_comes_inside_is_done_after():
    guard = Guard()
    done: list[object] = []
    with guard:
        assert guard.held
        guard.later(lambda: done.append(guard.held))
        with guard:
            guard.later(lambda: done.append("inner"))
        assert done == []
    assert done == [False, "inner"]
    assert not guard.held


def test_what_comes_from_elsewhere_is_done_by_the_next_holder():
    guard = Guard()
    done: list[object] = []
    thread = threading.Thread(target=lambda: guard.later(lambda: done.append(guard.held)))
    thread.start()
    thread.join()
    assert done == []
    with guard:
        pass
    assert done == [False]
    guard.later(lambda: done.append("caught up"))
    guard.catch_up()
    assert done[1:] == ["caught up"]


def test_another_thread_does_not_hold_it():
    guard, seen = Guard(), []
    with guard:
        thread = threading.Thread(target=lambda: seen.append(guard.held))
        thread.start()
        thread.join()
        guard.catch_up()
    assert seen == [False]


@pytest.mark.parametrize("call", ["register", "remove", "nudge", "ask"])
def test_the_keeper_may_be_called_from_inside_itself(desk, call):
    """As a signal handler does that interrupts the critical section."""
    client, lease, other = Client(), desk.lease("a"), desk.lease("b")
    desk.keeper.register(client, [lease])
    with desk.keeper._guard:
        assert desk.keeper.interrupted
        if call == "register":
            desk.keeper.register(client, [other])
        elif call == "remove":
            desk.keeper.remove([lease])
        elif call == "nudge":
            desk.keeper.nudge(["a"])
        else:
            errand = desk.keeper.ask(client, lease, 60)
        assert desk.keeper.active == 1
    if call == "register":
        assert desk.keeper.active == 2
    elif call == "remove":
        assert desk.keeper.active == 0
    elif call == "nudge":
        until(lambda: client.beats)
    else:
        assert errand.over.wait(10)
        assert errand.answer == Extended(60.0)


def test_a_registration_that_fails_afterwards_is_told(desk, caplog):
    with desk.keeper._guard:
        desk.keeper.register(Client(), [desk.lease()])
        desk.keeper._closed = True
    assert "1 leases could not be registered" in caplog.text
    desk.keeper._closed = False


def test_a_stop_inside_does_not_wait_for_itself(desk, service):
    gate = threading.Event()

    async def late() -> None:
        await opened(gate)

    service.faults.append(late)
    renewal = LeaseRenewal(service.client(), service.lease("r1"), keeper=desk.keeper)
    renewal.start()
    desk.clock.advance(60)
    until(lambda: service.renewals)
    with desk.keeper._guard:
        renewal.stop()  # would wait 5 s for an answer that nobody can file meanwhile
    assert desk.keeper.active == 0
    gate.set()
    renewal.stop()


# For real


class Barrage:
    """Signals from another thread, which interrupt the main thread wherever it is."""

    def __init__(self, handler) -> None:
        self.count = 0
        self._handler = handler
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._fire)

    def _fire(self) -> None:
        main = threading.main_thread().ident
        assert main is not None
        while not self._over.wait(0.0002):
            signal.pthread_kill(main, signal.SIGUSR1)

    def _handle(self, signum, frame) -> None:
        self.count += 1
        self._handler(self.count)

    def __enter__(self):
        self._old = signal.signal(signal.SIGUSR1, self._handle)
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(5e-5)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()
        sys.setswitchinterval(self._interval)
        signal.signal(signal.SIGUSR1, self._old)


def test_signal_handlers_may_do_everything(scaled):
    keeper = LeaseKeeper()
    client = Client()
    theirs: list[LeaseRenewal] = []

    def handle(count: int) -> None:
        renewal = LeaseRenewal(client, f"theirs-{count}", keeper=keeper)
        renewal.start()
        theirs.append(renewal)
        keeper.nudge([f"theirs-{count}", "mine-0"])
        assert not renewal.lost
        if count % 2:
            renewal.stop(wait=count % 4 == 1)

    keeper.register(client, [])
    mine = LeaseRenewal(client, "mine-0", keeper=keeper)
    with mine, Barrage(handle) as barrage:
        while barrage.count < scaled(200, 5000):
            with LeaseRenewal(client, "mine", keeper=keeper):
                pass
    for renewal in theirs:
        renewal.stop()
    until(lambda: keeper.active == 0)
    assert client.overlaps == 0
    keeper.close()


def test_signals_may_come_while_the_keeper_starts_and_closes(scaled):
    for _ in range(scaled(100, 2000)):
        keeper = LeaseKeeper()
        renewals: list[LeaseRenewal] = []

        def handle(count: int, keeper=keeper, renewals=renewals) -> None:
            renewal = LeaseRenewal(Client(), f"r{count}", keeper=keeper)
            try:
                renewal.start()
            except RuntimeError:
                return  # closed, or there is no thread yet and this one may not wait
            renewals.append(renewal)

        with Barrage(handle):
            first = LeaseRenewal(Client(), "first", keeper=keeper)
            first.start()
            first.stop()
        keeper.close()
        for renewal in renewals:
            renewal.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_finalizers_may_come_at_any_moment(scaled):
    """Handles in cycles are finalized by the collector: in any thread, even in the keeper's own."""
    keeper = LeaseKeeper()
    client = Client()
    threshold = gc.get_threshold()
    gc.set_threshold(50, 2, 2)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            for i in range(scaled(3000, 50000)):
                renewal = LeaseRenewal(client, f"r{i}", keeper=keeper)
                renewal.start()
                renewal.myself = renewal  # type: ignore[attr-defined]
                del renewal
            gc.collect()
    finally:
        gc.set_threshold(*threshold)

    def idle() -> bool:
        keeper.nudge([])
        return keeper.active == 0

    until(idle)
    keeper.close()


# A thread that dies


def dies_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop breaks at its next turn, and works after that."""
    work = Runner._work

    async def broken(self, links):
        monkeypatch.setattr(Runner, "_work", work)
        raise MemoryError("broken")

    monkeypatch.setattr(Runner, "_work", broken)


def test_renewals_outlive_the_thread(desk, service, monkeypatch):
    dies_once(monkeypatch)
    one = LeaseRenewal(service.client(), service.lease("r1"), keeper=desk.keeper)
    one.start()
    until(lambda: desk.named("lease.keeper_died"))
    two = LeaseRenewal(service.client(), service.lease("r2"), keeper=desk.keeper)
    two.start()
    desk.clock.advance(60)
    until(desk.settled)
    assert sorted(receipt for receipt, _ in service.renewals) == ["r1", "r2"]
    LeaseRenewal.stop_all([one, two])


def test_a_stop_does_not_hang_when_the_thread_dies_under_it(desk, service, monkeypatch):
    async def forever() -> None:
        await opened(threading.Event())

    service.faults.append(forever)
    renewal = LeaseRenewal(service.client(), service.lease("r1"), keeper=desk.keeper)
    renewal.start()
    desk.clock.advance(60)
    until(lambda: service.renewals)
    flight = renewal.lease._flight
    assert flight is not None
    stopping = threading.Thread(target=renewal.stop)
    stopping.start()
    until(lambda: flight.over._tell)
    runner = desk.keeper._runner
    assert runner is not None
    runner._post(partial(die, runner))
    stopping.join(4)  # long before the 5 s of its patience
    assert not stopping.is_alive()


def die(runner: Runner) -> None:
    runner._master = runner._master._replace(plan=broken_plan)
    runner._ring()


def broken_plan(runner):
    raise MemoryError("broken")


def test_an_extension_by_hand_outlives_the_thread(desk, service, monkeypatch):
    gate = threading.Event()

    async def late() -> None:
        await opened(gate)

    service.faults.append(late)
    renewal = LeaseRenewal(service.client(), service.lease("r1"), keeper=desk.keeper)
    renewal.start()
    answers: list[object] = []
    asking = threading.Thread(target=lambda: answers.append(renewal.extend(90)))
    asking.start()
    until(lambda: service.changes)
    runner = desk.keeper._runner
    assert runner is not None
    runner._since = -1e9  # it has lasted, so it gets a successor at once
    runner._post(partial(die, runner))
    asking.join(10)
    assert answers == [Extended(90.0)]
    assert len(service.changes) == 2
    gate.set()
    renewal.stop()


def test_an_extension_by_hand_is_told_when_there_is_no_thread(desk, service, monkeypatch):
    def refuse(runner):
        raise RuntimeError("no more threads")

    renewal = LeaseRenewal(service.client(), service.lease("r1"), keeper=desk.keeper)
    with monkeypatch.context() as patch:
        patch.setattr(Runner, "start", refuse)
        with pytest.raises(RuntimeError, match="did not start: no more threads"):
            renewal.extend(60)
    assert renewal.extend(60) == Extended(60.0)
    desk.keeper.close()
    with pytest.raises(RuntimeError, match="closed"):
        renewal.extend(60)


def test_a_keeper_that_closes_tells_all_who_wait(desk, service):
    async def forever() -> None:
        await opened(threading.Event())

    service.faults.extend([forever, forever])
    flying, asking = (
        LeaseRenewal(service.client(), service.lease(name), keeper=desk.keeper)
        for name in ("r1", "r2")
    )
    LeaseRenewal.start_all([flying])
    desk.clock.advance(60)
    until(lambda: service.renewals)
    flight = flying.lease._flight
    assert flight is not None
    errors: list[str] = []

    def ask() -> None:
        try:
            asking.extend(60)
        except RuntimeError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=flying.stop), threading.Thread(target=ask)]
    for thread in threads:
        thread.start()
    until(lambda: flight.over._tell and service.changes)
    desk.keeper.close()
    for thread in threads:
        thread.join(4)
        assert not thread.is_alive()
    assert errors == ["the lease keeper was closed"]
    assert flying.reason is None  # it had stopped before
