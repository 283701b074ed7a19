"""A lease whose row the holder has locked itself: no deadline, no renewal, then one extension."""

from __future__ import annotations

import math
import threading

import anyio
import pytest

from tenure.core.lease import Busy, Extended, Lost
from tenure.errors import LeaseLost
from tenure.leases import LeaseRenewal
from tenure.leases.book import Book
from tenure.leases.lease import Lease
from tests.leases.callers import every_loop
from tests.leases.kit import Client, make_book, make_lease, opened, until
from tests.leases.test_book import extended, one, wake

NOW = 1000.0


def kept(lease: Lease) -> Book:
    book, client = make_book(), Client()
    book.add(client, [lease])
    return book


def test_nothing_is_renewed_and_no_deadline_passes():
    lease = make_lease("j1", NOW)
    book = kept(lease)
    assert book.suspend(lease, NOW + 5)
    assert book.next_wake() is None
    assert book.due(NOW + 10_000).requests == []
    assert not lease._over(NOW + 10_000)
    assert len(book) == 1


def test_at_its_end_one_extension_decides():
    lease = make_lease("j1", NOW)
    book = kept(lease)
    book.suspend(lease, NOW)
    doubt = book.resume(lease, NOW + 500)
    assert doubt is not None
    assert not lease._over(NOW + 500)
    assert lease._doubt is doubt
    request = one(book, NOW + 500)
    filed = book.answered(request, extended(request), NOW + 501)
    assert filed.extended == [lease]
    assert doubt.over.is_set()
    assert lease._doubt is None
    assert lease._deadline == NOW + 527
    assert wake(book) == NOW + 510


@pytest.mark.parametrize("reason", ["taken", "lapsed", "settled"])
def test_a_lease_that_was_taken_meanwhile_is_lost(reason):
    lease = make_lease("j1", NOW)
    book = kept(lease)
    book.suspend(lease, NOW)
    doubt = book.resume(lease, NOW + 500)
    filed = book.answered(one(book, NOW + 500), [Lost(reason)], NOW + 501)
    assert filed.lost == [lease]
    assert lease._reason == reason
    assert doubt is not None
    assert doubt.over.is_set()


def test_a_lease_that_nobody_can_vouch_for_is_lost_within_an_interval():
    lease = make_lease("j1", NOW)
    book = kept(lease)
    book.suspend(lease, NOW)
    doubt = book.resume(lease, NOW + 500)
    now, tries = NOW + 500, 0
    while not (filed := book.due(now)).lost:
        for request in filed.requests:
            tries += 1
            book.failed(request, now)
        now = wake(book)
    assert now == NOW + 510
    assert tries > 3
    assert doubt is not None
    assert doubt.over.is_set()


def test_a_locked_row_proves_nothing_then():
    """The lock may be that of another, who is just taking the job over."""
    lease = make_lease("j1", NOW)
    book = kept(lease)
    book.suspend(lease, NOW)
    doubt = book.resume(lease, NOW + 500)
    filed = book.answered(one(book, NOW + 500), [Busy()], NOW + 500)
    assert filed.busy == []
    assert doubt is not None
    assert not doubt.over.is_set()
    request = one(book, wake(book))
    book.answered(request, extended(request), NOW + 501)
    assert doubt.over.is_set()


def test_what_was_in_flight_before_its_end_proves_nothing():
    lease = make_lease("j1", NOW)
    book = kept(lease)
    flight = one(book, NOW + 10)
    book.suspend(lease, NOW + 10)
    doubt = book.resume(lease, NOW + 12)
    book.answered(flight, extended(flight), NOW + 12)
    assert doubt is not None
    assert not doubt.over.is_set()
    request = one(book, NOW + 12)
    book.answered(request, extended(request), NOW + 12)
    assert doubt.over.is_set()


def test_an_answer_or_a_failure_meanwhile_plans_nothing():
    for outcome in ("answered", "busy", "failed"):
        lease = make_lease("j1", NOW)
        book = kept(lease)
        flight = one(book, NOW + 10)
        book.suspend(lease, NOW + 10)
        if outcome == "failed":
            book.failed(flight, NOW + 11)
        else:
            answer = Busy() if outcome == "busy" else Extended(30.0)
            book.answered(flight, [answer], NOW + 11)
        assert book.next_wake() is None
        book.carry_over(NOW + 12)
        assert book.next_wake() is None


def test_a_definitive_answer_meanwhile_counts():
    lease = make_lease("j1", NOW)
    book = kept(lease)
    flight = one(book, NOW + 10)
    book.suspend(lease, NOW + 10)
    assert book.answered(flight, [Lost("settled")], NOW + 11).lost == [lease]
    assert book.resume(lease, NOW + 12) is None


