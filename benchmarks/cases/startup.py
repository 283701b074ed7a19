"""Import of tenure, and `tenure --help`: beside other imports, and bare Python."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from benchmarks.children import ROOT
from benchmarks.measure import Sample, duel, ratio, spread
from benchmarks.rows import Row, missing, short
from benchmarks.setting import ANY, Setting

ENGINES = (ANY,)
_TIMED = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def run(setting: Setting) -> Iterator[Row]:
    ours, plain = _compared(setting, _imported("tenure"), _imported("asyncio, sqlite3"))
    yield _row("import", "import of tenure", ours, "asyncio and sqlite3", plain)
    if importlib.util.find_spec("tenure.cli") is None:
        yield missing("help", "any", "tenure --help", "there is no command yet", "ms")
        return
    ours, plain = _compared(setting, ("-m", "tenure", "--help"), ("-c", "pass"))
    yield _row("help", "tenure --help", ours, "bare Python", plain)


def _compared(
    setting: Setting, ours: Sequence[str], other: Sequence[str]
) -> tuple[list[Sample], list[Sample]]:
    samples = duel(
        {"tenure": lambda: _time(ours), "other": lambda: _time(other)}, setting.effort.starts
    )
    return samples["tenure"], samples["other"]


def _row(
    name: str, measure: str, ours: Sequence[Sample], other: str, others: Sequence[Sample]
) -> Row:
    now, beside = (spread(s.seconds * 1e3 for s in samples) for samples in (ours, others))
    times = ratio([s.seconds for s in ours], [s.seconds for s in others]).median
    return Row(
        name=name,
        engine="any",
        measure=measure,
        now=now,
        unit="ms",
        ours=f"{short(now.median)} ms",
        beside=f"{other} {short(beside.median)} ms ({short(times)}x)",
    )


def _imported(modules: str) -> tuple[str, ...]:
    return ("-c", _TIMED.format(modules))


def _time(arguments: Sequence[str]) -> Sample:
    """What the command says it took; if it says something else, the time of the whole process."""
    before = time.perf_counter()
    done = subprocess.run(
        (sys.executable, *arguments),
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = time.perf_counter() - before
    try:
        seconds = float(done.stdout)
    except ValueError:
        pass
    return Sample(1, seconds, 1e-9)
