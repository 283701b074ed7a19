"""The keeper's decisions, on a clock that is only a number."""

from __future__ import annotations

import math

import pytest

from tenure.core.job import Progress
from tenure.core.lease import Busy, Extended, Extension, Lost
from tenure.core.retry import RetryPolicy
from tenure.leases.book import Book
from tenure.leases.desk import MAX_BATCH
from tenure.leases.lease import Lease
from tenure.leases.request import Request
from tenure.leases.traffic import JITTER
from tests.leases.kit import Client, make_book, make_lease

NOW = 1000.0


def extended(request: Request, seconds: float | None = None, **flags: bool) -> list[Extension]:
    return [Extended(beat.seconds if seconds is None else seconds, **flags)
            for beat in request.beats]  # fmt: skip


def one(book: Book, now: float) -> Request:
    """The one request that is due."""
    filed = book.due(now)
    assert len(filed.requests) == 1
    return filed.requests[0]


def wake(book: Book) -> float:
    """When the book wants to be looked at."""
    at = book.next_wake()
    assert at is not None
    return at


def kept(*leases: Lease, client: Client | None = None, jitter: float = 0.0) -> Book:
    book = make_book(jitter)
    book.add(client or Client(), leases)
    return book


def test_the_first_renewal_is_a_third_after_the_sending_of_the_claim():
    lease = make_lease("j1", NOW - 4)
    book = kept(lease)
    assert book.next_wake() == NOW - 4 + 10
    assert not book.due(NOW + 5.9).requests
    assert one(book, NOW + 6).beats[0].id == "j1"


def test_a_first_renewal_whose_time_has_passed_is_due_at_once():
    book = kept(make_lease("j1", NOW - 12))
    assert one(book, NOW).beats[0].id == "j1"


def test_a_shorter_grant_is_renewed_after_a_third_of_it():
    assert kept(make_lease("j1", NOW, granted=12.0)).next_wake() == NOW + 4


def test_a_longer_grant_is_renewed_after_the_interval():
    assert kept(make_lease("j1", NOW, granted=300.0)).next_wake() == NOW + 10


def test_after_success_the_next_one_is_an_interval_later():
    lease = make_lease("j1", NOW)
    book = kept(lease)
    request = one(book, NOW + 10)
    filed = book.answered(request, extended(request), NOW + 11)
    assert filed.extended == [lease]
    assert lease._deadline == NOW + 10 + 30 - 3  # it counts from the sending of the request
    assert book.next_wake() == NOW + 20


def test_every_renewal_asks_for_the_full_length_and_never_shortens():
    lease = make_lease("j1", NOW, granted=100.0)
    book = kept(lease)
    now = NOW
    asked = []
    for _ in range(12):
        now += 10
        before = lease._deadline
        request = one(book, now)
        asked.append(request.beats[0].seconds)
        book.answered(request, extended(request), now)
        assert lease._deadline >= before
    assert asked[:3] == [90, 80, 70]
    assert asked[-1] == 30


@pytest.mark.parametrize("jitter", [0.0, 0.05, JITTER])
def test_jitter_only_makes_renewals_earlier_and_keeps_batches_whole(jitter):
    leases = [make_lease(f"j{i}", NOW) for i in range(20)]
    book = kept(*leases, jitter=jitter)
    first = wake(book)
    assert first == pytest.approx(NOW + 10 * (1 - jitter))
    assert 9 <= first - NOW <= 10
    request = one(book, first)
    assert len(request.beats) == 20
    book.answered(request, extended(request), first)
    assert len(one(book, wake(book)).beats) == 20


def test_what_is_due_within_a_quarter_interval_goes_along():
    book = kept(*(make_lease(f"j{i}", NOW + i) for i in range(8)))
    assert [beat.id for beat in one(book, NOW + 10).beats] == ["j0", "j1", "j2"]


def test_nothing_goes_before_the_first_is_due():
    book = kept(*(make_lease(f"j{i}", NOW + i) for i in range(8)))
    filed = book.due(NOW + 9.9)
    assert not filed.requests


def test_staggered_leases_fall_into_step():
    book = kept(*(make_lease(f"j{i}", NOW + i / 100) for i in range(100)))
    request = one(book, NOW + 10)
    assert len(request.beats) == 100
    book.answered(request, extended(request), NOW + 10)
    assert book.next_wake() == NOW + 20
    assert len(one(book, NOW + 20).beats) == 100


def test_batches_hold_a_thousand_at_most():
    book = kept(*(make_lease(f"j{i}", NOW) for i in range(2500)))
    sizes = [len(request.beats) for request in book.due(NOW + 10).requests]
    assert sizes == [MAX_BATCH, MAX_BATCH, 500]


