"""Explicit extensions, as the keeper decides about them: on a clock that is only a number."""

from __future__ import annotations

import pytest

from tenure.core.lease import Busy, Extended, Extension, Failed, Lost, lease_times
from tenure.errors import EngineUnavailable
from tenure.leases.book import Book
from tenure.leases.lease import Lease
from tenure.leases.request import PATIENCE, Errand, Request
from tests.leases.kit import Client, ManualClock, make_book, make_lease
from tests.leases.test_book import extended, one, wake

NOW = 1000.0


def asked(book: Book, client: Client, lease: Lease, seconds: float = 60.0, now=NOW) -> Errand:
    errand = Errand(lease, seconds, now)
    book.ask(client, errand)
    return errand


def kept(lease: Lease) -> tuple[Book, Client]:
    book, client = make_book(), Client()
    book.add(client, [lease])
    return book, client


def explicit(book: Book, now: float) -> Request:
    request = one(book, now)
    assert request.errand is not None
    return request


@pytest.mark.parametrize("registered", [True, False])
def test_it_is_sent_at_once_and_alone(registered):
    lease = make_lease("j1", NOW)
    book, client = kept(make_lease("other", NOW))
    if registered:
        book.add(client, [lease])
    errand = asked(book, client, lease)
    assert book.next_wake() == NOW
    request = explicit(book, NOW)
    assert [(beat.id, beat.seconds) for beat in request.beats] == [("j1", 60.0)]
    assert not errand.over.is_set()
    book.answered(request, extended(request), NOW + 1)
    assert errand.over.is_set()
    assert errand.answer == Extended(60.0)
    assert lease._deadline == NOW + 57
    # An interval after it was sent, not after the claim.
    assert wake(book) == NOW + 10


def test_it_moves_the_renewal_and_may_shorten():
    lease = make_lease("j1", NOW)
    book, client = kept(lease)
    asked(book, client, lease, 6.0, NOW + 8)
    request = explicit(book, NOW + 8)
    book.answered(request, extended(request), NOW + 8)
    assert lease._deadline == NOW + 8 + 6 - 0.6
    assert wake(book) == NOW + 10
    assert [beat.seconds for beat in one(book, NOW + 10).beats] == [30.0]


def test_it_waits_for_the_renewal_in_flight():
    lease = make_lease("j1", NOW)
    book, client = kept(lease)
    flight = one(book, NOW + 10)
    errand = asked(book, client, lease, now=NOW + 10)
    assert book.due(NOW + 11).requests == []
    book.answered(flight, extended(flight), NOW + 12)
    assert flight.over.is_set()
    assert wake(book) == NOW + 10
    assert explicit(book, NOW + 12).errand is errand


def test_a_renewal_waits_for_it():
    lease = make_lease("j1", NOW)
    book, client = kept(lease)
    asked(book, client, lease, now=NOW + 9)
    request = explicit(book, NOW + 9)
    book.nudge(["j1"], NOW + 10)
    assert book.due(NOW + 12).requests == []
    book.answered(request, extended(request), NOW + 12)
    assert one(book, NOW + 12).errand is None


def test_a_lease_registered_meanwhile_waits_for_it_too():
    lease = make_lease("j1", NOW - 20)
    book, client = make_book(), Client()
    asked(book, client, lease)
    request = explicit(book, NOW)
    book.add(client, [lease])
    assert book.due(NOW).requests == []
    book.failed(request, NOW + 1)
    assert one(book, NOW + 1).errand is None


def test_one_that_does_not_land_is_overtaken_and_what_it_did_is_undone():
    lease = make_lease("j1", NOW, 300.0)
    book, client = kept(lease)
    stuck = one(book, NOW + 100)
    book.remove([lease])
    first = asked(book, client, lease, 5.0, NOW + 100)
    assert book.due(NOW + 104.9).requests == []
    assert wake(book) == NOW + 100 + PATIENCE
    request = explicit(book, NOW + 105)
    book.answered(request, extended(request), NOW + 105)
    assert first.answer == Extended(5.0)
    # The stuck one is still in flight, so the lease is not free for another.
    assert lease._flight is stuck
    book.answered(stuck, extended(stuck), NOW + 107)
    again = explicit(book, NOW + 107)
    assert [beat.seconds for beat in again.beats] == [5.0]
    book.answered(again, extended(again), NOW + 107)
    assert lease._flight is None
    assert book.next_wake() is None


def test_a_kept_lease_that_is_lost_by_an_overtaking_one_is_told():
    lease = make_lease("j1", NOW, 300.0)
    book, client = kept(lease)
    one(book, NOW + 100)
    asked(book, client, lease, 5.0, NOW + 100)
    request = explicit(book, NOW + 105)
    assert book.answered(request, [Lost("taken")], NOW + 105).lost == [lease]


