"""`tenure queues`."""

from __future__ import annotations

import click
import msgspec

from tenure.cli import output, target
from tenure.cli.options import app_argument, common
from tenure.cli.output import Column
from tenure.cli.text import span
from tenure.core.query import QueueStats
from tenure.service import QueueService

_COUNTS = tuple(
    name for name in QueueStats.__struct_fields__ if name not in {"queue", "oldest_due"}
)


@click.command()
@app_argument
@common
def queues(app: str | None, as_json: bool, show_traceback: bool) -> None:
    """Count the jobs of each queue by state.

    "pending" are due now, "scheduled" wait for their time, "lapsed" are running jobs whose worker
    vanished. "waiting" is how long the first due job has waited.
    """

    async def ask(service: QueueService, _: bool) -> list[QueueStats]:
        return await service.queues.stats()

    found = target.call(app, ask, show_traceback=show_traceback)
    if as_json:
        output.documents(_as_json(stats) for stats in found)
        return
    columns = [Column("QUEUE"), *(Column(name.upper(), right=True) for name in _COUNTS)]
    rows = [
        [stats.queue, *(getattr(stats, name) for name in _COUNTS), _waiting(stats)]
        for stats in found
    ]
    output.table([*columns, Column("WAITING", right=True)], rows, "no queue holds a job")


def _as_json(stats: QueueStats) -> dict[str, object]:
    values: dict[str, object] = msgspec.to_builtins(stats)
    due = values.pop("oldest_due")
    return {**values, "waiting_seconds": None if due is None else stats_seconds(stats)}


def stats_seconds(stats: QueueStats) -> float:
    """How long the first due job of a queue has waited."""
    return (stats.oldest_due or 0) / 1e6


def _waiting(stats: QueueStats) -> str:
    return "" if stats.oldest_due is None else span(stats_seconds(stats))
