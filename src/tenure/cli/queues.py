"""`tenure queues`: their depths and settings, and `pause`, `resume` and `limit`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import click
import msgspec

from tenure.cli import output, target
from tenure.cli.listing import Listing
from tenure.cli.options import app_argument, common
from tenure.cli.output import Column
from tenure.cli.rates import RateText, rate_text
from tenure.cli.text import span
from tenure.core.fleet import UNKNOWN_TASK, QueueSettings
from tenure.core.limits import NO_LIMITS, Limits, Rate
from tenure.core.query import QueueStats
from tenure.service import QueueService

_COUNTS = tuple(
    name for name in QueueStats.__struct_fields__ if name not in {"queue", "oldest_due"}
)
Listed = list[tuple[QueueStats, QueueSettings]]
_queue = click.argument("arguments", nargs=-1, required=True, metavar="[APP] QUEUE")


@click.group(cls=Listing)
def queues() -> None:
    """Count the jobs of each queue; pause, resume and limit queues.

    Without a command it is `tenure queues list`.
    """


@queues.command("list")
@app_argument
@common
def list_queues(app: str | None, as_json: bool, show_traceback: bool) -> None:
    """Count the jobs of each queue by state, and show its settings.

    "pending" are due now, "blocked" those of them that a limit holds back; "scheduled" wait for
    their time, "lapsed" are running jobs whose worker vanished. "waiting" is how long the first due
    job has waited. "settings": whether the queue is paused, and its limits. Jobs that nobody can
    run, as far as this app and the workers tell, are pointed out.
    """

    async def ask(service: QueueService, _: bool) -> tuple[Listed, Sequence[str]]:
        inspection = await service.inspect()
        settings = {kept.queue: kept for kept in inspection.queues}
        stats = {kept.queue: kept for kept in await service.queues.stats()}
        listed = [
            (stats.get(name) or QueueStats(name), settings.get(name) or QueueSettings(name))
            for name in sorted({*stats, *settings})
        ]
        findings = inspection.findings
        return listed, [found.text for found in findings if found.code == UNKNOWN_TASK]

    found, hints = target.call(app, ask, show_traceback=show_traceback)
    for hint in hints:
        output.note(hint)
    if as_json:
        output.documents(_stats(stats) | _settings(settings) for stats, settings in found)
        return
    columns = [Column("QUEUE"), *(Column(name.upper(), right=True) for name in _COUNTS)]
    rows = [
        [stats.queue, *(getattr(stats, n) for n in _COUNTS), _waiting(stats), _shown(settings)]
        for stats, settings in found
    ]
    columns += [Column("WAITING", right=True), Column("SETTINGS")]
    output.table(columns, rows, "no queue holds a job")


@queues.command()
@_queue
@common
def pause(arguments: tuple[str, ...], as_json: bool, show_traceback: bool) -> None:
    """Start no jobs of a queue until it is resumed. What runs goes on."""
    _change(arguments, lambda q, name: q.queues.pause(name), as_json, show_traceback)


@queues.command()
@_queue
@common
def resume(arguments: tuple[str, ...], as_json: bool, show_traceback: bool) -> None:
    """Start the jobs of a queue again."""
    _change(arguments, lambda q, name: q.queues.resume(name), as_json, show_traceback)


@queues.command()
@_queue
@click.option("--concurrency", type=int, help="How many of its jobs run at once.")
@click.option("--rate", type=RateText(), help="How many of them start in a time.")
@click.option("--key-concurrency", type=int, help="How many of each concurrency key run at once.")
@click.option("--key-rate", type=RateText(), help="How many of each rate key start in a time.")
@click.option("--none", "free", is_flag=True, help="No limits any more.")
@common
def limit(
    arguments: tuple[str, ...],
    concurrency: int | None,
    rate: Rate | None,
    key_concurrency: int | None,
    key_rate: Rate | None,
    free: bool,
    as_json: bool,
    show_traceback: bool,
) -> None:
    """Set the limits of a queue, for the whole fleet, in place of those it had.

    A rate is written as 100/s, 100/m, 100/h or 100/30 (seconds); 100/m:20 lets 20 start at once.
    """
    given = {"concurrency": concurrency, "rate": rate}
    given |= {"key_concurrency": key_concurrency, "key_rate": key_rate}
    if free == any(value is not None for value in given.values()):
        raise click.UsageError("give either limits or --none")

    async def act(service: QueueService, name: str) -> QueueSettings:
        return await service.queues.limit(name, **given)  # type: ignore[arg-type]

    _change(arguments, act, as_json, show_traceback)


def _change(
    arguments: tuple[str, ...],
    act: Callable[[QueueService, str], Awaitable[QueueSettings]],
    as_json: bool,
    show_traceback: bool,
) -> None:
    """Change the settings of the one queue that is named, and print them."""
    app, names = target.split(arguments)
    if len(names) != 1:
        raise click.UsageError(f"one queue, not {len(names)}")

    async def change(service: QueueService, _: bool) -> QueueSettings:
        return await act(service, names[0])

    settings = target.call(app, change, show_traceback=show_traceback)
    if as_json:
        output.document(_settings(settings))
    else:
        click.echo(f"{settings.queue}: {_shown(settings) or 'no limits'}")


def _settings(settings: QueueSettings) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(settings)
    for name in ("rate", "key_rate"):
        rate: Rate | None = getattr(settings.limits, name)
        if rate is not None:
            values["limits"][name] = {
                "count": rate.count,
                "per_seconds": rate.period / 1e6,
                "burst": rate.burst,
            }
    return values


def _shown(settings: QueueSettings) -> str:
    """The settings in words; nothing for the defaults."""
    words = ["paused"] if settings.paused else []
    if settings.limits != NO_LIMITS:
        for name in Limits.__struct_fields__:
            value = getattr(settings.limits, name)
            if value is not None:
                text = rate_text(value) if isinstance(value, Rate) else value
                words.append(f"{name.replace('_', '-')} {text}")
    return ", ".join(words)


def _stats(stats: QueueStats) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(stats)
    due = values.pop("oldest_due")
    return {**values, "waiting_seconds": None if due is None else stats_seconds(stats)}


def stats_seconds(stats: QueueStats) -> float:
    """How long the first due job of a queue has waited."""
    return (stats.oldest_due or 0) / 1e6


def _waiting(stats: QueueStats) -> str:
    return "" if stats.oldest_due is None else span(stats_seconds(stats))
