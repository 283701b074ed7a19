"""What a body is told about its job."""

from __future__ import annotations

import pytest

from tenure.context import JobContext, Stopping
from tenure.core.job import JobRow, NewJob, new_row
from tenure.core.lease import lease_times
from tenure.errors import ConfigurationError, LeaseLost, Stopped
from tenure.leases.lease import Lease


class Clock:
    now = 100.0

    def time_us(self) -> int:
        return 0

    def monotonic(self) -> float:
        return self.now


def context(clock: Clock, timeout: float | None = None) -> JobContext:
    row: JobRow = new_row(NewJob(id="1", task="t", queue="q", max_attempts=3, timeout=timeout), 0)
    lease = Lease("1", 7, "me", lease_times(30), sent_at=clock.now, clock=clock)
    return JobContext(row, lease, clock)


def test_it_shows_the_job():
    ctx = context(Clock())
    assert (ctx.job_id, ctx.task, ctx.queue, ctx.attempt, ctx.max_attempts) == ("1", "t", "q", 1, 3)
    assert (ctx.token, ctx.worker, ctx.job.id) == (0, "", "1")


def test_the_time_that_remains_counts_from_the_start():
    clock = Clock()
    ctx = context(clock, timeout=5)
    clock.now += 3
    assert ctx.remaining() == 5
    ctx.begin()
    clock.now += 3
    assert ctx.remaining() == 2
    clock.now += 3
    assert ctx.remaining() == 0


def test_without_a_timeout_nothing_remains_to_be_told():
    ctx = context(Clock())
    ctx.begin()
    assert ctx.remaining() is None


@pytest.mark.parametrize("reason", ["cancel", "timeout", "shutdown"])
def test_the_first_reason_stays(reason: Stopping):
    ctx = context(Clock())
    ctx.check()
    ctx.stop(reason)
    ctx.stop("lost")
    assert ctx.stopping == reason
    with pytest.raises(Stopped, match=reason):
        ctx.check()


def test_a_lease_that_ran_out_is_seen_without_being_told():
    clock = Clock()
    ctx = context(clock)
    clock.now += 31
    assert ctx.stopping == "lost"
    with pytest.raises(LeaseLost, match="job 1: the lease is lost"):
        ctx.check()


def test_progress_is_kept_as_plain_numbers_and_text():
    class Odd(int):
        pass

    ctx = context(Clock())
    ctx.progress(Odd(3), 10**30, "nul \0 \ud800" + "x" * 2000)
    progress = ctx.lease.progress
    assert progress is not None
    assert (type(progress.current), progress.current, progress.total) == (float, 3.0, 1e30)
    assert progress.message.startswith("nul \\x00 \\ud800xxx")
    assert len(progress.message) == 1000


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, "many", None])
def test_progress_that_is_no_number_is_refused_by_name(value):
    ctx = context(Clock())
    with pytest.raises(ConfigurationError, match="current"):
        ctx.progress(value)
    if value is not None:
        with pytest.raises(ConfigurationError, match="total"):
            ctx.progress(1, value)
    assert ctx.lease.progress is None
