"""Run the benchmarks: `python -m benchmarks [NAME...] [--quick | --full] [--json FILE]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks import cases, peers, report
from benchmarks.children import ROOT
from benchmarks.rows import Row, as_text, missing
from benchmarks.setting import EFFORTS, ENGINES, Effort, settings


def measure(names: Sequence[str], engines: Sequence[str], effort: Effort) -> Iterator[Row]:
    """The rows of these benchmarks, on every one of these engines that they are for."""
    known = cases.load()
    for name in names:
        for engine in known[name].ENGINES:
            if engine in engines:
                began = time.monotonic()
                try:
                    with settings(engine, effort) as setting:
                        yield from known[name].run(setting)
                except Exception as error:  # one that fails takes no other along
                    yield missing(name, engine, "did not end", f"failed: {error!r}")
                print(f"{name} on {engine}: {time.monotonic() - began:.1f} s", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.list:
        for name, benchmark in cases.load().items():
            print(f"{name:<20} {cases.purpose(benchmark)}")
        return 0
    if options.setup_peers:
        peers.setup()
        return 0
    if unknown := [name for name in options.names if name not in cases.NAMES]:
        known = ", ".join(cases.NAMES)
        print(f"no such benchmark: {', '.join(unknown)}; there are: {known}", file=sys.stderr)
        return 2
    rows = list(
        measure(options.names or cases.NAMES, options.engine or ENGINES, EFFORTS[options.effort])
    )
    print(as_text(rows))
    if options.json:
        Path(options.json).write_bytes(as_json(rows, options.effort))
    if options.report:
        for path in report.write(rows, options.effort):
            print(f"written: {path.relative_to(ROOT)}")
    return 0


def as_json(rows: Sequence[Row], effort: str) -> bytes:
    """The rows with their targets and verdicts, and the facts of the machine."""
    judged = [
        msgspec.to_builtins(row) | {"target": row.target, "verdict": row.verdict} for row in rows
    ]
    content = {"effort": effort, "machine": report.facts(), "rows": judged}
    return msgspec.json.format(msgspec.json.encode(content))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure tenure against the raw engine and against peers.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which ones (default: all)")
    parser.add_argument("--list", action="store_true", help="name the benchmarks and end")
    size = parser.add_mutually_exclusive_group()
    for word, text in (("quick", "about a minute, coarse"), ("full", "long, fine")):
        size.add_argument(f"--{word}", action="store_const", const=word, dest="effort", help=text)
    parser.set_defaults(effort="default")
    parser.add_argument("--engine", action="append", choices=ENGINES, help="only on this one")
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON, too")
    parser.add_argument("--report", action="store_true", help="write docs/reports/bench-*.md")
    parser.add_argument(
        "--setup-peers", action="store_true", help="install the peers to compare with, and end"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
