"""Event loops that stand still, and a keeper that could not run: first decided, then for real."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from tenure import QueueService
from tenure.context import JobContext
from tenure.core.job import NewJob, new_row
from tenure.leases import LeaseKeeper, LeaseRenewal, lease_times
from tenure.leases.holder import Holder
from tenure.leases.jumps import Jumps
from tenure.leases.lease import Lease
from tenure.leases.stalls import PING_EVERY, Stalls
from tenure.observe.hooks import Happening, Hooks
from tests.leases.callers import Caller, every_loop
from tests.leases.kit import Client, ManualClock, make_book, make_lease, until
from tests.leases.service import Service

NOW = 1000.0


class Loop:
    """An event loop that answers pings only when it is told to."""

    def __init__(self, thread: int | None = 1) -> None:
        self.calls: list[Callable[[], None]] = []
        self.holder = Holder(self.calls.append, thread, self)

    def run(self) -> None:
        while self.calls:
            self.calls.pop(0)()


def look(stalls: Stalls, now: float, *loops: Loop):
    sight = stalls.look(now, [loop.holder for loop in loops])
    for watched in sight.pings:
        watched.holder.ping(watched.number)
    return sight


def test_a_loop_that_answers_is_asked_every_two_seconds():
    stalls, loop = Stalls(5, 600), Loop()
    asked = []
    for second in range(20):
        if look(stalls, NOW + second, loop).pings:
            asked.append(second)
        loop.run()
    assert asked == list(range(0, 20, int(PING_EVERY)))


def test_silence_is_told_once_after_five_seconds():
    stalls, loop = Stalls(5, 600), Loop()
    told = [look(stalls, NOW + second, loop).news for second in range(20)]
    assert [second for second, news in enumerate(told) if news] == [5]
    assert told[5][0].holder == loop.holder
    assert told[5][0].seconds == 5
    assert len(loop.calls) == 1  # a silent loop is not asked again and again


def test_a_loop_that_comes_back_is_told_of_again_when_it_stalls_again():
    stalls, loop = Stalls(5, 600), Loop()
    news = []
    for second in range(30):
        if second == 10:
            loop.run()
        if look(stalls, NOW + second, loop).news:
            news.append(second)
    assert news == [5, 15]


def test_after_ten_minutes_it_is_over():
    stalls, loop = Stalls(5, 600), Loop()
    ended = [bool(look(stalls, NOW + second, loop).ended) for second in range(602)]
    assert ended.index(True) == 600
    assert ended[-1]


def test_loops_whose_thread_is_unknown_are_left_alone():
    stalls, loop = Stalls(5, 600), Loop(thread=None)
    for second in range(20):
        sight = look(stalls, NOW + second, loop)
        assert not sight.pings
        assert not sight.news


def test_a_loop_without_leases_is_forgotten():
    stalls, loop = Stalls(5, 600), Loop()
    look(stalls, NOW, loop)
    for second in range(1, 10):
        look(stalls, NOW + second)
    assert not look(stalls, NOW + 10, loop).news
    assert not stalls._watched[loop.holder].warned


def test_a_watcher_that_did_not_run_itself_blames_nobody():
    stalls, loop = Stalls(5, 600), Loop()
    look(stalls, NOW, loop)
    sight = look(stalls, NOW + 1000, loop)  # stopped and continued
    assert sight.gap == 1000
    assert not sight.news
    assert not sight.ended
    for second in range(1, 5):
        assert not look(stalls, NOW + 1000 + second, loop).news
    assert look(stalls, NOW + 1005, loop).news  # still silent: now it is its fault


def test_short_and_planned_gaps_are_no_news():
    stalls, loop = Stalls(5, 600), Loop()
    look(stalls, NOW, loop)
    assert look(stalls, NOW + 4.9, loop).gap == 0
    stalls.rest()
    assert look(stalls, NOW + 1000, loop).gap == 0


def test_equal_holders_are_one_loop():
    loop = Loop()
    again = Holder(print, 1, loop)
    assert again == loop.holder
    assert len({again, loop.holder}) == 1
    assert Holder(print) != loop.holder
    assert Holder(print) != "loop"


def test_a_wall_clock_jumps_when_it_leaves_the_other_one():
    jumps = Jumps()
    assert not jumps.look(10.0, 1_000_000_000)
    assert not jumps.look(11.0, 1_001_900_000)  # corrected by 0.9 s
    assert jumps.look(12.0, 1_005_000_000)
    assert not jumps.look(13.0, 1_006_000_000)
    assert jumps.look(14.0, 900_000_000)
    jumps.rest()
    assert not jumps.look(15.0, 5_000_000_000)


# The book


def held(*loops: Loop):
    book, client = make_book(), Client()
    leases: list[Lease] = []
    for loop in loops:
        for _ in range(2):
            lease = make_lease(f"j{len(leases)}", NOW, holder=loop.holder)
            leases.append(lease)
    book.add(client, leases)
    return book, leases


def test_a_loop_loses_its_own_leases_only():
    one, two = Loop(), Loop()
    book, leases = held(one, two)
    filed = book.lose(one.holder, "stalled")
    assert filed.lost == leases[:2]
    assert [lease._reason for lease in leases] == ["stalled", "stalled", None, None]
    assert set(book.holders) == {two.holder}


def test_those_that_overran_their_time_are_lost_early():
    loop = Loop()
    book, leases = held(loop)
    leases[0].limit = NOW + 7
    assert book.lose(loop.holder, "stalled", NOW + 6).lost == []
    assert book.lose(loop.holder, "stalled", NOW + 7).lost == leases[:1]


def test_leases_are_counted_where_they_are():
    one, two = Loop(), Loop()
    book, leases = held(one, two)
    assert book.holders == {one.holder: 2, two.holder: 2}
    book.move(leases[0], two.holder)
    assert book.holders == {one.holder: 1, two.holder: 3}
    book.remove(leases[1:])
    assert book.holders == {two.holder: 1}
    book.move(leases[0], None)
    assert book.holders == {}
    book.move(leases[1], one.holder)  # not kept: nothing to count
    assert book.holders == {}
    assert book.held_by(one.holder) == []


# With the keeper


class Watch:
    """A keeper that watches loops, on a clock that is turned second by second."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.happenings: list[Happening] = []
        self.keeper = LeaseKeeper(self.clock, Hooks(self.happenings.append))
        self.service = Service(self.clock)

    def pass_time(self, seconds: int) -> None:
        """As seconds do: the keeper has a look after each."""
        for _ in range(seconds):
            before = self.keeper._watchman._stalls._looked_at
            self.clock.advance(1)
            runner = self.keeper._runner
            assert runner is not None
            runner.wake()
            until(partial(self._looked_since, before))

    def _looked_since(self, before: float | None) -> bool:
        return self.keeper._watchman._stalls._looked_at != before

    def named(self, name: str) -> list[Happening]:
        return [happening for happening in self.happenings if happening.name == name]


