"""`tenure doctor`."""

from __future__ import annotations

import click
import msgspec

from tenure.cli import output, target
from tenure.cli.errors import FAILED
from tenure.cli.options import app_argument, common
from tenure.cli.text import line
from tenure.core.fleet import Finding, Inspection
from tenure.service import QueueService


@click.command()
@app_argument
@click.option("--thorough", is_flag=True, help="Read everything, to find damage; may take minutes.")
@common
def doctor(app: str | None, thorough: bool, as_json: bool, show_traceback: bool) -> None:
    """Look for what is wrong with a store, and say what to do.

    Looks for jobs in a condition they should not be in, for what endangers the store, and, given
    an app and not a URL, for jobs of tasks that the app does not know.

    Ends with 1 if jobs or data are in danger; hints alone are no failure.
    """

    async def ask(service: QueueService, _: bool) -> tuple[str, Inspection]:
        return service.url, await service.inspect(thorough=thorough)

    url, found = target.call(app, ask, show_traceback=show_traceback)
    problems = sum(finding.problem for finding in found.findings)
    if as_json:
        output.document({"store": url, "problems": problems, **msgspec.to_builtins(found)})
    else:
        for finding in found.findings:
            _tell(finding)
        hints = len(found.findings) - problems
        output.note(f"{line(url)}: {_count(problems, 'problem')}, {_count(hints, 'hint')}")
    if problems:
        click.get_current_context().exit(FAILED)


def _tell(finding: Finding) -> None:
    kind = click.style("problem", fg="red", bold=True) if finding.problem else "hint"
    click.echo(f"{kind}: {line(finding.text)} [{finding.code}]")
    click.echo(f"    {line(finding.remedy)}")


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"
