"""`tenure migrate`."""

from __future__ import annotations

import click

from tenure.cli import output, target
from tenure.cli.options import app_argument, common
from tenure.service import QueueService


@click.command()
@app_argument
@click.option("--sql", is_flag=True, help="Print the SQL that would be needed, and do nothing.")
@common
def migrate(app: str | None, sql: bool, as_json: bool, show_traceback: bool) -> None:
    """Create or upgrade the store's tables; safe to repeat."""
    if sql:
        _print_sql(app, as_json=as_json, show_traceback=show_traceback)
        return

    async def ask(service: QueueService, _: bool) -> int:
        return await service.migrate()

    version = target.call(app, ask, show_traceback=show_traceback, creates=True)
    if as_json:
        output.document({"version": version})
    else:
        click.echo(f"schema version {version}")


def _print_sql(app: str | None, *, as_json: bool, show_traceback: bool) -> None:
    from tenure.engines.schema import schema_sql

    service, _ = target.find(app, show_traceback=show_traceback)
    text = schema_sql(service.url)
    if as_json:
        output.document({"sql": text})
    else:
        click.echo(text.rstrip())
