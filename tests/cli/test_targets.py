"""Which app or store a command works on."""

from __future__ import annotations

import sys
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def store(tenure):
    """A store with one job in it."""
    return tenure.enqueue("add", "1")


def listed(tenure: Any, *arguments: str) -> list[str]:
    return [job["id"] for job in tenure.lines("jobs", *arguments)]


@pytest.mark.parametrize("app", ["app:jobs", "app", "app:", "sqlite:///jobs.db"])
def test_the_first_argument_names_it(tenure, store, app):
    assert listed(tenure, app) == [store]


def test_the_environment_names_it(tenure, store, monkeypatch):
    monkeypatch.setenv("TENURE_URL", "sqlite:///jobs.db")
    assert listed(tenure) == [store]
    monkeypatch.setenv("TENURE_URL", "sqlite:///other.db")
    monkeypatch.setenv("TENURE_APP", "app:jobs")
    assert listed(tenure) == [store]


def test_pyproject_names_it(tenure, store, monkeypatch):
    file = tenure.folder / "pyproject.toml"
    file.write_text('[tool.tenure]\nurl = "sqlite:///jobs.db"\n')
    assert listed(tenure) == [store]
    file.write_text('[tool.tenure]\napp = "app:jobs"\n')
    monkeypatch.setenv("TENURE_URL", "sqlite:///other.db")
    assert listed(tenure) == [store]


def test_nothing_names_it(tenure):
    assert "TENURE_APP" in tenure("jobs", code=2).stderr


def test_an_optional_app_before_other_arguments(tenure, store, monkeypatch):
    monkeypatch.setenv("TENURE_APP", "app:jobs")
    assert tenure.json("job", "show", store)["id"] == store
    assert tenure.json("job", "show", "app:jobs", store)["id"] == store
    other = tenure("enqueue", "hello", "http://example.org/?a=b").stdout.strip()
    assert tenure.job(other)["arguments"] == {"name": "http://example.org/?a=b"}


def test_the_blocking_face_is_a_service_too(tenure, store):
    (tenure.folder / "blocking.py").write_text("from app import jobs\njobs = jobs.sync\n")
    assert listed(tenure, "blocking:jobs") == [store]


@pytest.mark.parametrize(
    ("app", "message"),
    [
        ("nowhere:jobs", "there is no module 'nowhere'"),
        ("app.py", "without .py, as in app:jobs"),
        ("app:nothing", "app has no 'nothing'; app has app:jobs"),
        ("app:add", "app:add is a Task, not a QueueService; app has app:jobs"),
        ("app:QueueService", "the class QueueService"),
        ("app:asyncio", "the module asyncio"),
        (":jobs", "'' is no module name"),
        ("memory://", "inside one process"),
        ("nodb://user:geheim@host/x", "names no known engine"),
        ("sqlite:///jobs.db?password=geheim", "no parameter"),
    ],
)
def test_a_wrong_app_is_explained(tenure, app, message):
    result = tenure("jobs", app, code=2)
    assert message in result.stderr
    assert "geheim" not in result.output
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1 / 0", "ZeroDivisionError: division by zero, at "),
        ("import nothing_there", "No module named 'nothing_there', at "),
        ("x = (", "SyntaxError: '(' was never closed (broken.py, line 1)"),
        ("raise SystemExit(7)", "SystemExit: 7"),
        ("raise ValueError('\\x1b[31m')", "ValueError: \\x1b[31m"),
    ],
)
def test_an_app_that_cannot_be_imported(tenure, text, message):
    (tenure.folder / "broken.py").write_text(text)
    result = tenure("jobs", "broken:jobs", code=2)
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_traceback_is_shown_when_asked_for(tenure):
    (tenure.folder / "broken.py").write_text("x = 1 / 0")
    result = tenure.start("jobs", "broken:jobs", "--traceback")
    _, err = result.communicate(timeout=20)
    assert result.returncode == 2
    assert err.startswith("Traceback")
    assert "broken.py" in err
    assert "target.py" not in err


def test_several_services_in_a_module(tenure):
    (tenure.folder / "two.py").write_text(
        "from tenure import QueueService\n"
        "one = QueueService('sqlite:///jobs.db')\ntwo = QueueService('sqlite:///two.db')\n"
    )
    assert "two has two:one, two:two" in tenure("jobs", "two", code=2).stderr
    (tenure.folder / "none.py").write_text("")
    assert "there is no QueueService in none" in tenure("jobs", "none", code=2).stderr


def test_a_mistyped_file_is_not_made(tenure):
    result = tenure("jobs", "sqlite:///jbos.db", code=4)
    assert "there is no" in result.stderr
    assert not (tenure.folder / "jbos.db").exists()


def test_a_file_that_is_no_database(tenure):
    (tenure.folder / "x.db").write_text("no database " * 20)
    assert "not a database" in tenure("jobs", "sqlite:///x.db", code=4).stderr


def test_a_broken_pyproject(tenure):
    (tenure.folder / "pyproject.toml").write_text("[tool.tenure\n")
    assert "is not valid TOML" in tenure("jobs", code=2).stderr
    (tenure.folder / "pyproject.toml").write_text("[tool.tenure]\napp = 1\n")
    assert "app must be text" in tenure("jobs", code=2).stderr


def test_the_module_path_is_left_as_it_was_found(tenure):
    tenure("jobs", "app:jobs")
    assert sys.path.count(str(tenure.folder)) == 1
