"""Receipts: ending and extending a lease from elsewhere."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tenure import Handoff, JobContext, QueueService, State
from tenure.core.receipts import Receipt, read, write
from tenure.errors import ConfigurationError, InvalidReceipt, LeaseLost, PayloadError
from tenure.signatures import INJECTED
from tests.service.receiving import Shop, add

pytestmark = pytest.mark.anyio


@pytest.fixture
async def jobs(url: str) -> AsyncIterator[QueueService]:
    async with QueueService(url, tasks=[add]) as jobs:
        yield jobs


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop = Shop()
    async with shop.jobs:
        yield shop
    shop.keeper.close()


async def handed_off(jobs: QueueService, **options: Any) -> tuple[str, str]:
    """The id and the receipt of a running job that nobody renews."""
    await jobs.enqueue(add.options(**options), 1)
    async with jobs.receive(limit=1) as deliveries:
        deliveries[0].accept()
        return deliveries[0].id, deliveries[0].receipt


async def test_ack_completes(jobs):
    job_id, receipt = await handed_off(jobs)
    assert await jobs.receipts.ack(receipt, {"n": 1})
    job = await jobs.get(job_id)
    assert (job.state, job.result) == (State.COMPLETED, {"n": 1})
    assert await jobs.receipts.ack(receipt, {"n": 2})  # again: nothing changes
    assert (await jobs.get(job_id)).result == {"n": 1}


async def test_ack_refuses_what_json_can_not_hold(jobs):
    job_id, receipt = await handed_off(jobs)
    with pytest.raises(PayloadError):
        await jobs.receipts.ack(receipt, float("nan"))
    assert (await jobs.get(job_id)).state is State.RUNNING


async def test_retry_spends_an_attempt(jobs):
    job_id, receipt = await handed_off(jobs)
    assert await jobs.receipts.retry(receipt, after=60)
    job = await jobs.get(job_id)
    assert (job.state, job.row.failures) == (State.PENDING, 1)
    assert job.error is not None
    assert (job.error.kind, job.error.attempt) == ("Retry", 1)
    assert job.row.available_at - (job.row.started_at or 0) >= 60_000_000
    with pytest.raises(ConfigurationError):
        await jobs.receipts.retry(receipt, after=-1)


async def test_retry_of_the_last_attempt_fails(jobs):
    job_id, receipt = await handed_off(jobs, max_attempts=1)
    await jobs.receipts.retry(receipt)
    assert (await jobs.get(job_id)).state is State.FAILED


async def test_release_counts_nothing(jobs):
    job_id, receipt = await handed_off(jobs)
    assert await jobs.receipts.release(receipt)
    row = (await jobs.get(job_id)).row
    assert (row.state, row.failures, row.lapses, row.releases) == (State.PENDING, 0, 0, 0)


async def test_extend_prolongs(shop):
    job_id, receipt = await handed_off(shop.jobs)
    shop.clock.advance(20)
    assert await shop.jobs.receipts.extend(receipt, 100)
    row = (await shop.jobs.get(job_id)).row
    assert row.lease_until == shop.clock.time_us() + 100_000_000
    for bad in (0, 0.5, -1, float("inf"), True, 86_401):
        with pytest.raises(ConfigurationError, match="seconds"):
            await shop.jobs.receipts.extend(receipt, bad)


async def test_a_lapsed_lease_can_be_settled_but_not_extended(shop):
    _, receipt = await handed_off(shop.jobs)
    shop.clock.advance(31)
    with pytest.raises(LeaseLost, match="lapsed"):
        await shop.jobs.receipts.extend(receipt, 30)
    assert await shop.jobs.receipts.ack(receipt)  # nobody has taken it over


async def test_what_was_taken_over_is_lost(shop):
    _, receipt = await handed_off(shop.jobs)
    shop.clock.advance(31)
    async with shop.jobs.receive() as again:
        again[0].accept()
        for act in (
            shop.jobs.receipts.ack(receipt),
            shop.jobs.receipts.retry(receipt),
            shop.jobs.receipts.release(receipt),
            shop.jobs.receipts.extend(receipt, 30),
        ):
            with pytest.raises(LeaseLost):
                await act
        assert await shop.jobs.receipts.ack(again[0].receipt)


async def test_an_unknown_lease_is_a_warning(jobs, caplog):
    receipt = write(Receipt("no such job", 1, "me"))
    for done in (
        await jobs.receipts.ack(receipt),
        await jobs.receipts.retry(receipt),
        await jobs.receipts.release(receipt),
        await jobs.receipts.extend(receipt, 30),
    ):
        assert done is False
    assert caplog.text.count("nobody knows the lease of job no such job") == 4


async def test_a_cancel_request_counts(jobs):
    job_id, receipt = await handed_off(jobs)
    await jobs.cancel(job_id)
    await jobs.receipts.retry(receipt)
    assert (await jobs.get(job_id)).state is State.CANCELLED


async def test_a_task_hands_off_with_its_receipt(jobs):
    receipts: list[str] = []

    @jobs.task
    async def dispatch(*, ctx: JobContext = INJECTED) -> str:
        receipts.append(ctx.receipt)
        raise Handoff

    told: list[str] = []
    jobs.hooks.add(lambda happening: told.append(happening.name))
    handle = await jobs.enqueue(dispatch)
    await jobs.worker(burst=True).run()
    assert (await handle.job()).state is State.RUNNING
    assert told == ["job.started", "job.handed_off"]
    assert await jobs.receipts.ack(receipts[0], "from afar")
    assert await handle.result(timeout=5) == "from afar"


def test_another_process_settles(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    jobs = QueueService(url, tasks=[add])
    handle = jobs.sync.enqueue(add, 1)
    with jobs.sync.receive() as deliveries:
        deliveries[0].accept()
        script = (
            "import sys; from tenure.sync import QueueService; "
            "QueueService(sys.argv[1]).receipts.ack(sys.argv[2], 7)"
        )
        subprocess.run([sys.executable, "-c", script, url, deliveries[0].receipt], check=True)
    assert handle.result(timeout=5) == 7
    assert jobs.sync.receipts.release(deliveries[0].receipt)  # done already
    jobs.sync.close()


# The text


def test_a_receipt_says_what_it_was_made_of():
    receipt = Receipt("job-1", 2**62, "höst:1:ab")
    text = write(receipt)
    assert read(text) == receipt
    assert text.isascii()
    assert text.startswith("tr1.")
    assert all(c.isalnum() or c in "-_." for c in text)


def test_every_change_is_noticed():
    text = write(Receipt("job-1", 17, "host:1:ab"))
    for i in range(len(text)):
        for other in "Ax-.":
            if other != text[i]:
                with pytest.raises(InvalidReceipt):
                    read(text[:i] + other + text[i + 1 :])
        with pytest.raises(InvalidReceipt):
            read(text[:i])
        with pytest.raises(InvalidReceipt):
            read(text + text[i])


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("", "not a receipt"),
        ("hello", "not a receipt"),
        ("tr2.abc.def", "format 'tr2'"),
        ("tr1.abc.def", "changed or cut off"),
        (None, "a string"),
        (b"tr1.x.y", "a string"),
        ("tr1." + "x" * 5000 + ".y", "not a receipt"),
    ],
)
def test_what_is_no_receipt_is_refused_in_plain_words(bad, says):
    with pytest.raises(InvalidReceipt, match=says):
        read(bad)


@pytest.mark.parametrize("body", ["[]", "[1,2,3]", '["a","b","c"]', '["a",true,"c"]', "{}", "nope"])
def test_a_sound_checksum_over_nonsense_is_refused(body):
    from base64 import urlsafe_b64encode

    from tenure.core.receipts import _checksum

    text = urlsafe_b64encode(body.encode()).decode().rstrip("=")
    with pytest.raises(InvalidReceipt, match="cannot be read"):
        read(f"tr1.{text}.{_checksum(text)}")
