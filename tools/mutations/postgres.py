"""Guards of the PostgreSQL engine, most of them in its statements."""

from tools.mutations.kinds import Mutation, changes_of

HERE = "tests/engines/postgres"


def _changes(path: str, *changes: tuple[str, str, str]) -> tuple[Mutation, ...]:
    """Of one file of the engine. A test that names a file is one of the engine's own."""
    told = [
        (old, new, f"{HERE}/{test}" if test.startswith("test_") else test)
        for old, new, test in changes
    ]
    return changes_of(f"engines/postgres/{path}", "postgres", *told)


_SETTLE = "WHERE j.token = a.token AND j.owner = a.owner AND j.state || '' = 'running'\n"
_FLAG = "        AND (a.flag IS NULL OR j.cancel_requested = a.flag)\n"
_FINAL = (
    "    ORDER BY j.id FOR UPDATE OF j SKIP LOCKED\n),\ngone AS (\n"
    "    DELETE FROM {jobs} j USING held"
)
_PENDING = (
    "    ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED\n)\n"
    "UPDATE {jobs} j SET\n    state = 'pending'"
)
_LOCK_LAPSED = (
    "WHERE j.state = 'running' AND j.lease_until <= clock.now\n"
    "ORDER BY j.lease_until, j.id LIMIT %(most)s::bigint\nFOR UPDATE OF j SKIP LOCKED"
)
_EXTEND = (
    "    WHERE j.token = a.token AND j.owner = a.owner AND j.state || '' = 'running'\n"
    "        AND j.lease_until > (SELECT now FROM clock)\n"
    "    ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED\n"
)
_AFTER = "(xid, number) > (%(xid)s::text::xid8, %(number)s::bigint)\n"
_BELOW = "    AND xid < pg_snapshot_xmin(pg_current_snapshot())\n"