def test_each_client_gets_its_own_batch():
    book = make_book()
    first, second = Client(), Client()
    book.add(first, [make_lease("a", NOW), make_lease("b", NOW)])
    book.add(second, [make_lease("a", NOW)])
    requests = book.due(NOW + 10).requests
    assert [(r.client, [beat.id for beat in r.beats]) for r in requests] == [
        (first, ["a", "b"]),
        (second, ["a"]),
    ]


@pytest.mark.parametrize(("length", "timeout"), [(1.0, 1 / 3), (6.0, 2.0), (30.0, 5.0)])
def test_a_request_may_take_five_seconds_or_an_interval(length, timeout):
    book = kept(make_lease("j1", NOW, length))
    assert one(book, NOW + length / 3).timeout == pytest.approx(timeout)


def test_the_shortest_interval_in_a_batch_limits_the_request():
    book = kept(make_lease("a", NOW, 30), make_lease("b", NOW + 9.5, 2.0))
    assert one(book, NOW + 10.2).timeout == pytest.approx(2 / 3)


def test_a_lease_in_flight_is_not_sent_again():
    book = kept(make_lease("j1", NOW))
    one(book, NOW + 10)
    book.nudge(["j1"], NOW + 11)
    for second in range(11, 27):
        assert not book.due(NOW + second).requests
    assert book.next_wake() == NOW + 27


def test_a_lease_in_flight_is_not_taken_along_just_before_its_deadline():
    book = kept(make_lease("a", NOW), make_lease("b", NOW + 15))
    one(book, NOW + 10)
    assert [beat.id for beat in one(book, NOW + 25).beats] == ["b"]


def test_a_nudge_makes_due():
    book = kept(make_lease("j1", NOW))
    book.nudge(["j1", "unknown"], NOW + 1)
    assert book.next_wake() == NOW + 1
    request = one(book, NOW + 1)
    book.answered(request, extended(request), NOW + 1)
    assert book.next_wake() == NOW + 11


def test_a_nudge_in_flight_counts_after_the_answer():
    book = kept(make_lease("j1", NOW))
    request = one(book, NOW + 10)
    book.nudge(["j1"], NOW + 10.5)
    book.answered(request, extended(request), NOW + 11)
    request = one(book, NOW + 11)
    book.answered(request, extended(request), NOW + 11)
    assert book.next_wake() == NOW + 21


def test_a_nudge_reaches_every_lease_of_that_id():
    book = make_book()
    for _ in range(2):
        book.add(Client(), [make_lease("j1", NOW)])
    book.nudge(["j1"], NOW)
    assert len(book.due(NOW).requests) == 2


def test_removed_leases_ignore_the_late_answer():
    lease, other = make_lease("j1", NOW), make_lease("j2", NOW)
    book = kept(lease, other)
    request = one(book, NOW + 10)
    assert book.remove([lease]) == [lease]
    assert book.remove([lease]) == []
    deadline = lease._deadline
    answers: list[Extension] = [Lost("taken"), Extended(30.0, cancel_requested=True)]
    filed = book.answered(request, answers, NOW + 10)
    assert filed.lost == []
    assert filed.cancelled == [other]
    assert lease._deadline == deadline
    assert lease._reason is None
    assert len(book) == 1


def test_an_answer_does_not_count_for_a_lease_registered_again():
    lease = make_lease("j1", NOW)
    client = Client()
    book = kept(lease, client=client)
    old = one(book, NOW + 10)
    book.remove([lease])
    book.add(client, [lease])
    assert book.due(NOW + 10).requests == []  # two of one lease are never in flight
    assert book.answered(old, [Lost("settled")], NOW + 11).lost == []
    new = one(book, NOW + 11)
    assert book.answered(new, extended(new), NOW + 11).extended == [lease]


def test_removed_leases_are_not_sent_and_do_not_wake():
    leases = [make_lease(f"j{i}", NOW) for i in range(3)]
    book = kept(*leases)
    book.remove(leases)
    assert book.next_wake() is None
    assert not book.due(NOW + 100).requests
    assert book.due(NOW + 100).lost == []


def test_the_past_of_many_short_jobs_does_not_pile_up():
    client = Client()
    book = make_book()
    for i in range(20_000):
        lease = make_lease(f"j{i}", NOW)
        book.add(client, [lease])
        book.remove([lease])
    assert sum(len(desk._heap) for desk in book._desks.values()) < 2000
    assert not book._ids


