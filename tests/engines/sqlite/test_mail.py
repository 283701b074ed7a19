"""Being told at once by other processes. No test here is helped by looking at the file."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tenure import QueueService
from tenure.core import rules
from tenure.core.fleet import QueueChange
from tenure.core.outcomes import Completed
from tenure.engines.protocol import Claim, Signal, Topic
from tenure.engines.sqlite import SQLiteEngine
from tenure.engines.sqlite.mail import LARGEST_MAIL, Address, Post
from tenure.engines.sqlite.watch import Watch
from tests.engines.sqlite.conftest import make_job

pytestmark = pytest.mark.anyio

QUEUE = Signal(Topic.QUEUE, "default")
ALL = (Topic.QUEUE, Topic.DONE, Topic.CANCEL)

INSERT = """
import asyncio, sys
from tenure.core.job import NewJob
from tenure.engines.sqlite import SQLiteEngine

async def main(path, *ids):
    async with SQLiteEngine(path) as engine:
        for job_id in ids:
            await engine.insert([NewJob(id=job_id, task="t")])

asyncio.run(main(*sys.argv[1:]))
"""

LISTEN = """
import asyncio, sys
from tenure.engines.protocol import Topic
from tenure.engines.sqlite import SQLiteEngine

async def main(path):
    async with SQLiteEngine(path) as engine, engine.listen({Topic.QUEUE}):
        print("listening", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(sys.argv[1]))
"""

ENQUEUE = """
import sys
from tenure import QueueService, TaskRef

with QueueService(sys.argv[1]).sync as jobs:
    jobs.enqueue(TaskRef("hello"))
