"""`tenure run-one`: one job in a process of its own, and the exit code that says how it ended."""

from __future__ import annotations

import signal

from tenure import QueueService
from tests.cli.conftest import until


def test_a_job_that_completes(tenure):
    other, job_id = tenure.enqueue("add", "1"), tenure.enqueue("add", "2")
    assert tenure("run-one", "app:jobs", job_id).stdout == f"job {job_id} (add) completed\n"
    assert tenure.job(job_id)["result"] == 4
    assert tenure.job(other)["state"] == "pending"
    document = tenure.json("run-one", "app:jobs", other)
    assert (document["id"], document["state"], document["result"]) == (other, "completed", 3)


def test_a_job_that_fails(tenure):
    job_id = tenure.enqueue("fail")
    shown = tenure("run-one", "app:jobs", job_id, code=1).stdout
    assert shown == f"job {job_id} (fail) failed: ValueError: no luck\n"
    again = tenure.enqueue("fail", "--max-attempts", "2")
    assert tenure.json("run-one", "app:jobs", again, code=6)["label"] == "retrying"


def test_a_job_that_is_not_to_be_had(tenure):
    job_id = tenure.enqueue("add", "1", "--delay", "60")
    assert "it is not due before" in tenure("run-one", "app:jobs", job_id, code=5).stderr
    tenure("job", "cancel", "app:jobs", job_id)
    assert "it is cancelled already" in tenure("run-one", "app:jobs", job_id, code=5).stderr
    assert "no job has the id 'x'" in tenure("run-one", "app:jobs", "x", code=3).stderr


def test_what_cannot_be_understood(tenure):
    job_id = tenure.enqueue("add", "1")
    assert "name the app" in tenure("run-one", tenure.url, job_id, code=2).stderr
    assert "one id, not 2" in tenure("run-one", "app:jobs", "a", "b", code=2).stderr
    tenure("run-one", "app:jobs", code=2)
    unknown = tenure("enqueue", tenure.url, "elsewhere").stdout.strip()
    assert "elsewhere" in tenure("run-one", "app:jobs", unknown, code=2).stderr
    assert {tenure.job(i)["state"] for i in (job_id, unknown)} == {"pending"}


def test_a_process_that_is_told_to_end_gives_the_job_back(tenure):
    job_id = tenure.enqueue("rest")
    process = tenure.start("run-one", "app:jobs", job_id, "--shutdown-timeout", "0.1", "--json")
    until(lambda: tenure.job(job_id)["state"] == "running")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 6, err
    assert '"state": "pending"' in out
    assert tenure.job(job_id)["lapses"] == 0


def test_a_body_that_cannot_be_stopped_holds_up_nothing(tenure):
    job_id = tenure.enqueue("block_a_thread")
    process = tenure.start("run-one", "app:jobs", job_id, "--shutdown-timeout", "0.1")
    until(lambda: tenure.job(job_id)["state"] == "running")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=40)
    assert process.returncode in (6, 128 + signal.SIGTERM)
    assert tenure.job(job_id)["state"] == "pending"


def test_a_job_that_somebody_else_claimed_is_taken_over_by_its_token(tenure):
    job_id = tenure.enqueue("add", "1")
    with QueueService(tenure.url).sync as elsewhere:
        [claimed] = elsewhere.claim(tasks=["add"])
    token = str(claimed.token)
    assert "holds it" in tenure("run-one", "app:jobs", job_id, code=5).stderr
    wrong = tenure("run-one", "app:jobs", job_id, "--token", "1", code=5)
    assert "not held under the token 1" in wrong.stderr
    assert tenure.json("run-one", "app:jobs", job_id, "--token", token)["result"] == 3
    tenure("run-one", "app:jobs", job_id, "--token", token, code=5)
