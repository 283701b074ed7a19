"""LeaseRenewal: what its holder may do, and what then happens at the service."""

from __future__ import annotations

import contextvars
import gc
import math
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import anyio
import anyio.lowlevel
import pytest

from tenure.clock import SYSTEM_CLOCK
from tenure.core.lease import Extended, Lost
from tenure.errors import ConfigurationError, EngineUnavailable, LeaseLost
from tenure.leases import Grant, LeaseRenewal, client_from, lease_times
from tenure.leases import prime as prime_module
from tenure.leases import renewal as renewal_module
from tenure.leases.runner import Runner
from tests.leases.callers import Caller, every_caller, every_loop, soon
from tests.leases.kit import Client, Desk, hang, opened, until
from tests.leases.service import Service, Status


def renewal_of(desk: Desk, client, receipt: str | None = "r1", **options) -> LeaseRenewal:
    return LeaseRenewal(client, receipt, keeper=desk.keeper, **options)


def tick(desk: Desk, seconds: float) -> None:
    desk.clock.advance(seconds)
    until(desk.settled)


def blocked(service: Service) -> threading.Event:
    """The service's next call hangs until the event is set."""
    gate = threading.Event()

    async def wait() -> None:
        await opened(gate)

    service.faults.append(wait)
    return gate


# From start to stop


@every_caller
def test_it_renews_between_start_and_stop(by: Caller, desk, service):
    renewal = renewal_of(desk, service.client(), service.lease("r1"))

    async def scenario():
        assert not renewal.active
        await by.start(renewal)
        assert renewal.active
        for _ in range(5):
            tick(desk, 60)
        assert service.renewals == [("r1", 300.0)] * 5
        assert renewal.remaining() == 270
        assert not renewal.lost
        await by.stop(renewal)
        assert not renewal.active
        tick(desk, 120)
        assert len(service.renewals) == 5

    by.run(scenario)


@every_caller
def test_it_is_a_context_manager(by: Caller, desk, service):
    renewal = renewal_of(desk, service.client(), service.lease("r1"))

    async def scenario():
        await by.within(renewal, lambda: tick(desk, 60))
        tick(desk, 120)
        assert len(service.renewals) == 1
        with pytest.raises(RuntimeError, match="closed"):
            await by.within(renewal, lambda: None)

    by.run(scenario)


@every_caller
def test_it_is_single_use(by: Caller, desk, service):
    async def scenario():
        renewal = renewal_of(desk, service.client(), service.lease("r1"))
        await by.start(renewal)
        with pytest.raises(RuntimeError, match="single-use"):
            await by.start(renewal)
        await by.stop(renewal)
        with pytest.raises(RuntimeError, match="closed"):
            await by.start(renewal)
        never = renewal_of(desk, service.client(), service.lease("r2"))
        await by.stop(never)
        with pytest.raises(RuntimeError, match="closed"):
            await by.start(never)
        assert desk.keeper.active == 0

    by.run(scenario)


def test_of_many_threads_one_starts(desk, service):
    renewal = renewal_of(desk, service.client(), service.lease("r1"))
    barrier = threading.Barrier(8)
    outcomes: list[str] = []

    def start() -> None:
        barrier.wait()
        try:
            renewal.start()
            outcomes.append("started")
        except RuntimeError:
            outcomes.append("refused")

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(outcomes) == ["refused"] * 7 + ["started"]
    renewal.stop()


@every_caller
def test_a_start_that_failed_may_be_repeated(by: Caller, desk, service, monkeypatch):
    renewal = renewal_of(desk, service.client(), service.lease("r1"))
    start = Runner.start

    def fail(runner) -> None:
        monkeypatch.setattr(Runner, "start", start)
        raise RuntimeError("no more threads")

    async def scenario():
        monkeypatch.setattr(Runner, "start", fail)
        with pytest.raises(RuntimeError, match="did not start: no more threads"):
            await by.start(renewal)
        assert desk.keeper.active == 0
        await by.start(renewal)
        tick(desk, 60)
        assert len(service.renewals) == 1
        await by.stop(renewal)

    by.run(scenario)


