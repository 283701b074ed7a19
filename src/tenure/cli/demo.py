"""`tenure demo`."""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import shutil
import signal
import sys
import sysconfig
import tempfile
from pathlib import Path

import click
import msgspec

from tenure.cli import output
from tenure.cli.errors import FAILED, Failure, Refusal
from tenure.cli.text import line, size
from tenure.demo.measure import python_files
from tenure.demo.report import Report, commands
from tenure.demo.run import Demo, DemoFailed, Plan
from tenure.demo.screen import Screen, screen

_TERMINATED = 128 + signal.SIGTERM
_SHOWN_DIFFERENCES = 5


@click.command()
@click.argument(
    "path",
    required=False,
    metavar="[PATH]",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option(
    "--engine", metavar="URL", help="The store; by default a SQLite file in a new folder."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def demo(path: Path | None, engine: str | None, as_json: bool) -> None:
    """See it work: two workers, one of them killed, on real files.

    Each Python file in the folder PATH (by default Python's standard library) is one job: its
    hash, lines, functions and classes. Files that do not parse fail, are retried, and fail for
    good. When 30 % are done, one worker is killed; its leases run out, and the other takes over.
    The results are held against a plain computation.

    Ends with 0 only if every job is final and every number agrees. The store stays, and the
    commands to look at it are printed.
    """
    folder = Path(tempfile.mkdtemp(prefix="tenure-demo-"))
    url = _checked(engine) or f"sqlite:///{folder / 'jobs.db'}"
    chosen = path or Path(sysconfig.get_path("stdlib"))
    plan = Plan(python_files(chosen), url, f"demo-{secrets.token_hex(3)}", folder)
    shown = screen(live=not as_json)
    shown.say(f"{len(plan.files)} Python files in {line(chosen.resolve())}")
    try:
        report = _run(plan, shown)
    except DemoFailed as error:
        raise Failure(str(error)) from None
    finally:
        shown.close()
    if as_json:
        output.document(msgspec.to_builtins(report) | {"agrees": report.good})
    else:
        _print(report)
    if not report.good:
        click.get_current_context().exit(FAILED)


def _checked(url: str | None) -> str | None:
    if url is None or url.startswith("sqlite:"):
        return url
    if url.startswith("memory:"):
        raise Refusal("the workers are processes of their own, and memory:// is inside one only")
    raise Refusal("the demo runs on sqlite:// URLs")


def _run(plan: Plan, shown: Screen) -> Report:
    """Run it so that SIGTERM, like Ctrl-C, ends the workers before it ends the demo."""
    terminated = False

    async def main() -> Report:
        task = asyncio.current_task()
        assert task is not None

        def terminate() -> None:
            nonlocal terminated
            terminated = True
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
        return await Demo(plan, shown).run()

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        if not terminated:
            raise
        click.get_current_context().exit(_TERMINATED)


def _print(report: Report) -> None:
    for text in _summary(report):
        click.echo(text)
    click.echo()
    click.echo(click.style("Look at it", bold=True))
    for command in commands(report, program()):
        click.echo(f"  {command}")


def _summary(report: Report) -> list[str]:
    facts = [
        ("files", f"{report.files} ({report.completed} measured, {report.failed} failed)"),
        ("bytes", f"{report.bytes:,} in {report.lines:,} lines"),
        ("found", f"{report.functions:,} functions, {report.classes:,} classes"),
        ("time", f"{report.seconds:.1f} s, from the first enqueue until every job was final"),
        ("kill", _kill(report)),
        ("check", _check(report)),
    ]
    lines = ["", click.style("Report", bold=True)]
    lines += [f"  {name:<6} {value}" for name, value in facts]
    lines += ["", click.style("The largest", bold=True)]
    lines += [f"  {size(f.size):>9}  {f.lines:>7,} lines  {line(f.path)}" for f in report.largest]
    if report.failures:
        lines += ["", click.style("Failures", bold=True)]
    for failure in report.failures:
        lines += [f"  {failure.count:>3} × {line(failure.error)}", f"        {line(failure.path)}"]
    return lines


def _kill(report: Report) -> str:
    if report.killed is None:
        return "none: no worker held a job at the right moment; there are too few files"
    return (
        f"worker {report.killed.worker} held {len(report.killed.held)} jobs; "
        f"{report.lapsed} leases lapsed, {len(report.taken_over)} jobs were taken over"
    )


def _check(report: Report) -> str:
    if report.unfinished:
        return f"FAILED: {report.unfinished} jobs are not final"
    if report.differences:
        paths = ", ".join(line(path) for path in report.differences[:_SHOWN_DIFFERENCES])
        return f"FAILED: {len(report.differences)} files differ from the plain computation: {paths}"
    return "every job is final, and every file's numbers equal those of a plain computation"


def program() -> str:
    """The words that start this very command, fit to be copied."""
    called = Path(sys.argv[0])
    if called.name != "tenure":
        return f"{shlex.quote(sys.executable)} -m tenure"
    found = shutil.which("tenure")
    if found is not None and os.path.samefile(found, called):
        return "tenure"
    try:
        return shlex.quote(str(called.resolve().relative_to(Path.cwd())))
    except ValueError:
        return shlex.quote(str(called))
