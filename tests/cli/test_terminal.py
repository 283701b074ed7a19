"""What commands look like: help, terminals, pipes and poor locales."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import Any

import click
import pytest

from tenure import TaskRef
from tenure.cli.progress import PART
from tenure.cli.root import COMMANDS, Root, cli
from tenure.cli.text import block, line, short, size, span
from tenure.sync import QueueService as SyncQueueService


def on_a_terminal(tenure: Any, *arguments: str, columns: int = 80) -> str:
    """What a command writes to a terminal of this width."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tenure", *arguments],
        cwd=tenure.folder,
        env=os.environ | {"COLUMNS": str(columns), "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    written = b""
    try:
        while part := os.read(ours, 4096):
            written += part
    except OSError:
        pass  # Linux: the other end was closed
    os.close(ours)
    process.wait(timeout=20)
    return written.decode().replace("\r\n", "\n")


def test_a_table_is_fitted_to_the_terminal(tenure):
    tenure.enqueue("fail", "text=" + "long " * 50)
    tenure.start("worker", "app:jobs", "--burst").wait(timeout=20)
    shown = on_a_terminal(tenure, "jobs", "app:jobs", columns=100)
    head, row = shown.splitlines()
    assert head.startswith("\x1b[1mID")
    assert len(row) == 100
    assert row.endswith("…")
    narrow = on_a_terminal(tenure, "jobs", "app:jobs", columns=20)
    assert row.split()[0] in narrow
    assert "more" in on_a_terminal(tenure, "jobs", "app:jobs", "-n", "1")


def test_a_long_action_shows_how_far_it_is(tenure):
    with SyncQueueService(tenure.url) as jobs:
        jobs.enqueue_many([TaskRef("add").bind(a=n) for n in range(PART + 1)])
    shown = on_a_terminal(tenure, "job", "cancel", "app:jobs", "--task", "add", "--yes")
    assert "Cancelling" in shown
    assert "100%" in shown
    assert shown.count("  cancelled\n") == PART + 1
    told = tenure("job", "requeue", "app:jobs", "--state", "cancelled", "--yes")
    assert (told.stdout.count("  pending again\n"), told.stderr) == (PART + 1, "")
    few = on_a_terminal(tenure, "job", "cancel", "app:jobs", tenure.enqueue("add", "1"))
    assert "%" not in few


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_encoding_of_the_output_will_do(tenure, encoding):
    tenure.enqueue("hello", "grüße ✓")
    poor = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": encoding}
    for command in (["jobs", "app:jobs"], ["jobs", "app:jobs", "--json"]):
        process = tenure.start(*command, **poor)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (0, "")
        assert "hello" in out
    job_id = out.split('"')[3]
    process = subprocess.run(
        [sys.executable, "-m", "tenure", "job", "show", "app:jobs", job_id],
        env=os.environ | poor,
        capture_output=True,
        timeout=20,
        check=True,
    )
    # Click takes an ASCII output for a mistake and writes UTF-8.
    expected = "latin-1" if encoding == "latin-1" else "utf-8"
    check = "\\u2713" if encoding == "latin-1" else "✓"
    assert f'name = "grüße {check}"' in process.stdout.decode(expected)


def test_a_name_that_no_encoding_has(tenure):
    process = tenure.start("enqueue", "app:jobs", "hello", b"\xff")
    _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "surrogate" in err
    _, err = tenure.start("enqueue", "app:jobs", b"\xff").communicate(timeout=20)
    assert "no task is named" in err


def test_every_command_is_in_the_table_with_its_own_words():
    assert isinstance(cli, Root)
    for name, text in COMMANDS.items():
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        assert (command.help or "").splitlines()[0] == text


def test_help_imports_no_command(tenure):
    code = (
        "import sys; from tenure.cli.root import cli\n"
        "cli.main(['--help'], prog_name='tenure', standalone_mode=False)\n"
        "assert not {'rich', 'tenure.cli.worker', 'tenure.demo'} & set(sys.modules)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=True
    )
    assert "Exit codes" in shown.stdout
    assert all(name in shown.stdout for name in COMMANDS)


def test_an_unknown_command(tenure):
    assert "the commands are demo, doctor" in tenure("enque", code=2).stderr
    assert "No such option" in tenure("--nothing", code=2).stderr
    tenure("--version")


def test_text_is_made_harmless():
    assert line("a\nb\t\x1b[31m\x9b\x7f\u202e\udcff") == "a\\nb\\t\\x1b[31m\\x9b\\x7f\\u202e\\udcff"
    assert block("a\nb\t\x1b") == "a\nb\t\\x1b"
    assert line("grüße ✓ 日本") == "grüße ✓ 日本"
    assert short("x" * 200, 10) == "x" * 9 + "…"


def test_quantities_are_readable():
    assert [span(s) for s in (-1, 59, 60, 7200, 900_000)] == ["0s", "59s", "1m", "2h", "10d"]
    assert [size(n) for n in (5, 1500, 2_500_000, 3e12)] == ["5 B", "1.5 kB", "2.5 MB", "3000.0 GB"]
