"""`tenure enqueue`."""

from __future__ import annotations

import signal

import pytest


def test_it_prints_the_id(tenure):
    job_id = tenure.enqueue("add", "1", "b=5", "--priority", "3", "--queue", "other")
    job = tenure.job(job_id)
    assert job["arguments"] == {"a": 1, "b": 5}
    assert (job["task"], job["priority"], job["queue"]) == ("add", 3, "other")


def test_as_json(tenure):
    answer = tenure.json("enqueue", "app:jobs", "add", "1")
    assert answer.keys() == {"id", "created"}
    assert answer["created"] is True


def test_options(tenure):
    words = "--delay=60 --expires-in=120 --max-attempts=4 --timeout=1.5".split()
    job = tenure.job(tenure.enqueue("hello", "x", *words))
    assert job["label"] == "scheduled"
    assert job["max_attempts"] == 4
    assert job["available_at"] < job["expires_at"]
    later = tenure.job(tenure.enqueue("hello", "x", "--run-at", "2999-01-01T00:00:00Z"))
    assert later["available_at"] == "2999-01-01T00:00:00Z"


def test_values_that_begin_with_a_dash(tenure):
    assert tenure.job(tenure.enqueue("add", "--", "-5"))["arguments"] == {"a": -5}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "no task is named 'nothing'; known: add, "),
        (["add"], "missing a required argument: 'a'"),
        (["add", "one"], "a: 'one' is not an integer"),
        (["add", "1", "c=2"], "unexpected keyword argument 'c'"),
        (["add", "1", "2", "3"], "too many positional arguments"),
        (["add", "1", "a=1"], "multiple values for argument 'a'"),
        (["add", "a:=null"], "a"),
        (["hello", "a\udcff"], "name: text with a lone surrogate cannot be stored"),
        (["hello", "a", "--delay=-1"], "delay must be at least 0"),
        (["hello", "a", "--delay=1e30"], "delay must be"),
        (["hello", "a", "--priority=40000"], "priority must be an integer from"),
        (["hello", "a", "--run-at=2026-01-01T00:00:00"], "run_at must have a time zone"),
        (["hello", "a", "--run-at=soon"], "is no time such as"),
        (["hello", "a", "--wait=x"], "is no number of seconds"),
        (["hello", "a", "--queue=a b"], "queue must not hold"),
        ([], "a task is missing"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_stored(tenure, words, message):
    result = tenure("enqueue", "app:jobs", *words, code=2)
    assert message in result.stderr
    assert result.stdout == ""
    tenure("migrate", "app:jobs")
    assert tenure.lines("jobs", "app:jobs") == []


def test_a_url_takes_any_task_by_name(tenure):
    url = "sqlite:///jobs.db"
    job_id = tenure("enqueue", url, "reports.render", "title=Q1", "pages:=[1, 2]").stdout.strip()
    job = tenure.job(job_id)
    assert job["task"] == "reports.render"
    assert job["arguments"] == {"title": "Q1", "pages": [1, 2]}
    assert "NAME:=JSON" in tenure("enqueue", url, "reports.render", "Q1", code=2).stderr


def test_waiting_for_the_result(tenure):
    tenure.start("worker", "app:jobs")
    result = tenure("enqueue", "app:jobs", "add", "1", "--wait=20")
    job_id, text = result.stdout.split()
    assert (len(job_id), text) == (36, "3")
    assert tenure("enqueue", "app:jobs", "hello", "you", "--wait").stdout.endswith("\nhello you\n")
    shown = tenure.json("enqueue", "app:jobs", "add", "1", "--wait=20")
    assert (shown["state"], shown["result"]) == ("completed", 3)


def test_waiting_for_a_failure(tenure):
    tenure.start("worker", "app:jobs")
    result = tenure("enqueue", "app:jobs", "fail", "text=oh \x1b[2J no", "--wait=20", code=1)
    assert "failed: ValueError: oh \\x1b[2J no" in result.stderr
    assert tenure.json("enqueue", "app:jobs", "fail", "--wait=20", code=1)["state"] == "failed"


def test_waiting_too_long(tenure):
    result = tenure("enqueue", "app:jobs", "add", "1", "--wait=0.05", code=1)
    assert "has not ended within 0.05 seconds" in result.stderr
    assert tenure.job(result.stdout.strip())["state"] == "pending"


def test_ctrl_c_ends_the_waiting_and_not_the_job(tenure):
    process = tenure.start("enqueue", "app:jobs", "add", "1", "--wait")
    job_id = process.stdout.readline().strip()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert tenure.job(job_id)["state"] == "pending"
