"""`tenure enqueue`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from tenure.cli import output, target
from tenure.cli.errors import Failure, Refusal
from tenure.cli.options import common
from tenure.cli.text import block
from tenure.cli.values import arguments_of, sort_out
from tenure.core.job import Job
from tenure.core.states import State
from tenure.options import TaskChanges
from tenure.service import QueueService
from tenure.tasks import BoundTask, TaskRef


class Wait(click.ParamType):  # type: ignore[type-arg]  # older clicks take none
    """Seconds to wait."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            seconds = float(value)
        except ValueError:
            self.fail(
                f"{value!r} is no number of seconds; --wait without one goes last", param, ctx
            )
        if seconds < 0 or math.isnan(seconds):
            self.fail(f"{value!r} is no length of time", param, ctx)
        return seconds


class Instant(click.ParamType):  # type: ignore[type-arg]
    """An ISO 8601 time."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        try:
            return datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is no time such as 2026-01-31T12:00:00+01:00", param, ctx)


@click.command()
@click.argument("arguments", nargs=-1, required=True, metavar="[APP] TASK [VALUE|NAME=VALUE]...")
@click.option("--delay", type=float, metavar="SECONDS", help="Not before this time has passed.")
@click.option("--run-at", type=Instant(), metavar="TIME", help="Not before this ISO 8601 time.")
@click.option("--expires-in", type=float, metavar="SECONDS", help="Not started after this time.")
@click.option("--priority", type=int, help="Higher is earlier.")
@click.option("-q", "--queue", help="The queue; by default the task's.")
@click.option("--max-attempts", type=int, help="Errored attempts before the job is failed.")
@click.option("--timeout", type=float, metavar="SECONDS", help="How long one attempt may take.")
@click.option(
    "--wait",
    type=Wait(),
    is_flag=False,
    flag_value="inf",
    metavar="[SECONDS]",
    help="Wait for the end, and print the result. Without SECONDS write it last.",
)
@common
def enqueue(
    arguments: tuple[str, ...],
    wait: float | None,
    as_json: bool,
    show_traceback: bool,
    **changes: Any,
) -> None:
    """Put one job in and print its id.

    The first argument is the APP if it has a colon in it; task names have none. Words with "=" are
    arguments by name, the others by position. A value is read as its parameter's annotation says:
    text, numbers, true or false, times, members of an Enum; lists and objects as JSON. NAME:=JSON
    gives JSON whatever the annotation, as in `width:=null`. After "--" come values that begin with
    "-".

    Where APP is a URL, any task can be named, and its arguments are NAME=TEXT or NAME:=JSON.

    With --wait the result is printed after the id, and the exit code is 1 if the job did not
    complete in time.
    """
    app, words = target.split(arguments)
    if not words:
        raise click.UsageError("a task is missing")
    options = {name: value for name, value in changes.items() if value is not None}

    async def act(service: QueueService, is_app: bool) -> Job | None:
        bound = _bound(service if is_app else None, words, options)
        handle = await service.enqueue(bound)
        if as_json and wait is None:
            output.document({"id": handle.id, "created": handle.created})
        elif not as_json:
            click.echo(handle.id)
        return None if wait is None else await _end(service, handle.id, wait)

    job = target.call(app, act, show_traceback=show_traceback, creates=True)
    if job is not None:
        _show_end(job, as_json=as_json)


def _bound(
    service: QueueService | None, words: Sequence[str], options: Mapping[str, Any]
) -> BoundTask[Any]:
    name, values = words[0], words[1:]
    changes = TaskChanges(**options)  # type: ignore[typeddict-item]
    if service is not None:
        task = service.tasks.get(name)
        args, kwargs = arguments_of(task, values)
        bound: BoundTask[Any] = task.options(**changes).bind(*args, **kwargs)
        return bound
    positional, named, exact = sort_out(values)
    if positional:
        raise Refusal(
            f"{positional[0]!r}: a URL knows nothing of {name}'s parameters, so its arguments are "
            "given by name, as NAME=TEXT or NAME:=JSON"
        )
    return TaskRef(name, **changes).bind(**named, **exact)


async def _end(service: QueueService, job_id: str, wait: float) -> Job:
    try:
        return await service.wait(job_id, timeout=None if math.isinf(wait) else wait)
    except TimeoutError as error:
        raise Failure(str(error)) from None


def _show_end(job: Job, *, as_json: bool) -> None:
    if as_json:
        output.document(job.to_dict())
    if job.state is not State.COMPLETED:
        raise Failure(job.describe_end())
    if not as_json:
        result = job.result
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        click.echo(block(text))
