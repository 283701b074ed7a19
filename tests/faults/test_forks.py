"""Forks: a child inherits a lock that nobody will ever release, or the parent's connection."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.faults.scripts import run

Scaled = Callable[[int, int], int]

PREAMBLE = """
import logging, os, sys, threading, time, warnings
warnings.filterwarnings("ignore", category=DeprecationWarning)  # it is what is tested
from tenure import QueueService

jobs = QueueService(sys.argv[1])

@jobs.task
def work(n: int) -> int:
    return n

def child(use):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            use()
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(code)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise AssertionError("the child hangs")
"""

BUSY_PARENT = (
    PREAMBLE
    + """
# Not through a buffer of Python's, whose own lock does not survive a fork.
class Handler(logging.Handler):
    def emit(self, record):
        os.write(nowhere, self.format(record).encode())
nowhere = os.open(os.devnull, os.O_WRONLY)
logging.basicConfig(handlers=[Handler()], level=logging.DEBUG)
on = True
def chatter():
    log = logging.getLogger("tenure.worker")
    while on:
        log.warning("a line")
here = QueueService("memory://", tasks=[work])
here.sync.enqueue(work, 0)  # what is imported at first use is: no fork amid an import goes well
def produce():
    while on:
        here.sync.enqueue(work, 0)
targets = [chatter, chatter, produce, produce]
threads = [threading.Thread(target=target, daemon=True) for target in targets]
for thread in threads:
    thread.start()

def use():
    handle = jobs.sync.enqueue(work, 1)
    import asyncio
    asyncio.run(jobs.worker(burst=True).run())
    assert handle.result(0) == 1
    jobs.sync.close()
    # What the parent's threads use just now is inherited with whatever is locked in it.
    assert here.sync.enqueue(work, 2).job().state == "pending"
    here.sync.close()

for _ in range(int(sys.argv[2])):
    assert child(use) == 0
on = False
jobs.sync.open()
print(len(jobs.sync.find(limit=1000)))
"""
)

RENEWING_PARENT = (
    PREAMBLE
    + """
import asyncio

async def main():
    started = asyncio.Event()

    @jobs.task
    async def long() -> str:
        started.set()
        await asyncio.sleep(float(sys.argv[3]))
        return "done"

    handle = await jobs.enqueue(long)
    worker = jobs.worker(lease=1.0)
    running = asyncio.create_task(worker.run())
    await started.wait()

    async def elsewhere():
        # The keeper of the parent is renewing meanwhile; the child has one of its own.
        async with QueueService("memory://", tasks=[work]) as other:
            handle = await other.enqueue(work, 2)
            await other.worker(burst=True).run()
            assert await handle.result(0) == 2

    for _ in range(int(sys.argv[2])):
        assert await asyncio.to_thread(child, lambda: asyncio.run(elsewhere())) == 0
    assert await handle.result(10) == "done"
    job = await handle.job()
    assert (job.claims, job.lapses) == (1, 0), job
    worker.stop()
    await running
    await jobs.close()

asyncio.run(main())
print("done")
"""
)


def test_children_of_a_parent_whose_threads_log_all_the_time_never_hang(
    tmp_path: Path, scaled: Scaled
):
    rounds = scaled(8, 2000)
    url = f"sqlite:///{tmp_path}/jobs.db"
    printed = run(BUSY_PARENT, url, str(rounds), cwd=tmp_path, seconds=scaled(50, 3000))
    assert printed.strip() == str(min(rounds, 1000))


def test_a_worker_that_forks_keeps_its_leases_and_its_children_start_afresh(
    tmp_path: Path, scaled: Scaled
):
    """Through a lease and more, while its keeper renews."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    rounds, seconds = scaled(15, 500), scaled(2, 20)
    printed = run(RENEWING_PARENT, url, str(rounds), str(seconds), cwd=tmp_path, seconds=50)
    assert printed.strip() == "done"
