"""`tenure job show|cancel|requeue`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from tenure.cli import output, target
from tenure.cli.details import details
from tenure.cli.errors import FAILED, NOT_FOUND, Refusal
from tenure.cli.options import common
from tenure.cli.progress import in_parts
from tenure.cli.selecting import selected, selecting
from tenure.cli.text import line
from tenure.cli.values import arguments_of, sort_out
from tenure.core.job import Job
from tenure.core.query import CancelResult, RequeueResult
from tenure.lookups import Selection
from tenure.service import QueueService

_yes = click.option("--yes", is_flag=True, help="Do not ask, however many jobs there are.")
_dry = click.option("--dry-run", is_flag=True, help="Change nothing; tell what would be done.")
_ids = click.argument("arguments", nargs=-1, metavar="[APP] [ID]...")


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
    app, ids = target.split(arguments)
    if len(ids) != 1:
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
@selecting
@_dry
@_yes
@common
def cancel(
    arguments: tuple[str, ...],
    force: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    show_traceback: bool,
    **given: Any,
) -> None:
    """Cancel pending jobs at once, and ask running ones to stop.

    Those with these ids, or all that the options tell: of any state that is not final, unless
    --state says which. Ends with 1 if one of them had ended before, and with 3 if one is not there.
    """
    app, ids = target.split(arguments)
    where = selected(given)

    async def tell(service: QueueService, _: bool) -> CancelResult:
        return await service.cancel(*ids, force=force, dry_run=True, **where)

    async def act(service: QueueService, _: bool) -> CancelResult:
        return await in_parts(chosen, lambda part: service.cancel(*part, force=force), "Cancelling")

    chosen = list(dict.fromkeys(ids))
    _need(ids, where)
    if where or dry_run:
        told = target.call(app, tell, show_traceback=show_traceback)
        chosen = [*told.cancelled, *told.requested]
        if dry_run:
            _report(told, as_json=as_json, dry_run=True)
            return
    _confirm("Cancel", chosen, yes=yes)
    _report(target.call(app, act, show_traceback=show_traceback), as_json=as_json)


@job.command()
@_ids
@click.option(
    "--argument",
    "edits",
    multiple=True,
    metavar="NAME=VALUE",
    help="Of one job: run with this value instead, as `enqueue` reads it; the others stay.",
)
@selecting
@_dry
@_yes
@common
def requeue(
    arguments: tuple[str, ...],
    edits: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
    show_traceback: bool,
    **given: Any,
) -> None:
    """Make ended jobs pending again, with fresh attempts.

    Those with these ids, or all that the options tell: that failed, unless --state says which.
    Ends with 1 if one of them has not ended, and with 3 if one is not there.
    """
    app, ids = target.split(arguments)
    where = selected(given)

    async def tell(service: QueueService, _: bool) -> RequeueResult:
        return await service.requeue(*ids, dry_run=True, **where)

    async def act(service: QueueService, is_app: bool) -> RequeueResult:
        if not edits:
            return await in_parts(chosen, lambda part: service.requeue(*part), "Requeueing")
        if len(chosen) != 1:
            raise Refusal("--argument is for one job, by its id")
        job = await service.get(chosen[0])
        values = _edited(service if is_app else None, job, edits)
        return await service.requeue(chosen[0], arguments=values)

    chosen = list(dict.fromkeys(ids))
    _need(ids, where)
    if where or dry_run:
        told = target.call(app, tell, show_traceback=show_traceback)
        chosen = list(told.requeued)
        if dry_run:
            _report(told, as_json=as_json, dry_run=True)
            return
    _confirm("Requeue", chosen, yes=yes)
    _report(target.call(app, act, show_traceback=show_traceback), as_json=as_json)


def _edited(service: QueueService | None, job: Job, edits: tuple[str, ...]) -> dict[str, Any]:
    """The arguments of a job with some replaced."""
    if service is not None and job.task in service.tasks:
        args, values = arguments_of(service.tasks.get(job.task), edits)
        positional = [str(value) for value in args]
    else:
        positional, named, exact = sort_out(edits)
        values = {**named, **exact}
    if positional:
        raise Refusal(f"{positional[0]!r}: write --argument NAME=VALUE or NAME:=JSON")
    return {**job.arguments, **values}


def _need(ids: Sequence[str], where: Selection) -> None:
    if not ids and not where:
        raise click.UsageError("which jobs? Give ids, or options that tell")


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


def _report(result: CancelResult | RequeueResult, *, as_json: bool, dry_run: bool = False) -> None:
    """Print what became of each id, and end with the code that says whether all went well."""
    kinds: dict[str, list[str]] = msgspec.to_builtins(result)
    if as_json:
        output.document({**kinds, "dry_run": True} if dry_run else kinds)
    else:
        if dry_run:
            output.note("nothing is changed; this is what would become of them")
        elif not any(kinds.values()):
            output.note("no job matches")
        for kind, ids in kinds.items():
            for job_id in ids:
                click.echo(f"{line(job_id)}  {_WORDS[kind]}")
    if kinds["not_found"]:
        click.get_current_context().exit(NOT_FOUND)
    if any(kinds.get(kind) for kind in _REFUSED):
        click.get_current_context().exit(FAILED)
