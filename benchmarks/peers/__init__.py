"""Other libraries, each in a process of an environment of its own (`--setup-peers`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.children import ROOT, Child

REQUIREMENTS = Path(__file__).resolve().parent.parent / "requirements-peers.txt"
ENVIRONMENT = ROOT / ".venv-peers"
NOT_INSTALLED = "not installed (python -m benchmarks --setup-peers)"
ON_POSTGRES = ("pgqueuer", "procrastinate", "saq")
_PYTHON = ENVIRONMENT / "bin" / "python"


def installed() -> bool:
    """Whether `setup` has run, for these versions."""
    ready = ENVIRONMENT / ".ready"
    return ready.exists() and ready.read_text() == REQUIREMENTS.read_text() and _PYTHON.exists()


def setup() -> None:
    """Make the environment and install the peers into it."""
    base = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([base, "-m", "venv", "--clear", "--without-pip", ENVIRONMENT], check=True)
    install = [base, "-m", "pip", "--python", _PYTHON, "install", "--disable-pip-version-check"]
    subprocess.run([*install, "-r", REQUIREMENTS], check=True)
    (ENVIRONMENT / ".ready").write_text(REQUIREMENTS.read_text())


def huey(folder: Path) -> Child:
    """huey on a SQLite file in this folder."""
    script = Path(__file__).with_name("huey_sqlite.py")
    return Child([str(_PYTHON), str(script), str(folder / "huey.db")])


def on_postgres(name: str, url: str) -> Child:
    """One of `ON_POSTGRES`, on an empty database of its own."""
    script = Path(__file__).with_name("on_postgres.py")
    return Child([str(_PYTHON), str(script), name, url])


def on_redis(name: str, url: str) -> Child:
    """huey or dramatiq on a server."""
    script = Path(__file__).with_name("on_redis.py")
    return Child([str(_PYTHON), str(script), name, url])
