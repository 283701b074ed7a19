"""`tenure worker`."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import click

from tenure.cli import logs, output, target
from tenure.cli.errors import Refusal
from tenure.cli.options import Names, app_argument, common, flat
from tenure.cli.text import line
from tenure.service import QueueService
from tenure.settings import CONCURRENCY_MAX
from tenure.worker.options import WorkerChanges, WorkerOptions, seconds
from tenure.worker.signals import leave_now, stop_signals
from tenure.worker.worker import Worker

log = logging.getLogger("tenure.worker")

_MARGIN = 10.0
"""Seconds beyond what an orderly end may take, after which the process exits in any case."""


@click.command()
@app_argument
@click.option(
    "-q",
    "--queue",
    "queues",
    multiple=True,
    type=Names(),
    help='The queues to serve; by default "default".',
)
@click.option(
    "-c",
    "--concurrency",
    type=click.IntRange(1, CONCURRENCY_MAX),
    help="How many jobs at once (TENURE_CONCURRENCY, 50).",
)
@click.option(
    "--lease",
    type=float,
    metavar="SECONDS",
    help="After this long the jobs of a vanished worker are taken over (TENURE_LEASE, 30).",
)
@click.option("--burst", is_flag=True, help="End when nothing is due.")
@click.option(
    "--shutdown-timeout",
    type=float,
    metavar="SECONDS",
    help="How long running jobs may take to end after the first signal (30).",
)
@click.option(
    "--log-level",
    type=click.Choice(logs.LEVELS),
    default="info",
    show_default=True,
    help="From here on up.",
)
@click.option(
    "--log-success/--no-log-success",
    default=None,
    help="Whether to log a line for every completed job (TENURE_LOG_SUCCESS, no).",
)
@common
def worker(
    app: str | None,
    queues: tuple[tuple[str, ...], ...],
    log_level: str,
    as_json: bool,
    show_traceback: bool,
    **options: Any,
) -> None:
    """Run the jobs of an app until told to stop.

    APP must be an app, since a URL alone knows no tasks. The first SIGINT or SIGTERM lets running
    jobs end for up to --shutdown-timeout seconds (30) and gives back the others; the second
    cancels them at once; the third exits at once. The exit code is 0 if every job ended or was
    given back, and 128 plus the signal's number if the process left without waiting for that.

    With --json, log lines are JSON objects on the standard output.
    """
    service, is_app = target.find(app, show_traceback=show_traceback)
    if not is_app:
        raise Refusal(
            f"a worker needs tasks, and {service.url} knows none: name the app, as in app:jobs"
        )
    if not service.tasks.names:
        raise Refusal("the app has no tasks: nothing was decorated with @jobs.task or collected")
    changes: dict[str, Any] = {k: v for k, v in options.items() if v is not None}
    if queues:
        changes["queues"] = flat(queues)
    logs.set_up(log_level, as_json=as_json)
    asyncio.run(work(service, WorkerChanges(**changes), as_json=as_json))  # type: ignore[typeddict-item]


async def work(service: QueueService, changes: WorkerChanges, *, as_json: bool) -> None:
    """Run a worker of this service until it was told to stop by signals, or its burst is over."""
    worker = service.worker(**changes)
    _announce(service, worker, as_json=as_json)
    limit = time_limit(worker.options)
    with stop_signals(worker.stop, limit=limit, told=log.info, waits=lambda: worker.running_out):
        try:
            await worker.run()
        finally:
            await service.close()
        if worker.left_behind:
            # Their jobs are settled or given back. An orderly exit would wait for them for ever.
            log.warning("bodies still run although they were stopped: %d", worker.left_behind)
            leave_now(0)


def time_limit(options: WorkerOptions) -> float:
    """Seconds after the first signal in which an orderly end must have come."""
    patience = seconds(options.shutdown_timeout, "shutdown_timeout")
    return patience + 5 * seconds(options.stop_grace, "stop_grace") + _MARGIN


def _announce(service: QueueService, worker: Worker, *, as_json: bool) -> None:
    facts = {
        "worker": worker.id,
        "store": service.url,
        "queues": list(worker.options.queues),
        "tasks": list(service.tasks.names),
        "concurrency": worker.options.concurrency,
    }
    if as_json:
        log.info("the worker begins", extra=facts)
        return
    for name, value in facts.items():
        text = ", ".join(value) if isinstance(value, list) else str(value)
        output.note(f"{name:<11} {line(text)}")