def test_nothing_is_repeated_when_the_one_before_landed_in_time():
    lease = make_lease("j1", NOW)
    book, client = kept(lease)
    flight = one(book, NOW + 10)
    asked(book, client, lease, now=NOW + 10)
    book.failed(flight, NOW + 11)
    request = explicit(book, NOW + 11)
    book.answered(request, extended(request), NOW + 11)
    assert all(not desk.errands for desk in book._desks.values())


def failures(book: Book, at: float, error: Exception) -> list[float]:
    """When the tries are sent, if none succeeds."""
    sent = []
    while True:
        request = explicit(book, at)
        sent.append(at)
        book.failed(request, at, error)
        assert request.errand is not None
        if request.errand.over.is_set():
            return sent
        at = request.errand.at


def test_three_tries_are_made_and_the_last_error_is_told():
    lease = make_lease("j1", NOW)
    book, client = make_book(), Client()
    error = OSError("down")
    errand = asked(book, client, lease)
    assert failures(book, NOW, error) == pytest.approx([NOW, NOW + 0.1, NOW + 0.3])
    assert errand.error is error
    assert errand.answer is None
    assert book.next_wake() is None


def test_tries_are_jittered():
    lease = make_lease("j1", NOW)
    book, client = Book(0.0, lambda: 1.0), Client()
    asked(book, client, lease)
    sent = failures(book, NOW, OSError("down"))
    assert sent == pytest.approx([NOW, NOW + 0.1, NOW + 0.2])  # 0.1 s is the shortest


def test_no_try_is_made_when_the_lease_is_over():
    lease = make_lease("j1", NOW)
    book, client = make_book(), Client()
    asked(book, client, lease, now=NOW + 26.9)
    # Never later than half of what is left, and not at all with next to nothing left.
    sent = failures(book, NOW + 26.9, OSError("down"))
    assert sent == pytest.approx([NOW + 26.9, NOW + 26.95])


def test_a_release_of_a_lease_that_is_over_is_tried_once():
    lease = make_lease("j1", NOW)
    book, client = make_book(), Client()
    errand = asked(book, client, lease, 0.0, NOW + 28)
    assert failures(book, NOW + 28, OSError("down")) == [NOW + 28]
    assert errand.over.is_set()


@pytest.mark.parametrize(("after", "waits"), [(4.0, 4.0), (0.0, 1.0), (-3, 1.0), (99, 10.0)])
def test_a_throttled_try_comes_back_when_it_was_told_to(after, waits):
    lease = make_lease("j1", NOW)
    book, client = make_book(), Client()
    errand = asked(book, client, lease)
    request = explicit(book, NOW)
    book.answered(request, [Failed("slow down", after)], NOW)
    assert errand.at == NOW + waits
    assert book.due(errand.at - 0.01).requests == []
    assert explicit(book, errand.at).errand is errand


def test_a_throttled_try_never_waits_the_lease_away():
    lease = make_lease("j1", NOW)
    book, client = make_book(), Client()
    errand = asked(book, client, lease, now=NOW + 20)
    book.answered(explicit(book, NOW + 20), [Failed("slow down", 10.0)], NOW + 20)
    assert errand.at == NOW + 20 + 3.5


def test_failed_answers_are_told_in_the_end():
    lease = make_lease("j1", NOW)
    book, client = kept(lease)
    errand = asked(book, client, lease)
    for _ in range(3):
        book.answered(explicit(book, errand.at), [Failed("no")], errand.at)
    assert isinstance(errand.error, EngineUnavailable)
    assert wake(book) == NOW + 10  # the renewal goes on


def test_a_lost_answer_ends_a_lease_that_is_kept():
    lease = make_lease("j1", NOW)
    book, client = kept(lease)
    errand = asked(book, client, lease)
    filed = book.answered(explicit(book, NOW), [Lost("taken")], NOW)
    assert filed.lost == [lease]
    assert errand.answer == Lost("taken")
    assert len(book) == 0


def test_the_holder_of_a_stopped_lease_is_not_told():
    lease = make_lease("j1", NOW)
    book, client = make_book(), Client()
    asked(book, client, lease)
    filed = book.answered(explicit(book, NOW), [Lost("taken")], NOW)
    assert filed.lost == []
    assert lease._reason == "taken"


@pytest.mark.parametrize("registered", [True, False])
def test_a_release_ends_the_lease_in_silence(registered):
    lease = make_lease("j1", NOW)
    book, client = make_book(), Client()
    if registered:
        book.add(client, [lease])
    asked(book, client, lease, 0.0)
    request = explicit(book, NOW)
    filed = book.answered(request, extended(request), NOW)
    assert filed.lost == []
    assert lease._reason == "released"
    assert len(book) == 0


def test_a_lease_that_ended_unkept_is_told_when_it_is_kept_after_all():
    lease = make_lease("j1", NOW)
    book, client = make_book(), Client()
    asked(book, client, lease)
    book.answered(explicit(book, NOW), [Lost("taken")], NOW)
    book.add(client, [lease])
    assert book.due(NOW + 10).lost == [lease]


