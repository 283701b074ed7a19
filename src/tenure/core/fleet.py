"""What is known of queues and workers, and what is found wrong with a store."""

from __future__ import annotations

import msgspec


class QueueSettings(msgspec.Struct, frozen=True):
    """How a queue is treated by the whole fleet. Jobs of a paused queue are not claimed as due."""

    queue: str
    paused: bool = False


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that announced itself. Presence is shown to people; recovery never asks for it.

    `started_at` and `seen_at` are microseconds since the epoch, `seen_at` by the store's clock.
    """

    id: str
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    concurrency: int
    running: int = 0
    started_at: int = 0
    seen_at: int = 0


class Finding(msgspec.Struct, frozen=True):
    """Something that deserves attention. `problem`: jobs or data are in danger; else a hint.

    `code` is stable, for scripts; `text` says what was found, `remedy` what to do.
    """

    code: str
    text: str
    remedy: str
    problem: bool = True


class Inspection(msgspec.Struct, frozen=True):
    """What an engine says of its store."""

    findings: tuple[Finding, ...] = ()
    queues: tuple[QueueSettings, ...] = ()
