"""`tenure job show|cancel|requeue`."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec

from tenure.cli import output, target
from tenure.cli.details import details
from tenure.cli.errors import FAILED, NOT_FOUND
from tenure.cli.options import common
from tenure.cli.text import line
from tenure.core.job import Job
from tenure.core.query import CancelResult, RequeueResult
from tenure.service import QueueService

_yes = click.option("--yes", is_flag=True, help="Do not ask, however many jobs there are.")
_ids = click.argument("arguments", nargs=-1, required=True, metavar="[APP] ID...")


@click.group()
def job() -> None:
    """Show, cancel or requeue jobs by their ids.

    The first argument is the APP if it has a colon in it; ids have none.
    """


@job.command()
@click.argument("arguments", nargs=-1, required=True, metavar="[APP] ID")
@common
def show(arguments: tuple[str, ...], as_json: bool, show_traceback: bool) -> None:
    """Show all there is to know about one job."""
    app, ids = _split(arguments)
    if len(ids) > 1:
        raise click.UsageError(f"one id, not {len(ids)}")

    async def ask(service: QueueService, _: bool) -> Job:
        return await service.get(ids[0])

    found = target.call(app, ask, show_traceback=show_traceback)
    if as_json:
        output.document(found.to_dict())
    else:
        click.echo(details(found))


@job.command()
@_ids
@click.option(
    "--force",
    is_flag=True,
    help="End running jobs at once and take their lease away, instead of asking their workers.",
)
@_yes
@common
def cancel(
    arguments: tuple[str, ...], force: bool, yes: bool, as_json: bool, show_traceback: bool
) -> None:
    """Cancel pending jobs at once, and ask running ones to stop.

    Ends with 1 if one of them had ended before, and with 3 if one is not there.
    """
    app, ids = _split(arguments)
    _confirm("Cancel", ids, yes=yes)

    async def act(service: QueueService, _: bool) -> CancelResult:
        return await service.cancel(*ids, force=force)

    _report(target.call(app, act, show_traceback=show_traceback), as_json=as_json)


@job.command()
@_ids
@_yes
@common
def requeue(arguments: tuple[str, ...], yes: bool, as_json: bool, show_traceback: bool) -> None:
    """Make ended jobs pending again, with fresh attempts.

    Ends with 1 if one of them has not ended, and with 3 if one is not there.
    """
    app, ids = _split(arguments)
    _confirm("Requeue", ids, yes=yes)

    async def act(service: QueueService, _: bool) -> RequeueResult:
        return await service.requeue(*ids)

    _report(target.call(app, act, show_traceback=show_traceback), as_json=as_json)


def _split(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    app, ids = target.split(arguments)
    if not ids:
        raise click.UsageError("an id is missing")
    return app, list(dict.fromkeys(ids))


def _confirm(verb: str, ids: Sequence[str], *, yes: bool) -> None:
    if len(ids) > 1 and not yes:
        click.confirm(f"{verb} {len(ids)} jobs?", abort=True, err=True)


_WORDS = {
    "cancelled": "cancelled",
    "requested": "asked to stop",
    "requeued": "pending again",
    "already_final": "had ended before",
    "not_final": "has not ended",
    "not_found": "not found",
    "busy": "held by a transaction of its body; try again",
    "taken": "has a unique key that another job has by now",
}
_REFUSED = ("already_final", "not_final", "busy", "taken")


def _report(result: CancelResult | RequeueResult, *, as_json: bool) -> None:
    """Print what became of each id, and end with the code that says whether all went well."""
    kinds: dict[str, list[str]] = msgspec.to_builtins(result)
    if as_json:
        output.document(kinds)
    else:
        for kind, ids in kinds.items():
            for job_id in ids:
                click.echo(f"{line(job_id)}  {_WORDS[kind]}")
    if kinds["not_found"]:
        click.get_current_context().exit(NOT_FOUND)
    if any(kinds.get(kind) for kind in _REFUSED):
        click.get_current_context().exit(FAILED)
