"""Guards of limits and turns, in the core and on every engine."""

from tools.mutations.kinds import changes_of

_PURE = "tests/core/test_limits.py"
_RACES = "tests/engines/postgres/test_limits.py"
_THREADS = "tests/worker/test_thread_bodies.py"

_CORE = changes_of(
    "core/limits.py",
    "memory",
    (
        "if self.running.get(held, 0) >= most:",
        "if self.running.get(held, 0) > most:",
        "TestConcurrencyOfKeys::test_no_more_of_a_key_run_than_may",
    ),
    (
        "            self.running[held] = self.running.get(held, 0) + 1\n",
        "            self.running[held] = self.running.get(held, 0)\n",
        f"{_PURE}::test_the_gate_counts_what_it_lets_through",
    ),
    (
        "rooms.append(max(0, limits.concurrency - running))",
        "rooms.append(max(0, limits.concurrency - running + 1))",
        "TestConcurrencyOfQueues::test_no_more_run_than_may",
    ),
    (
        "return slack // rate.interval + 1 if slack >= 0 else 0",
        "return slack // rate.interval + 1 if slack > 0 else 0",
        f"{_PURE}::test_the_next_start_is_when_one_is_allowed_and_not_before",
    ),
    (
        "return -(-self.period // self.count)",
        "return self.period // self.count",
        f"{_PURE}::test_a_rate_is_kept_in_microseconds",
    ),
    (
        "arrival > now + 2 * rate.burst * rate.interval:",
        "arrival > now + 2_000_000 * rate.burst * rate.interval:",
        "TestRateOfQueues::test_a_clock_that_is_set_back_holds_nobody_for_long",
    ),
    (
        "return cell.wake_at is not None and not now < cell.wake_at <= now + rate.longest",
        "return cell.wake_at is not None and cell.wake_at <= now",
        "TestRateOfKeys::test_a_clock_that_is_set_back_holds_nobody_for_long",
    ),
    (
        "return len(self.parked) >= PARKED_MAX",
        "return len(self.parked) > PARKED_MAX",
        f"{_PURE}::test_the_gate_closes_after_a_number",
    ),
    (
        "    if after.blocked == Blocked.CONCURRENCY:\n",
        "    if after.blocked is not None:\n",
        "TestRateOfKeys::test_who_waits_for_the_rate_leaves_the_slot_to_others",
    ),
    (
        "        return None if after.state is State.RUNNING else key\n",
        "        return key if after.state.final else None\n",
        "TestConcurrencyOfKeys::test_every_end_of_an_attempt_makes_the_next_one_ready",
    ),
    (
        "        self._taken[candidate.queue] -= 1\n",
        "",
        f"{_PURE}::test_what_another_took_does_not_count",
    ),
)
_TURNS = changes_of(
    "core/fair.py",
    "memory",
    (
        "max(plain, last + RANK_STEP)",
        "last + RANK_STEP",
        "TestFairShare::test_each_that_waits_costs_the_next_one_a_step",
    ),
    (
        "max(plain, last + RANK_STEP)",
        "plain",
        "TestFairShare::test_two_backlogs_take_turns",
    ),
    (
        "(row.queue, row.fair_key, row.priority)",
        "(row.queue, row.fair_key, 0)",
        "TestFairShare::test_priorities_of_one_batch_do_not_mix",
    ),
)
_SQLITE = (
    changes_of(
        "engines/sqlite/claiming.py",
        "sqlite",
        (
            "        _free_slots(tx, claim, limited, room.left, now)\n",
            "",
            "TestConcurrencyOfQueues::test_a_lapsed_job_of_an_unknown_task_does_not_hold_the_queue",
        ),
        (
            "    room = room.within(limiting.rooms(tx, limited, now))\n",
            "",
            "TestConcurrencyOfQueues::test_no_more_run_than_may",
        ),
        (
            "        limiting.park(tx, gate.parked[seen:])\n",
            "",
            "TestConcurrencyOfKeys::test_no_more_of_a_key_run_than_may",
        ),
        (
            "    limiting.close(tx, gate, limited)\n",
            "",
            "TestRateOfQueues::test_one_starts_at_a_time_an_interval_apart",
        ),
    )
    + changes_of(
        "engines/sqlite/operations.py",
        "sqlite",
        (
            "                tx.freed[fence.queue, fence.concurrency_key] += 1\n",
            "                pass\n",
            "TestConcurrencyOfKeys::test_every_end_of_an_attempt_makes_the_next_one_ready",
        ),
        (
            "            tx.freed[queue, key] += count\n",
            "            pass\n",
            "TestConcurrencyOfKeys::test_whoever_gives_up_the_turn_passes_it_on",
        ),
    )
    + changes_of(
        "engines/sqlite/fleet.py",
        "sqlite",
        (
            "        limiting.unblock_all(tx, after.queue)\n",
            "        pass\n",
            "TestConcurrencyOfKeys::test_a_limit_that_is_raised_or_removed_lets_them_go",
        ),
    )
)
_POSTGRES = (
    changes_of(
        "engines/postgres/limiting.py",
        "postgres",
        (
            '    yield Ask("lock_loosely", {"queues": Texts({queue for queue, _ in freed})})\n',
            "",
            f"{_RACES}::test_no_wake_up_is_lost_between_a_claim_and_an_end",
        ),
    )
    + changes_of(
        "engines/postgres/operating.py",
        "postgres",
        (
            "    yield from limiting.repair(out, limit)\n",
            "",
            f"{_RACES}::test_a_sweep_finds_a_free_slot_that_nobody_passed_on",
        ),
    )
    + changes_of(
        "engines/postgres/settling.py",
        "postgres",
        (
            "                    out.doubtful.add((fence.queue, fence.concurrency_key))\n",
            "                    pass\n",
            f"{_RACES}::test_a_transaction_of_the_caller_passes_its_slot_on_at_the_end",
        ),
    )
    + changes_of(
        "engines/postgres/statements.sql",
        "postgres",
        (
            "ORDER BY queue FOR NO KEY UPDATE;\n\n-- name: lock_loosely",
            "ORDER BY queue;\n\n-- name: lock_loosely",
            "tests/engines/postgres/test_limits.py::test_claims_at_once_never_count_a_slot_twice",
        ),
    )
)
_KEYS = "TestConcurrencyOfKeys"
_SCRIPTS = "tests/engines/redis/test_limits.py"
_REDIS = (
    changes_of(
        "engines/redis/scripts/parts/gate.lua",
        "redis",
        (
            "if running[held] >= given.key_concurrency then",
            "if running[held] > given.key_concurrency then",
            f"{_KEYS}::test_no_more_of_a_key_run_than_may",
        ),
        (
            "running[held] = running[held] + 1",
            "",
            f"{_KEYS}::test_no_more_of_a_key_run_than_may",
        ),
        (
            "gate.closed = #parked >= PARKED_MAX",
            "gate.closed = false",
            f"{_KEYS}::test_a_claim_walks_past_a_bounded_number",
        ),
        (
            "given.concurrency - flow.running_in(queue)",
            "given.concurrency",
            "TestConcurrencyOfQueues::test_no_more_run_than_may",
        ),
        (
            '      if reason == "rate" then',
            "      if false then",
            "TestRateOfKeys::test_who_waits_for_the_rate_leaves_the_slot_to_others",
        ),
        (
            "cell.wake = flow.next_start(cell.rate, cell.arrival, now_text)",
            "",
            "TestRateOfKeys::test_blocked_ones_are_looked_at_when_it_is_time",
        ),
        (
            'flow.keep_cell(queue, "", before, arrival, before.wake)',
            "",
            "TestRateOfQueues::test_one_starts_at_a_time_an_interval_apart",
        ),
        (
            ', {"[" .. far, "+"}',
            "",
            "TestRateOfKeys::test_a_clock_that_is_set_back_holds_nobody_for_long",
        ),
    )
    + changes_of(
        "engines/redis/scripts/parts/limits.lua",
        "redis",
        (
            "or is_less(sum(now_text, rate.horizon), arrival) then",
            "then",
            f"{_SCRIPTS}::test_scripts_calculate_as_core_does",
        ),
        (
            '  if row[STATE] == "ready" then\n    note_freed(freed, row)\n  end\n',
            "",
            f"{_KEYS}::test_whoever_gives_up_the_turn_passes_it_on",
        ),
        (
            "if given and given.limited then",
            "if false then",
            "TestConcurrencyOfQueues::test_whoever_waits_for_room_is_told",
        ),
    )
    + changes_of(
        "engines/redis/scripts/parts/rows.lua",
        "redis",
        (
            "if behind and is_less(rank, behind) then",
            "if false then",
            "TestFairShare::test_two_backlogs_take_turns",
        ),
    )
    + changes_of(
        "engines/redis/scripts/claim.lua",
        "redis",
        (
            'call("SADD", slots_key(row), id)',
            "",
            f"{_KEYS}::test_every_handle_keeps_to_it",
        ),
        (
            'call("ZREM", turns_key(row), member)',
            "",
            "TestFairShare::test_once_nobody_waits_it_begins_anew",
        ),
        (
            "  local strangers = others()",
            "  local strangers = {}",
            f"{_KEYS}::test_a_lapsed_holder_gives_way_in_the_claim",
        ),
        (
            "if before and redis.sha1hex(packed(id, load(id))) == item[5] then",
            "if before then",
            f"{_SCRIPTS}::test_a_holder_that_another_took_back_is_left_alone",
        ),
        (
            "if not (from.known and chosen[id]) then",
            "if not from.known then",
            f"{_SCRIPTS}::test_a_holder_that_the_claim_does_not_name_gives_way",
        ),
    )
    + changes_of(
        "engines/redis/scripts/settle.lua",
        "redis",
        (
            "    note_freed(freed, held)\n",
            "",
            f"{_KEYS}::test_every_end_of_an_attempt_makes_the_next_one_ready",
        ),
        (
            'call("SREM", slots_key(held), id)',
            "",
            f"{_KEYS}::test_slots_freed_together_are_all_given_on",
        ),
        (
            'call("HDEL", job, "rank")',
            "",
            f"{_SCRIPTS}::test_a_turn_is_over_when_a_job_comes_back_at_once",
        ),
    )
    + changes_of(
        "engines/redis/scripts/unblock.lua",
        "redis",
        (
            "flow().keep_cell(queue, key, cell, cell.arrival, nil)",
            "",
            f"{_SCRIPTS}::test_a_sweep_does_what_a_killed_change_of_limits_has_left",
        ),
    )
    + changes_of(
        "engines/redis/scripts/tidy.lua",
        "redis",
        (
            'return call("HKEYS", PREFIX .. "freeing")',
            "return {}",
            f"{_SCRIPTS}::test_a_sweep_does_what_a_killed_change_of_limits_has_left",
        ),
    )
    + changes_of(
        "engines/redis/limiting.py",
        "redis",
        (
            '            plan.keep("freeing", queue, "")\n',
            "            pass\n",
            f"{_KEYS}::test_a_limit_that_is_raised_or_removed_lets_them_go",
        ),
    )
    + changes_of(
        "engines/redis/queries.py",
        "redis",
        (
            "before, left = scan.next, left - scan.looked",
            "before = scan.next",
            "tests/engines/redis/test_costs.py::test_a_page_of_rare_jobs_is_found_in_bounded_steps",
        ),
        (
            "following = job_id",
            "pass",
            "TestFind::test_going_on_from_next_meets_everything_once",
        ),
    )
)
_WORKER = changes_of(
    "worker/attempt.py",
    "memory",
    (
        'elif self._told != "timeout" or self._holds_slot:',
        'elif self._told != "timeout":',
        f"{_THREADS}::test_a_body_with_a_concurrency_key_keeps_its_slot_past_its_timeout",
    ),
)
LIMITS = (*_CORE, *_TURNS, *_SQLITE, *_POSTGRES, *_REDIS, *_WORKER)