"""


@pytest.fixture(autouse=True)
def no_looking(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Watch, "look", lambda self, connection: None)


class Box:
    """Notes all the mail that one listener gets."""

    def __init__(self) -> None:
        self.signals: list[Signal] = []
        self._came = asyncio.Event()

    def receive(self, signals: Iterable[Signal]) -> None:
        self.signals += signals
        self._came.set()

    async def until(self, number: int) -> list[Signal]:
        async with asyncio.timeout(10):
            while len(self.signals) < number:
                self._came.clear()
                await self._came.wait()
        return self.signals


@pytest.fixture
def open_box(path: str):
    """Opens a mailbox, as of another process."""
    with ExitStack() as stack:

        def open_box(topics: Iterable[Topic] = ALL, queues: Iterable[str] | None = None) -> Box:
            box = Box()
            stack.enter_context(Post(path).mailbox(topics, queues, box.receive))
            return box

        yield open_box


async def test_what_another_process_writes_is_heard_by_mail(
    path: str, engine: SQLiteEngine, python
):
    async with engine.listen({Topic.QUEUE}) as listener:
        other = python(INSERT, path, "a")
        assert await listener.wait(20) == {QUEUE}
        assert await asyncio.to_thread(other.wait) == 0


async def test_an_idle_worker_is_woken(path: str, python):
    jobs = QueueService(f"sqlite:///{path}")
    started = asyncio.Event()

    @jobs.task
    async def hello() -> None:
        started.set()

    async with jobs:
        worker = jobs.worker(poll_max=3600)
        idle = asyncio.Event()
        pause = worker._poller._pause

        async def paused(free: int) -> None:
            if worker._poller._wait >= 10:
                idle.set()
            await pause(free)

        worker._poller._pause = paused  # type: ignore[method-assign]
        worker._poller._wait = 3600.0
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(20):
            await idle.wait()
            await asyncio.to_thread(wait_for_mailbox, path)
            python(ENQUEUE, jobs.url)
            await started.wait()
        worker.stop()
        await running


async def test_every_kind_of_change_is_told(path: str, engine: SQLiteEngine, open_box):
    box = open_box()
    await engine.insert([make_job(id="a"), make_job(id="b", delay=3_600_000_000)])
    assert await box.until(1) == [QUEUE]
    [row] = await engine.claim(Claim(owner="w", limit=1, lease=10**8))
    await engine.cancel(["a"])
    assert (await box.until(2))[1:] == [Signal(Topic.CANCEL, "a")]
    await engine.settle([rules.decide(row, Completed(), now=row.started_at or 0)])
    assert (await box.until(3))[2:] == [Signal(Topic.DONE, "a")]
    await engine.configure(QueueChange("default", paused=False))
    await engine.notify([Signal(Topic.DONE, "x"), Signal(Topic.ANY)])
    assert (await box.until(6))[3:] == [QUEUE, Signal(Topic.DONE, "x"), Signal(Topic.ANY)]


async def test_a_side_and_its_engine_need_no_mail(engine: SQLiteEngine):
    async with engine.listen({Topic.QUEUE}) as listener, engine.side() as side:
        heard: list[Signal] = []
        publish = engine._exchange.hub.publish

        def noting(signals: Iterable[Signal]) -> None:
            heard.extend(signals)
            publish(signals)

        engine._exchange.hub.publish = noting  # type: ignore[method-assign]
        await side.insert([make_job()])
        await engine.insert([make_job()])
        assert await listener.wait(10) == {QUEUE}
        assert heard == [QUEUE, QUEUE]
        assert engine._exchange._post.others() == []


async def test_one_job_wakes_one_and_more_wake_all(engine: SQLiteEngine, open_box):
    boxes = [open_box() for _ in range(3)]
    for _ in range(3):
        await engine.insert([make_job()])
    for box in boxes:
        assert await box.until(1) == [QUEUE]
    await engine.insert([make_job(), make_job()])
    for box in boxes:
        assert await box.until(2) == [QUEUE] * 2


async def test_jobs_of_one_commit_wake_all(engine: SQLiteEngine, open_box):
    boxes = [open_box() for _ in range(2)]
    release = asyncio.Event()
    loop = asyncio.get_running_loop()
    # While the writer is held up, the calls behind it gather into one group.
    held = engine._write("hold", lambda tx, at: run_until(loop, release), None, 1)
    calls = [asyncio.ensure_future(engine.insert([make_job()])) for _ in range(2)]
    holding = asyncio.ensure_future(held)
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(holding, *calls)
    for box in boxes:
        assert await box.until(1) == [QUEUE]


def run_until(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    asyncio.run_coroutine_threadsafe(event.wait(), loop).result(10)


async def test_nobody_is_woken_for_what_he_does_not_want(engine: SQLiteEngine, open_box):
    queues = {f"q{n}" for n in range(100)}
    mine = {queue for queue in queues if bit(queue) != bit("default")}
    waiting, elsewhere = open_box({Topic.DONE}), open_box({Topic.QUEUE}, mine)
    serving = open_box({Topic.QUEUE, Topic.CANCEL}, ["other", "default"])
    for n in range(1, 7):
        await engine.insert([make_job(id=f"{n}")])
        await serving.until(n)  # each time, whoever's turn it is
    await engine.cancel(["1"])
    assert await waiting.until(1) == [Signal(Topic.DONE, "1")]
    assert elsewhere.signals == []
    assert serving.signals == [QUEUE] * 6


def bit(queue: str) -> int:
    return Address.make([Topic.QUEUE], [queue]).queues


async def test_a_killed_listener_is_forgotten(path: str, engine: SQLiteEngine, open_box, python):
    box = open_box()
    process = python(LISTEN, path)
    assert process.stdout.readline() == "listening\n"
    assert len(mailboxes(path)) == 2
    process.kill()
    process.wait()
    for n in range(2):
        await engine.insert([make_job()])
        await box.until(n + 1)  # even where it was the turn of the other one
    assert len(mailboxes(path)) == 1


async def test_one_that_stands_still_keeps_nobody_from_hearing(path: str, engine, open_box):
    still = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    os.makedirs(f"{path}-wake")
    still.bind(f"{path}-wake/{Address.make(ALL, None).name}")
    box = open_box()
    ids = [f"{n:036}" for n in range(150)]
    signals = [Signal(Topic.DONE, job_id) for job_id in ids]
    post = Post(path)
    for n in range(1, 600):
        post.send(post.others(), signals, one=False)
        assert len(await box.until(n * len(ids))) == n * len(ids)
    post.close()
    still.close()


async def test_long_mail_says_only_that_something_happened(path: str, open_box):
    box, post = open_box(), Post(path)
    many = [Signal(Topic.DONE, f"{n:036}") for n in range(LARGEST_MAIL // 36)]
    post.send(post.others(), many, one=False)
    assert await box.until(1) == [Signal(Topic.ANY)]
    post.close()


async def test_strange_mail_and_strange_files_do_no_harm(path: str, engine, open_box):
    box = open_box()
    [name] = mailboxes(path)
    leave_notes(f"{path}-wake/notes.txt")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        for sent in (b"", b"\x00\xff", b'[["nonsense","x"]]'):
            stranger.sendto(sent, f"{path}-wake/{name}")
    assert await box.until(3) == [Signal(Topic.ANY)] * 3
    await engine.insert([make_job()])
    assert (await box.until(4))[3:] == [QUEUE]
    os.unlink(f"{path}-wake/notes.txt")


def leave_notes(path: str) -> None:
    Path(path).write_text("not a mailbox")


async def test_a_long_path(tmp_path: Path):
    folder = tmp_path / ("x" * 100) / ("y" * 100)
    folder.mkdir(parents=True)
    async with SQLiteEngine(folder / "jobs.db") as one, SQLiteEngine(folder / "jobs.db") as other:
        assert one.traits.push
        async with one.listen({Topic.QUEUE}) as listener:
            await other.insert([make_job()])
            assert await listener.wait(10) == {QUEUE}
    assert not any(name.endswith("-wake") for name in os.listdir(folder))


async def test_nothing_is_left_when_nobody_listens(path: str, engine: SQLiteEngine):
    async with engine.listen({Topic.QUEUE}), engine.listen({Topic.DONE}):
        assert len(mailboxes(path)) == 2
    assert "jobs.db-wake" not in os.listdir(os.path.dirname(path))


async def test_a_forked_child_takes_no_mailbox_away(path: str, engine: SQLiteEngine):
    async with engine.listen({Topic.QUEUE}) as listener, SQLiteEngine(path) as other:
        child = os.fork()
        if child == 0:
            os._exit(0 if reaches_nobody(listener) else 1)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert status == 0
        await other.insert([make_job()])
        assert await listener.wait(10) == {QUEUE}


def reaches_nobody(listener: object) -> bool:
    """Whether this process has no descriptor of a mailbox open."""
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(descriptor))) as found:
                if "-wake" in str(found.getsockname()):
                    return False
        except OSError:
            continue
    return True


async def test_without_such_sockets_all_goes_on(path: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(socket, "AF_UNIX")
    async with SQLiteEngine(path) as engine:
        assert not engine.traits.push
        async with engine.listen({Topic.QUEUE}) as listener:
            await engine.insert([make_job()])
            assert await listener.wait(10) == {QUEUE}
        assert "jobs.db-wake" not in os.listdir(os.path.dirname(path))


@pytest.mark.parametrize("refused", ["mkdir", "rename"])
async def test_a_folder_that_takes_no_sockets(
    path: str, engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch, refused: str
):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(refused)

    monkeypatch.setattr(os, refused, refuse)
    async with engine.listen({Topic.QUEUE}) as listener:
        await engine.insert([make_job()])
        assert await listener.wait(10) == {QUEUE}


async def test_mailboxes_are_found_however_quickly_they_come(path: str):
    """The time of change of a folder has a coarse grain."""
    post, boxes = Post(path), ExitStack()
    with boxes:
        for n in range(1, 20):
            boxes.enter_context(Post(path).mailbox(ALL, None, print))
            assert len(post.others()) == n


def mailboxes(path: str) -> list[str]:
    return [name for name in os.listdir(f"{path}-wake") if Address.parse(name)]


def wait_for_mailbox(path: str) -> None:
    while not (Path(f"{path}-wake").exists() and mailboxes(path)):
        time.sleep(0.01)