@pytest.fixture
def watch():
    watch = Watch()
    yield watch
    watch.keeper.close()


def blocked_here(watch: Watch, seconds: int) -> None:
    watch.pass_time(seconds)


@every_loop
def test_a_blocked_loop_is_told_with_its_stack_and_its_leases_go_on(by: Caller, watch, caplog):
    service = watch.service
    renewal = LeaseRenewal(service.client(), service.lease("r1"), keeper=watch.keeper)

    async def scenario():
        async with renewal:
            blocked_here(watch, 70)  # no await: the loop stands still meanwhile
            assert len(service.renewals) >= 1
            assert not renewal.lost

    by.run(scenario)
    (stalled,) = watch.named("worker.stalled")
    assert stalled.facts["ids"] == ["r1"]
    assert stalled.facts["leases"] == 1
    assert 5 <= stalled.facts["seconds"] <= 7
    assert "blocked_here" in stalled.facts["stack"]
    assert "blocked_here" in caplog.text


@every_loop
def test_a_loop_that_runs_is_no_news(by: Caller, watch):
    service = watch.service
    renewal = LeaseRenewal(service.client(), service.lease("r1"), keeper=watch.keeper)

    async def scenario():
        async with renewal:
            for _ in range(30):
                watch.pass_time(1)
                holder = next(iter(watch.keeper._book.holders))
                while holder.heard < watch.keeper._watchman._stalls._watched[holder].number:
                    await checkpoint()

    by.run(scenario)
    assert not watch.named("worker.stalled")


async def checkpoint() -> None:
    import anyio.lowlevel

    await anyio.lowlevel.checkpoint()


def test_a_handler_that_overran_its_time_in_a_blocked_loop_loses_its_lease(watch):
    service = watch.service
    renewal = LeaseRenewal(service.client(), service.lease("r1"), keeper=watch.keeper)
    other = LeaseRenewal(service.client(), service.lease("r2"), keeper=watch.keeper)

    async def main() -> None:
        await renewal.astart()
        await other.astart()
        renewal.lease.limit = watch.clock.now + 20
        watch.pass_time(19)
        assert not renewal.lost
        watch.pass_time(3)
        assert renewal.reason == "stalled"
        assert not other.lost
        await renewal.astop()
        await other.astop()

    asyncio.run(main())


