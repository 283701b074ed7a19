"""Secrets: a password or an argument turns up in a log, an error or a listing."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tenure import INJECTED, JobContext, QueueService, Snooze
from tenure.engines.open import open_engine
from tenure.errors import TenureError
from tests.worker.kit import SOON, House

pytestmark = pytest.mark.anyio

CANARY = "c4n4ry-p4ssw0rd"
URLS = [
    f"sqlite://user:{CANARY}@host/jobs.db",
    f"sqlite://user:{CANARY}@/jobs.db",
    f"sqlite:////nowhere/jobs.db?password={CANARY}",
    f"postgresql://user:{CANARY}@host:5432/db",
    f"postgres://user:{CANARY}@[::1/db",
    f"redis://:{CANARY}@host:notaport/0",
    f"rediss://default:{CANARY}@host/0?x=1#frag",
    f"postgresql://user:pa/ss{CANARY}@host/db",
    f"unknown://user:{CANARY}@host/path",
    f"user:{CANARY}@host/path",
    f"memory://user:{CANARY}@host",
]


@pytest.mark.parametrize("url", URLS)
def test_a_refused_url_is_told_without_its_secret(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """By argument, by environment and by project file."""
    monkeypatch.chdir(tmp_path)
    said = []
    with caplog.at_level(logging.DEBUG):
        for way in ("engine", "argument", "environment", "project"):
            try:
                if way == "engine":
                    said.append(repr(open_engine(url)))
                if way == "argument":
                    said.append(repr(QueueService(url)) + repr(QueueService(url).settings))
                if way == "environment":
                    monkeypatch.setenv("TENURE_URL", url)
                    said.append(repr(QueueService()))
                    monkeypatch.delenv("TENURE_URL")
                if way == "project":
                    Path("pyproject.toml").write_text(f"[tool.tenure]\nurl = '{url}'\n")
                    said.append(repr(QueueService()))
            except TenureError as error:
                seen: BaseException | None = error
                while seen is not None:
                    said.append(f"{seen} {seen!r} {seen.args}")
                    seen = seen.__cause__
                monkeypatch.delenv("TENURE_URL", raising=False)
    assert said
    assert CANARY not in "\n".join(said) + caplog.text


@pytest.mark.parametrize("url", [URLS[0], URLS[3]])
def test_no_command_shows_the_secret_of_a_url(tenure, url: str):
    (tenure.folder / "secret.py").write_text(
        f"from tenure import QueueService\njobs = QueueService({url!r})\njobs.task(print)\n"
    )
    processes: list[subprocess.Popen[str]] = [
        tenure.start("worker", "secret:jobs", "--burst", "--log-level", "debug", TENURE_URL=url),
        tenure.start("jobs", url),
        tenure.start("migrate", TENURE_URL=url),
    ]
    for process in processes:
        out, err = process.communicate(timeout=30)
        assert process.returncode != 0
        assert out + err != ""
        assert CANARY not in out + err


async def test_arguments_and_results_are_in_no_log_line_and_no_error(
    house: House, kind: str, caplog: pytest.LogCaptureFixture
):
    """Everything at the level of debugging, whatever becomes of the job."""

    def act(way: str, password: str, ctx: JobContext) -> str:
        ctx.progress(1)
        if way == "fail":
            raise ValueError("the reason, without the secret")
        if way == "snooze" and ctx.job.claims == 1:
            raise Snooze(0.01)
        if way == "unstorable":
            raise KeyError(object())
        return password

    async def on_loop(way: str, password: str, *, ctx: JobContext = INJECTED) -> str:
        if way == "timeout":
            await asyncio.sleep(60)
        return act(way, password, ctx)

    def in_thread(way: str, password: str, *, ctx: JobContext = INJECTED) -> str:
        while way == "timeout":
            ctx.check()
        return act(way, password, ctx)

    ways = ["succeed", "fail", "snooze", "timeout", "unstorable"]
    with caplog.at_level(logging.DEBUG):
        function = on_loop if kind == "async" else in_thread
        task = house.task(function, timeout=0.2, max_attempts=2, retry=SOON)
        ids = [await house.put(task, way, CANARY) for way in ways]
        strange = await house.put(task, "fail", CANARY, payload=_payload(way="fail", extra=1))
        missing = await house.put(task, "fail", CANARY, payload=_payload(other=2))
        lapsed = await house.put(task, "succeed", CANARY)
        [_] = await house.steal(ids=(lapsed,))
        await house.engine.sweep(10, now=4_000_000_000_000_000)
        async with house.working(log_success=True):
            jobs = await house.ended(*ids, strange, missing, lapsed)
    assert len(caplog.records) > 10
    # asyncio itself logs what it is asked to in its debug mode only.
    assert CANARY not in caplog.text
    assert not any(CANARY in str(vars(record)) for record in caplog.records)
    for job in jobs:
        assert CANARY not in repr(job.errors) + repr(job) + job.describe_end()
    told = [repr(dict(h.facts)) for h in house.told]
    assert CANARY not in "".join(told)


async def test_what_cannot_be_bound_or_read_is_told_without_its_value(jobs: QueueService):
    @jobs.task
    async def login(user: str, password: int) -> None:
        pass

    values: list[Any] = [CANARY, [CANARY], {CANARY}, object]
    for bad in values:
        with pytest.raises(TenureError, match="password") as refusal:
            await jobs.enqueue(login, "me", bad)
        assert CANARY not in str(refusal.value)


def test_lists_show_no_arguments(tenure):
    tenure.enqueue("hello", CANARY)
    assert CANARY not in tenure("jobs", tenure.url).output
    worker = tenure.start("worker", "app:jobs", "--burst", "--log-success", "--log-level", "debug")
    out, err = worker.communicate(timeout=30)
    assert worker.returncode == 0
    assert CANARY not in out + err


def _payload(**values: object) -> bytes:
    return json.dumps({"password": CANARY, **values}).encode()
