"""Killing a worker in the middle of its work, and making sure that it was."""

from __future__ import annotations

from collections import Counter

import msgspec

from tenure.core.job import Job
from tenure.core.states import State
from tenure.demo.team import Team
from tenure.service import QueueService


class Kill(msgspec.Struct, frozen=True):
    """A worker that was killed, and the jobs that it held at that moment."""

    worker: int
    pid: int
    owner: str
    held: tuple[str, ...]


async def strike(service: QueueService, team: Team, queue: str) -> Kill | None:
    """SIGKILL the worker that holds most jobs; None if none held any when it came to that."""
    owners = Counter(job.owner for job in await _running(service, queue) if job.owner)
    for owner, _ in owners.most_common():
        member = team.by_owner(owner)
        if member is None:
            continue
        # Frozen, it cannot end what it holds between the look and the kill.
        member.freeze()
        if not await _held_by(service, queue, owner):
            member.thaw()
            continue
        member.kill()
        held = await _held_by(service, queue, owner)
        return Kill(member.number, member.pid, owner, tuple(job.id for job in held))
    return None


async def _held_by(service: QueueService, queue: str, owner: str) -> list[Job]:
    return [job for job in await _running(service, queue) if job.owner == owner]


async def _running(service: QueueService, queue: str) -> list[Job]:
    return await service.find(states=[State.RUNNING], queues=[queue], limit=1000)