def test_the_timeout_of_a_job_is_the_limit_of_its_lease():
    clock = ManualClock()
    for timeout, limit in ((7.0, clock.now + 7), (None, None)):
        row = msgspec.structs.replace(new_row(NewJob(id="j", task="t"), 0), timeout=timeout)
        lease = make_lease("j", clock.now, clock=clock)
        JobContext(row, lease, clock).begin()
        assert lease.limit == limit


def test_a_loop_blocked_for_ten_minutes_loses_its_leases(watch):
    service = watch.service
    renewal = LeaseRenewal(service.client(), service.lease("r1"), keeper=watch.keeper)
    elsewhere = LeaseRenewal(service.client(), service.lease("r2"), keeper=watch.keeper)
    elsewhere.start()  # by a plain thread: nobody can tell whether that is blocked

    async def main() -> None:
        async with renewal:
            watch.pass_time(599)
            assert not renewal.lost
            watch.pass_time(5)
            assert renewal.reason == "stalled"

    asyncio.run(main())
    assert not elsewhere.lost
    elsewhere.stop()


@pytest.mark.parametrize("blocks", ["sleep", "computes"])
def test_a_loop_blocked_for_longer_than_the_lease_loses_nothing(blocks):
    """On the real clock: a lease of a second, and a handler that never lets the loop run."""
    keeper = LeaseKeeper(stall_warn=0.5)
    told: list[str] = []
    keeper.hooks.add(lambda happening: told.append(happening.name))

    async def main() -> None:
        renewal = LeaseRenewal(Client(), "r1", times=lease_times(1), keeper=keeper)
        async with renewal:
            began = time.monotonic()
            while (now := time.monotonic()) < began + 10:
                if now > began + 1.6 and "worker.stalled" in told:
                    break
                if blocks == "sleep":
                    time.sleep(0.2)
            assert not renewal.lost

    asyncio.run(main())
    keeper.close()
    assert told.count("lease.extend_ok") >= 3
    assert "worker.stalled" in told
    assert "lease.lost" not in told


def test_a_worker_tells_its_hooks_that_its_loop_stands_still(monkeypatch):
    keeper = LeaseKeeper(stall_warn=0.3)
    jobs = QueueService("memory://")
    told: list[str] = []
    jobs.hooks.add(lambda happening: told.append(happening.name))

    @jobs.task
    async def block() -> None:
        end = time.monotonic() + 10
        while "worker.stalled" not in told and time.monotonic() < end:
            time.sleep(0.01)

    async def main() -> None:
        async with jobs:
            await jobs.enqueue(block)
            monkeypatch.setattr("tenure.worker.worker.default_keeper", lambda: keeper)
            await jobs.worker(burst=True).run()

    asyncio.run(main())
    keeper.close()
    assert told.count("worker.stalled") == 1
    assert told[-1] == "job.completed"
    assert not keeper.hooks.hears("worker.stalled")  # the worker has left


def test_the_leases_of_a_closed_loop_are_not_its_fault(watch):
    service = watch.service
    renewal = LeaseRenewal(service.client(), service.lease("r1"), keeper=watch.keeper)
    asyncio.run(renewal.astart())
    watch.pass_time(20)
    assert not watch.named("worker.stalled")
    assert not renewal.lost
    renewal.stop()


def test_a_keeper_that_could_not_run_says_so(watch, caplog):
    service = watch.service
    renewal = LeaseRenewal(service.client(), service.lease("r1"), keeper=watch.keeper)
    with renewal:
        watch.pass_time(1)
        watch.clock.advance(30)
        until(lambda: watch.named("lease.keeper_late"))
    assert watch.named("lease.keeper_late")[0].facts["seconds"] == pytest.approx(30, abs=1)
    assert "no lease could be renewed for" in caplog.text


def test_limits_are_settings(watch):
    keeper = LeaseKeeper(ManualClock(), stall_warn=1, stall_release=math.inf)
    assert keeper._watchman._stalls._warn == 1
    assert keeper._watchman._stalls._release == math.inf
    keeper.close()


def test_a_thread_that_ended_has_no_stack(watch, caplog):
    """What is reported must not depend on the thread being there still."""
    holder = Holder(lambda call: None, 123456789, "gone")
    lease = make_lease("j1", watch.clock.now, 3600.0, clock=watch.clock, holder=holder)
    watch.keeper.register(Client(), [lease])
    watch.pass_time(8)
    assert watch.named("worker.stalled")[0].facts["stack"] == ""
    assert threading.main_thread().ident != 123456789
