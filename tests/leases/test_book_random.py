"""Any order of events: no holder believes in a lease that the store would give to another."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tenure.core.lease import Busy, Extended, Extension, Lost, lease_times
from tenure.core.retry import RetryPolicy
from tenure.leases.book import TOO_LATE, Book
from tenure.leases.lease import Lease
from tenure.leases.request import Request
from tests.leases.kit import Client, ManualClock

SLACK = 1e-6
steps = st.floats(0.0, 12.0)
fraction = st.floats(0.0, 1.0)


@dataclass
class Row:
    """What the store knows of a lease."""

    until: float
    taken: bool = False


@dataclass
class Sent:
    request: Request
    answers: list[Extension] | None = None
    over: bool = False


@dataclass
class Kept:
    lease: Lease
    row: Row
    renew_by: float
    """The latest moment at which the next request may be sent, as the rules have it."""
    told: int = 0
    removed: bool = False


class Keeping(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(1000.0)
        self.book = Book(0.07, lambda: 0.5)
        policy = RetryPolicy(base=0.5, factor=3.0, cap=60.0)
        self.clients = [Client(retry=policy), Client(retry=policy)]
        self.kept: dict[str, Kept] = {}
        self.sent: list[Sent] = []
        self.ticked = False

    @property
    def now(self) -> float:
        return self.clock.now

    # What the process does.

    @rule(
        client=st.integers(0, 1),
        length=st.sampled_from([1.0, 5.0, 30.0]),
        took=fraction,
        late=fraction,
        granted=st.sampled_from([0.3, 1.0, 3.0]),
    )
    def claim(self, client, length, took, late, granted) -> None:
        """The claim was served some time after it was sent, and its reply came later still."""
        sent_at = self.now - took * length / 2
        served = sent_at + late * (self.now - sent_at)
        lease = Lease(
            f"j{len(self.kept)}", 1, "me", lease_times(length),
            sent_at=sent_at, granted=granted * length, clock=self.clock,
        )  # fmt: skip
        row = Row(served + granted * length)
        by = sent_at + min(length, granted * length) / 3
        self.kept[lease.id] = Kept(lease, row, by)
        self.book.add(self.clients[client], [lease])
        self.ticked = False

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def remove(self, data) -> None:
        kept = data.draw(st.sampled_from(list(self.kept.values())))
        if self.book.remove([kept.lease]):
            kept.removed = True

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def nudge(self, data) -> None:
        self.book.nudge([data.draw(st.sampled_from(list(self.kept)))], self.now)
        self.ticked = False

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def look(self, data) -> None:
        kept = data.draw(st.sampled_from(list(self.kept.values())))
        assert kept.lease.lost or kept.row.until > self.now

    @rule(seconds=steps)
    def run(self, seconds) -> None:
        """Time passes, and the keeper looks whenever it planned to."""
        end = self.now + seconds
        self.tick()
        while (wake := self.book.next_wake()) is not None and wake <= end:
            self.clock.now = max(self.now, wake)
            self.check_held()
            self.tick()
        self.clock.now = end

    @rule(seconds=steps)
    def stall(self, seconds) -> None:
        """Time passes, and the keeper does not run."""
        self.clock.now += seconds
        self.ticked = False

    def tick(self) -> None:
        filed = self.book.due(self.now)
        self.file(filed)
        for request in filed.requests:
            assert len(request.beats) >= 1
            for beat in request.beats:
                flying = [
                    sent for sent in self.sent
                    if not sent.over and any(other.id == beat.id for other in sent.request.beats)
                ]  # fmt: skip
                assert not flying or self.kept[beat.id].removed
                assert beat.seconds >= self.kept[beat.id].lease.times.length
            self.sent.append(Sent(request))
        self.ticked = True

    def file(self, filed) -> None:
        for lease in filed.lost:
            kept = self.kept[lease.id]
            kept.told += 1
            assert lease.lost
            assert not kept.removed
        for lease in (*filed.extended, *filed.cancelled, *filed.busy):
            assert not self.kept[lease.id].removed

    # What the store does, and the network.

    def unserved(self) -> list[Sent]:
        return [sent for sent in self.sent if sent.answers is None]

    def served(self) -> list[Sent]:
        return [sent for sent in self.sent if sent.answers is not None and not sent.over]

    @precondition(lambda self: self.unserved())
    @rule(data=st.data(), share=st.sampled_from([0.2, 1.0]), busy=st.integers(0, 9))
    def serve(self, data, share, busy) -> None:
        """The store works on a request: perhaps one that was given up long ago."""
        sent = data.draw(st.sampled_from(self.unserved()))
        sent.answers = []
        for beat in sent.request.beats:
            row = self.kept[beat.id].row
            if row.taken or row.until <= self.now:
                answer: Extension = Lost("lapsed")
            elif busy == 0:
                # The holder's transaction stays open for as long as a full lease.
                row.until = max(row.until, self.now + beat.seconds)
                answer = Busy()
            else:
                row.until = max(row.until, self.now + beat.seconds * share)
                answer = Extended(row.until - self.now, cancel_requested=busy == 1)
            sent.answers.append(answer)

    @precondition(lambda self: self.served())
    @rule(data=st.data())
    def deliver(self, data) -> None:
        sent = data.draw(st.sampled_from(self.served()))
        assert sent.answers is not None
        sent.over = True
        filed = self.book.answered(sent.request, sent.answers, self.now)
        self.file(filed)
        for lease in (*filed.extended, *filed.busy):
            sent_at, seconds = lease._grant
            assert sent_at == sent.request.sent_at
            self.kept[lease.id].renew_by = sent_at + min(lease.times.interval, seconds / 3)
        self.ticked = False

    @precondition(lambda self: any(not sent.over for sent in self.sent))
    @rule(data=st.data())
    def fail(self, data) -> None:
        """A request fails or times out; whether the store ever works on it is unknown."""
        sent = data.draw(st.sampled_from([sent for sent in self.sent if not sent.over]))
        sent.over = True
        flying = [entry.lease for entry in sent.request.entries if entry.flight is sent.request]
        self.file(self.book.failed(sent.request, self.now))
        for lease in flying:
            left = lease._deadline - self.now
            by = self.now + left / 2 if left > TOO_LATE else lease._deadline
            self.kept[lease.id].renew_by = by
        self.ticked = False

    # What must hold at any time.

    @invariant()
    def check_held(self) -> None:
        for kept in self.kept.values():
            # `lost` would write down what it sees: that is a step of its own, see `look`.
            if kept.lease._reason is None and self.now < kept.lease._deadline:
                seconds = kept.lease._grant[1]
                margin = min(kept.lease.times.margin, max(0.2, seconds / 10))
                assert kept.row.until - self.now >= margin - SLACK

    @invariant()
    def check_plans(self) -> None:
        for lease, entry in self.book._entries.items():
            assert entry.mark >= 0
            if entry.flight is None:
                assert entry.at <= max(self.kept[lease.id].renew_by, self.now) + SLACK
            assert entry.at <= max(lease._deadline, self.now) + SLACK
        planned = [entry.at for entry in self.book._entries.values()]
        assert self.book.next_wake() == min(planned, default=None)

    @invariant()
    def check_told(self) -> None:
        for kept in self.kept.values():
            assert kept.told <= 1
            active = kept.lease in self.book._entries
            assert active + kept.removed + kept.told == 1
            if active and self.ticked and kept.lease._deadline <= self.now:
                self.tick()  # `run` ended on the very moment
                assert kept.told == 1


TestKeeping = Keeping.TestCase
profile = settings()  # the one in force
TestKeeping.settings = settings(max_examples=3 * profile.max_examples, stateful_step_count=60)
