"""Claiming: one script, whatever the arms; and one more where others hold slots that they lost."""

from __future__ import annotations

import msgspec

from tenure.core.job import JobRow
from tenure.engines.protocol import Arm, Claim
from tenure.engines.redis.link import Link
from tenure.engines.redis.operating import take_back
from tenure.engines.redis.rows import Packed, to_row

_decode = msgspec.msgpack.Decoder(tuple[str, list[Packed], list[str]]).decode
_SLOTS = "slots"


async def claim(link: Link, claim: Claim, ear: str, now: int | None) -> list[JobRow]:
    """See `Engine.claim`. `ear`: the name under which the claimer's process hears, or nothing."""
    arms = {str(arm) for arm in claim.arms}
    looks = {_SLOTS} if Arm.LAPSED in arms else set[str]()
    rows, others = await _claim(link, claim, arms | looks, claim.limit, ear, now)
    if others:
        await take_back(link, others, now)
        last = arms & {Arm.LAPSED, Arm.DUE}
        more, _ = await _claim(link, claim, last, claim.limit - len(rows), ear, now)
        rows += more
    return rows


async def _claim(
    link: Link, claim: Claim, arms: set[str], limit: int, ear: str, now: int | None
) -> tuple[list[JobRow], list[str]]:
    arguments = [
        claim.owner,
        claim.lease,
        limit,
        list(dict.fromkeys(claim.queues)),
        False if claim.tasks is None else list(dict.fromkeys(claim.tasks)),
        list(claim.ids) or False,
        dict(claim.room),
        False if claim.held is None else list(claim.held),
        dict.fromkeys(arms, True),
        ear,
    ]
    _, rows, others = _decode(await link.run("claim", arguments, now))
    return [to_row(row) for row in rows], others
