"""Guards of the core; noticed through the engine in memory."""

from tools.mutations.kinds import changes_of

_RULES = changes_of(
    "core/rules.py",
    "memory",
    (
        '"token": next_token(row.token, now),\n        "owner": owner,',
        '"token": row.token,\n        "owner": owner,',
        "TestIdentity::test_a_token_grows_though_time_stands_still",
    ),
    (
        'return {"token": next_token(row.token, now), "owner": None, "lease_until": None}',
        'return {"token": row.token, "owner": None, "lease_until": None}',
        "TestCancel::test_force_draws_a_new_token_though_time_stands_still",
    ),
    (
        'return {"token": next_token(row.token, now), "owner": None, "lease_until": None}',
        'return {"token": next_token(row.token, now), "lease_until": None}',
        "TestSweep::test_a_lapsed_job_is_taken_back",
    ),
    (
        '"lease_until": now + lease,\n        "claims"',
        '"lease_until": now + lease + 1,\n        "claims"',
        "TestClaim::test_what_a_claim_writes",
    ),
    (
        '"claims": row.claims + 1,',
        '"claims": row.claims,',
        "TestClaim::test_a_claim_after_a_retry_writes_the_same",
    ),
    (
        'values["lapses"] = row.lapses + 1',
        'values["lapses"] = row.lapses',
        "TestLapsed::test_a_spent_lapse_budget_fails_the_job",
    ),
    (
        "if row.unique_until == UniqueUntil.STARTED:",
        "if row.unique_until == UniqueUntil.FINISHED:",
        "TestUniqueKeys::test_a_key_until_started_ends_at_the_first_claim_for_good",
    ),
    (
        "if not retryable or failures >= row.max_attempts:",
        "if not retryable or failures > row.max_attempts:",
        "TestSettle::test_attempts_are_counted_until_the_budget_is_spent",
    ),
    (
        "if not retryable or failures >= row.max_attempts:",
        "if failures >= row.max_attempts:",
        "TestSignals::test_a_settlement_tells_what_it_led_to",
    ),
    (
        "if row.lapses > row.max_lapses:\n        return Errored",
        "if row.lapses >= row.max_lapses:\n        return Errored",
        "TestLapsed::test_a_spent_lapse_budget_fails_the_job",
    ),
    (
        "elif lapses > row.max_lapses:",
        "elif lapses > row.max_lapses + 1:",
        "TestSweep::test_a_spent_lapse_budget_leaves_an_error",
    ),
    (
        "if row.cancel_requested:\n        return Cancelled()",
        "if False:\n        return Cancelled()",
        "TestLapsed::test_the_cancel_flag_is_kept_and_settles_the_job",
    ),
    (
        "if row.cancel_requested:\n        event_state",
        "if False:\n        event_state",
        "TestCancel::test_a_lapsed_job_is_asked_too",
    ),
    (
        "if row.expires_at is not None and row.expires_at <= now:\n        return Expired()",
        "if row.expires_at is not None and row.expires_at < now:\n        return Expired()",
        "tests/core/test_rules.py::test_admit_asks_for_the_flag_then_the_deadline_then_the_budget",
    ),
    (
        "if releases <= row.max_interruptions:",
        "if releases < row.max_interruptions:",
        "tests/core/test_decide.py",
    ),
    (
        "(*row.errors, error)[-ERRORS_KEPT:]",
        "(*row.errors, error)",
        "TestSettle::test_only_the_last_errors_are_kept",
    ),
    (
        '"expires_at": None,\n        "started_at": None,',
        '"started_at": None,',
        "TestRequeue::test_an_expired_job_does_not_expire_again",
    ),
    (
        '"failures": 0,\n        "lapses": 0,',
        '"failures": row.failures,\n        "lapses": 0,',
        "TestRequeue::test_budgets_flag_and_deadline_start_afresh",
    ),
    (
        "if row.state is State.RUNNING and not force:",
        "if row.state is State.RUNNING:",
        "TestCancel::test_a_running_job_ends_by_force",
    ),
    (
        '"rank": rank_of(due, row_priority),',
        '"rank": due,',
        "TestClaim::test_a_job_that_comes_back_keeps_its_priority",
    ),
)

_JOB = changes_of(
    "core/job.py",
    "memory",
    (
        "return queued_at - priority * step",
        "return queued_at + priority * step",
        "TestClaim::test_a_unit_of_priority_is_worth_one_step_of_waiting",
    ),
    (
        "return max(old + 1, now)",
        "return now",
        "TestIdentity::test_a_token_grows_though_time_goes_back",
    ),
    (
        "available_at <= now,            # ready",
        "available_at < now,            # ready",
        "TestClaim::test_an_overdue_job_is_never_claimed",
    ),
)