POSTGRES = (
    _changes(
        "statements.sql",
        (
            _SETTLE + _FLAG + _FINAL,
            _SETTLE.replace("j.token = a.token AND ", "") + _FLAG + _FINAL,
            "TestZombies::test_it_cannot_settle",
        ),
        (
            _SETTLE + _FLAG + _FINAL,
            _SETTLE.replace("j.owner = a.owner AND ", "") + _FLAG + _FINAL,
            "TestSettle::test_a_wrong_token_or_owner_is_refused",
        ),
        (
            _SETTLE + _FLAG + _FINAL,
            _SETTLE + _FINAL,
            "TestSettle::test_a_cancel_request_picks_the_other_branch",
        ),
        (
            _SETTLE + _FLAG + _FINAL,
            (_SETTLE + _FLAG + _FINAL).replace(" SKIP LOCKED", ""),
            "test_locks.py::test_a_held_row_delays_no_other_settlement",
        ),
        (
            _SETTLE + _FLAG + _PENDING,
            _SETTLE.replace("j.token = a.token AND ", "") + _FLAG + _PENDING,
            "TestZombies::test_it_cannot_settle",
        ),
        (
            _EXTEND,
            _EXTEND.replace("j.token = a.token AND ", ""),
            "TestZombies::test_it_cannot_extend",
        ),
        (
            _EXTEND,
            _EXTEND.replace("j.owner = a.owner AND ", ""),
            "TestExtend::test_a_wrong_token_or_owner_is_refused",
        ),
        (
            _EXTEND,
            _EXTEND.replace("j.lease_until >", "j.lease_until >="),
            "TestExtend::test_a_lease_that_ran_out_is_lost_at_the_very_instant",
        ),
        (
            _EXTEND,
            _EXTEND.replace(" SKIP LOCKED", ""),
            "test_locks.py::test_a_held_row_delays_no_other_lease",
        ),
        (
            _EXTEND,
            _EXTEND.replace("FOR NO KEY UPDATE", "FOR UPDATE"),
            "test_locks.py::test_a_foreign_key_to_a_job_holds_up_nothing_but_its_end",
        ),
        (
            "AND j.lease_until <= clock.now\n    ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED",
            "AND j.lease_until <= clock.now\n    ORDER BY j.id FOR NO KEY UPDATE OF j",
            "test_locks.py::test_a_job_whose_holder_has_a_transaction_is_never_taken_over",
        ),
        (
            _LOCK_LAPSED,
            _LOCK_LAPSED.replace(" SKIP LOCKED", ""),
            "test_locks.py::test_a_job_whose_holder_has_a_transaction_is_never_taken_over",
        ),
        (
            _LOCK_LAPSED,
            _LOCK_LAPSED.replace(" LIMIT %(most)s::bigint", ""),
            "TestSweep::test_the_limit_holds_for_each_kind",
        ),
        (
            "j.lease_until <= clock.now\nORDER BY j.lease_until, j.id LIMIT %(most)s",
            "j.lease_until < clock.now\nORDER BY j.lease_until, j.id LIMIT %(most)s",
            "TestSweep::test_a_lease_lapses_at_the_very_instant",
        ),
        (
            "claims = j.claims + 1, lapses = j.lapses + 1,\n",
            "claims = j.claims + 1,\n",
            "TestLapsed::test_lapses_add_up",
        ),
        (
            "token = greatest(j.token + 1, clock.now), owner = %(owner)s::text,\n    lease_until",
            "token = greatest(j.token, clock.now), owner = %(owner)s::text,\n    lease_until",
            "TestLapsed::test_a_takeover_at_the_same_instant_draws_a_new_token",
        ),
        (
            "    ORDER BY seen.rank, seen.id LIMIT %(most)s::bigint\n",
            "    ORDER BY seen.id LIMIT %(most)s::bigint\n",
            "TestClaim::test_order_is_rank_then_id",
        ),
        (
            "AND NOT EXISTS (SELECT FROM {queues} p WHERE p.queue = l.queue AND p.paused)",
            "",
            "test_floors.py::test_a_quick_claim_leaves_paused_queues_alone",
        ),
        (
            "j.owner = %(owner)s::text AND j.id <> ALL(%(held)s::text[])",
            "j.owner = %(owner)s::text",
            "TestResume::test_what_is_held_is_not_repeated",
        ),
        (
            "AND (SELECT true FROM {finished} f WHERE f.id = asked.id) IS NULL",
            "",
            "TestIdentity::test_a_repeated_insert_does_not_revive_a_finished_job",
        ),
        (
            "WHERE " + _AFTER + _BELOW,
            "WHERE " + _AFTER,
            "test_events.py::test_a_transaction_that_commits_late_is_not_skipped",
        ),
        (
            "AND " + _AFTER + _BELOW,
            "AND " + _AFTER,
            "test_events.py::test_a_transaction_that_commits_late_is_not_skipped",
        ),
        (
            "state = s.state AND finished_at < %(before)s::bigint\n",
            "state = s.state AND finished_at <= %(before)s::bigint\n",
            "TestPrune::test_only_what_ended_before_the_instant",
        ),
        (
            "    set_config('statement_timeout', %(timeout)s::text, false),\n",
            "",
            "test_locks.py::test_the_server_ends_what_nobody_waits_for_any_more",
        ),
        (
            "SELECT pg_advisory_xact_lock(hashtextextended(%(channel)s::text, 0))",
            "SELECT %(channel)s::text",
            "test_opening.py::test_many_starters_migrate_at_once",
        ),
        (
            "WHERE a.datname = current_database() AND a.backend_type",
            "WHERE a.backend_type",
            "test_health.py::test_transactions_of_other_databases_are_no_matter",
        ),
    )
    + _changes(
        "link.py",
        (
            "    errors.SerializationFailure,\n",
            "",
            "test_conflicts.py::test_what_another_transaction_was_in_the_way_of_is_done_again",
        ),
        (
            "    errors.DeadlockDetected,\n",
            "",
            "test_conflicts.py::test_what_another_transaction_was_in_the_way_of_is_done_again",
        ),
        (
            "return not self.connection.closed and not self._poll.poll(0)",
            "return not self.connection.closed",
            "test_outages.py::test_sessions_that_were_ended_while_idle_fail_no_call",
        ),
        (
            "        self._abandoned = True\n",
            "",
            "test_outages.py::test_a_connection_that_is_being_ended_is_never_lent_again",
        ),
        (
            "        if self.ours:\n            self.connection.prepare_threshold = 0",
            "        self.connection.prepare_threshold = 0",
            "test_pooler.py::test_nothing_is_left_behind_in_sessions_of_others",
        ),
        (
            "return PayloadError(f",
            "return EngineUnavailable(f",
            "test_conflicts.py::test_a_bad_item_fails_its_own_caller_only",
        ),
    )
    + _changes(
        "pool.py",
        (
            "self._spawn(link.abandon())",
            "pass",
            "test_pooler.py::test_a_statement_that_waits_too_long_is_ended_at_the_server",
        ),
        (
            "if self._closed or not link.clean:",
            "if self._closed:",
            "test_outages.py::test_a_connection_that_is_left_in_a_transaction_is_not_used_again",
        ),
    )
    + changes_of(
        "engines/flow.py",
        "",
        (
            "if len(group) == 1 or isinstance(error, EngineUnavailable):",
            "if True:",
            f"{HERE}/test_conflicts.py::test_a_bad_item_fails_its_own_caller_only",
        ),
    )
    + _changes(
        "companion.py",
        (
            "if claim.now == now and not claim.answer.done():",
            "if not claim.answer.done():",
            "test_companion.py::test_calls_of_different_instants_share_none",
        ),
        (
            "if claim.now == now and not claim.answer.done():",
            "if claim.now == now:",
            "test_companion.py::test_a_claim_whose_caller_left_before_it_was_sent_takes_nothing",
        ),
    )
    + _changes(
        "handle.py",
        (
            "                    if not link.clean:\n                        raise\n",
            "",
            "test_companion.py::test_a_lost_reply_fails_both_and_neither_is_done_twice",
        ),
        (
            "self._spawn(self._claim_alone(claim))\n                    return None\n",
            "raise\n",
            "test_companion.py::test_a_settlement_that_fails_harms_no_claim",
        ),
        (
            "if signal.topic is not Topic.DONE)",
            "if signal.topic is not None)",
            "test_notifying.py::test_what_there_is_to_take_is_told_while_many_ends_are",
        ),
    )
    + _changes(
        "signalling.py",
        (
            "return min(max(PACE, told * PACE_EACH), PACE_MAX)",
            "return PACE_MAX",
            "test_notifying.py::test_the_more_was_told_the_longer_it_is_until_more_is_told_within_a_limit",
        ),
        (
            "signals, self._outbox = self._outbox, {}",
            "signals = {self._outbox.popitem()[0]: None}",
            "test_notifying.py::test_what_comes_while_something_is_told_goes_into_the_next_message",
        ),
    )
    + _changes(
        "settling.py",
        (
            "while wave < len(found) and len(found[wave]) >= CHUNK:",
            "while False:",
            "test_conflicts.py::test_a_statement_locks_no_more_rows_than_allowed",
        ),
        (
            "wave = last.get(item.id, -1) + 1",
            "wave = 0",
            "test_conflicts.py::test_a_statement_locks_no_more_rows_than_allowed",
        ),
        (
            "if fence.over and beat.id not in locked:",
            "if fence.over:",
            "test_locks.py::test_a_job_whose_holder_has_a_transaction_is_never_taken_over",
        ),
    )
    + _changes(
        "migrating.py",
        (
            '            await link.ask(Ask("lock_patience", {"milliseconds": patience}))\n',
            "",
            "test_versions.py::test_a_migration_that_waits_holds_up_nobody",
        ),
        (
            "if _version(found, place) < schema_version():",
            "if False:",
            "test_versions.py::test_a_newer_library_asks_for_the_migration",
        ),
        (
            "if needed > schema_version():",
            "if version > schema_version():",
            "test_opening.py::test_a_newer_schema_is_used_as_long_as_it_allows",
        ),
    )
)
