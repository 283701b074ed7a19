"""`tenure jobs`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import click

from tenure.cli import output, target
from tenure.cli.options import app_argument, common
from tenure.cli.output import Column
from tenure.cli.selecting import selected, selecting
from tenure.cli.text import short, span
from tenure.core.job import Job
from tenure.core.query import PAGE_MAX
from tenure.service import QueueService

_COLUMNS = (
    Column("ID"),
    Column("STATE"),
    Column("TASK"),
    Column("QUEUE"),
    Column("ATTEMPT", right=True),
    Column("AGE", right=True),
    Column("ERROR"),
)


@click.command()
@app_argument
@selecting
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, PAGE_MAX),
    default=20,
    show_default=True,
    help="How many at most.",
)
@click.option("--before", metavar="ID", help="Older than this one: the next page.")
@common
def jobs(
    app: str | None,
    limit: int,
    before: str | None,
    as_json: bool,
    show_traceback: bool,
    **given: Any,
) -> None:
    """List jobs, newest first.

    A pending job that waits for its time is shown as "scheduled", or "retrying" after a failure.
    """

    async def ask(service: QueueService, _: bool) -> list[Job]:
        return await service.find(limit=limit, before=before, **selected(given))

    found = target.call(app, ask, show_traceback=show_traceback)
    if as_json:
        output.documents(job.to_dict() for job in found)
        return
    output.table(_COLUMNS, [_row(job) for job in found], "no job matches")
    if len(found) == limit and sys.stdout.isatty():
        output.note(f"there may be more: --before {found[-1].id}")


def _row(job: Job) -> tuple[str, ...]:
    age = (datetime.now(UTC) - job.created_at).total_seconds()
    error = short(f"{job.error.kind}: {job.error.message}") if job.error else ""
    attempt = f"{job.attempt}/{job.max_attempts}"
    return job.id, job.label, job.task, job.queue, attempt, span(age), error
