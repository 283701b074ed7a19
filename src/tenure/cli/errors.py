"""How commands end: the exit codes, and errors that a person can read instead of tracebacks."""

from __future__ import annotations

from typing import IO, Any, Final

import click

from tenure.cli.text import block
from tenure.errors import (
    EngineUnavailable,
    JobNotClaimable,
    JobNotFound,
    LeaseLost,
    ScheduleNotFound,
    SchemaError,
    TenureError,
)

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
UNAVAILABLE: Final = 4
NOT_CLAIMABLE: Final = 5
NOT_ENDED: Final = 6
INTERRUPTED: Final = 130

CODES: Final = {
    OK: "done as asked",
    FAILED: "the job, or the action on it, did not succeed",
    USAGE: "the command cannot be understood: options, arguments, app, task",
    NOT_FOUND: "no job has this id, or no schedule this name",
    UNAVAILABLE: "the store cannot be reached or used",
    NOT_CLAIMABLE: "the job cannot be run now: it runs elsewhere, is not due, or has ended",
    NOT_ENDED: "the job was given back, or is to be retried",
    INTERRUPTED: "ended by Ctrl-C (any other signal: 128 + its number)",
}
"""The exit codes, the same for every command."""


class Refusal(click.ClickException):
    """Ends the command with a message; `detail` is printed before it."""

    exit_code = USAGE

    def __init__(self, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message on the error output."""
        if self.detail:
            click.echo(block(self.detail), file=file, err=True)
        click.echo(f"Error: {block(self.message)}", file=file, err=True)


class Failure(Refusal):
    """The job, or the action on it, did not succeed."""

    exit_code = FAILED


class NotFound(Refusal):
    """No job has this id, or no schedule this name."""

    exit_code = NOT_FOUND


class NotClaimable(Refusal):
    """The job cannot be run now."""

    exit_code = NOT_CLAIMABLE


class Unavailable(Refusal):
    """The store cannot be reached or used."""

    exit_code = UNAVAILABLE


def refusal_of(error: TenureError) -> Refusal:
    """The refusal that tells a user of an error of the library."""
    if isinstance(error, JobNotFound | ScheduleNotFound):
        return NotFound(str(error))
    if isinstance(error, JobNotClaimable | LeaseLost):
        return NotClaimable(str(error))
    if isinstance(error, EngineUnavailable | SchemaError):
        return Unavailable(str(error))
    return Refusal(str(error))
