"""Settings of queues: as they are kept, and as the numbers that scripts calculate with.

A script has no rule of limits: what it adds, compares and writes is said by `core.limits`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.core import limits
from tenure.core.fleet import QueueChange, QueueSettings
from tenure.core.limits import NO_LIMITS, Cell, Rate
from tenure.engines.redis.deciding import Plan, Question, Seen, decided
from tenure.engines.redis.link import Link

UNBLOCKED = 500
"""How many blocked jobs one step makes ready, when limits of keys change."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(QueueSettings).decode


async def configure(link: Link, change: QueueChange, now: int | None = None) -> QueueSettings:
    """See `Engine.configure`."""
    queue = change.queue

    def decide(seen: Seen, plan: Plan) -> tuple[QueueSettings, bool]:
        [text] = seen.settings
        before = None if text is None else _decode(text)
        after = change.of(before)
        plan.keep("settings", queue, _encode(after).decode())
        plan.keep("special", queue, _special(after))
        plan.wake(queue)
        freed = before is not None and before.limits.of_keys != after.limits.of_keys
        if freed:
            plan.keep("freeing", queue, "")
        return after, freed

    after, freed = await decided(link, "configure", Question(queues=[queue]), decide, now)
    if freed:
        await unblock_all(link, queue, now)
    return after


async def unblock_all(link: Link, queue: str, now: int | None) -> None:
    """Make ready all jobs of a queue that limits of keys held back, if it is still to be done."""
    while await link.run("unblock", [queue, UNBLOCKED], now, repeat=True):
        pass


async def tidy(link: Link, now: int | None) -> None:
    """Forget rates that say nothing any more, and do what a change of limits has left."""
    for queue in await link.run("tidy", [UNBLOCKED], now, repeat=True):
        await unblock_all(link, queue.decode(), now)


async def settings(link: Link) -> tuple[QueueSettings, ...]:
    """The settings of all queues that were ever given any, sorted by name."""
    found = await link.command(b"HVALS", f"{link.place.prefix}settings".encode())
    return tuple(sorted(map(_decode, found), key=lambda one: one.queue))


def wait(text: str, running: int, arrival: str | None, now: int) -> int | None:
    """`core.limits.wait_of` of a queue, from what is kept of it."""
    cell = None if arrival is None else Cell(int(arrival))
    return limits.wait_of(_decode(text).limits, running, cell, now)


def _special(given: QueueSettings) -> str | None:
    """What claims have to know; None: that the queue is as any other. See parts/limits.lua."""
    if not given.paused and given.limits == NO_LIMITS:
        return None
    found: dict[str, Any] = {"paused": given.paused, "limited": given.limits != NO_LIMITS}
    found["hold"] = given.limits.hold
    for name, value in msgspec.structs.asdict(given.limits).items():
        if value is not None:
            found[name] = _numbers(value) if isinstance(value, Rate) else value
    return _encode(found).decode()


def _numbers(rate: Rate) -> dict[str, str]:
    """As text, since they may be beyond what Lua's numbers are exact in."""
    names = ("interval", "ahead", "horizon", "longest")
    return {name: str(getattr(rate, name)) for name in names}
