"""The pytest plugin: what it gives to tests, in a pytest of its own, and what it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

APP = """
from tenure import QueueService

jobs = QueueService("sqlite:///real.db")


@jobs.task
async def send(to: str) -> str:
    return "sent to " + to


async def sign_up(name: str) -> None:
    await jobs.enqueue(send, name)
"""

TESTS = """
import pytest
from app import jobs, send, sign_up


@pytest.mark.anyio
async def test_in_a_coroutine(tenure_jobs):
    await sign_up("ann")
    await tenure_jobs.assert_enqueued(send, to="ann")
    [job] = await tenure_jobs.drain(check=True)
    assert job.result == "sent to ann"


@pytest.mark.anyio
async def test_nothing_is_left_of_the_test_before(tenure_jobs):
    assert await jobs.find() == []
    await sign_up("ann")
    await tenure_jobs.advance(86_400)
    await tenure_jobs.assert_enqueued(send, to="bob")  # fails, with words


def test_in_plain_code(tenure_jobs):
    assert tenure_jobs.service is jobs
    jobs.sync.enqueue(send, "ann")
    tenure_jobs.sync.assert_enqueued(send, to="ann")


class TestOnAFile:
    @pytest.fixture
    def tenure_url(self, tmp_path):
        return f"sqlite:///{tmp_path}/jobs.db"

    def test_it_is_kept_where_the_test_says(self, tenure_jobs, tmp_path):
        jobs.sync.enqueue(send, "ann")
        assert (tmp_path / "jobs.db").exists()
        assert [job.result for job in tenure_jobs.sync.drain()] == ["sent to ann"]
"""

CONFTEST = """
import pytest


@pytest.fixture
def anyio_backend():
    return "asyncio"
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "pytest_tenure", "-q", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_an_application_is_tested_with_it(tmp_path: Path):
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_app.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\ntenure_app = app:jobs\npythonpath = .\nfilterwarnings = error\n"
    )
    done = run(tmp_path)
    assert "1 failed, 3 passed" in done.stdout, done.stdout + done.stderr
    assert "no job of send with to='bob' was enqueued" in done.stdout
    assert "completed: to='ann', not 'bob'" in done.stdout
    assert not (tmp_path / "real.db").exists()


def test_without_an_app_there_is_a_service_without_tasks(tmp_path: Path):
    (tmp_path / "test_it.py").write_text(
        "def test_it(tenure_jobs):\n    assert list(tenure_jobs.service.tasks) == []\n"
    )
    done = run(tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules, sep='\\n')"],
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    return set(done.stdout.split())


def test_whoever_does_not_use_it_pays_for_nothing():
    before = modules_after("import pytest, collections.abc, typing")
    loaded = modules_after("import pytest, collections.abc, typing, pytest_tenure") - before
    assert loaded == {"pytest_tenure"}


def test_the_kit_loads_neither_the_suite_nor_its_needs():
    loaded = modules_after("from tenure.testing import Kit, override")
    assert "tenure.testing.kit" in loaded
    assert "hypothesis" not in loaded
    assert "pytest" not in loaded
    assert not [name for name in loaded if name.startswith("tenure.testing.conformance")]
    assert not [name for name in loaded if name.startswith("tenure.cli")]


def test_unknown_names_are_told():
    done = subprocess.run(
        [sys.executable, "-c", "from tenure.testing import nothing"],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert "cannot import name 'nothing' from 'tenure.testing'" in done.stderr
