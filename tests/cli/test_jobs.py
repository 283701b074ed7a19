"""Looking at jobs, and acting on them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import until


def burst(tenure: Any) -> None:
    worker = tenure.start("worker", "app:jobs", "--burst")
    _, err = worker.communicate(timeout=30)
    assert worker.returncode == 0, err


def test_a_list(tenure):
    first = tenure.enqueue("add", "1")
    second = tenure.enqueue("fail", "text=one\ntwo \x1b[31mred [bold]x[/bold]")
    burst(tenure)
    lines = tenure("jobs", "app:jobs").stdout.splitlines()
    assert lines[0].split() == ["ID", "STATE", "TASK", "QUEUE", "ATTEMPT", "AGE", "ERROR"]
    assert [line.split()[0] for line in lines[1:]] == [second, first]
    assert "ValueError: one\\ntwo \\x1b[31mred [bold]x[/bold]" in lines[1]
    assert lines[2].split()[1:5] == ["completed", "add", "default", "1/1"]


def test_filters_and_pages(tenure):
    adds = [tenure.enqueue("add", str(n)) for n in range(3)]
    other = tenure.enqueue("hello", "x", "-q", "other")

    def ids(*arguments: str) -> list[str]:
        return [job["id"] for job in tenure.lines("jobs", "app:jobs", *arguments)]

    assert ids() == [other, *reversed(adds)]
    assert ids("-n", "2") == [other, adds[2]]
    assert ids("-n", "2", "--before", adds[2]) == [adds[1], adds[0]]
    assert ids("--task", "hello,fail") == [other]
    assert ids("-q", "default", "--queue", "other", "-n", "1") == [other]
    assert ids("--state", "completed", "--state", "failed") == []
    tenure("jobs", "app:jobs", "--state", "scheduled", code=2)
    tenure("jobs", "app:jobs", "-q", "a,,b", code=2)


def test_an_empty_list(tenure):
    result = tenure("jobs", "app:jobs")
    assert (result.stdout, result.stderr) == ("", "no job matches\n")


def test_one_job_in_full(tenure):
    job_id = tenure.enqueue("fail", "text=\x1b[2J\u202e no")
    burst(tenure)
    shown = tenure("job", "show", "app:jobs", job_id).stdout
    for text in (job_id, "failed", "1 of 1", 'text = "\\u001b[2J\\u202e no"', "Traceback"):
        assert text in shown
    assert "ValueError: \\x1b[2J\\u202e no" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    document = tenure.json("job", "show", "app:jobs", job_id)
    assert document["error"]["kind"] == "ValueError"
    assert document["arguments"] == {"text": "\x1b[2J\u202e no"}


def test_what_is_not_there(tenure):
    assert "no job has the id 'x'" in tenure("job", "show", "app:jobs", "x", code=3).stderr
    assert tenure.json("job", "cancel", "app:jobs", "x", code=3)["not_found"] == ["x"]
    assert tenure.json("job", "requeue", "app:jobs", "x", code=3)["not_found"] == ["x"]


def test_cancelling_and_requeueing(tenure):
    job_id = tenure.enqueue("add", "1")
    assert tenure.json("job", "cancel", "app:jobs", job_id) == {
        "cancelled": [job_id],
        "requested": [],
        "already_final": [],
        "not_found": [],
        "busy": [],
    }
    again = tenure("job", "cancel", "app:jobs", job_id, code=1)
    assert again.stdout == f"{job_id}  had ended before\n"
    assert tenure.json("job", "requeue", "app:jobs", job_id) == {
        "requeued": [job_id],
        "not_final": [],
        "not_found": [],
        "taken": {},
    }
    tenure("job", "requeue", "app:jobs", job_id, code=1)
    assert tenure.job(job_id)["state"] == "pending"


def test_cancelling_what_runs(tenure):
    asked, forced = tenure.enqueue("rest"), tenure.enqueue("rest")
    tenure.working(asked)
    until(lambda: tenure.job(forced)["state"] == "running")
    assert tenure.json("job", "cancel", "app:jobs", asked)["requested"] == [asked]
    assert tenure.json("job", "cancel", "app:jobs", forced, "--force")["cancelled"] == [forced]
    until(lambda: tenure.job(asked)["state"] == "cancelled")


@pytest.mark.parametrize("action", ["cancel", "requeue"])
def test_several_at_once_are_asked_about(tenure, action):
    ids = [tenure.enqueue("add", "1") for _ in range(2)]
    if action == "requeue":
        tenure("job", "cancel", "app:jobs", *ids, "--yes")
    command = ("job", action, "app:jobs", *ids)
    state = {tenure.job(job_id)["state"] for job_id in ids}
    assert "2 jobs?" in tenure(*command, code=1, input="n\n").stderr
    tenure(*command, code=1)
    assert {tenure.job(job_id)["state"] for job_id in ids} == state
    tenure(*command, input="y\n")
    assert {tenure.job(job_id)["state"] for job_id in ids} != state
    # The same id twice is one job.
    tenure("job", action, "app:jobs", ids[0], ids[0], code=1)


def test_wrong_numbers_of_ids(tenure):
    tenure("job", "show", "app:jobs", code=2)
    tenure("job", "show", "app:jobs", "a", "b", code=2)
    tenure("job", "cancel", code=2)


def test_jobs_are_found_by_what_is_in_them(tenure):
    failed = tenure.enqueue("fail", "text=Disk full")
    other = tenure.enqueue("add", "1")
    burst(tenure)

    def ids(*arguments: str) -> list[str]:
        return [job["id"] for job in tenure.lines("jobs", "app:jobs", *arguments)]

    assert ids("--error", "disk FULL") == [failed]
    assert ids("--created-after", "1h", "--finished-before", "2999-01-01") == [other, failed]
    assert ids("--created-before", "1h") == ids("--tag", "a,b") == ids("--key", "k") == []
    assert ids("--metadata", "a=b", "--metadata", "n:=7") == ids("--schedule", "s") == []
    assert ids("--actor", "ann") == []
    for option, value in (
        ("--created-after", "soon"),
        ("--metadata", "a"),
        ("--metadata", "a:={"),
        ("--metadata", "=b"),
    ):
        tenure("jobs", "app:jobs", option, value, code=2)
    assert "whole number" in tenure("jobs", "app:jobs", "--metadata", "a:=1.5", code=2).stderr


def test_mass_actions_tell_first_and_ask(tenure):
    ids = [tenure.enqueue("add", str(n)) for n in range(3)]
    other = tenure.enqueue("hello", "x")
    dry = tenure.json("job", "cancel", "app:jobs", "--task", "add", "--dry-run")
    assert (sorted(dry["cancelled"]), dry["dry_run"]) == (ids, True)
    assert (
        "nothing is changed"
        in tenure("job", "cancel", "app:jobs", "--task", "add", "--dry-run").stderr
    )
    tenure("job", "cancel", "app:jobs", "--task", "add", code=1, input="n\n")
    assert tenure.job(ids[0])["state"] == "pending"
    asked = tenure("job", "cancel", "app:jobs", "--task", "add", input="y\n")
    assert "Cancel 3 jobs?" in asked.stderr
    assert tenure("job", "cancel", "app:jobs", "--task", "add", "--yes").stderr == (
        "no job matches\n"
    )
    assert tenure.job(other)["state"] == "pending"
    dry = tenure.json("job", "requeue", "app:jobs", "--state", "cancelled", "--dry-run")
    assert sorted(dry["requeued"]) == ids
    done = tenure.json("job", "requeue", "app:jobs", "--state", "cancelled", "--yes")
    assert sorted(done["requeued"]) == ids
    for action in ("cancel", "requeue", "prune"):
        words = ("job", action) if action != "prune" else (action,)
        assert "which jobs?" in tenure(*words, "app:jobs", code=2).stderr


def test_a_job_runs_again_with_other_arguments(tenure):
    job_id = tenure.enqueue("add", "1", "5")
    burst(tenure)
    both = (job_id, tenure.enqueue("add", "2"), "--yes")
    assert (
        "one job" in tenure("job", "requeue", "app:jobs", *both, "--argument", "b=1", code=2).stderr
    )
    tenure("job", "requeue", "app:jobs", job_id, "--argument", "7", code=2)
    tenure("job", "requeue", "app:jobs", job_id, "--argument", "b=x", code=2)
    tenure("job", "requeue", "app:jobs", job_id, "--argument", "b=7")
    assert tenure.job(job_id)["arguments"] == {"a": 1, "b": 7}
    tenure("job", "cancel", tenure.url, job_id)
    tenure("job", "requeue", tenure.url, job_id, "--argument", "b:=8")
    assert tenure.job(job_id)["arguments"] == {"a": 1, "b": 8}


def test_pruning(tenure):
    ids = [tenure.enqueue("add", str(n)) for n in range(3)]
    tenure("job", "cancel", "app:jobs", *ids[:2], "--yes")
    assert tenure.json("prune", "app:jobs", "--task", "add", "--dry-run") == {"would_remove": 2}
    assert tenure("prune", "app:jobs", "--task", "add", "--dry-run").stdout == (
        "2 jobs would be removed\n"
    )
    assert tenure("prune", "app:jobs", "--older-than", "1h").stdout == "0 jobs removed\n"
    tenure("prune", "app:jobs", "--older-than", "late", code=2)
    asked = tenure("prune", "app:jobs", "--state", "cancelled", code=1, input="n\n")
    assert "Remove 2 jobs?" in asked.stderr
    assert tenure.json("prune", "app:jobs", ids[0], ids[2]) == {"removed": 1}
    assert tenure.json("prune", "app:jobs", "--state", "cancelled", "--yes") == {"removed": 1}


def test_maintaining(tenure):
    job_id = tenure.enqueue("add", "1", "--expires-in", "0.01")
    until(
        lambda: (
            tenure.job(job_id)["expires_at"]
            < tenure.job(tenure.enqueue("hello", "x"))["created_at"]
        )
    )
    report = tenure.json("maintain", "app:jobs", "--budget", "5")
    assert report["state"] == "done"
    assert [(p["name"], p["state"]) for p in report["phases"]] == [
        ("sweep", "done"),
        ("retention", "done"),
        ("schedules", "done"),
        ("events", "done"),
    ]
    assert tenure.job(job_id)["state"] == "expired"
    assert tenure("maintain", "app:jobs").stdout.split()[:7] == [
        *("PHASE", "STATE", "COUNT", "ERROR"),
        *("sweep", "done", "0"),
    ]


def test_queues(tenure):
    tenure.enqueue("add", "1")
    tenure.enqueue("add", "1", "--delay", "60")
    tenure.enqueue("hello", "x", "-q", "other")
    [default, other] = tenure.lines("queues", "app:jobs")
    assert (default["queue"], default["pending"], default["scheduled"]) == ("default", 1, 1)
    assert default["waiting_seconds"] >= 0
    assert other["queue"] == "other"
    lines = tenure("queues", "app:jobs").stdout.splitlines()
    assert lines[0].split()[:4] == ["QUEUE", "PENDING", "BLOCKED", "SCHEDULED"]
    assert lines[1].split()[:4] == ["default", "1", "0", "1"]


def test_queues_point_at_jobs_that_nobody_can_run(tenure):
    tenure.enqueue("add", "1")
    assert "does not know" not in tenure("queues", "app:jobs").stderr
    tenure("enqueue", tenure.url, "nobody.has.this")
    told = tenure("queues", "app:jobs")
    assert "1 jobs have tasks that this app does not know: nobody.has.this" in told.stderr
    assert "nobody" not in told.stdout


def test_sweep(tenure):
    job_id = tenure.enqueue("add", "1", "--expires-in", "0.01")
    assert until(lambda: tenure.lines("sweep", "app:jobs")) == [{"id": job_id, "state": "expired"}]
    assert tenure("sweep", "app:jobs").stderr == "nothing to sweep\n"


def test_migrate(tenure):
    assert tenure.json("migrate", "sqlite:///new.db") == {"version": 2}
    assert (tenure.folder / "new.db").exists()
    assert tenure("migrate", "sqlite:///new.db").stdout == "schema version 2\n"


def test_the_sql_of_a_migration(tenure):
    sql = tenure("migrate", "sqlite:///new.db", "--sql").stdout
    assert "CREATE TABLE jobs (" in sql
    assert tenure.json("migrate", "sqlite:///new.db", "--sql")["sql"].rstrip() == sql.rstrip()
    assert not (tenure.folder / "new.db").exists()
    assert "needs no SQL" in tenure("migrate", "memory://", "--sql", code=2).stderr