def test_busy_answers_it():
    lease = make_lease("j1", NOW)
    book, client = kept(lease)
    errand = asked(book, client, lease, now=NOW + 5)
    book.answered(explicit(book, NOW + 5), [Busy()], NOW + 5)
    assert errand.answer == Busy()
    assert lease._deadline == NOW + 32


def test_an_answer_after_the_lease_was_seen_lost_is_worth_nothing():
    clock = ManualClock(NOW)
    lease = Lease("j1", 1, "me", lease_times(30), sent_at=NOW, clock=clock)
    book, client = kept(lease)
    asked(book, client, lease, now=NOW + 5)
    request = explicit(book, NOW + 5)
    clock.now += 40
    assert lease.lost
    book.answered(request, extended(request), clock.now)
    assert lease.lost


@pytest.mark.parametrize("end", ["close", "discard", "give_up"])
def test_whoever_waits_is_told_when_it_will_not_happen(end):
    lease = make_lease("j1", NOW)
    book, client = kept(lease)
    waiting, flying = asked(book, client, lease), asked(book, client, make_lease("j2", NOW))
    book.due(NOW)
    if end == "close":
        book.close("closed")
    elif end == "discard":
        book.discard(client)
    else:
        book.give_up(RuntimeError("no loop"))
    for errand in (waiting, flying):
        assert errand.over.is_set()
        assert isinstance(errand.error, RuntimeError)


def test_what_a_dead_loop_carried_is_sent_again():
    lease, other = make_lease("j1", NOW), make_lease("j2", NOW)
    book, client = kept(lease)
    errand = asked(book, client, other)
    flights = book.due(NOW + 10).requests
    assert len(flights) == 2
    book.carry_over(NOW + 11)
    assert all(flight.over.is_set() for flight in flights)
    assert lease._flight is other._flight is None
    assert not errand.over.is_set()
    again = book.due(NOW + 11).requests
    assert {request.errand for request in again} == {None, errand}


def test_the_child_of_a_fork_waits_for_nothing():
    lease = make_lease("j1", NOW)
    book, _ = kept(lease)
    one(book, NOW + 10)
    book.orphan()
    assert lease._flight is None


def test_single_failures_in_a_batch_are_put_off_each_by_its_own_word():
    leases = [make_lease(f"j{i}", NOW) for i in range(4)]
    book, client = make_book(), Client()
    book.add(client, leases)
    request = one(book, NOW + 10)
    answers: list[Extension] = [
        Extended(30.0), Failed("slow", 5.0), Failed("odd"), Failed("soon", 0.0)
    ]  # fmt: skip
    filed = book.answered(request, answers, NOW + 10)
    assert [text for _, text in filed.failed] == ["slow", "odd", "soon"]
    assert filed.fresh
    assert {lease.id: entry.at for lease, entry in book._entries.items()} == {
        "j0": NOW + 20, "j1": NOW + 15, "j2": NOW + 10.5, "j3": NOW + 11
    }  # fmt: skip


def test_a_service_that_throttles_the_whole_request_is_given_its_time():
    book, client = make_book(), Client()
    book.add(client, [make_lease("j1", NOW), make_lease("j2", NOW)])
    request = one(book, NOW + 10)
    filed = book.failed(request, NOW + 10, OSError("429"), after=6.0)
    assert filed.delay == 6.0
    assert wake(book) == NOW + 16


def test_clients_that_can_not_batch_get_one_lease_at_a_time():
    class Single(Client):
        batch = 1

    book, client = make_book(), Single()
    book.add(client, [make_lease(f"j{i}", NOW) for i in range(5)])
    requests = book.due(NOW + 10).requests
    assert [len(request.beats) for request in requests] == [1] * 5
    book.answered(requests[3], extended(requests[3]), NOW + 10)
    assert sum(entry.flight is not None for entry in book._entries.values()) == 4


def test_what_is_asked_for_is_rounded_up_to_the_clients_steps():
    class Coarse(Client):
        def __init__(self) -> None:
            super().__init__()
            self.resolution = 7

    book, client = make_book(), Coarse()
    book.add(client, [make_lease("j1", NOW)])
    assert one(book, NOW + 10).beats[0].seconds == 35.0


def test_a_stateless_client_is_forgotten_when_it_has_nothing_left():
    class Stateless(Client):
        stateless = True

    book, client = make_book(), Stateless()
    lease = make_lease("j1", NOW)
    book.add(client, [lease])
    request = one(book, NOW + 10)
    book.remove([lease])
    assert book.due(NOW + 10).idle == []  # one request is still under way
    book.failed(request, NOW + 11)
    assert book.due(NOW + 11).idle == [client]
    assert not book._desks
    steady = Client()
    book.add(steady, [lease])
    book.remove([lease])
    assert book.due(NOW + 11).idle == []
