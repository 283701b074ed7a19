"""`tenure maintain`."""

from __future__ import annotations

import click
import msgspec

from tenure.cli import output, target
from tenure.cli.errors import FAILED
from tenure.cli.options import app_argument, common
from tenure.cli.output import Column
from tenure.core.upkeep import Maintained
from tenure.service import QueueService

_COLUMNS = (Column("PHASE"), Column("STATE"), Column("COUNT", right=True), Column("ERROR"))


@click.command()
@app_argument
@click.option(
    "--budget",
    type=click.FloatRange(0, 86_400),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="About how long it may take.",
)
@common
def maintain(app: str | None, budget: float, as_json: bool, show_traceback: bool) -> None:
    """Do the housekeeping of a store, in phases, for a limited time.

    Sweeps overdue and lapsed jobs, removes jobs and events that are kept no longer, and fires the
    schedules of the app that are due. One process of a fleet does it at a time; another one says so
    and ends with 0. Ends with 1 if a phase failed. Workers do the same by themselves; this is for
    hosts without one.
    """

    async def ask(service: QueueService, _: bool) -> Maintained:
        return await service.maintain(budget)

    report = target.call(app, ask, show_traceback=show_traceback)
    if as_json:
        output.document({"state": report.state, **msgspec.to_builtins(report)})
    elif report.already_running:
        output.note(f"already running, by {report.runner}")
    else:
        rows = [(p.name, str(p.state), p.count, p.error or "") for p in report.phases]
        output.table(_COLUMNS, rows, "no phase")
    if report.state == "failed":
        click.get_current_context().exit(FAILED)
