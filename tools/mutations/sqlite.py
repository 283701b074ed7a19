"""Guards of the SQLite engine, most of them in its statements."""

from tools.mutations.kinds import changes_of

SQLITE = (
    changes_of(
        "engines/sqlite/statements.sql",
        "sqlite",
        (
            "state = 'running', ready = 0, token = max(token + 1, :now), owner",
            "state = 'running', ready = 0, token = :now, owner",
            "TestIdentity::test_a_token_grows_though_time_goes_back",
        ),
        (
            "UPDATE jobs SET\n    token = max(token + 1, :now), owner = :owner,",
            "UPDATE jobs SET\n    token = max(token, :now), owner = :owner,",
            "TestLapsed::test_a_takeover_at_the_same_instant_draws_a_new_token",
        ),
        (
            "claims = claims + 1, lapses = lapses + 1, started_at",
            "claims = claims + 1, started_at",
            "TestLapsed::test_lapses_add_up",
        ),
        (
            "unique_key = CASE WHEN unique_until = 'started' THEN NULL ELSE unique_key END",
            "unique_key = unique_key",
            "TestUniqueKeys::test_a_key_until_started_ends_at_the_first_claim_for_good",
        ),
        (
            "WHERE state = 'running' AND lease_until <= :now\nORDER",
            "WHERE state = 'running' AND lease_until < :now\nORDER",
            "TestSweep::test_a_lease_lapses_at_the_very_instant",
        ),
        (
            "AND expires_at IS NOT NULL AND expires_at <= :now",
            "AND expires_at IS NOT NULL AND expires_at < :now",
            "TestExpired::test_a_job_expires_at_the_very_instant",
        ),
        (
            "AND queue = :queue\n    AND available_at <= :now",
            "AND queue = :queue",
            "TestPromote::test_only_due_jobs_are_promoted",
        ),
        (
            ") WHERE expires_at IS NULL OR expires_at > :now\nLIMIT :limit;",
            ") LIMIT :limit;",
            "TestClaim::test_an_overdue_job_is_never_claimed",
        ),
        (
            "ORDER BY rank, id LIMIT :reach",
            "ORDER BY id LIMIT :reach",
            "TestClaim::test_order_is_rank_then_id",
        ),
        (
            "AND (:tasks IS NULL OR +task IN (SELECT value FROM json_each(:tasks)))\nORDER BY rank",
            "ORDER BY rank",
            "TestClaim::test_ids_of_other_queues_or_names_are_not_claimed",
        ),
        (
            "    AND id NOT IN (SELECT value FROM json_each(:held))\n",
            "",
            "TestResume::test_what_is_held_is_not_repeated",
        ),
        (
            "AND (:owner IS NULL OR job_id = :owner)",
            "",
            "TestReservations::test_releasing_can_ask_for_the_owner",
        ),
        (
            "UPDATE revisions SET last = last + 1 RETURNING last",
            "UPDATE revisions SET last = last RETURNING last",
            "TestSchedules::test_no_revision_is_drawn_twice",
        ),
        (
            "WHERE until > :now ORDER BY id",
            "WHERE until >= :now ORDER BY id",
            "TestPresence::test_a_word_holds_for_its_time",
        ),
        (
            "AND finished_at < :before",
            "AND finished_at <= :before",
            "TestPrune::test_only_what_ended_before_the_instant",
        ),
        (
            "WHERE number > :after\n    AND (:names",
            "WHERE number >= :after\n    AND (:names",
            "TestEvents::test_pages_go_through_everything_once",
        ),
    )
    + changes_of(
        "engines/sqlite/operations.py",
        "sqlite",
        (
            "elif (fence.token, fence.owner) != (item.token, item.owner):",
            "elif fence.token != item.token:",
            "TestSettle::test_a_wrong_token_or_owner_is_refused",
        ),
        (
            "elif (fence.token, fence.owner) != (item.token, item.owner):",
            "elif fence.owner != item.owner:",
            "TestZombies::test_it_cannot_settle",
        ),
        (
            "elif fence.state != State.RUNNING:",
            "elif False:",
            "TestSettle::test_a_repeated_settlement_changes_nothing",
        ),
        (
            "            fences[item.id] = fence._replace(state=change.state)",
            "            pass",
            "TestSettle::test_a_settlement_twice_in_a_batch",
        ),
        (
            "item.if_cancel_requested if fence.cancel_requested else item.next",
            "item.next",
            "TestSettle::test_a_cancel_request_picks_the_other_branch",
        ),
        (
            "if (fence.token, fence.owner) != (beat.token, beat.owner):",
            "if fence.owner != beat.owner:",
            "TestZombies::test_it_cannot_extend",
        ),
        (
            "if fence.lease_until <= now:",
            "if fence.lease_until < now:",
            "TestExtend::test_a_lease_that_ran_out_is_lost_at_the_very_instant",
        ),
        (
            "elif (other := _taken_by(tx, row)) is not None:",
            "elif (other := None) is not None:",
            "TestRequeueKeys::test_a_taken_key_refuses_the_requeue",
        ),
        (
            "if len(job.payload) > most:",
            "if len(job.payload) >= most:",
            "TestInsert::test_a_payload_of_the_largest_size_is_kept",
        ),
    )
    + changes_of(
        "engines/sqlite/claiming.py",
        "sqlite",
        (
            "tuple(queue for queue in queues if queue not in special.paused)",
            "queues",
            "TestPaused::test_a_paused_queue_gives_nothing_until_it_goes_on",
        ),
        (
            "room = Room(claim.limit - len(taken), claim.room)",
            "room = Room(claim.limit, claim.room)",
            "TestResume::test_what_is_resumed_counts_towards_the_limit",
        ),
        (
            "                    self._of_queue[queue] -= 1\n",
            "                    pass\n",
            "TestRoom::test_lapsed_and_due_share_it",
        ),
        (
            "        candidates.sort()\n",
            "        pass\n",
            "TestClaim::test_order_holds_across_tasks_and_queues",
        ),
    )
)
