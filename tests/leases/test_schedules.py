"""Random schedules and outages on the virtual clock, many of them, decided by seeds."""

from __future__ import annotations

import random
from heapq import heappop, heappush
from itertools import count
from typing import Any

import pytest

from tenure.core.lease import Busy, Extended, Extension, Lost, lease_times, message_times
from tenure.core.retry import RetryPolicy
from tenure.leases.book import Book
from tenure.leases.lease import Lease
from tenure.leases.request import Errand, Request
from tests.leases.kit import Client, ManualClock

START = 1000.0


class World:
    """A keeper's book, a service and a network between them, on one clock; no threads.

    A request takes time to the service and back. A time-out cuts it off at the client, but what is
    on its way may still be served.
    """

    def __init__(self, dice: random.Random, retry: RetryPolicy) -> None:
        self.dice = dice
        self.clock = ManualClock(START)
        self.client = Client(retry=retry)
        self.book = Book(dice.random() * 0.1, dice.random)
        self.events: list[Any] = []
        self.ticket = count()
        self.until: dict[str, float] = {}
        self.served: list[tuple[str, float, bool]] = []
        """What took effect, in order: id, seconds, whether it was asked for by hand."""
        self.told: dict[str, float] = {}
        self.away = False
        self.patience = 3.0
        """How long it takes, at most, until a failure shows."""
        self.slow = 0.0
        self.answer: Extension | None = None

    def at(self, when: float, call) -> None:
        heappush(self.events, (when, next(self.ticket), call))

    def run(self, end: float) -> None:
        """Let time pass, from event to event."""
        while True:
            self.look()
            wake = self.book.next_wake()
            when = min(self.events[0][0] if self.events else end, end if wake is None else wake)
            if when >= end:
                self.clock.now = end
                self.look()
                return
            self.clock.now = max(self.clock.now, when)
            while self.events and self.events[0][0] <= self.clock.now:
                heappop(self.events)[2]()

    def look(self) -> None:
        filed = self.book.due(self.clock.now)
        self.note(filed)
        for request in filed.requests:
            self.send(request)

    def note(self, filed) -> None:
        for lease in filed.lost:
            self.told[lease.id] = self.clock.now

    def send(self, request: Request) -> None:
        now = self.clock.now
        there, back = self.dice.random() * self.slow, self.dice.random() * self.slow
        if self.away:
            self.at(
                now + min(request.timeout, self.dice.random() * self.patience),
                lambda: self.fail(request),
            )
            return
        answers: list[Extension] = []
        self.at(now + there, lambda: answers.extend(self.serve(request)))
        if there + back >= request.timeout:
            self.at(now + request.timeout, lambda: self.fail(request))
        else:
            self.at(now + there + back, lambda: self.arrive(request, answers))

    def serve(self, request: Request) -> list[Extension]:
        answers: list[Extension] = []
        for beat in request.beats:
            if self.answer is not None:
                answers.append(self.answer)
                continue
            if self.until.get(beat.id, 0) <= self.clock.now:
                answers.append(Lost("lapsed"))
                continue
            self.until[beat.id] = self.clock.now + beat.seconds
            self.served.append((beat.id, beat.seconds, request.errand is not None))
            answers.append(Extended(beat.seconds))
        return answers

    def arrive(self, request: Request, answers: list[Extension]) -> None:
        self.note(self.book.answered(request, answers, self.clock.now))

    def fail(self, request: Request) -> None:
        self.note(self.book.failed(request, self.clock.now, OSError("down")))


@pytest.mark.parametrize("part", range(10))
def test_an_extension_in_flight_lands_before_the_retry_that_follows_it(part, scaled):
    """10,000 schedules. A holder stops, waiting, and then sets the lease to a few seconds."""
    for seed in range(part * 1000, part * 1000 + scaled(1000, 10_000)):
        dice = random.Random(seed)
        world = World(dice, RetryPolicy.constant(3))
        world.slow = dice.choice([0.1, 1.0, 2.4])  # there and back within the time limit
        times = message_times(dice.choice([30, 60, 300]))
        lease = Lease("r1", 0, "", times, sent_at=START, clock=world.clock)
        world.until["r1"] = START + times.length
        world.book.add(world.client, [lease])
        # Most of them around a renewal, where the two may cross.
        renewal = times.interval * dice.randint(1, 3)
        stops_at = max(0.0, renewal + dice.uniform(-1, 5))
        errands: list[Errand] = []

        def retry_soon(world=world, lease=lease, errands=errands) -> None:
            world.book.remove([lease])
            flight = lease._flight
            errand = Errand(lease, 5.0, world.clock.now)
            errands.append(errand)
            if flight is None:
                world.book.ask(world.client, errand)
            else:  # as the waiting stop does
                flight.over.call(lambda: world.book.ask(world.client, errand))

        world.at(START + stops_at, retry_soon)
        world.run(START + stops_at + 20)
        [errand] = errands
        assert errand.answer == Extended(5.0), seed
        by_hand = [i for i, (_, _, explicit) in enumerate(world.served) if explicit]
        assert by_hand == [len(world.served) - 1], (seed, world.served)


