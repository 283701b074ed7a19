"""Unknown tasks: a worker takes what it cannot run, or runs what it should never have known."""

from __future__ import annotations

import os
import pickle
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tenure import JobFailed, QueueService
from tenure.core.job import NewJob
from tenure.core.states import State
from tests.worker.kit import House
from tests.worker.puppet import Strings

pytestmark = pytest.mark.anyio


async def a() -> str:
    return "a"


async def b() -> str:
    return "b"


async def test_in_a_rolling_deploy_the_old_worker_leaves_the_new_tasks_alone(
    moved: tuple[House, Strings],
):
    old, strings = moved
    new = House(old.engine)
    old.task(a)
    task = new.task(b, max_attempts=1)
    async with old.working(poll_max=0.05):
        first = [await new.put(task) for _ in range(50)]
        before = strings.calls["claim"]
        known = await old.put(old.tasks.get("a"))
        await old.ended(known)  # it has looked since, past all of those
        async with new.working() as worker:
            jobs = await new.ended(*first)
            assert {job.owner for job in jobs} == {worker.id}
            jobs += await new.ended(*[await new.put(task) for _ in range(150)])
        late = [await new.put(task) for _ in range(10)]
        await old.ended(await old.put(old.tasks.get("a")))
        waiting = [await new.job(job_id) for job_id in late]
        assert strings.calls["claim"] - before < 1000
    assert {(job.state, job.claims, job.attempt) for job in jobs} == {(State.COMPLETED, 1, 1)}
    assert {(job.state, job.claims, job.row.failures) for job in waiting} == {(State.PENDING, 0, 0)}
    assert (await new.engine.stats())[0].pending == 10
    async with new.working():
        jobs = await new.ended(*late)
    assert {(job.result, job.attempt) for job in jobs} == {("b", 1)}
    new.keeper.close()


NAMES = [
    "os.system",
    "os:system",
    "builtins.eval",
    "__import__",
    "tests.worker.kit.until",
    "a.__x__",
]


@pytest.mark.parametrize("name", NAMES)
async def test_a_name_from_the_store_is_looked_up_and_never_imported(house: House, name: str):
    house.task(a)
    payload = b'{"command": "touch /tmp/never"}'
    await house.engine.insert([NewJob(id="raw", task=name, payload=payload)])
    await house.burst()
    job = await house.job("raw")
    assert (job.state, job.claims) == (State.PENDING, 0)


@pytest.mark.parametrize("tag", ["py/object", "__class__", "__reduce__", "$type", "@type"])
async def test_a_type_in_the_payload_is_a_word_like_any_other(house: House, tag: str):
    async def plain(value: dict[str, Any]) -> Any:
        return value

    async def strict(value: int) -> Any:
        return value

    value = {tag: "os.system", "args": ["true"]}
    ids = [await house.put(house.task(plain), value)]
    payload = b'{"value": {"' + tag.encode() + b'": "builtins.int"}}'
    house.task(strict)
    await house.engine.insert([NewJob(id="raw", task="strict", payload=payload)])
    await house.burst()
    assert (await house.job(ids[0])).result == value
    job = await house.job("raw")
    assert job.error is not None
    assert "Expected `int`, got `object`" in job.error.message


class Bomb:
    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __reduce__(self) -> Any:
        return os.mkdir, (self._path,)


@pytest.mark.parametrize("codec", ["json", "pickle", "yaml", "zlib", "", "json+zlib"])
async def test_only_the_one_encoding_is_read_whatever_the_record_says(
    house: House, tmp_path: Path, codec: str
):
    path = tmp_path / "exploded"
    house.task(a)
    payload = pickle.dumps(Bomb(path))
    await house.engine.insert([NewJob(id="raw", task="a", payload=payload, codec=codec)])
    good = await house.put(house.tasks.get("a"))
    await house.burst()
    job = await house.job("raw")
    assert job.error is not None
    assert (job.state, job.error.kind) == (State.FAILED, "PayloadError")
    assert (await house.job(good)).result == "a"
    assert not path.exists()


@pytest.mark.parametrize("kind", ["os.system", "subprocess.Popen", "builtins.exec", "SystemExit"])
async def test_an_error_in_the_store_is_told_and_never_made_again(tmp_path: Path, kind: str):
    """Whoever asks for the result gets our own exception, with the stored words in it."""
    jobs = QueueService(f"sqlite:///{tmp_path}/jobs.db")

    @jobs.task
    async def fails() -> None:
        raise ValueError("plain")

    async with jobs:
        handle = await jobs.enqueue(fails)
        await jobs.worker(burst=True).run()
        store = sqlite3.connect(tmp_path / "jobs.db")
        text = f'{{"kind": "{kind}", "message": "touch here", "attempt": 1, "at": 1}}'
        store.execute("UPDATE jobs SET error = ?", (text,))
        store.commit()
        store.close()
        with pytest.raises(JobFailed, match="touch here") as failure:
            await handle.result(0)
    assert type(failure.value) is JobFailed
    assert failure.value.__cause__ is None
    assert failure.value.job.error is not None
    assert failure.value.job.error.kind == kind
