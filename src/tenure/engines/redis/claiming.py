"""Claiming: one script, whatever the arms; and once more where others hold slots that they lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tenure.core.job import JobRow
from tenure.engines.redis.link import Link
from tenure.engines.redis.operating import taken_back
from tenure.engines.redis.rows import Packed, to_kept, to_row
from tenure.engines.terms import Arm, Claim

_Others = list[tuple[Packed, str]]
_decode = msgspec.msgpack.Decoder(tuple[str, list[Packed], _Others]).decode
_SLOTS = "slots"


async def claim(link: Link, claim: Claim, ear: str, now: int | None) -> list[JobRow]:
    """See `Engine.claim`. `ear`: the name under which the claimer's process hears, or nothing."""
    arms = {str(arm) for arm in claim.arms}
    looks = {_SLOTS} if Arm.LAPSED in arms else set[str]()
    at, rows, others = await _claim(link, claim, arms | looks, ear, (), now)
    if others:
        back = [(*to_kept(taken_back(to_row(packed), at)), digest) for packed, digest in others]
        _, rows, _ = await _claim(link, claim, arms, ear, back, at)
    return rows


async def _claim(
    link: Link,
    claim: Claim,
    arms: set[str],
    ear: str,
    back: Sequence[Any],
    now: int | None,
) -> tuple[int, list[JobRow], _Others]:
    arguments = [
        claim.owner,
        claim.lease,
        claim.limit,
        list(dict.fromkeys(claim.queues)),
        False if claim.tasks is None else list(dict.fromkeys(claim.tasks)),
        list(claim.ids) or False,
        dict(claim.room),
        False if claim.held is None else list(claim.held),
        dict.fromkeys(arms, True),
        ear,
        back or False,
    ]
    at, rows, others = _decode(await link.run("claim", arguments, now))
    return int(at), [to_row(row) for row in rows], others
