"""`tenure sweep`."""

from __future__ import annotations

import click

from tenure.cli import output, target
from tenure.cli.options import app_argument, common
from tenure.cli.output import Column
from tenure.core.query import Swept
from tenure.service import QueueService


@click.command()
@app_argument
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 10_000),
    default=500,
    show_default=True,
    help="How many of each at most.",
)
@common
def sweep(app: str | None, limit: int, as_json: bool, show_traceback: bool) -> None:
    """Expire what is overdue and take back lapsed jobs, whatever their task.

    Workers do this by themselves; this is for hosts without one.
    """

    async def ask(service: QueueService, _: bool) -> list[Swept]:
        return await service.sweep(limit)

    swept = target.call(app, ask, show_traceback=show_traceback)
    if as_json:
        output.documents({"id": job_id, "state": str(state)} for job_id, state in swept)
        return
    output.table([Column("ID"), Column("NOW")], swept, "nothing to sweep")
