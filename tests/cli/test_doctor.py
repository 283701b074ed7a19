"""`tenure doctor`."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from tenure.core.fleet import Finding
from tenure.engines.sqlite import health


def execute(tenure, statement: str) -> None:
    with closing(sqlite3.connect(tenure.folder / "jobs.db")) as connection, connection:
        connection.execute(statement)


def codes(found) -> set[str]:
    return {finding["code"] for finding in found["findings"]} - {"sqlite-old"}


def test_a_healthy_store(tenure):
    tenure.enqueue("add", "1")
    result = tenure("doctor", "app:jobs", "--thorough")
    assert "problem" not in result.stdout
    assert f"{tenure.url}: no problems" in result.stderr
    found = tenure.json("doctor", "app:jobs")
    assert (found["problems"], codes(found)) == (0, set())
    assert found["tasks"] == {"add": 1}
    assert found["store"] == tenure.url


def test_hints_are_no_failure(tenure):
    tenure.enqueue("add", "1")
    execute(tenure, "UPDATE jobs SET task = 'gone'")
    execute(tenure, "INSERT INTO queues (queue, paused) VALUES ('mail', 1)")
    found = tenure.json("doctor", "app:jobs")
    assert codes(found) == {"task-unknown", "queue-paused"}
    shown = tenure("doctor", "app:jobs").stdout
    assert "hint: 1 jobs have tasks that this app does not know: gone [task-unknown]\n    " in shown
    # A URL knows no tasks, so it cannot tell.
    assert codes(tenure.json("doctor", tenure.url)) == {"queue-paused"}


def test_problems_are(tenure):
    job_id = tenure.enqueue("add", "1")
    execute(tenure, "UPDATE jobs SET state = 'lost\x1b[31m'")
    found = tenure.json("doctor", "app:jobs", code=1)
    assert (found["problems"], codes(found)) == (1, {"job-without-state"})
    shown = tenure("doctor", "app:jobs", code=1)
    assert "problem: 1 jobs have a state that does not exist" in shown.stdout
    assert job_id in shown.stdout
    assert ": 1 problem, " in shown.stderr


def test_damage_is_found_by_reading_everything(tenure, monkeypatch):
    async def check(place):
        return [Finding("file-damaged", f"{place.path} is damaged", "restore a backup")]

    monkeypatch.setattr(health, "check", check)
    tenure.enqueue("add", "1")
    assert codes(tenure.json("doctor", "app:jobs")) == set()
    assert codes(tenure.json("doctor", "app:jobs", "--thorough", code=1)) == {"file-damaged"}


def test_what_is_not_there(tenure):
    assert "there is no" in tenure("doctor", "sqlite:///none.db", code=4).stderr
    tenure("doctor", "memory://", code=2)
