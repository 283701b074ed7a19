"""Run the gates, side by side, and show the output of those that fail.

``check.py [GATE...]`` runs only the named ones. Exits 1 when one fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable


@dataclass(frozen=True, slots=True)
class Gate:
    name: str
    command: tuple[str, ...]
    needs: str = "."  # a path without which there is nothing to check
    talks: bool = False  # shows its output when it passes, too
    after: str = ""  # what comes up to and with this text is decoration


GATES = (
    Gate("format", (PYTHON, "-m", "ruff", "format", "--check", ".")),
    Gate("lint", (PYTHON, "-m", "ruff", "check", ".")),
    Gate("types", (PYTHON, "-m", "mypy")),
    Gate(
        "typing tests",
        (PYTHON, "-m", "basedpyright", "--warnings", "--pythonpath", PYTHON),
        needs="tests/typing",
    ),
    Gate(
        "layers",
        (str(Path(PYTHON).with_name("lint-imports")), "--no-cache"),
        after="Contracts\n---------\n",
    ),
    Gate("generated", (PYTHON, "tools/generate.py", "--check")),
    Gate("sizes", (PYTHON, "tools/file_sizes.py"), talks=True),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    gate: Gate
    word: str
    seconds: float
    output: str

    def __str__(self) -> str:
        line = f"{self.word:<5} {self.gate.name:<13} {self.seconds:5.1f} s"
        shown = self.word == "FAIL" or (self.gate.talks and self.output)
        return f"{line}\n{_indent(self.output)}" if shown else line


def run(gate: Gate) -> Verdict:
    if not (ROOT / gate.needs).exists():
        return Verdict(gate, "none", 0.0, "")
    started = time.monotonic()
    # No colours and no width of a terminal: the output is read in logs as well.
    done = subprocess.run(
        gate.command,
        cwd=ROOT,
        env=os.environ | {"NO_COLOR": "1", "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    word = "ok" if done.returncode == 0 else "FAIL"
    output = done.stdout.split(gate.after, 1)[-1] if gate.after else done.stdout
    return Verdict(gate, word, time.monotonic() - started, output.strip())


def _indent(text: str) -> str:
    return "\n".join(f"      {line}".rstrip() for line in text.splitlines())


def main(names: list[str]) -> int:
    known = {gate.name for gate in GATES}
    if unknown := [name for name in names if name not in known]:
        print(f"no such gate: {', '.join(unknown)}; there are: {', '.join(sorted(known))}")
        return 2
    chosen = [gate for gate in GATES if not names or gate.name in names]
    failed = 0
    with ThreadPoolExecutor(max_workers=len(chosen)) as pool:
        for verdict in pool.map(run, chosen):
            print(verdict, flush=True)
            failed += verdict.word == "FAIL"
    if failed:
        print(f"{failed} of {len(chosen)} checks failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
