"""Python programs as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import tenure

ROOT = Path(__file__).resolve().parents[2]


def surroundings(**more: str) -> dict[str, str]:
    """An environment in which this very library and these tests are found."""
    source = Path(tenure.__file__).parent.parent
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(source), str(ROOT))), **more}


def start(code: str, *arguments: str, cwd: Path, **more: str) -> subprocess.Popen[str]:
    """Start a program given as text."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        cwd=cwd,
        env=surroundings(**more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(process: subprocess.Popen[str], seconds: float = 30.0) -> str:
    """What it printed, once it ended well; a failure shows what it said."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"hangs\n{out}\n{err}") from None
    assert process.returncode == 0, f"{process.returncode}\n{out}\n{err}"
    return out


def run(code: str, *arguments: str, cwd: Path, seconds: float = 30.0, **more: str) -> str:
    """Start a program and return what it printed."""
    return output(start(code, *arguments, cwd=cwd, **more), seconds)
