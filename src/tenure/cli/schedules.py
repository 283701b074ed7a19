"""`tenure schedules`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

import click

from tenure.cli import output, target
from tenure.cli.listing import Listing
from tenure.cli.options import app_argument, common
from tenure.cli.output import Column
from tenure.schedules import PREVIEW_MAX, ScheduleInfo, Synced
from tenure.service import QueueService

_MOST = click.IntRange(1, PREVIEW_MAX)


@click.group(cls=Listing)
def schedules() -> None:
    """List recurring jobs, run, pause or resume them.

    Without a command it is `tenure schedules list`.
    """


@schedules.command("list")
@app_argument
@common
def list_(app: str | None, as_json: bool, show_traceback: bool) -> None:
    """List the schedules of a store and when each is due next.

    "unknown" ones are fired by nobody who knows what this app knows: another app or another release
    declared them, or their task is missing here. Given a URL, no task is known.
    """

    async def ask(service: QueueService, _: bool) -> Sequence[ScheduleInfo]:
        return await service.schedules.list()

    found = target.call(app, ask, show_traceback=show_traceback)
    if as_json:
        output.documents(info.to_dict() for info in found)
        return
    titles = ("NAME", "STATE", "TASK", "APP", "NEXT", "LAST", "RULE")
    rows = [
        [
            info.name,
            info.state,
            info.task,
            info.app or "",
            _time(info.next_at),
            _time(info.last_at),
            info.rule,
        ]
        for info in found
    ]
    output.table([Column(title) for title in titles], rows, "there are no schedules")


@schedules.command()
@click.argument("arguments", nargs=-1, metavar="[APP] NAME")
@click.option("-n", "--number", type=_MOST, default=5, show_default=True, help="How many.")
@common
def preview(arguments: tuple[str, ...], number: int, as_json: bool, show_traceback: bool) -> None:
    """Print the next ticks of a schedule, in UTC."""

    async def ask(service: QueueService, name: str) -> Sequence[datetime]:
        return await service.schedules.preview(name, number)

    for at in _of_one(arguments, ask, show_traceback):
        if as_json:
            output.document({"at": _time(at)})
        else:
            click.echo(_time(at))


@schedules.command("run-now")
@click.argument("arguments", nargs=-1, metavar="[APP] NAME")
@common
def run_now(arguments: tuple[str, ...], as_json: bool, show_traceback: bool) -> None:
    """Put in one job as a tick would, and print its id; the plan stays as it is.

    Needs an app, not a URL, since the app knows the task's options.
    """

    async def ask(service: QueueService, name: str) -> str:
        return (await service.schedules.run_now(name)).id

    job_id = _of_one(arguments, ask, show_traceback)
    if as_json:
        output.document({"id": job_id})
    else:
        click.echo(job_id)


@schedules.command()
@click.argument("arguments", nargs=-1, metavar="[APP] NAME")
@common
def pause(arguments: tuple[str, ...], as_json: bool, show_traceback: bool) -> None:
    """Fire no more ticks of a schedule, until it is resumed."""
    _tell(_of_one(arguments, lambda s, name: s.schedules.pause(name), show_traceback), as_json)


@schedules.command()
@click.argument("arguments", nargs=-1, metavar="[APP] NAME")
@common
def resume(arguments: tuple[str, ...], as_json: bool, show_traceback: bool) -> None:
    """Fire the ticks of a paused schedule again; the pause is not made up for."""
    _tell(_of_one(arguments, lambda s, name: s.schedules.resume(name), show_traceback), as_json)


@schedules.command()
@click.argument("arguments", nargs=-1, metavar="[APP] NAME")
@common
def remove(arguments: tuple[str, ...], as_json: bool, show_traceback: bool) -> None:
    """Forget a schedule; its jobs stay. One that an app declares comes back with its next sync."""

    async def ask(service: QueueService, name: str) -> str:
        await service.schedules.remove(name)
        return name

    name = _of_one(arguments, ask, show_traceback)
    if as_json:
        output.document({"removed": name})
    else:
        output.note(f"{name} is removed")


@schedules.command()
@app_argument
@common
def sync(app: str | None, as_json: bool, show_traceback: bool) -> None:
    """Make the store agree with what an app declares, whatever was there before.

    Workers do so when they start, unless a newer release of the app did; after a rollback, this
    puts the older release in force at once. Ends with 1 if some were rejected.
    """

    async def ask(service: QueueService, is_app: bool) -> Synced:
        if not is_app:
            raise click.UsageError("a URL declares nothing; give the app as module:attribute")
        return await service.schedules.sync()

    done = target.call(app, ask, show_traceback=show_traceback)
    parts: dict[str, Any] = {
        name: list(getattr(done, name)) for name in ("created", "kept", "replaced", "retired")
    }
    if as_json:
        output.document({**parts, "rejected": dict(done.rejected)})
    else:
        for name, names in parts.items():
            if names:
                click.echo(f"{name}: {', '.join(names)}")
        for name, why in done.rejected.items():
            output.note(f"rejected: {name}: {why}")
    if done.rejected:
        click.get_current_context().exit(1)


def _of_one(
    arguments: Sequence[str],
    ask: Callable[[QueueService, str], Awaitable[Any]],
    show_traceback: bool,
) -> Any:
    """What is asked of the schedule that the arguments name."""
    app, names = target.split(arguments)
    if len(names) != 1:
        raise click.UsageError("name one schedule")
    return target.call(
        app, lambda service, _: ask(service, names[0]), show_traceback=show_traceback
    )


def _tell(info: ScheduleInfo, as_json: bool) -> None:
    if as_json:
        output.document(info.to_dict())
        return
    when = "" if info.next_at is None or info.paused else f", next at {_time(info.next_at)}"
    click.echo(f"{info.name}: {info.state}{when}")


def _time(at: datetime | None) -> str:
    return "" if at is None else at.isoformat(timespec="seconds").replace("+00:00", "Z")