_UNIQUE = changes_of(
    "core/identity.py",
    "memory",
    (
        "if held != _until(job):",
        "if False:",
        "TestUniqueKeys::test_a_key_across_policies_is_a_conflict",
    ),
    (
        "    if holder_id == job.id:\n        return Existing(job.id)\n",
        "",
        "TestReservations::test_a_repeated_insert_is_no_twin",
    ),
    (
        "row.expires_at is not None and row.expires_at <= now",
        "row.expires_at is not None and row.expires_at < now",
        "TestUniqueKeys::test_an_insert_expires_an_overdue_twin",
    ),
    (
        "return row.state is State.PENDING and row.expires_at",
        "return row.expires_at",
        "TestUniqueKeys::test_a_running_twin_never_counts_as_overdue",
    ),
    (
        "if reservation is None and twin is not None and overdue(twin, now):",
        "if twin is not None and overdue(twin, now):",
        "TestReservations::test_a_reservation_does_not_expire",
    ),
    (
        "case OnConflict.REPLACE if twin is not None and twin.state is State.PENDING:",
        "case OnConflict.REPLACE if twin is not None:",
        "TestReplace::test_a_running_job_is_not_replaced",
    ),
    (
        "holder.reservation is not None and holder.reservation.job_id != row.id",
        "holder.reservation is not None",
        "TestReservations::test_a_requeue_keeps_the_reservation",
    ),
    (
        "return twin.id if twin is not None and twin.id != row.id else None",
        "return None",
        "TestRequeueKeys::test_a_taken_key_refuses_the_requeue",
    ),
    (
        "Existing(holder_id, twin is not None and twin.cancel_requested)",
        "Existing(holder_id)",
        "TestUniqueKeys::test_a_forced_cancel_frees_the_key",
    ),
    (
        'frozenset({"id", "schedule", "tick"})',
        'frozenset({"id"})',
        "TestReplace::test_a_job_of_a_schedule_stays_the_job_of_its_tick",
    ),
) + changes_of(
    "core/insertion.py",
    "memory",
    (
        "            self._holders[job.unique_key] = Holder(row, reservation)\n",
        "",
        "TestUniqueBatch::test_the_first_of_a_batch_has_the_key",
    ),
    (
        "if tick is not None and tick in self._ticks:",
        "if False:",
        "TestFire::test_no_two_jobs_share_a_tick",
    ),
    (
        "        self._holders[key] = Holder(changed, reservation)\n",
        "",
        "TestUniqueBatch::test_a_twin_that_was_replaced_and_is_overdue_expires",
    ),
    (
        "if job.id in self.rows or job.id in self._known:",
        "if job.id in self._known:",
        "TestIdentity::test_an_id_twice_in_a_batch_is_one_job",
    ),
)

_SCHEDULE = changes_of(
    "core/schedule.py",
    "memory",
    (
        "tick.missed_from <= now",
        "tick.missed_from < now",
        "TestFire::test_a_missed_tick_is_passed_over",
    ),
    (
        "tick.missed_from <= now",
        "tick.missed_from <= now + 1",
        "TestFire::test_a_tick_is_not_missed_before",
    ),
    (
        " or (tick.leap and not missed)",
        "",
        "TestFire::test_a_leap_passes_over_ticks_that_were_missed_only",
    ),
    (
        "        or schedule.paused\n",
        "",
        "TestFire::test_a_stale_tick_does_nothing",
    ),
    (
        "(schedule.revision, schedule.next_at) != (tick.revision, tick.at)",
        "schedule.next_at != tick.at",
        "TestFire::test_a_stale_tick_does_nothing",
    ),
    (
        "(schedule.revision, schedule.next_at) != (tick.revision, tick.at)",
        "schedule.revision != tick.revision",
        "TestFire::test_a_lost_reply_fires_nothing_twice",
    ),
    (
        "if tick.at > now or",
        "if tick.at > now + 1 or",
        "TestFire::test_a_tick_is_never_early",
    ),
    (
        "if missed or done or (schedule.last_at is not None and tick.at <= schedule.last_at):",
        "if missed or done:",
        "TestFire::test_an_edit_that_goes_back_fires_nothing_twice",
    ),
    (
        "if missed or done or (schedule.last_at is not None and tick.at <= schedule.last_at):",
        "if missed or (schedule.last_at is not None and tick.at <= schedule.last_at):",
        "TestOverlap::test_a_tick_whose_job_is_there_is_not_cancelled_by_itself",
    ),
    (
        "living = [row for row in living if not overdue(row, now)]",
        "living = list(living)",
        "TestOverlap::test_skip_does_not_wait_for_what_may_no_longer_start",
    ),
    (
        "return change.expected == (0 if kept is None else kept.revision)",
        "return kept is None or change.expected == kept.revision",
        "TestSchedules::test_what_is_not_there_has_revision_zero",
    ),
)

_SIGNALS = changes_of(
    "engines/signals.py",
    "memory",
    (
        "elif state is State.PENDING:",
        "elif state is State.PENDING and _:",
        "TestSignals::test_a_job_that_is_planned_wakes_its_queue",
    ),
)

CORE = (*_RULES, *_JOB, *_UNIQUE, *_SCHEDULE, *_SIGNALS)
