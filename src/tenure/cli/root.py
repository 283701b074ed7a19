"""The command group. It knows the names of the commands, and imports one when it is called."""

from __future__ import annotations

import importlib
from typing import Any

import click

from tenure.cli.errors import CODES, INTERRUPTED, refusal_of
from tenure.errors import TenureError

COMMANDS = {
    "demo": "See it work: two workers, one of them killed, on real files.",
    "doctor": "Look for what is wrong with a store, and say what to do.",
    "enqueue": "Put one job in and print its id.",
    "job": "Show, cancel or requeue jobs by their ids.",
    "jobs": "List jobs, newest first.",
    "maintain": "Do the housekeeping of a store, in phases, for a limited time.",
    "migrate": "Create or upgrade the store's tables; safe to repeat.",
    "prune": "Remove jobs that ended, for good.",
    "queues": "Count the jobs of each queue; pause, resume and limit queues.",
    "run-one": "Run one job, named by its id, in this process.",
    "schedules": "List recurring jobs, run, pause or resume them.",
    "sweep": "Expire what is overdue and take back lapsed jobs, whatever their task.",
    "worker": "Run the jobs of an app until told to stop.",
}
"""Every command with its line of help. Command NAME is `NAME` in the module `tenure.cli.NAME`,
with underscores for hyphens."""


class Root(click.Group):
    """Imports a command when it is called, and turns errors into messages and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(importlib.import_module(f"tenure.cli.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            known = ", ".join(COMMANDS)
            raise click.UsageError(f"there is no command {name!r}; the commands are {known}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # From the table: asking the commands themselves would import every one of them.
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in CODES.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TenureError as error:
            raise refusal_of(error) from error
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


def _version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from importlib.metadata import PackageNotFoundError, version

        try:
            click.echo(f"tenure {version('tenure')}")
        except PackageNotFoundError:
            click.echo("tenure, of unknown version: it runs from its source, not installed")
        ctx.exit()


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Durable background work for Python, held on leases.

    Most commands work on an APP: `module:attribute`, where a QueueService is, or the URL of a
    store, as in `sqlite:///jobs.db`. Without it, TENURE_APP is taken, then `app` of `[tool.tenure]`
    in ./pyproject.toml, then TENURE_URL. The current folder is importable.

    Lists are printed as tables, and with --json as one JSON object per line; everything else is
    one JSON document. Messages go to the standard error output.
    """
