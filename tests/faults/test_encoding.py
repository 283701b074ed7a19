"""Encoding: text that no store or terminal takes, in a place where nobody expects it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tenure import INJECTED, Job, JobContext, QueueService
from tenure.core.states import State
from tenure.errors import TenureError
from tests.faults.scripts import surroundings

pytestmark = pytest.mark.anyio

TEXTS = {
    "nul": "a\x00b",
    "surrogate": "a\udce4b",
    "noncharacter": "a\uffffb",
    "separator": "a\u2028b",
    "escape": "a\x1b[2Jb",
    "direction": "a\u202eb",
    "astral": "a\U0001f600b",
}
UNSTORABLE = {"nul", "surrogate"}


def storable(text: str) -> bool:
    return text not in {TEXTS[name] for name in UNSTORABLE}


async def quick() -> str:
    return "fine"


async def ends_beside_a_good_one(jobs: QueueService, body: Any, *arguments: str) -> Job:
    """The job, once it has ended and so has one that came after it."""
    bad, good = await jobs.enqueue(body, *arguments), await jobs.enqueue("quick")
    await jobs.worker(burst=True, concurrency=1).run()
    assert await good.result(0) == "fine"
    return await bad.wait(0)


def fail(place: str, text: str) -> None:
    """Raise an exception with this text in that place."""
    if place == "message":
        raise ValueError(text)
    if place == "class":
        raise type(text.replace("\x00", "0").replace("\udce4", "x"), (ValueError,), {})(text)
    error = KeyError({text: text}) if place == "key" else ValueError("plain")
    if place == "note":
        error.add_note(text)
    if place == "cause":
        raise error from OSError(2, text, text)
    if place == "group":
        raise ExceptionGroup(text, [error, OSError(text)])
    raise error


@pytest.mark.parametrize("place", ["message", "class", "note", "cause", "group", "key"])
async def test_awkward_text_in_an_error_keeps_no_job_from_ending(
    jobs: QueueService, kind: str, place: str
):
    async def on_loop(name: str) -> None:
        fail(place, TEXTS[name])

    def in_thread(name: str) -> None:
        fail(place, TEXTS[name])

    jobs.task(quick)
    task = jobs.task(on_loop if kind == "async" else in_thread)
    for name in TEXTS:
        job = await ends_beside_a_good_one(jobs, task, name)
        assert job.state is State.FAILED
        assert job.error is not None
        shown = f"{job.error.kind} {job.error.message} {job.error.traceback}"
        shown.encode("utf-8")
        assert "\x00" not in shown
        assert "b" in shown


async def test_awkward_text_in_progress_and_result_keeps_no_job_from_ending(jobs: QueueService):
    @jobs.task
    async def body(name: str, *, ctx: JobContext = INJECTED) -> dict[str, list[str]]:
        ctx.progress(1, 2, TEXTS[name])
        return {"out": [TEXTS[name]]}

    jobs.task(quick)
    for name, text in TEXTS.items():
        job = await ends_beside_a_good_one(jobs, body, name)
        if storable(text):
            assert job.result == {"out": [text]}
        else:
            assert job.error is not None
            assert (job.state, job.error.kind) == (State.FAILED, "PayloadError")
            assert "result" in job.error.message
            job.error.message.encode("utf-8")


async def test_arguments_come_back_exactly_or_are_refused_where_they_are_given(
    jobs: QueueService,
):
    @jobs.task
    async def echo(value: Any) -> Any:
        return value

    for text in TEXTS.values():
        for value in (text, [text], {text: 1}, {"a": {text: [text]}}):
            if storable(text):
                handle = await jobs.enqueue(echo, value)
                await jobs.worker(burst=True).run()
                assert await handle.result(0) == value
            else:
                before = len(await jobs.find())
                with pytest.raises(TenureError, match="value"):
                    await jobs.enqueue(echo, value)
                assert len(await jobs.find()) == before


@pytest.mark.parametrize("option", ["name", "queue", "tags", "description", "metadata"])
@pytest.mark.parametrize("name", sorted(UNSTORABLE))
async def test_names_and_texts_of_a_task_are_checked_alike(
    jobs: QueueService, option: str, name: str
):
    value: Any = {"tags": [TEXTS[name]], "metadata": {TEXTS[name]: 1}}.get(option, TEXTS[name])
    with pytest.raises(TenureError) as refusal:
        jobs.task(**{option: value})(quick)
    text = str(refusal.value)
    text.encode("utf-8")
    assert option in text
    assert "\x00" not in text


async def test_a_file_name_that_is_no_text_is_refused_or_comes_back(
    jobs: QueueService, tmp_path: Path
):
    with open(os.path.join(os.fsencode(tmp_path), b"caf\xe9"), "w"):
        pass
    [name] = [name for name in os.listdir(tmp_path) if name.startswith("caf")]

    @jobs.task
    async def read(name: str) -> str:
        return name

    with pytest.raises(TenureError) as refusal:
        await jobs.enqueue(read, name)
    str(refusal.value).encode("utf-8")

    async def fails() -> None:
        raise FileNotFoundError(2, "No such file", name)

    jobs.task(quick)
    job = await ends_beside_a_good_one(jobs, jobs.task(fails))
    assert job.error is not None
    assert "caf\\udce9" in job.error.message


def test_a_terminal_of_another_age_shows_the_job_all_the_same(tenure):
    job_id = tenure.enqueue("fail", "text=grün \u202e \U0001f600")
    poor = surroundings(LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="latin-1:strict")
    for command in (["worker", "app:jobs", "--burst"], ["job", "show", tenure.url, job_id]):
        done = subprocess.run(
            [sys.executable, "-m", "tenure", *command],
            cwd=tenure.folder,
            env=poor,
            capture_output=True,
            timeout=30,
        )
        said = (done.stdout + done.stderr).decode("latin-1")
        assert (done.returncode, "grün \\u202e \\U0001f600" in said) == (0, True), said
        assert "UnicodeEncodeError" not in said
    assert tenure.job(job_id)["state"] == "failed"