def test_a_definitive_answer_ends_the_lease_once():
    lease = make_lease("j1", NOW)
    book = kept(lease)
    request = one(book, NOW + 10)
    filed = book.answered(request, [Lost("taken")], NOW + 10)
    assert filed.lost == [lease]
    assert lease.lost
    assert lease.reason == "taken"
    assert len(book) == 0
    assert book.due(NOW + 50).lost == []


def test_a_deadline_that_passes_while_the_request_hangs_ends_the_lease():
    lease = make_lease("j1", NOW)
    book = kept(lease)
    request = one(book, NOW + 10)
    assert book.due(NOW + 26.9).lost == []
    assert book.next_wake() == NOW + 27
    assert book.due(NOW + 27).lost == [lease]
    assert lease.reason == "deadline"
    assert not book.answered(request, extended(request), NOW + 28).extended
    assert lease.lost


def test_a_renewal_that_arrives_after_the_deadline_is_worth_nothing():
    lease = make_lease("j1", NOW)
    book = kept(lease)
    request = one(book, NOW + 10)
    filed = book.answered(request, extended(request), NOW + 27)
    assert filed.lost == [lease]
    assert filed.extended == []


def test_a_lease_that_was_lost_already_is_told_at_the_first_tick():
    lease = make_lease("j1", NOW - 60)
    book = kept(lease)
    filed = book.due(NOW)
    assert filed.lost == [lease]
    assert not filed.requests


def test_busy_holds_for_a_full_lease_and_is_asked_again_an_interval_later():
    lease = make_lease("j1", NOW)
    book = kept(lease)
    now = NOW
    for _ in range(10):
        now += 10
        request = one(book, now)
        filed = book.answered(request, [Busy()], now)
        assert filed.busy == [lease]
        assert lease._deadline == now + 27
        assert book.next_wake() == now + 10
    assert not lease._over(now)


def test_busy_ends_a_streak_and_may_ask_to_stop():
    lease = make_lease("j1", NOW)
    book = kept(lease)
    book.failed(one(book, NOW + 10), NOW + 10)
    request = one(book, wake(book))
    assert book.answered(request, [Busy(cancel_requested=True)], NOW + 11).cancelled == [lease]
    assert lease.cancel_requested
    assert book.next_wake() == request.sent_at + 10


def test_a_cancel_request_is_told_once_and_the_lease_goes_on():
    lease = make_lease("j1", NOW)
    book = kept(lease)
    told = []
    for tick in (10, 20, 30):
        request = one(book, NOW + tick)
        answers = extended(request, cancel_requested=True)
        told += book.answered(request, answers, NOW + tick).cancelled
    assert told == [lease]
    assert not lease._over(NOW + 31)


def test_a_store_that_grants_less_is_believed():
    lease = make_lease("j1", NOW)
    book = kept(lease)
    request = one(book, NOW + 10)
    book.answered(request, [Extended(6.0)], NOW + 10)
    assert lease._deadline == pytest.approx(NOW + 10 + 6 - 0.6)
    assert book.next_wake() == pytest.approx(NOW + 12)


@pytest.mark.parametrize("seconds", [0.0, -5.0])
def test_a_store_that_grants_nothing_ends_the_lease(seconds):
    lease = make_lease("j1", NOW)
    book = kept(lease)
    request = one(book, NOW + 10)
    book.answered(request, [Extended(seconds)], NOW + 10)
    assert book.due(NOW + 10).lost == [lease]


def test_retries_follow_the_policy_and_then_half_of_what_is_left():
    policy = RetryPolicy(base=1.0, factor=2.0, cap=60.0, jitter=0.0)
    lease = make_lease("j1", NOW)
    book = kept(lease, client=Client(retry=policy))
    now = NOW + 10
    waits = []
    while True:
        filed = book.due(now)
        if filed.lost:
            break
        wait = book.failed(filed.requests[0], now).delay
        left = NOW + 27 - now
        if wait is None:
            assert left <= 0.05
        else:
            waits.append(wait)
            assert wait <= left / 2 + 1e-9
        now = wake(book)
    assert waits[:3] == [1.0, 2.0, 4.0]
    assert waits[3] == pytest.approx(5.0)  # not 8: ten are left
    assert now == NOW + 27
    assert lease.reason == "deadline"
    assert len(waits) < 14  # a failing store is not hammered at the end


def test_a_success_resets_the_backoff():
    lease = make_lease("j1", NOW)
    book = kept(lease)
    book.failed(one(book, NOW + 10), NOW + 10)
    book.failed(one(book, NOW + 10.5), NOW + 10.5)
    request = one(book, NOW + 11.5)
    book.answered(request, extended(request), NOW + 11.5)
    filed = book.failed(one(book, NOW + 21.5), NOW + 21.5)
    assert filed.delay == 0.5
    assert filed.streak == 1


