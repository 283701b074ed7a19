from __future__ import annotations

import pytest

from tenure.core.job import Progress
from tenure.errors import LeaseLost
from tests.leases.kit import ManualClock, make_lease


def lease_at(now: float = 1000.0, **options):
    clock = ManualClock(now)
    return clock, make_lease("j1", now, clock=clock, **options)


def test_the_holder_stops_a_margin_before_the_store():
    clock, lease = lease_at()
    assert lease.remaining() == pytest.approx(27.0)
    clock.advance(26.999)
    assert not lease.lost
    assert lease.reason is None
    lease.check()
    clock.advance(0.001)
    assert lease.lost
    assert lease.reason == "deadline"
    assert lease.remaining() == 0
    with pytest.raises(LeaseLost, match=r"j1.*deadline"):
        lease.check()


@pytest.mark.parametrize(("length", "held"), [(1.0, 0.8), (2.0, 1.8), (10.0, 9.0)])
def test_the_margin_is_a_tenth_and_at_least_a_fifth_of_a_second(length, held):
    _, lease = lease_at(length=length)
    assert lease.remaining() == pytest.approx(held)


def test_the_deadline_counts_from_the_sending_of_the_claim():
    clock = ManualClock(1000.0)
    lease = make_lease("j1", 980.0, clock=clock)
    assert lease.remaining() == pytest.approx(7.0)


def test_a_claim_reply_after_its_own_deadline_is_lost_from_the_start():
    lease = make_lease("j1", 970.0, clock=ManualClock(1000.0))
    assert lease.lost


def test_what_was_granted_counts_and_not_what_was_asked_for():
    _, lease = lease_at(granted=10.0)
    assert lease.remaining() == pytest.approx(9.0)


def test_a_suspended_process_reads_the_truth_at_once():
    clock, lease = lease_at()
    clock.advance(86_400)
    assert lease.lost
    assert lease.reason == "deadline"


def test_the_flag_only_adds():
    clock, lease = lease_at()
    assert lease._lose("taken")
    assert lease.lost
    assert lease.reason == "taken"
    assert not lease._prolong(clock.now, 30.0, clock.now)
    assert lease.lost
    clock.advance(100)
    assert lease.reason == "taken"
    assert not lease._lose("gone")


def test_what_was_seen_lost_stays_lost():
    clock, lease = lease_at()
    clock.advance(27)
    assert lease.lost
    # The keeper read its clock just before the deadline, and files an answer just after.
    assert not lease._prolong(1026.0, 30.0, 1026.9)
    assert lease.lost


def test_a_reader_that_sees_it_lost_during_a_renewal_is_right(monkeypatch):
    clock, lease = lease_at()

    def meanwhile(times, sent_at, seconds):
        clock.advance(27)
        assert lease.lost
        return sent_at + seconds

    monkeypatch.setattr("tenure.leases.lease._own_deadline", meanwhile)
    assert not lease._prolong(clock.now, 60.0, clock.now)
    assert lease.lost


def test_a_late_answer_does_not_bring_a_lease_back_that_nobody_looked_at():
    clock, lease = lease_at()
    clock.advance(28)
    assert not lease._prolong(1027.0, 30.0, clock.now)
    assert lease.lost


def test_the_last_report_counts():
    _, lease = lease_at()
    assert lease.progress is None
    lease.report(Progress(1))
    lease.report(Progress(2))
    assert lease.progress == Progress(2)


def test_it_shows_itself():
    _, lease = lease_at()
    assert "j1" in repr(lease)
    assert "left" in repr(lease)
    lease._lose("taken")
    assert "taken" in repr(lease)