@pytest.mark.parametrize("part", range(4))
def test_a_change_that_had_to_overtake_is_repeated(part, scaled):
    """Here an extension may take longer than anybody waits; in the end the change stands."""
    for seed in range(part * 500, part * 500 + scaled(500, 5000)):
        dice = random.Random(seed)
        world = World(dice, RetryPolicy.constant(3))
        lease = Lease("r1", 0, "", message_times(300), sent_at=START, clock=world.clock)
        world.until["r1"] = START + 300
        world.book.add(world.client, [lease])
        stuck: list[Request] = []
        late = dice.uniform(4, 30)

        def hold(request, world=world, stuck=stuck, late=late) -> None:
            if request.errand is None and not stuck:
                stuck.append(request)  # it resists its time limit
                world.at(
                    world.clock.now + late, lambda: world.arrive(request, world.serve(request))
                )
            else:
                World.send(world, request)

        world.send = hold  # type: ignore[method-assign]
        world.run(START + 61)
        assert stuck
        world.book.remove([lease])
        asked = Errand(lease, 45.0, world.clock.now)
        world.book.ask(world.client, asked)
        world.run(START + 120)
        assert asked.answer == Extended(45.0), seed
        assert world.served[-1] == ("r1", 45.0, True), (seed, world.served)


OUTAGES = 1000


@pytest.mark.parametrize("part", range(4))
def test_the_flag_is_up_half_a_margin_before_anybody_else_gets_the_job(part, scaled):
    """1,000 outages: the store is away, slow, or says no, from a random moment on."""
    lost = 0
    for seed in range(part * OUTAGES // 4, (part + 1) * OUTAGES // 4 * scaled(1, 10)):
        dice = random.Random(seed)
        world = World(dice, RetryPolicy(base=0.5, factor=2.0, cap=5.0, jitter=0.5))
        world.slow = dice.choice([0.05, 0.5, 4.0])
        length = dice.choice([1.0, 5.0, 30.0, 300.0])
        times = lease_times(length)
        leases = [
            Lease(f"j{i}", 1, "me", times, sent_at=START, clock=world.clock)
            for i in range(dice.randint(1, 5))
        ]
        for lease in leases:
            # The claim was served a moment after it was sent.
            world.until[lease.id] = START + dice.random() * world.slow + length
        world.book.add(world.client, leases)
        begins = START + dice.random() * 3 * length
        back = begins + dice.random() * 2 * length

        def begin(world=world, dice=dice) -> None:
            kind = dice.choice(["away", "slow", "taken", "gone"])
            world.away = kind == "away"
            world.slow = 20.0 if kind == "slow" else world.slow
            world.answer = Lost(kind) if kind in ("taken", "gone") else None

        def end(world=world) -> None:
            world.away, world.slow, world.answer = False, 0.05, None

        world.at(begins, begin)
        world.at(back, end)
        world.run(back + 2 * length)
        for lease in leases:
            if lease.id in world.told:
                lost += 1
                assert lease.lost
                spare = world.until[lease.id] - world.told[lease.id]
                assert spare >= times.margin / 2, (seed, lease, spare)
            else:
                assert not lease.lost, seed
                assert world.until[lease.id] > world.clock.now, seed
    assert lost > 50


@pytest.mark.parametrize("part", range(2))
def test_without_an_outage_nothing_is_lost(part, scaled):
    for seed in range(part * 100, part * 100 + scaled(100, 1000)):
        dice = random.Random(seed)
        world = World(dice, RetryPolicy.constant(0.5))
        world.slow = 0.1
        length = dice.choice([3.0, 30.0, 300.0])
        leases = [
            Lease(f"j{i}", 1, "me", lease_times(length), sent_at=START, clock=world.clock)
            for i in range(20)
        ]
        world.until.update({lease.id: START + length for lease in leases})
        world.book.add(world.client, leases)
        # Every third request fails, and at one time all of them, for nearly half a lease.
        world.patience = 0.05
        sent = count()
        begins, ends = START + 5 * length, START + 5.4 * length

        def sometimes(request, world=world, sent=sent, begins=begins, ends=ends) -> None:
            world.away = begins <= world.clock.now < ends or next(sent) % 3 == 0
            World.send(world, request)

        world.send = sometimes  # type: ignore[method-assign]
        world.run(START + 15 * length)
        assert world.told == {}, seed
        assert not any(lease.lost for lease in leases)


def test_a_lock_of_ones_own_is_no_outage():
    world = World(random.Random(1), RetryPolicy.constant(0.5))
    world.answer = Busy()
    lease = Lease("j", 1, "me", lease_times(30), sent_at=START, clock=world.clock)
    world.book.add(world.client, [lease])
    world.run(START + 1000)
    assert world.told == {}
    assert not lease.lost
