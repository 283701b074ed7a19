"""The demo from beginning to end."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tenure.core.job import Job
from tenure.core.query import PAGE_MAX
from tenure.demo import report
from tenure.demo.check import PlainCheck
from tenure.demo.kill import Kill, strike
from tenure.demo.measure import attempt
from tenure.demo.report import Report
from tenure.demo.screen import Screen
from tenure.demo.tasks import measure_file
from tenure.demo.team import CONCURRENCY, LEASE_SECONDS, Team
from tenure.service import QueueService

WORKERS = 2
KILL_AT = 0.3
STALLED_SECONDS = 40.0
_LOOK_SECONDS = 0.1
_FEW_FILES_SECONDS = 3.0


class DemoFailed(Exception):
    """The demo cannot go on; the message says why."""


class Plan(msgspec.Struct, frozen=True):
    """What to do it with. `folder` takes logs and what else the demo writes."""

    files: Sequence[Path]
    url: str
    queue: str
    folder: Path


class Demo:
    """One run of the demo."""

    def __init__(self, plan: Plan, screen: Screen) -> None:
        self._plan = plan
        self._screen = screen
        self._service = QueueService(plan.url)
        self._check = PlainCheck(plan.files)
        self._total = 0
        self._killed: Kill | None = None

    async def run(self) -> Report:
        """Do it all. Raises `DemoFailed` if it comes to a standstill."""
        try:
            async with self._service:
                started = time.monotonic()
                await self._work()
                seconds = time.monotonic() - started
                await self._plainly()
                return report.make(
                    await self._all_jobs(),
                    self._check.answers,
                    place=(self._service.url, self._plan.queue),
                    killed=self._killed,
                    seconds=seconds,
                )
        finally:
            self._check.stop()

    async def _work(self) -> None:
        """Let the workers bring every job to its end."""
        await self._enqueue(self._plan.files)
        with Team(WORKERS, self._plan.url, self._plan.queue, self._plan.folder) as team:
            self._introduce(team)
            await self._watch(team)
            failed = await self._service.find(states=["failed"], queues=[self._plan.queue], limit=1)
            if not failed:
                await self._add_broken()
                await self._watch(team)

    async def _enqueue(self, files: Sequence[Path]) -> None:
        task = measure_file.options(queue=self._plan.queue)
        pause = _pause(len(self._plan.files))
        await self._service.enqueue_many([task.bind(path, pause) for path in files])
        self._total += len(files)

    def _introduce(self, team: Team) -> None:
        pids = " and ".join(str(member.pid) for member in team.members)
        self._screen.say(f"{self._total} jobs are enqueued in {self._service.url}")
        self._screen.say(f"the workers are processes {pids}, each with {CONCURRENCY} threads")
        if pause := _pause(self._total):
            self._screen.say(f"there are few files, so each job pauses for {pause:.2g} s")
        self._screen.begin("measuring files", self._total)

    async def _watch(self, team: Team) -> None:
        """Until every job is final; kill a worker on the way."""
        final, changed = -1, time.monotonic()
        while final < self._total:
            await asyncio.sleep(_LOOK_SECONDS)
            now_final = await self._final()
            if now_final != final:
                final, changed = now_final, time.monotonic()
            self._screen.at(final, self._total)
            self._check_progress(team, changed)
            if self._killed is None and KILL_AT * self._total <= final < self._total:
                await self._kill(team)

    async def _kill(self, team: Team) -> None:
        self._killed = killed = await strike(self._service, team, self._plan.queue)
        if killed is not None:
            self._check.start()  # one core has nothing to do now
            self._screen.say(
                f"killed worker {killed.worker} (process {killed.pid}, SIGKILL) in the middle of "
                f"{len(killed.held)} jobs; its leases run out within {LEASE_SECONDS} s"
            )

    def _check_progress(self, team: Team, changed: float) -> None:
        alive = [member for member in team.members if member.alive]
        killed = self._killed.worker if self._killed else None
        died = [m for m in team.members if not m.alive and m.number != killed]
        if died:
            raise DemoFailed(f"worker {died[0].number} ended by itself:\n{died[0].last_words()}")
        if time.monotonic() - changed > STALLED_SECONDS:
            words = alive[0].last_words() if alive else ""
            raise DemoFailed(f"nothing has moved for {STALLED_SECONDS:g} s:\n{words}")

    async def _final(self) -> int:
        [stats] = await self._service.queues.stats(self._plan.queue)
        return stats.completed + stats.failed + stats.cancelled + stats.expired

    async def _add_broken(self) -> None:
        """No file failed: add one that does, so that there is a failure to look at."""
        copy = self._plan.folder / "broken.py"
        if self._plan.files:
            shutil.copyfile(self._plan.files[0], copy)
        with copy.open("a", encoding="utf-8") as file:
            file.write("\ndef this_line_ends_too_early(:\n")
        self._screen.say(f"every file parses, so a broken copy of one is added: {copy}")
        await self._enqueue([copy])
        self._check.answers[copy] = attempt(copy)

    async def _all_jobs(self) -> list[Job]:
        jobs: list[Job] = []
        before: str | None = None
        while True:
            page = await self._service.find(
                queues=[self._plan.queue], limit=PAGE_MAX, before=before
            )
            jobs += page
            if len(page) < PAGE_MAX:
                return jobs
            before = page[-1].id

    async def _plainly(self) -> None:
        """Wait for the same numbers, computed without tenure."""
        total = len(self._plan.files)
        self._check.start()
        self._screen.begin("checking plainly", total, len(self._check.answers))
        while self._check.running:
            self._screen.at(len(self._check.answers), total)
            await asyncio.sleep(_LOOK_SECONDS)
        self._screen.at(len(self._check.answers), len(self._check.answers))


def _pause(files: int) -> float:
    """How long each job rests, so that few files last long enough for a kill in the middle."""
    slots = WORKERS * CONCURRENCY
    pause = min(1.0, _FEW_FILES_SECONDS * slots / max(files, 1))
    return pause if pause >= 0.1 else 0.0
