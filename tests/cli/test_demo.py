"""`tenure demo`: on a small folder, with a real kill."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tenure.cli import demo as command
from tenure.demo import report
from tenure.demo.measure import Measured, attempt, measure, python_files
from tests.cli.conftest import until


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of 40 Python files, some in packages; the demo's own files go beside it."""
    folder = tmp_path / "source"
    for number in range(40):
        place = folder / f"part{number % 4}"
        place.mkdir(parents=True, exist_ok=True)
        text = f"class C{number}:\n    def f(self): return {number}\n" * (number + 1)
        (place / f"m{number}.py").write_text(text)
    ignored = folder / "__pycache__"
    ignored.mkdir()
    (ignored / "no.py").write_text("")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    return folder


def run(tenure: Any, *arguments: str) -> tuple[int, str, str]:
    process = tenure.start("demo", *arguments)
    out, err = process.communicate(timeout=55)
    return process.returncode, out, err


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_whole_of_it(tenure, source):
    (source / "broken.py").write_text("def f(:\n")
    (source / "undecodable.py").write_bytes(b"x = '\xff'\n")
    code, out, err = run(tenure, str(source))
    assert code == 0, out + err
    assert "42 (40 measured, 2 failed)" in out
    assert "equal those of a plain computation" in out
    assert "SIGKILL" in err
    assert "jobs were taken over" in out
    assert "1 × SyntaxError: invalid syntax" in out
    commands = [line.strip() for line in out.split("Look at it\n")[1].splitlines()]
    assert len(commands) == 4
    for line in commands:
        done = subprocess.run(
            shlex.split(line), capture_output=True, text=True, timeout=20, check=True
        )
        assert done.stdout
    assert "SyntaxError" in done.stdout or "lapsed" in done.stdout


def test_the_report_as_json(tenure, source):
    code, out, err = run(tenure, str(source), "--json")
    assert code == 0, out + err
    found = json.loads(out)
    # No file of these fails, so the demo breaks a copy of one.
    assert "a broken copy of one is added" in err
    assert (found["files"], found["completed"], found["failed"]) == (41, 40, 1)
    assert found["agrees"] is True
    assert found["differences"] == []
    assert found["functions"] == found["classes"] == sum(range(1, 41))
    assert len(found["largest"]) == 10
    assert found["largest"][0]["path"].endswith("m39.py")
    assert found["killed"]["held"]
    assert sorted(found["taken_over"]) == sorted(found["killed"]["held"])
    assert found["lapsed"] == len(found["taken_over"])
    assert found["retried"] == 1
    [failure] = found["failures"]
    assert failure["path"].endswith("broken.py")
    shown = tenure.json("job", "show", found["url"], failure["job"])
    assert (shown["state"], shown["attempt"], len(shown["errors"])) == ("failed", 2, 2)
    over = tenure.json("job", "show", found["url"], found["taken_over"][0])
    assert (over["lapses"], over["claims"], over["state"]) == (1, 2, "completed")


def test_a_store_of_ones_own(tenure, source):
    code, out, err = run(tenure, str(source / "part1"), "--engine", "sqlite:///mine.db", "--json")
    assert code == 0, out + err
    assert json.loads(out)["url"] == f"sqlite:///{tenure.folder / 'mine.db'}"


def test_an_empty_folder(tenure, source):
    empty = source / "empty"
    empty.mkdir()
    code, out, err = run(tenure, str(empty), "--json")
    assert code == 0, out + err
    assert json.loads(out)["files"] == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_it(tenure, source, number):
    process = tenure.start("demo", str(source))
    line = next(text for text in process.stderr if "processes" in text)
    pids = [int(word.strip(",")) for word in line.split() if word.strip(",").isdigit()][:2]
    assert all(alive(pid) for pid in pids)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert "Traceback" not in err
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    until(lambda: not any(alive(pid) for pid in pids))


def test_what_it_does_not_run_on(tenure, source):
    assert "processes of their own" in tenure("demo", "--engine", "memory://", code=2).stderr
    assert "sqlite://" in tenure("demo", "--engine", "nodb://u:geheim@x", code=2).stderr
    assert "geheim" not in tenure("demo", "--engine", "nodb://u:geheim@x", code=2).output
    assert "does not exist" in tenure("demo", "nowhere", code=2).stderr


def test_measuring(tmp_path):
    file = tmp_path / "x.py"
    file.write_text("class A:\n    async def f(self):\n        def g(): ...\n")
    measured = measure(file)
    assert (measured.size, measured.lines) == (file.stat().st_size, 3)
    assert (measured.functions, measured.classes) == (2, 1)
    file.write_text("def f(:\n")
    assert str(attempt(file)).startswith("SyntaxError: ")
    assert python_files(tmp_path) == [file]


def test_differences_are_found_file_by_file():
    a, b = Measured("0", 1, 1, 0, 0), Measured("1", 1, 1, 0, 0)
    one, two, three = Path("1"), Path("2"), Path("3")
    assert report.differences({one: a, two: b}, {one: a, two: b}) == []
    # Swapped, the sums agree and the files do not.
    assert report.differences({one: a, two: b}, {one: b, two: a}) == ["1", "2"]
    assert report.differences({one: a}, {one: a, three: "SyntaxError: x"}) == ["3"]


@pytest.mark.parametrize(
    ("called", "folder", "printed"),
    [
        ("{tmp}/.venv/bin/tenure", "{tmp}", ".venv/bin/tenure"),
        ("{tmp}/.venv/bin/tenure", "{tmp}/.venv/lib", "{tmp}/.venv/bin/tenure"),
        ("{tmp}/src/tenure/__main__.py", "{tmp}", f"{shlex.quote(sys.executable)} -m tenure"),
    ],
)
def test_commands_are_printed_so_that_they_can_be_copied(
    tmp_path, monkeypatch, called, folder, printed
):
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "lib").mkdir()
    (tmp_path / ".venv" / "bin" / "tenure").touch(0o755)
    monkeypatch.setattr(sys, "argv", [called.format(tmp=tmp_path)])
    monkeypatch.chdir(folder.format(tmp=tmp_path))
    assert command.program() == printed.format(tmp=tmp_path)
    if called.endswith("tenure"):
        monkeypatch.setenv("PATH", str(tmp_path / ".venv" / "bin"))
        assert command.program() == "tenure"
