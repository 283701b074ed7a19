"""`tenure prune`."""

from __future__ import annotations

from typing import Any

import click

from tenure.cli import output, target
from tenure.cli.options import common
from tenure.cli.selecting import Age, selected, selecting
from tenure.service import QueueService


@click.command()
@click.argument("arguments", nargs=-1, metavar="[APP] [ID]...")
@click.option("--older-than", type=Age(), help="That ended so long ago, as 7d, 12h or 15m.")
@selecting
@click.option("--dry-run", is_flag=True, help="Remove nothing; tell how many there are.")
@click.option("--yes", is_flag=True, help="Do not ask, however many jobs there are.")
@common
def prune(
    arguments: tuple[str, ...],
    older_than: float | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    show_traceback: bool,
    **given: Any,
) -> None:
    """Remove jobs that ended, for good.

    Those with these ids, or all that the options tell. Workers remove by themselves what is kept
    no longer (see the setting "retention").
    """
    app, ids = target.split(arguments)
    where = selected(given)
    age = older_than or 0.0
    if not ids and not where and not age:
        raise click.UsageError("which jobs? Give ids, --older-than, or options that tell")

    async def count(service: QueueService, _: bool) -> int:
        return await service.prune(*ids, older_than=age, dry_run=True, **where)

    async def act(service: QueueService, _: bool) -> int:
        return await service.prune(*ids, older_than=age, **where)

    found = None
    if dry_run or not yes:
        found = target.call(app, count, show_traceback=show_traceback)
        if not dry_run and found > 1:
            click.confirm(f"Remove {found} jobs?", abort=True, err=True)
    removed = 0 if dry_run else target.call(app, act, show_traceback=show_traceback)
    if as_json:
        output.document({"would_remove": found} if dry_run else {"removed": removed})
    elif dry_run:
        click.echo(f"{found} jobs would be removed")
    else:
        click.echo(f"{removed} jobs removed")
