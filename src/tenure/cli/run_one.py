"""`tenure run-one`."""

from __future__ import annotations

import logging
from typing import Any

import click

from tenure.cli import logs, output, target
from tenure.cli.errors import FAILED, NOT_ENDED, OK, Refusal
from tenure.cli.options import common
from tenure.cli.text import line
from tenure.cli.worker import time_limit
from tenure.core.job import Job
from tenure.core.states import State
from tenure.service import QueueService
from tenure.worker.signals import leave_now, stop_signals

log = logging.getLogger("tenure.worker")


@click.command("run-one")
@click.argument("arguments", nargs=-1, required=True, metavar="[APP] ID")
@click.option(
    "--token",
    type=int,
    help="Take the job over from the claim with this token, whose holder passed it on.",
)
@click.option(
    "--lease",
    type=float,
    metavar="SECONDS",
    help="After this long the job of a vanished process is taken over (TENURE_LEASE, 30).",
)
@click.option(
    "--shutdown-timeout",
    type=float,
    metavar="SECONDS",
    help="How long the job may take to end after the first signal (30).",
)
@click.option(
    "--log-level",
    type=click.Choice(logs.LEVELS),
    default="warning",
    show_default=True,
    help="From here on up, on the standard error output.",
)
@common
def run_one(
    arguments: tuple[str, ...],
    token: int | None,
    log_level: str,
    as_json: bool,
    show_traceback: bool,
    **options: Any,
) -> None:
    """Run one job, named by its id, in this process.

    Makes one attempt, under a lease, as a worker would, and takes no other job. The first argument
    is the APP if it has a colon in it; ids have none. Signals do what they do to a worker.

    Ends with 0 if the job completed; 1 if it failed, was cancelled or expired; 3 if there is none;
    5 if it cannot be run now (it runs elsewhere, is not due or has ended); and 6 if it was given
    back or is to be retried.
    """
    app, ids = target.split(arguments)
    if len(ids) != 1:
        raise click.UsageError(f"one id, not {len(ids)}")
    changes = {name: value for name, value in options.items() if value is not None}

    async def act(service: QueueService, is_app: bool) -> Job:
        if not is_app:
            raise Refusal(f"to run a job, name the app, as in app:jobs; {service.url} has no tasks")
        single = await service._single(ids[0], token, **changes)
        limit = time_limit(single.options)
        with stop_signals(
            single.stop, limit=limit, told=log.info, waits=lambda: single.running_out
        ):
            job = await single.finish()
        if single.left_behind:
            # An orderly exit would wait for its body for ever.
            log.warning("the body still runs although it was stopped")
            await service.close()
            leave_now(_end(job, as_json=as_json))
        return job

    logs.set_up(log_level, as_json=False)
    job = target.call(app, act, show_traceback=show_traceback)
    click.get_current_context().exit(_end(job, as_json=as_json))


def _end(job: Job, *, as_json: bool) -> int:
    """Tell what became of the job; the exit code that says the same."""
    if as_json:
        output.document(job.to_dict())
    else:
        click.echo(line(job.describe_end()))
    if not job.state.final:
        return NOT_ENDED
    return OK if job.state is State.COMPLETED else FAILED
