"""Processes: stopped and continued, forked by hand, by multiprocessing, and by a prefork server."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.leases.kit import until
from tests.leases.test_keeper_threads import run_script

STOPPED = """
import sys
from tenure.leases import LeaseRenewal, client_from, lease_times

renewals = 0
def renew(receipt, seconds):
    global renewals
    renewals += 1

client = client_from(renew)
with LeaseRenewal(client, "r1", times=lease_times(1)) as renewal:
    print("ready", flush=True)
    for line in sys.stdin:
        # The very first look after the process went on.
        lost = renewal.lost
        print(lost, renewal.reason, renewal.remaining() > 0, renewals, flush=True)
"""


@contextmanager
def running(script: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().split()


def test_after_a_stop_longer_than_the_lease_the_first_look_is_true():
    with running(STOPPED) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        # It lives longer than its lease: renewals do happen.
        until(lambda: int(ask(process)[3]) >= 4)
        assert ask(process)[:3] == ["False", "None", "True"]
        os.kill(process.pid, signal.SIGSTOP)
        threading.Event().wait(1.2)  # not to wait for something: time itself has to pass
        os.kill(process.pid, signal.SIGCONT)
        assert ask(process)[:3] == ["True", "deadline", "False"]


def test_after_a_short_stop_the_lease_goes_on():
    with running(STOPPED) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGSTOP)
        threading.Event().wait(0.2)
        os.kill(process.pid, signal.SIGCONT)
        until(lambda: int(ask(process)[3]) >= 6)
        assert ask(process)[0] == "False"


FORKS = """
import os, sys, threading, time, warnings
from tenure.leases import LeaseRenewal, client_from, default_keeper, lease_times
from tests.leases.kit import until

seen = []
entered, gate = threading.Event(), threading.Event()
def renew(receipt, seconds):
    seen.append((receipt, os.getpid()))
    entered.set()
    if receipt == "stuck" and os.getpid() == parent:
        gate.wait(30)

parent = os.getpid()
client = client_from(renew)
held = LeaseRenewal(client, "held", times=lease_times(1))
stuck = LeaseRenewal(client, "stuck", times=lease_times(30))
held.start()
stuck.start()
default_keeper().nudge(["stuck"])
until(lambda: ("stuck", parent) in seen)  # its extension is in flight while we fork

def child():
    started = time.monotonic()
    stuck.stop()     # the parent's: nothing here will ever land, and nothing is waited for
    held.stop()
    assert default_keeper().active == 0
    own = LeaseRenewal(client, "own", times=lease_times(1))
    with own:
        until(lambda: ("own", os.getpid()) in seen)
        assert not own.lost
    assert own.extend(60) is not None
    never = LeaseRenewal(client, "never", times=lease_times(1))
    never.start()    # left running: the process ends all the same
    assert time.monotonic() - started < 4
    assert not any(name != "own" for name, pid in seen if pid == os.getpid())

{fork}

def beats():
    return len([name for name, pid in seen if name == "held"])
before = beats()
until(lambda: beats() > before + 1)
assert not held.lost and not stuck.lost
gate.set()
stuck.stop()
held.stop()
print("fine")
"""

OS_FORK = """
pid = os.fork()
if pid == 0:
    code = 1
    try:
        child()
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""

MULTIPROCESSING = """
import multiprocessing
context = multiprocessing.get_context("fork")
processes = [context.Process(target=child) for _ in range(3)]
for process in processes:
    process.start()
for process in processes:
    process.join(30)
    assert process.exitcode == 0, process.exitcode
"""

POOL = """
import concurrent.futures, multiprocessing
context = multiprocessing.get_context("fork")
with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
    for future in [pool.submit(child) for _ in range(2)]:
        future.result(30)
"""


@pytest.mark.parametrize("fork", [OS_FORK, MULTIPROCESSING, POOL], ids=["os", "processes", "pool"])
def test_a_fork_leaves_the_leases_to_the_parent(fork):
    assert run_script(FORKS.replace("{fork}", fork)) == "fine\n"


APP = """
import json, os
from tenure.leases import LeaseRenewal, client_from, default_keeper, lease_times
from tests.leases.kit import until

def renew(receipt, seconds):
    with open(os.environ["BEATS"], "a") as file:
        file.write(json.dumps([receipt, os.getpid()]) + "\\\\n")

client = client_from(renew)
mine = LeaseRenewal(client, "loaded", times=lease_times(1))
mine.start()                     # before the server forks its workers

def app(environ, start_response):
    receipt = environ["PATH_INFO"].strip("/")
    beats = lambda: [receipt, os.getpid()] in map(json.loads, open(os.environ["BEATS"]))
    with LeaseRenewal(client, receipt, times=lease_times(1)) as renewal:
        until(beats)
        answer = {"pid": os.getpid(), "lost": renewal.lost, "active": default_keeper().active}
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]
""".replace("\\\\n", "\\n")


class OverSocket(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=20)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(str(self._path))


def get(path: Path, name: str) -> dict[str, object]:
    connection = OverSocket(path)
    connection.request("GET", f"/{name}")
    answer: dict[str, object] = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def test_a_prefork_server_with_a_preloaded_application(tmp_path):
    """gunicorn --preload: the keeper runs in the master before the workers are forked from it."""
    (tmp_path / "site_app.py").write_text(APP)
    beats, path = tmp_path / "beats", tmp_path / "socket"
    beats.touch()
    environment = {**os.environ, "BEATS": str(beats)}
    environment["PYTHONPATH"] = os.pathsep.join([*sys.path, str(tmp_path)])
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "gunicorn", "--preload",
         "-w", "2", "-b", f"unix:{path}", "--graceful-timeout", "5", "site_app:app"],
        env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        until(path.exists)
        answers: list[dict[str, object]] = []

        def visit(i: int) -> None:
            answers.append(get(path, f"r{i}"))

        visitors = [threading.Thread(target=visit, args=(i,)) for i in range(6)]
        for visitor in visitors:
            visitor.start()
        for visitor in visitors:
            visitor.join(30)
        assert len(answers) == 6
        assert all(answer["lost"] is False and answer["active"] == 1 for answer in answers)
        pids = {answer["pid"] for answer in answers}
        assert server.pid not in pids
        seen = [json.loads(line) for line in beats.read_text().splitlines()]
        assert {pid for receipt, pid in seen if receipt == "loaded"} == {server.pid}
        assert {pid for receipt, pid in seen if receipt != "loaded"} == pids
    finally:
        server.terminate()
        _, errors = server.communicate(timeout=20)
    assert server.returncode == 0, errors
    assert "Traceback" not in errors
