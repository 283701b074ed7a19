"""What a worker tells: once each, and never at the cost of a job."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from tenure import Cancel, JobContext, Snooze
from tenure.core.states import State
from tests.worker.kit import House, endless, made, until

pytestmark = pytest.mark.anyio


def raising(error: Exception):
    def act():
        raise error

    return act


ENDS = [
    ("completed", lambda: 1, {}, logging.INFO),
    ("failed", raising(ValueError("broken")), {}, logging.ERROR),
    ("retrying", raising(ValueError("broken")), {"max_attempts": 3}, logging.WARNING),
    ("snoozed", raising(Snooze(60)), {}, logging.INFO),
    ("cancelled", raising(Cancel("no")), {}, logging.INFO),
]


@pytest.mark.parametrize(("name", "act", "options", "level"), ENDS, ids=[e[0] for e in ENDS])
async def test_each_end_is_told_once(
    house: House, caplog: pytest.LogCaptureFixture, name: str, act, options, level: int
):
    caplog.set_level(logging.DEBUG, "tenure.worker")
    task = house.task(made("async", "body", act), **options)
    job_id = await house.put(task, retry=None)
    await house.burst(log_success=True)
    assert Counter(house.names(job_id)) == {"job.started": 1, f"job.{name}": 1}
    [record] = [r for r in caplog.records if r.name == "tenure.worker"]
    assert record.levelno == level
    assert record.message.startswith(f"job {job_id} (body) {name}, attempt 1 of ")
    job = await house.job(job_id)
    extra = record.__dict__
    assert (extra["job_id"], extra["task"], extra["queue"]) == (job_id, "body", "default")
    assert (extra["attempt"], extra["max_attempts"]) == (1, job.max_attempts)
    assert (extra["token"], extra["state"]) == (job.token, str(job.state))


async def test_success_is_silent_unless_asked_for(house: House, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, "tenure.worker")
    await house.put(house.task(made("async", "body", lambda: 1)))
    await house.burst()
    assert not [r for r in caplog.records if r.name == "tenure.worker"]


async def test_a_release_and_a_loss_are_told_once(house: House, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, "tenure.worker")
    entered: list[JobContext] = []
    task = house.task(endless("async", "body", entered))
    released, lost = [await house.put(task) for _ in range(2)]
    async with house.working():
        await until(lambda: len(entered) == 2)
        await house.engine.cancel([lost], force=True)
        await until(lambda: "job.lease_lost" in house.names(lost))
    told = {"released": Counter(house.names(released)), "lost": Counter(house.names(lost))}
    assert told["released"] == {"job.started": 1, "job.released": 1}
    assert told["lost"] == {"job.started": 1, "job.lease_lost": 1}
    levels = Counter(
        (r.__dict__["job_id"], r.levelno) for r in caplog.records if r.name == "tenure.worker"
    )
    assert levels == {(released, logging.INFO): 1, (lost, logging.WARNING): 1}


@pytest.mark.parametrize(("name", "act", "options", "level"), ENDS, ids=[e[0] for e in ENDS])
async def test_hooks_that_raise_change_no_outcome(
    house: House, name: str, act, options, level: int
):
    def broken(happening: object) -> None:
        raise RuntimeError("a hook")

    house.hooks.add(broken)
    job_id = await house.put(house.task(made("def", "body", act), **options), retry=None)
    await house.burst()
    job = await house.job(job_id)
    expected = {"retrying": State.PENDING, "snoozed": State.PENDING}.get(name) or State(name)
    assert (job.state, job.claims) == (expected, 1)
    assert house.hooks.failures == 2


async def test_a_log_filter_that_raises_changes_no_outcome(
    house: House, capsys: pytest.CaptureFixture[str]
):
    def broken(record: logging.LogRecord) -> bool:
        raise RuntimeError("a filter")

    log = logging.getLogger("tenure.worker")
    log.addFilter(broken)
    try:
        job_id = await house.put(house.task(made("async", "body", raising(ValueError("broken")))))
        await house.burst()
    finally:
        log.removeFilter(broken)
    job = await house.job(job_id)
    assert job.error is not None
    assert (job.state, job.error.message) == (State.FAILED, "broken")
    assert "RuntimeError: a filter" in capsys.readouterr().err


async def test_errors_that_no_terminal_shows_are_logged_readably(
    house: House, caplog: pytest.LogCaptureFixture
):
    await house.put(house.task(made("def", "body", raising(ValueError("\ud800 \0")))))
    await house.burst()
    [record] = [r for r in caplog.records if r.name == "tenure.worker"]
    record.message.encode()
    assert "\\ud800 \\x00" in record.message
