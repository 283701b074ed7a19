"""Guards of the engine in memory."""

from tools.mutations.kinds import changes_of

MEMORY = (
    changes_of(
        "engines/memory/settling.py",
        "memory",
        (
            'if row["token"] != beat.token or row["owner"] != beat.owner:',
            'if row["owner"] != beat.owner:',
            "TestExtend::test_a_wrong_token_or_owner_is_refused",
        ),
        (
            'if row["token"] != settlement.token or row["owner"] != settlement.owner:',
            'if row["owner"] != settlement.owner:',
            "TestZombies::test_it_cannot_settle",
        ),
        (
            'if row["token"] != settlement.token or row["owner"] != settlement.owner:',
            'if row["token"] != settlement.token:',
            "TestSettle::test_a_wrong_token_or_owner_is_refused",
        ),
        (
            'if row["lease_until"] <= now:',
            'if row["lease_until"] < now:',
            "TestExtend::test_a_lease_that_ran_out_is_lost_at_the_very_instant",
        ),
        (
            "if state is not State.RUNNING:",
            "if False:",
            "TestSettle::test_a_repeated_settlement_changes_nothing",
        ),
        (
            'settlement.if_cancel_requested if row["cancel_requested"] else settlement.next',
            "settlement.next",
            "TestSettle::test_a_cancel_request_picks_the_other_branch",
        ),
    )
    + changes_of(
        "engines/memory/claiming.py",
        "memory",
        (
            "return expires_at is None or bool(expires_at > self._now)",
            "return expires_at is None or bool(expires_at >= self._now)",
            "TestClaim::test_an_overdue_job_is_never_claimed",
        ),
        (
            'if claim.tasks is not None and row["task"] not in claim.tasks:',
            "if False:",
            "TestClaim::test_ids_of_other_queues_or_names_are_not_claimed",
        ),
        (
            "                self._queues,\n                claim.tasks,\n",
            "                self._queues,\n                None,\n",
            "TestClaim::test_unknown_names_are_never_touched",
        ),
        (
            "        self._left -= len(ids)\n",
            "",
            "TestLapsed::test_the_limit_counts_both_arms",
        ),
        (
            "[queue for queue in claim.queues if queue not in paused]",
            "list(claim.queues)",
            "TestPaused::test_a_paused_queue_gives_nothing_until_it_goes_on",
        ),
        (
            ' if row["id"] not in held]',
            "]",
            "TestResume::test_what_is_held_is_not_repeated",
        ),
        (
            "        self._left -= len(stray)\n",
            "",
            "TestResume::test_what_is_resumed_counts_towards_the_limit",
        ),
        (
            "rows.waiting.take(queues, None, limit, until=now)",
            "rows.waiting.take(queues, None, limit)",
            "TestPromote::test_only_due_jobs_are_promoted",
        ),
        (
            "rows.expiring.take(queues, None, limit, until=now)",
            "rows.expiring.take(queues, None, limit, until=now - 1)",
            "TestExpired::test_a_job_expires_at_the_very_instant",
        ),
        (
            "rows.leases.take(None, None, limit, until=now)",
            "rows.leases.take(None, None, limit + 1, until=now)",
            "TestSweep::test_the_limit_holds_for_each_kind",
        ),
    )
    + changes_of(
        "engines/memory/lanes.py",
        "memory",
        (
            "rooms[queue] -= 1",
            "pass",
            "TestRoom::test_a_queue_gives_no_more_than_there_is_room_for",
        ),
        (
            "if rooms.get(queue, 1) <= 0:",
            "if rooms.get(queue, 1) < 0:",
            "TestRoom::test_no_room_is_no_job",
        ),
        (
            "if first is not None and (until is None or first[0] <= until):",
            "if first is not None and (until is None or first[0] < until):",
            "TestLapsed::test_a_lease_lapses_at_the_very_instant",
        ),
    )
    + changes_of(
        "engines/memory/store.py",
        "memory",
        (
            'r["finished_at"] < before]',
            'r["finished_at"] <= before]',
            "TestPrune::test_only_what_ended_before_the_instant",
        ),
        (
            "if len(job.payload) > self._max_payload:",
            "if len(job.payload) > self._max_payload + 1:",
            "TestInsert::test_a_larger_payload_is_refused_and_nothing_written",
        ),
        (
            "owner not in (None, reservation.job_id)",
            "False",
            "TestReservations::test_releasing_can_ask_for_the_owner",
        ),
        (
            "            columns.to_column_values(values)\n",
            "            pass\n",
            "TestUniqueBatch::test_a_replacement_that_cannot_be_kept_writes_nothing",
        ),
    )
)