@every_caller
@pytest.mark.parametrize("receipt", [None, ""])
def test_without_a_receipt_nothing_happens(by: Caller, desk, service, receipt):
    renewal = renewal_of(desk, service.client(), receipt)

    async def scenario():
        for _ in range(2):
            await by.start(renewal)
            await by.stop(renewal)
        assert await by.extend(renewal, 60) is None
        desk.clock.advance(10_000)
        assert not renewal.lost
        assert renewal.reason is None
        assert renewal.remaining() == math.inf
        renewal.check()
        LeaseRenewal.start_all([renewal])
        LeaseRenewal.stop_all([renewal])

    by.run(scenario)
    assert desk.keeper._runner is None
    assert not service.renewals


@every_caller
def test_starting_does_not_wait_for_renewals(by: Caller, desk):
    client = Client(hang)
    renewal = renewal_of(desk, client, times=lease_times(30), grant=Grant.claimed(desk.clock.now))
    desk.clock.now += 20

    async def scenario():
        await by.start(renewal)
        until(lambda: client.flying)
        await by.stop(renewal, wait=False)

    by.run(scenario)


# When the first renewal comes


def test_the_first_renewal_counts_from_the_sending_of_the_claim(desk, service):
    sent_at = desk.clock.now
    desk.clock.now += 40
    renewal = renewal_of(
        desk, service.client(), service.lease("r1"), grant=Grant.claimed(sent_at, 300)
    )
    renewal.start()
    tick(desk, 19)
    assert not service.renewals
    tick(desk, 1)
    assert len(service.renewals) == 1
    renewal.stop()


def test_a_first_renewal_whose_time_has_passed_comes_at_once(desk, service):
    sent_at = desk.clock.now
    desk.clock.now += 61
    renewal = renewal_of(desk, service.client(), service.lease("r1"), grant=Grant.claimed(sent_at))
    renewal.start()
    until(desk.settled)
    assert len(service.renewals) == 1
    renewal.stop()


@pytest.mark.parametrize(("left", "first"), [(10, 0.0), (4, 0.0), (10.5, 3.5), (60, 20), (300, 60)])
def test_a_lease_from_elsewhere_is_renewed_at_once_if_little_is_left(desk, service, left, first):
    service.lease("r1", left)
    renewal = renewal_of(desk, service.client(), grant=Grant.left(left))
    renewal.start()
    until(desk.settled)
    if first:
        tick(desk, first - 0.001)
        assert not service.renewals
        tick(desk, 0.001)
    assert len(service.renewals) == 1
    renewal.stop()


def test_the_services_clock_is_used_for_differences_only(desk):
    shown = datetime(2031, 5, 1, 12, tzinfo=UTC)
    grant = Grant.until(shown + timedelta(seconds=100), shown)
    assert grant == (None, 100.0, True)
    local = datetime.fromtimestamp(SYSTEM_CLOCK.time_us() / 1e6, UTC)
    assert 95 < (Grant.until(local + timedelta(seconds=100)).seconds or 0) <= 100
    assert Grant.until(shown - timedelta(seconds=5), shown).seconds == 0
    with pytest.raises(ConfigurationError, match="time zone"):
        Grant.until(shown.replace(tzinfo=None), shown)


def test_a_lease_that_is_over_when_it_arrives_is_never_good(desk, service):
    renewal = renewal_of(desk, service.client(), grant=Grant.left(0))
    assert renewal.lost
    with pytest.raises(LeaseLost):
        renewal.check()


@pytest.mark.parametrize("bad", [True, math.nan, math.inf, -1, 0, 0.5, 29.9, 3600.1, "60", 1e400])
def test_a_bad_length_is_refused_where_it_is_given(desk, service, bad):
    with pytest.raises(ConfigurationError):
        renewal_of(desk, service.client(), seconds=bad)


@pytest.mark.parametrize("bad", [True, math.nan, math.inf, -1, 0.5, 3600.1, None])
def test_a_bad_extension_is_refused_where_it_is_given(desk, service, bad):
    renewal = renewal_of(desk, service.client(), service.lease("r1"))
    renewal.start()
    with pytest.raises(ConfigurationError):
        renewal.extend(bad)
    with pytest.raises(ConfigurationError):
        anyio.run(renewal.extend_async, bad)
    assert renewal.active
    renewal.stop()