def test_a_failed_batch_is_retried_whole():
    book = kept(*(make_lease(f"j{i}", NOW + i / 10) for i in range(20)))
    book.failed(one(book, NOW + 10), NOW + 15)
    request = one(book, wake(book))
    assert len(request.beats) == 20


def test_a_retry_is_not_brought_forward_by_others():
    client = Client(retry=RetryPolicy.constant(2.0))
    book = kept(make_lease("a", NOW), make_lease("b", NOW + 3), client=client)
    book.failed(one(book, NOW + 10), NOW + 12.5)
    assert [beat.id for beat in one(book, NOW + 13).beats] == ["b"]


def test_the_failure_of_one_client_is_not_the_failure_of_another():
    book = make_book()
    leases = [make_lease("a", NOW), make_lease("b", NOW)]
    for lease in leases:
        book.add(Client(), [lease])
    bad, good = book.due(NOW + 10).requests
    book.failed(bad, NOW + 15)
    filed = book.answered(good, extended(good), NOW + 10)
    assert filed.extended == [leases[1]]


def test_a_failure_after_the_deadline_ends_the_lease():
    lease = make_lease("j1", NOW)
    book = kept(lease)
    filed = book.failed(one(book, NOW + 10), NOW + 27)
    assert filed.lost == [lease]
    assert filed.delay is None


def answered_and_due(book: Book, request: Request, answers: list[Extension], now: float) -> Request:
    """File the answers at once; the request that is due at `now`."""
    book.answered(request, answers, request.sent_at)
    return one(book, now)


def test_progress_goes_with_the_next_beat_until_it_arrived():
    lease = make_lease("j1", NOW)
    book = kept(lease)
    lease.report(Progress(1))
    request = one(book, NOW + 10)
    assert request.beats[0].progress == Progress(1)
    book.failed(request, NOW + 10)
    request = one(book, NOW + 10.5)
    assert request.beats[0].progress == Progress(1)
    lease.report(Progress(2))
    request = answered_and_due(book, request, extended(request), NOW + 20.5)
    assert request.beats[0].progress == Progress(2)
    # A locked row takes no progress.
    request = answered_and_due(book, request, [Busy()], NOW + 30.5)
    assert request.beats[0].progress == Progress(2)
    request = answered_and_due(book, request, extended(request), NOW + 40.5)
    assert request.beats[0].progress is None


def test_discarding_a_client_forgets_its_leases_only():
    book = make_book()
    first, second = Client(), Client()
    mine, other = make_lease("a", NOW), make_lease("b", NOW)
    book.add(first, [mine])
    book.add(second, [other])
    request = book.due(NOW + 10).requests[0]
    assert book.discard(first) == [mine]
    assert book.discard(first) == []
    assert book.answered(request, [Lost("taken")], NOW + 10).lost == []
    assert not mine._over(NOW + 10)
    assert len(book) == 1


def test_closing_loses_what_is_left():
    lease = make_lease("j1", NOW)
    book = kept(lease)
    request = one(book, NOW + 10)
    assert book.close("closed").lost == [lease]
    assert lease.reason == "closed"
    assert book.close("closed").lost == []
    assert book.answered(request, extended(request), NOW + 10).extended == []
    assert book.next_wake() is None


def test_what_was_in_flight_when_the_loop_broke_is_due_again():
    leases = [make_lease("a", NOW), make_lease("b", NOW + 5)]
    book = kept(*leases)
    old = one(book, NOW + 10)
    book.carry_over(NOW + 12)
    new = one(book, NOW + 12)
    assert [beat.id for beat in old.beats] == ["a"]
    assert new.beats[0].id == "a"
    assert book.answered(old, [Lost("taken")], NOW + 12).lost == []


def test_registering_twice_changes_nothing():
    lease = make_lease("j1", NOW)
    client = Client()
    book = kept(lease, client=client)
    assert book.add(client, [lease]) == []
    assert len(book) == 1
    assert len(one(book, NOW + 10).beats) == 1


def test_a_client_need_not_be_hashable():
    class Odd(Client):
        __hash__ = None  # type: ignore[assignment]

    book = kept(make_lease("j1", NOW), client=Odd())
    assert len(one(book, NOW + 10).beats) == 1


@pytest.mark.parametrize(
    "answers",
    [
        [],
        [Extended(30.0), Extended(30.0)],
        [None],
        [Extended(math.nan)],
        [Extended(math.inf)],
        [Extended("30")],  # type: ignore[arg-type]
    ],
)
def test_unsound_answers_are_refused(answers):
    request = one(kept(make_lease("j1", NOW)), NOW + 10)
    with pytest.raises(ValueError, match="answer"):
        request.examine(answers)
