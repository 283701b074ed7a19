"""Services in processes of their own: importing, leaving without closing, forking."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HEAD = """
import asyncio, os, sys, threading
from tenure import QueueService, task
URL = sys.argv[1]

@task
async def work(n: int = 0) -> int:
    return n

jobs = QueueService(URL, tasks=[work])
"""

FORK = """
def child(body):
    "The exit code of a forked child that does this."
    pid = os.fork()
    if pid == 0:
        try:
            body()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def start(code: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-X", "dev", "-c", textwrap.dedent(code), url],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def script(code: str, url: str = "memory://", *, head: str = HEAD) -> str:
    """What a script prints. It must end well, in time, and with nothing to complain about."""
    process = start(head + textwrap.dedent(code), url)
    try:
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    # That a step took long says something about the machine only.
    said = [line for line in err.splitlines() if not line.startswith("Executing <")]
    assert (process.returncode, said) == (0, [])
    return out.strip()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def url(file: Path) -> str:
    return f"sqlite:///{file}"


def stored(file: Path) -> int:
    """How many jobs there are, in a file that was left complete."""
    left = {name.removeprefix(file.name) for name in os.listdir(file.parent)}
    assert left <= {"", "-gate", "-turn"}  # no -wal, no -shm
    connection = sqlite3.connect(file)
    [count] = connection.execute("SELECT count(*) FROM jobs").fetchone()
    connection.close()
    return int(count)


# Importing


def test_importing_starts_nothing_and_brings_little() -> None:
    code = """
    import sys, threading
    before = threading.active_count()
    import tenure
    assert threading.active_count() == before
    print(*sorted(set(sys.modules) & {"sqlite3", "trio", "tomllib", "multiprocessing", "click",
        "rich", "cronsim", "anyio._backends._asyncio", "tenure.sync", "tenure.engines.sqlite"}))
    """
    assert script(code, head="") == ""


# Leaving without closing

LEAVING = {
    "the sync face": "jobs.sync.enqueue(work)",
    "a loop that ended": "asyncio.run(jobs.enqueue(work))",
    "a loop, then the sync face": "asyncio.run(jobs.enqueue(work)); jobs.sync.find()",
    "a loop that stands still": """
        loop = asyncio.new_event_loop()
        loop.run_until_complete(jobs.enqueue(work))
        loop.close()
        """,
    "a service that is forgotten": """
        def use():
            QueueService(URL).sync.enqueue(work)
        use()
        import gc; gc.collect()
        """,
    "a failing script": """
        jobs.sync.enqueue(work)
        try:
            raise SystemExit(0)
        finally:
            pass
        """,
    "a waiting daemon thread": """
        handle = jobs.sync.enqueue(work)
        def wait():
            try:
                handle.wait()
            except ConnectionError:
                pass
        threading.Thread(target=wait, daemon=True).start()
        """,
    "a loop in a daemon thread": """
        ready = threading.Event()
        async def main():
            await jobs.enqueue(work)
            ready.set()
            await asyncio.Event().wait()
        def run():
            try:
                asyncio.run(main())
            except BaseException:
                pass
        threading.Thread(target=run, daemon=True).start()
        ready.wait()
        """,
    "trio": """
        import trio
        async def main():
            await jobs.enqueue(work)
        trio.run(main)
        """,
    "a worker": """
        async def main():
            handle = await jobs.enqueue(work, 3)
            await jobs.worker(burst=True).run()
            assert await handle.result(0) == 3
        asyncio.run(main())
        """,
}


@pytest.mark.parametrize("way", LEAVING)
def test_leaving_without_closing_leaves_a_complete_file(way: str, url: str, file: Path) -> None:
    script(LEAVING[way], url)
    assert stored(file) == 1


def test_leaving_after_a_failed_opening_is_quiet(tmp_path: Path) -> None:
    code = """
    try:
        jobs.sync.find()
    except ValueError as error:
        print(error)
    """
    assert "does not exist" in script(code, f"sqlite:///{tmp_path}/none/jobs.db")


def test_a_store_that_cannot_be_closed_does_not_hold_up_the_exit(url: str) -> None:
    code = """
    jobs.sync.open()
    async def fail(*exc):
        raise ConnectionError("away")
    real = jobs._life._engine.__aexit__
    jobs._life._engine.__aexit__ = fail
    import logging; logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
    """
    assert script(code, url) == f"WARNING {url} could not be closed at exit: away"


# Forking


def test_a_forked_child_opens_for_itself(url: str, file: Path) -> None:
    code = """
    jobs.sync.enqueue(work, 1)
    jobs.sync.close()
    engine = jobs._life.engine
    def use():
        assert len(jobs.sync.find()) >= 1
        jobs.sync.enqueue(work, 2)
        assert jobs._life.engine is not engine
        jobs.sync.close()
    for _ in range(3):
        assert child(use) == 0
    assert jobs._life.engine is engine
    jobs.sync.enqueue(work, 3)
    ids = [job.id for job in jobs.sync.find()]
    assert len(set(ids)) == 5
    """
    script(FORK + textwrap.dedent(code), url)
    assert stored(file) == 5


def test_a_child_is_not_held_up_by_the_parents_locks(url: str) -> None:
    code = """
    jobs.sync.open()
    jobs.sync.close()
    def use():
        jobs.sync.enqueue(work)
        jobs.sync.close()
    locks = jobs._home._lock, jobs._life.ids._lock, jobs._life._engine._lock
    for lock in locks:
        lock.acquire()
    jobs._home._steady.clear()
    assert child(use) == 0
    for lock in locks:
        lock.release()
    jobs._home._steady.set()
    """
    script(FORK + textwrap.dedent(code), url)


def test_a_child_may_leave_as_a_script_does(url: str) -> None:
    code = """
    jobs.sync.enqueue(work)
    jobs.sync.close()
    for use in (False, True):
        jobs._home._lock.acquire()  # the child's copy will never be let go
        pid = os.fork()
        if pid == 0:
            if use:
                jobs.sync.enqueue(work)
            sys.exit(0)
        jobs._home._lock.release()
        assert os.waitpid(pid, 0)[1] == 0
    print(len(jobs.sync.find()))
    """
    assert script(code, url) == "2"


def test_a_child_is_refused_a_file_that_its_parent_has_open(url: str, file: Path) -> None:
    """SQLite does not survive a fork, so the child is told, and the parent goes on unharmed."""
    code = """
    async def main():
        handle = await jobs.enqueue(work, 1)
        waiting = asyncio.create_task(handle.wait())
        await asyncio.sleep(0)
        def use():
            try:
                asyncio.run(jobs.enqueue(work, 2))
            except ConnectionError as error:
                assert "open it after forking only" in str(error), error
            else:
                raise AssertionError("not refused")
        assert child(use) == 0
        assert len(await jobs.find()) == 1
        await jobs.cancel(handle.id)
        assert (await waiting).state == "cancelled"
    asyncio.run(main())
    """
    script(FORK + textwrap.dedent(code), url)
    assert stored(file) == 1


def test_a_worker_may_run_in_a_child(url: str) -> None:
    code = """
    handle = jobs.sync.enqueue(work, 7)
    jobs.sync.close()
    assert child(lambda: asyncio.run(jobs.worker(burst=True).run())) == 0
    print(handle.result(timeout=10))
    """
    assert script(FORK + textwrap.dedent(code), url) == "7"


def test_a_process_pool_that_forks(url: str) -> None:
    code = """
    import multiprocessing
    jobs.sync.enqueue(work)
    jobs.sync.close()
    def use(n):
        return jobs.sync.enqueue(work, n).id
    with multiprocessing.get_context("fork").Pool(3) as pool:
        ids = pool.map(use, range(30))
        pool.close()
        pool.join()
    print(len(set(ids)), len(jobs.sync.find()))
    """
    assert script(code, url) == "30 31"
