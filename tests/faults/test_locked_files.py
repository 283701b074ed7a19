"""Locked files: several processes write to one file, and some are told that it is locked."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import until
from tests.faults.scripts import output, start

Scaled = Callable[[int, int], int]

WORK = """
import asyncio, os, sys, time
from tenure.clock import IdSource
from tenure.core.job import NewJob
from tenure.core.outcomes import Completed
from tenure.core.rules import decide
from tenure.engines.protocol import Claim
from tenure.engines.sqlite import SQLiteEngine

async def main(path, owner, count):
    new_id, ran = IdSource(), []
    async with SQLiteEngine(path, synchronous="normal") as engine:
        ready = os.path.join(os.path.dirname(path), f"ready-{owner}")
        open(ready, "w").close()
        while not os.path.exists(os.path.join(os.path.dirname(path), "go")):
            await asyncio.sleep(0.001)
        for _ in range(count):
            await engine.insert([NewJob(id=new_id(), task="t") for _ in range(2)])
            rows = await engine.claim(Claim(owner=owner, limit=3, lease=60_000_000))
            settlements = [decide(row, Completed(), now=time.time_ns() // 1000) for row in rows]
            answers = await engine.settle(settlements)
            assert {str(answer.verdict) for answer in answers} <= {"applied"}
            ran += [row.id for row in rows]
    print(*ran, sep="\\n")

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def test_many_writers_and_a_long_reader_meet_no_error(tmp_path: Path, scaled: Scaled):
    path, rounds = tmp_path / "jobs.db", scaled(150, 5000)
    go = tmp_path / "go"
    go.touch()
    ran = output(start(WORK, str(path), "first", "1", cwd=tmp_path)).split()
    go.unlink()
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")  # a snapshot that is held all the time
    [before] = reader.execute("SELECT count(*) FROM jobs").fetchone()
    processes = [
        start(WORK, str(path), f"w{n}", str(rounds), cwd=tmp_path) for n in range(scaled(4, 8))
    ]
    until(lambda: len(list(tmp_path.glob("ready-w*"))) == len(processes))
    go.touch()
    for process in processes:
        ran += output(process, scaled(50, 600)).split()
    assert reader.execute("SELECT count(*) FROM jobs").fetchone() == (before,)
    reader.execute("COMMIT")
    [total] = reader.execute("SELECT count(*) FROM jobs").fetchone()
    [running] = reader.execute("SELECT count(*) FROM jobs WHERE state = 'running'").fetchone()
    reader.close()
    assert total == 2 * rounds * len(processes) + before
    assert running == 0
    assert len(ran) == len(set(ran))
