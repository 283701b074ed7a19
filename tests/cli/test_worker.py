"""`tenure worker`: real processes, real signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.cli.conftest import until


def ended(process: Any, seconds: float = 20.0) -> tuple[int, str, str]:
    """The exit code and the outputs of a process that is about to end."""
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


def test_a_burst_runs_what_is_due_and_ends(tenure):
    done, failed = tenure.enqueue("add", "1"), tenure.enqueue("fail", "text=\x1b[2J\nfake line")
    other = tenure.enqueue("add", "1", "-q", "other")
    code, out, err = ended(tenure.start("worker", "app:jobs", "--burst", "--log-success"))
    assert (code, out) == (0, "")
    assert [tenure.job(i)["state"] for i in (done, failed, other)] == [
        "completed",
        "failed",
        "pending",
    ]
    banner = err.splitlines()[:5]
    assert [line.split()[0] for line in banner] == "worker store queues tasks concurrency".split()
    assert tenure.url in banner[1]
    assert "add, block_a_thread" in banner[3]
    assert f"INFO    job {done} (add) completed" in err
    assert f"ERROR   job {failed} (fail) failed, attempt 1 of 1: ValueError: \\x1b[2J\\nfake" in err


def test_queues_and_concurrency(tenure):
    ids = [tenure.enqueue("add", "1", "-q", queue) for queue in ("default", "mail", "other")]
    worker = tenure.start(
        "worker", "app:jobs", "-q", "mail,default", "-c", "3", "--burst", "--lease", "5"
    )
    code, _, err = ended(worker)
    assert code == 0
    assert "concurrency 3" in err
    assert [tenure.job(i)["state"] for i in ids] == ["completed", "completed", "pending"]


def test_log_lines_as_json(tenure):
    job_id = tenure.enqueue("fail")
    code, out, err = ended(tenure.start("worker", "app:jobs", "--burst", "--json"))
    assert (code, err) == (0, "")
    first, *others = [json.loads(line) for line in out.splitlines()]
    assert first["message"] == "the worker begins"
    assert first["store"] == tenure.url
    [failed] = [record for record in others if record.get("job_id") == job_id]
    assert (failed["level"], failed["task"], failed["attempt"]) == ("error", "fail", 1)


def test_the_level_of_the_log(tenure):
    tenure.enqueue("add", "1")
    worker = tenure.start(
        "worker", "app:jobs", "--burst", "--json", "--log-success", "--log-level=warning"
    )
    assert ended(worker) == (0, "", "")


def test_what_is_no_app_with_tasks(tenure):
    tenure.enqueue("add", "1")
    assert "a worker needs tasks" in tenure("worker", "sqlite:///jobs.db", code=2).stderr
    (tenure.folder / "empty.py").write_text(
        "from tenure import QueueService\njobs = QueueService('sqlite:///jobs.db')\n"
    )
    assert "the app has no tasks" in tenure("worker", "empty:jobs", code=2).stderr


@pytest.mark.parametrize(
    "option", ["-c=0", "--lease=0", "--shutdown-timeout=-1", "--log-level=loud", "-q=a b"]
)
def test_bad_options(tenure, option):
    result = tenure("worker", "app:jobs", *option.split("=", 1), code=2)
    assert "Error: " in result.stderr


def test_a_store_that_is_away(tenure):
    (tenure.folder / "away.py").write_text(
        "from tenure import QueueService\n"
        "jobs = QueueService('sqlite:////proc/1/x.db')\njobs.task(print, )\n"
    )
    code, _, err = ended(tenure.start("worker", "away:jobs"))
    assert code in (2, 4)
    assert "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_drains(tenure, number):
    job_id = tenure.enqueue("until_file", "here")
    worker = tenure.working(job_id)
    worker.send_signal(number)
    until(lambda: "no more jobs are taken" in worker.stderr.readline())
    waiting = tenure.enqueue("add", "1")
    (tenure.folder / "here").touch()
    assert ended(worker)[0] == 0
    assert tenure.job(job_id)["state"] == "completed"
    assert tenure.job(waiting)["state"] == "pending"


def test_what_does_not_end_in_time_is_given_back(tenure):
    job_id = tenure.enqueue("rest")
    worker = tenure.working(job_id, "--shutdown-timeout", "0.1")
    worker.send_signal(signal.SIGTERM)
    assert ended(worker)[0] == 0
    job = tenure.job(job_id)
    assert (job["state"], job["attempt"]) == ("pending", 1)


def test_the_second_signal_cancels(tenure):
    job_id = tenure.enqueue("rest")
    worker = tenure.working(job_id)
    worker.send_signal(signal.SIGTERM)
    until(lambda: "once more cancels" in worker.stderr.readline())
    worker.send_signal(signal.SIGINT)
    code, _, err = ended(worker)
    assert code == 0
    assert "cancelling what runs" in err
    assert tenure.job(job_id)["state"] == "pending"


@pytest.mark.parametrize("name", ["block_a_thread", "deaf"])
def test_a_body_that_never_ends_does_not_keep_the_process(tenure, name):
    (tenure.folder / "impatient.py").write_text(
        "import asyncio, app\n"
        "from tenure.cli.worker import work\n"
        "changes = dict(stop_grace=0.1, shutdown_timeout=0.1)\n"
        "asyncio.run(work(app.jobs, changes, as_json=False))\n"
    )
    job_id = tenure.enqueue(name)
    worker = tenure.spawn(sys.executable, "impatient.py")
    until(lambda: tenure.job(job_id)["state"] == "running")
    worker.send_signal(signal.SIGTERM)
    code, _, err = ended(worker)
    assert code == 0
    assert "bodies still run although they were stopped: 1" in err
    assert tenure.job(job_id)["state"] == "pending"


@pytest.mark.parametrize("name", ["deaf", "block_the_loop"])
def test_the_third_signal_exits_at_once(tenure, name):
    job_id = tenure.enqueue(name)
    worker = tenure.working(job_id)
    if name == "deaf":
        worker.send_signal(signal.SIGTERM)
        until(lambda: "no more jobs" in worker.stderr.readline())
        worker.send_signal(signal.SIGTERM)
        until(lambda: "exits at once" in worker.stderr.readline())

    def gone() -> bool:
        # Again and again: signals that wait together are one signal.
        worker.send_signal(signal.SIGINT)
        try:
            worker.wait(0.02)
        except subprocess.TimeoutExpired:
            return False
        return True

    until(gone)
    code, _, err = ended(worker)
    assert code == 128 + signal.SIGINT, err
    assert tenure.job(job_id)["state"] == "running"


def test_a_store_reached_by_two_workers_runs_each_job_once(tenure):
    ids = [tenure.enqueue("add", str(n)) for n in range(10)]
    workers = [tenure.start("worker", "app:jobs", "--burst", "-c", "2") for _ in range(2)]
    assert [ended(worker)[0] for worker in workers] == [0, 0]
    assert {tenure.job(i)["claims"] for i in ids} == {1}