def test_lengths_are_rounded_up_to_the_services_steps(desk, service):
    service.lease("r1")
    renewal = renewal_of(desk, service.client(), seconds=timedelta(seconds=99.2))
    with renewal:
        tick(desk, 20)
        assert renewal.extend(40.5) == Extended(41.0)
        assert service.renewals == [("r1", 100.0)]
        assert service.changes == [("r1", 41.0)]


# Stopping


@every_caller
def test_stopping_is_idempotent(by: Caller, desk, service):
    renewal = renewal_of(desk, service.client(), service.lease("r1"))

    async def scenario():
        await by.start(renewal)
        for wait in (True, False, True):
            await by.stop(renewal, wait)
        assert len(desk.named("lease.stopped")) == 1

    by.run(scenario)


@pytest.mark.parametrize("count", [2, 8])
def test_all_who_wait_for_a_stop_really_wait(desk, service, count):
    gate = blocked(service)
    renewal = renewal_of(desk, service.client(), service.lease("r1"))
    renewal.start()
    desk.clock.advance(60)
    until(lambda: service.renewals)
    over: list[int] = []

    def stop(i: int) -> None:
        renewal.stop()
        over.append(len(service.applied))

    threads = [threading.Thread(target=stop, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    flight = renewal.lease._flight
    assert flight is not None
    until(lambda: len(flight.over._tell) == count)
    assert not over
    gate.set()
    for thread in threads:
        thread.join(10)
    assert over == [1] * count


@every_loop
def test_a_waiting_stop_that_is_cancelled_waits_and_so_does_its_repetition(
    by: Caller, desk, service
):
    gate = blocked(service)
    renewal = renewal_of(desk, service.client(), service.lease("r1"))
    done: list[str] = []

    async def stop(name: str) -> None:
        try:
            await renewal.astop()
        finally:
            done.append(name)

    async def scenario():
        await renewal.astart()
        desk.clock.advance(60)
        await soon(lambda: service.renewals)
        flight = renewal.lease._flight
        assert flight is not None
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:
                scope.cancel()
                tasks.start_soon(opener, flight)
                await stop("cancelled")
            assert scope.cancel_called
            await stop("repeated")
        assert done == ["cancelled", "repeated"]

    async def opener(flight) -> None:
        await soon(lambda: len(flight.over._tell) == 1)
        assert not renewal.active  # posted before anything was awaited
        assert not done
        gate.set()

    by.run(scenario)
    assert service.applied == [("r1", 300.0)]


@every_caller
def test_a_stop_that_does_not_wait_returns_at_once(by: Caller, desk, service):
    gate = blocked(service)
    renewal = renewal_of(desk, service.client(), service.lease("r1"))

    async def scenario():
        await by.start(renewal)
        desk.clock.advance(60)
        until(lambda: service.renewals)
        await by.stop(renewal, wait=False)
        assert not service.applied
        gate.set()
        await by.stop(renewal)  # this one waits
        assert service.applied == [("r1", 300.0)]

    by.run(scenario)


@every_caller
def test_a_stop_that_takes_too_long_is_given_up_with_a_warning(
    by: Caller, desk, service, monkeypatch, caplog
):
    monkeypatch.setattr(renewal_module, "STOP_TIMEOUT", 0.05)
    gate = blocked(service)
    renewal = renewal_of(desk, service.client(), service.lease("r1"))

    async def scenario():
        await by.start(renewal)
        desk.clock.advance(60)
        until(lambda: service.renewals)
        await by.stop(renewal)
        assert not service.applied
        assert not renewal.active
        gate.set()

    by.run(scenario)
    assert "the extension of r1 did not end within 0.05 s" in caplog.text
    assert desk.named("lease.stop_timeout")


def test_a_batch_goes_on_when_one_of_its_leases_is_stopped(desk):
    gate = threading.Event()

    async def late(beats):
        await opened(gate)
        return [Extended(beat.seconds) for beat in beats]

    client = Client(late)
    one, two = (renewal_of(desk, client, name, times=lease_times(30)) for name in ("r1", "r2"))
    LeaseRenewal.start_all([one, two])
    desk.clock.advance(10)
    until(lambda: client.flying)
    one.stop(wait=False)
    gate.set()
    until(desk.settled)
    assert [beat.id for beat in client.beats] == ["r1", "r2"]
    assert two.remaining() == 27
    assert one.remaining() == 17
    two.stop()


def test_a_stop_while_starting_leaves_nothing(desk, service, monkeypatch):
    """Whichever of the two comes last finds the other."""
    renewal = renewal_of(desk, service.client(), service.lease("r1"))
    register = type(desk.keeper).register

    def stopped_meanwhile(keeper, client, leases):
        renewal.stop()
        register(keeper, client, leases)

    monkeypatch.setattr(type(desk.keeper), "register", stopped_meanwhile)
    with pytest.raises(RuntimeError, match="while it started"):
        renewal.start()
    assert desk.keeper.active == 0


def test_a_forgotten_handle_ends_its_renewal(desk, service):
    renewal = renewal_of(desk, service.client(), service.lease("r1"))
    renewal.start()
    with pytest.warns(ResourceWarning, match="never stopped"):  # noqa: PT031
        del renewal
        gc.collect()
    tick(desk, 60)
    assert desk.keeper.active == 0
    assert not service.renewals


# Many at once


def test_many_start_and_stop_in_one_step(desk, service):
    client = service.client()
    renewals = [renewal_of(desk, client, service.lease(f"r{i}")) for i in range(50)]
    LeaseRenewal.start_all(renewals)
    assert desk.keeper.active == 50
    tick(desk, 60)
    assert len(service.renewals) == 50
    gate = blocked(service)
    desk.clock.advance(60)
    until(lambda: len(service.renewals) == 100)
    opener = threading.Thread(target=gate.set)
    opener.start()
    LeaseRenewal.stop_all(renewals)
    assert len(service.applied) == 100
    assert desk.keeper.active == 0
    with pytest.raises(RuntimeError, match="closed"):
        LeaseRenewal.start_all(renewals)
    opener.join()


def test_many_start_all_or_none(desk, service):
    client = service.client()
    fresh, used = (renewal_of(desk, client, service.lease(name)) for name in ("r1", "r2"))
    used.start()
    used.stop()
    with pytest.raises(RuntimeError, match="closed"):
        LeaseRenewal.start_all([fresh, used])
    assert desk.keeper.active == 0
    fresh.start()
    fresh.stop()


# Extending by hand


@every_caller
def test_an_extension_moves_the_next_renewal(by: Caller, desk, service):
    renewal = renewal_of(desk, service.client(), service.lease("r1"))

    async def scenario():
        await by.start(renewal)
        desk.clock.now += 50
        assert await by.extend(renewal, 600) == Extended(600.0)
        assert renewal.remaining() == 570
        tick(desk, 59)
        assert not service.renewals
        tick(desk, 1)
        # The full length would be 300 s; what was granted is not shortened.
        assert service.renewals == [("r1", 540.0)]
        await by.stop(renewal)

    by.run(scenario)


@every_caller
def test_extending_by_nothing_stops_first_and_ends_the_lease(by: Caller, desk, service):
    gate = blocked(service)
    renewal = renewal_of(desk, service.client(), service.lease("r1"))

    def let_go() -> None:
        until(lambda: not renewal.active)
        gate.set()

    async def scenario():
        await by.start(renewal)
        desk.clock.advance(60)
        until(lambda: service.renewals)
        opener = threading.Thread(target=let_go)
        opener.start()
        assert await by.extend(renewal, 0) == Extended(0.0)
        assert service.applied == [("r1", 300.0), ("r1", 0.0)]
        assert renewal.lost
        assert renewal.reason == "released"
        assert desk.signals == []  # the holder knows
        with pytest.raises(RuntimeError, match="closed"):
            await by.start(renewal)
        opener.join()

    by.run(scenario)


@every_loop
def test_extending_by_nothing_does_not_block_the_loop(by: Caller, desk, service):
    gate = blocked(service)
    renewal = renewal_of(desk, service.client(), service.lease("r1"))

    async def let_go() -> None:
        await soon(lambda: not renewal.active)
        gate.set()  # runs only if the loop does

    async def scenario():
        await renewal.astart()
        desk.clock.advance(60)
        await soon(lambda: service.renewals)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(let_go)
            with anyio.fail_after(4):
                await renewal.extend_async(0)
        assert service.applied == [("r1", 300.0), ("r1", 0.0)]

    by.run(scenario)


@every_caller
def test_an_extension_works_before_the_start_and_after_the_stop(by: Caller, desk, service):
    renewal = renewal_of(desk, service.client(), service.lease("r1"))

    async def scenario():
        await by.extend(renewal, 90)
        await by.start(renewal)
        await by.stop(renewal)
        await by.extend(renewal, 30)
        assert service.applied == [("r1", 90.0), ("r1", 30.0)]
        assert renewal.remaining() == 27
        tick(desk, 26)
        assert not service.renewals

    by.run(scenario)


def test_an_extension_in_flight_lands_first(desk, service):
    gate = blocked(service)
    renewal = renewal_of(desk, service.client(), service.lease("r1"))
    renewal.start()
    desk.clock.advance(60)
    until(lambda: service.renewals)
    asked = threading.Thread(target=renewal.extend, args=(90,))
    asked.start()
    until(lambda: desk.keeper._book._desks and any(
        each.errands for each in desk.keeper._book._desks.values()))  # fmt: skip
    assert not service.changes
    gate.set()
    asked.join(10)
    assert service.applied == [("r1", 300.0), ("r1", 90.0)]
    renewal.stop()


@every_caller
def test_an_extension_is_tried_three_times(by: Caller, desk, service):
    async def scenario():
        renewal = renewal_of(desk, service.client(), service.lease("r1"))
        service.faults.extend([Status(500), OSError("down")])
        with advancing(desk):
            assert await by.extend(renewal, 60) == Extended(60.0)
        assert len(service.changes) == 3
        service.faults.extend([Status(503)] * 3)
        with advancing(desk), pytest.raises(EngineUnavailable, match="Status"):
            await by.extend(renewal, 60)
        assert len(service.changes) == 6
        assert not renewal.lost

    by.run(scenario)


class advancing:
    """Time goes on while the block waits for something."""

    def __init__(self, desk: Desk, step: float = 0.1) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(desk, step))

    def _run(self, desk: Desk, step: float) -> None:
        while not self._over.wait(0.005):
            desk.clock.advance(step)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()


def test_an_extension_that_the_client_can_not_make_raises_what_it_raised(desk):
    def broken(receipt, seconds):
        raise ZeroDivisionError("a defect")

    renewal = renewal_of(desk, client_from(broken))
    with advancing(desk), pytest.raises(ZeroDivisionError, match="a defect"):
        renewal.extend(60)


@every_caller
def test_an_extension_of_what_is_gone_is_tolerated(by: Caller, desk, service, caplog):
    renewal = renewal_of(desk, service.client(), "unknown")

    async def scenario():
        await by.start(renewal)
        assert await by.extend(renewal, 60) == Lost("gone")
        assert "the lease of unknown is gone already" in caplog.text
        (gone,) = desk.named("visibility.lease_gone")
        assert gone.facts["reason"] == "gone"
        assert renewal.lost
        await by.stop(renewal)

    by.run(scenario)


@every_caller
def test_an_extension_of_what_is_somebody_elses_raises(by: Caller, desk, service):
    renewal = renewal_of(desk, service.client(), service.lease("r1"))
    service.until["r1"] = desk.clock.now

    async def scenario():
        with pytest.raises(LeaseLost, match="taken"):
            await by.extend(renewal, 60)

    by.run(scenario)


# What the holder hears


@every_caller
def test_a_lost_lease_is_told(by: Caller, desk, service, caplog):
    renewal = renewal_of(desk, service.client(), service.lease("r1"))
    told: list[tuple[str | None, str]] = []

    async def scenario():
        renewal.on_lost(lambda x: told.append((x.reason, threading.current_thread().name)))
        await by.start(renewal)
        service.until["r1"] = desk.clock.now
        desk.clock.advance(60)
        if by.name == "thread":
            until(lambda: told)
            assert told == [("taken", "tenure-lease-callbacks")]
        else:
            assert await renewal.wait_lost() == "taken"
            await soon(lambda: told)
            assert told == [("taken", threading.current_thread().name)]
        assert renewal.lost
        assert renewal.reason == "taken"
        assert renewal.remaining() == 0
        with pytest.raises(LeaseLost, match="taken"):
            renewal.check()
        late: list[object] = []
        renewal.on_lost(late.append)
        assert late == [renewal.lease]
        await by.stop(renewal)

    by.run(scenario)
    assert "the lease of r1 is lost: taken" in caplog.text
    assert desk.named("lease.refused")
    assert desk.named("lease.lost")


@every_loop
def test_a_block_whose_lease_is_lost_is_cancelled(by: Caller, desk, service):
    renewal = renewal_of(desk, service.client(), service.lease("r1"))
    reached: list[str] = []

    async def scenario():
        with pytest.raises(LeaseLost, match="taken"):  # noqa: PT012
            async with renewal:
                service.until["r1"] = desk.clock.now
                desk.clock.advance(60)
                try:
                    await anyio.sleep_forever()
                finally:
                    reached.append("cleanup")
        await anyio.lowlevel.checkpoint()  # what comes after is not cancelled
        reached.append("after")

    by.run(scenario)
    assert reached == ["cleanup", "after"]


@every_loop
def test_an_error_of_the_block_is_not_replaced(by: Caller, desk, service):
    async def scenario():
        with pytest.raises(ZeroDivisionError):
            async with renewal_of(desk, service.client(), service.lease("r1")):
                raise ZeroDivisionError
        assert desk.keeper.active == 0

    by.run(scenario)


@every_loop
def test_waiting_for_a_loss_may_be_given_up(by: Caller, desk, service):
    renewal = renewal_of(desk, service.client(), service.lease("r1"))

    async def scenario():
        async with renewal:
            for _ in range(3):
                with anyio.move_on_after(0):
                    await renewal.wait_lost()
            assert len(renewal.lease._listeners) == 1  # only that of the block itself
        unheld = renewal_of(desk, service.client(), None)
        with anyio.move_on_after(0.01) as scope:
            await unheld.wait_lost()
        assert scope.cancelled_caught

    by.run(scenario)


# Credentials

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


def fetching(seen: list[tuple[str, int]], desk: Desk, kind: str) -> Callable[[], object]:
    def note() -> None:
        seen.append((who.get(), desk.keeper.active))

    async def fetch() -> None:
        await anyio.lowlevel.checkpoint()
        note()

    return fetch if kind == "async" else note


@every_caller
@pytest.mark.parametrize("kind", ["async", "plain"])
def test_credentials_are_fetched_before_the_start_where_the_caller_is(
    by: Caller, desk, service, kind
):
    seen: list[tuple[str, int]] = []
    client = service.client(prepare=fetching(seen, desk, kind))
    renewal = renewal_of(desk, client, service.lease("r1"))

    async def scenario():
        who.set("the caller")
        await by.start(renewal)
        assert seen == [("the caller", 0)]
        await by.stop(renewal)

    contextvars.copy_context().run(by.run, scenario)


@every_caller
@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_start_goes_on_when_credentials_can_not_be_fetched(
    by: Caller, desk, service, kind, monkeypatch
):
    gate = threading.Event()

    async def fail() -> None:
        raise OSError("no identity")

    def block() -> None:
        gate.wait()

    monkeypatch.setattr(prime_module, "TIMEOUT", 0.05)
    client = service.client(prepare=fail if kind == "async" else block)
    renewal = renewal_of(desk, client, service.lease("r1"))

    async def scenario():
        began = time.monotonic()
        await by.start(renewal)
        assert time.monotonic() - began < 5
        assert renewal.active
        await by.stop(renewal)

    by.run(scenario)
    gate.set()
    (failed,) = desk.named("lease.prime_failed")
    assert failed.facts["error"] == ("OSError" if kind == "async" else "TimeoutError")


@every_loop
def test_a_start_cancelled_while_it_fetches_credentials_may_be_repeated(by: Caller, desk, service):
    waiting: list[bool] = []

    async def fetch() -> None:
        waiting.append(True)
        if len(waiting) == 1:
            await anyio.sleep_forever()

    renewal = renewal_of(desk, service.client(prepare=fetch), service.lease("r1"))

    async def scenario():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(renewal.astart)
            await soon(lambda: waiting)
            tasks.cancel_scope.cancel()
        assert not renewal.active
        assert desk.keeper.active == 0
        await renewal.astart()
        assert renewal.active
        await renewal.astop()

    by.run(scenario)
