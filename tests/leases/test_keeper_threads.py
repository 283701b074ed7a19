"""Many threads at once, and forks."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from tenure.clock import SYSTEM_CLOCK
from tenure.core.lease import Extended, lease_times
from tenure.leases.keeper import LeaseKeeper
from tenure.leases.lease import Lease
from tests.leases.kit import Client, Desk, until


def at_once(count: int, work: Callable[[int], object]) -> None:
    """Run `work(i)` in `count` threads that start together; failures are raised here."""
    barrier = threading.Barrier(count)
    errors: list[BaseException] = []

    def run(i):
        barrier.wait()
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert errors == []


def test_threads_that_register_first_share_one_keeper_thread(desk: Desk):
    leases = desk.leases(16)
    client = Client()
    at_once(16, lambda i: desk.keeper.register(client, [leases[i]]))
    assert len(desk.named("lease.keeper_start")) == 1
    assert desk.keeper.active == 16
    desk.clock.advance(10)
    until(desk.settled)
    assert sorted(beat.id for beat in client.beats) == sorted(lease.id for lease in leases)


def test_register_remove_and_nudge_may_race(scaled):
    """On the real clock, with answers that arrive whenever they like."""
    keeper = LeaseKeeper()
    clients = [Client(), Client()]
    kept: list[Lease] = []
    told: list[Lease] = []

    def work(i):
        dice = random.Random(i)
        mine = []
        for step in range(scaled(150, 5000)):
            name = f"{i}-{step}"
            now = SYSTEM_CLOCK.monotonic()
            lease = Lease(name, 1, "me", lease_times(30), sent_at=now, on_signal=told.append)
            keeper.register(clients[dice.randrange(2)], [lease])
            mine.append(lease)
            keeper.nudge([dice.choice(mine).id, f"{dice.randrange(8)}-{dice.randrange(150)}"])
            if dice.random() < 0.7:
                keeper.remove([mine.pop(dice.randrange(len(mine)))])
        kept.extend(mine)

    at_once(8, work)
    assert keeper.active == len(kept)
    for client in clients:
        assert client.overlaps == 0
    keeper.nudge([lease.id for lease in kept])
    until(lambda: not any(client.flying for client in clients))
    assert not any(lease.lost for lease in kept)
    assert told == []
    at_once(4, lambda i: keeper.remove(kept))
    assert keeper.active == 0
    at_once(4, lambda i: keeper.close())
    assert clients[0].closed == clients[0].opened


def test_discard_and_register_may_race(scaled):
    keeper = LeaseKeeper()
    client = Client()

    def work(i):
        for step in range(scaled(40, 2000)):
            now = SYSTEM_CLOCK.monotonic()
            lease = Lease(f"{i}-{step}", 1, "me", lease_times(30), sent_at=now)
            keeper.register(client, [lease])
            keeper.nudge([lease.id])
            if step % 5 == 0:
                keeper.discard(client)

    at_once(4, work)
    keeper.discard(client)
    assert keeper.active == 0
    keeper.close()
    assert client.closed == client.opened
    assert client.overlaps == 0


def test_readers_see_no_lease_come_back(scaled):
    """A holder asks all the time while renewals arrive at the very deadline."""
    desk = Desk()

    async def late(beats):
        desk.clock.now += 26.99 if random.random() < 0.5 else 27.01
        return [Extended(beat.seconds) for beat in beats]

    client = Client(late)
    stop = threading.Event()
    leases: list[Lease] = []
    back: list[Lease] = []

    def read():
        seen = set()
        while not stop.is_set():
            for lease in leases[-2:]:
                if lease.lost:
                    seen.add(lease)
            back.extend(lease for lease in seen if not lease.lost)
            time.sleep(0)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for i in range(scaled(50, 2000)):
            lease = desk.lease(f"j{i}")
            leases.append(lease)
            desk.keeper.register(client, [lease])
            desk.keeper.nudge([lease.id])
            until(desk.settled)
            desk.keeper.remove([lease])
    finally:
        stop.set()
        reader.join(10)
        desk.keeper.close()
    assert back == []


FORK = """
import gc, os, sys, threading, time
from tenure.clock import SYSTEM_CLOCK
from tenure.core.lease import Extended, lease_times
from tenure.core.retry import RetryPolicy
from tenure.leases.process import default_keeper
from tenure.leases.lease import Lease

class Client:
    resolution = 0
    retry = RetryPolicy()
    beats = 0
    async def open(self): self.pid = os.getpid()
    async def close(self): assert self.pid == os.getpid()
    async def extend(self, beats):
        assert self.pid == os.getpid()
        self.beats += 1
        return [Extended(beat.seconds) for beat in beats]

def lease(id):
    return Lease(id, 1, "me", lease_times(30), sent_at=SYSTEM_CLOCK.monotonic())

def beaten(client, count):
    end = time.monotonic() + 20
    while client.beats < count:
        assert time.monotonic() < end
        time.sleep(0.002)

keeper = default_keeper()
client, mine = Client(), lease("parent")
keeper.register(client, [mine])
keeper.nudge(["parent"])
beaten(client, 1)
held = {held}
if held:
    # The fork happens while another thread is inside of the keeper.
    locked, go_on = threading.Event(), threading.Event()
    def hold():
        with keeper._guard:
            locked.set()
            go_on.wait(30)
    holder = threading.Thread(target=hold)
    holder.start()
    locked.wait()
pid = os.fork()
if pid == 0:
    code = 1
    try:
        assert default_keeper() is keeper
        assert keeper.active == 0
        gc.collect()
        keeper.remove([mine])
        keeper.nudge(["parent"])
        keeper.discard(client)
        new, own = Client(), lease("child")
        keeper.register(new, [own])
        keeper.nudge(["child"])
        beaten(new, 1)
        assert client.beats == 1 and keeper.active == 1
        keeper.close()
        assert own.reason == "closed" and not mine.lost
        del keeper, new
        gc.collect()
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
if held:
    go_on.set()
    holder.join()
for round in range(2, 5):
    keeper.nudge(["parent"])
    beaten(client, round)
assert not mine.lost and keeper.active == 1
print("fine")
"""


def run_script(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Exception" not in done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_the_child_of_a_fork_starts_empty_and_leaves_the_parent_alone():
    assert run_script(FORK.replace("{held}", "False")) == "fine\n"


def test_a_fork_while_the_lock_is_held_does_not_hang_the_child():
    assert run_script(FORK.replace("{held}", "True")) == "fine\n"


EXIT = """
import anyio
from tests.leases.kit import Client, hang, until
from tenure.clock import SYSTEM_CLOCK
from tenure.core.lease import lease_times
from tenure.leases.process import default_keeper
from tenure.leases.lease import Lease

client = Client(hang)
lease = Lease("j1", 1, "me", lease_times(30), sent_at=SYSTEM_CLOCK.monotonic())
default_keeper().register(client, [lease])
default_keeper().nudge(["j1"])
until(lambda: client.flying)
print("fine")
"""


def test_the_keeper_does_not_keep_the_interpreter():
    assert run_script(EXIT) == "fine\n"