def test_it_may_be_nested():
    lease = make_lease("j1", NOW)
    book = kept(lease)
    book.suspend(lease, NOW)
    book.suspend(lease, NOW)
    assert book.resume(lease, NOW + 500) is None
    assert book.next_wake() is None
    assert not lease._over(NOW + 500)
    assert book.resume(lease, NOW + 500) is not None


def test_a_lost_lease_can_not_be_suspended():
    lease = make_lease("j1", NOW)
    book = kept(lease)
    assert not book.suspend(lease, NOW + 27)


def test_a_lease_that_is_let_go_meanwhile_leaves_nobody_waiting():
    lease = make_lease("j1", NOW)
    book = kept(lease)
    book.suspend(lease, NOW)
    doubt = book.resume(lease, NOW + 5)
    assert doubt is not None
    book.remove([lease])
    assert doubt.over.is_set()


def test_a_nudge_waits_for_the_end():
    lease = make_lease("j1", NOW)
    book = kept(lease)
    book.suspend(lease, NOW)
    book.nudge(["j1"], NOW + 5)
    assert book.due(NOW + 5).requests == []
    assert book.next_wake() is None


# With the keeper


def test_the_end_waits_until_it_is_known_what_holds(desk):
    gate = threading.Event()

    async def late(beats):
        await opened(gate)
        return [Extended(beat.seconds) for beat in beats]

    client = Client(late)
    lease = desk.lease()
    desk.keeper.register(client, [lease])
    seen = []

    def work() -> None:
        with lease.suspended():
            seen.append((lease.lost, lease.remaining(), lease.verified))
        seen.append((lease.lost, lease.remaining(), lease.verified))

    def let_go() -> None:
        until(lambda: client.batches)
        seen.append((lease.lost, lease.remaining(), lease.verified))
        gate.set()

    desk.clock.advance(1)
    thread = threading.Thread(target=work)
    with lease.suspended():  # nested, so that time may pass before the inner one ends
        desk.clock.advance(500)
        assert not client.batches
        thread.start()
        thread.join(10)
        assert seen.pop(0) == (False, math.inf, True)
        assert seen.pop(0) == (False, math.inf, True)
        opener = threading.Thread(target=let_go)
        opener.start()

    assert seen == [(False, 0.0, False)]
    assert lease.remaining() == 27
    assert lease.verified
    opener.join()


@every_loop
def test_it_works_in_event_loops(by, desk, service):
    renewal = LeaseRenewal(service.client(), service.lease("r1"), keeper=desk.keeper)

    async def scenario():
        async with renewal:
            async with renewal.lease.suspended():
                desk.clock.advance(200)
                assert not service.renewals
            assert len(service.renewals) == 1
            assert renewal.remaining() == 270
            service.until["r1"] = 0
            async with renewal.lease.suspended():
                pass
            assert renewal.reason == "taken"
            await anyio.sleep_forever()

    with pytest.raises(LeaseLost):
        by.run(scenario)


@every_loop
def test_cancelled_at_its_end_it_is_over_all_the_same(by, desk):
    client = Client()
    lease = desk.lease()

    async def scenario():
        await desk.keeper.aregister(client, [lease])
        with anyio.CancelScope() as scope:
            async with lease.suspended():
                scope.cancel()
        assert lease._suspended == 0
        until(lambda: client.batches)

    by.run(scenario)


def test_only_a_kept_and_held_lease_can_be_suspended(desk):
    lease = desk.lease()
    with pytest.raises(RuntimeError, match="not kept"), lease.suspended():
        pass
    desk.keeper.register(Client(), [lease])
    desk.keeper.remove([lease])
    with pytest.raises(RuntimeError, match="not kept"), lease.suspended():
        pass
    lost = desk.lease("j2")
    desk.keeper.register(Client(), [lost])
    desk.clock.now += 40
    with pytest.raises(LeaseLost), lost.suspended():
        pass


# A wall clock that jumps


def test_a_jump_of_the_wall_clock_is_no_reason_to_trust_or_to_despair(desk, caplog):
    gate = threading.Event()

    async def late(beats):
        await opened(gate)
        return [Extended(beat.seconds) for beat in beats]

    client = Client(late)
    lease, suspended = desk.lease(), desk.lease("j2")
    desk.keeper.register(client, [lease, suspended])
    with suspended.suspended():
        until(desk.settled)
        desk.clock.advance(0.1)  # a look before the jump
        until(desk.settled)
        desk.clock.ahead += 3600
        desk.look()
        until(lambda: client.flying)
        assert not lease.lost
        assert not lease.verified
        assert lease.remaining() == 0
        gate.set()
        until(lambda: lease.verified)
        assert [beat.id for beat in client.beats] == ["j1"]
        assert lease.remaining() > 26
    assert "the wall clock jumped; 2 leases are extended before use" in caplog.text
    assert len(desk.named("lease.unverified")) == 2
