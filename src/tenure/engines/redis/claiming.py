"""Claiming: one script, whatever the arms."""

from __future__ import annotations

import msgspec

from tenure.core.job import JobRow
from tenure.engines.protocol import Claim
from tenure.engines.redis.link import Link
from tenure.engines.redis.rows import Packed, to_row

_decode = msgspec.msgpack.Decoder(tuple[str, list[Packed]]).decode


async def claim(link: Link, claim: Claim, ear: str, now: int | None) -> list[JobRow]:
    """See `Engine.claim`. `ear`: the name under which the claimer's process hears, or nothing."""
    arguments = [
        claim.owner,
        claim.lease,
        claim.limit,
        list(dict.fromkeys(claim.queues)),
        False if claim.tasks is None else list(dict.fromkeys(claim.tasks)),
        list(claim.ids) or False,
        dict(claim.room),
        False if claim.held is None else list(claim.held),
        {str(arm): True for arm in claim.arms},
        ear,
    ]
    _, rows = _decode(await link.run("claim", arguments, now))
    return [to_row(row) for row in rows]
