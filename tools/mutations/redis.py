"""Guards of the engine on Redis and Valkey, most of them in its scripts."""

from tools.mutations.kinds import changes_of

_TESTS = "tests/engines/redis"

_GROUPS = (
    changes_of(
        "engines/redis/scripts/claim.lua",
        "redis",
        (
            "return is_less(token, now_text) and now_text or token",
            "return now_text",
            "TestIdentity::test_a_token_grows_though_time_goes_back",
        ),
        (
            'local token = last and sum(last, "1") or "1"',
            'local token = last or "1"',
            "TestLapsed::test_a_takeover_at_the_same_instant_draws_a_new_token",
        ),
        (
            "row[LAPSES] = text((tonumber(row[LAPSES]) or 0) + 1)",
            'row[LAPSES] = row[LAPSES] or "1"',
            "TestLapsed::test_lapses_add_up",
        ),
        (
            'if row[KEEP] == "started" then',
            "if false then",
            "TestUniqueKeys::test_a_key_until_started_ends_at_the_first_claim_for_good",
        ),
        (
            'if row[STATE] == "ready" and row[UNTIL] and not is_less(now_text, row[UNTIL]) then',
            "if false then",
            "TestClaim::test_an_overdue_job_is_never_claimed",
        ),
        (
            'per_queue("future", now_text)',
            'per_queue("future", nil)',
            "TestPromote::test_only_due_jobs_are_promoted",
        ),
        (
            "if of_queue[queue] and (not chosen_tasks or chosen_tasks[task]) then",
            "if true then",
            "TestClaim::test_ids_of_other_queues_or_names_are_not_claimed",
        ),
        (
            "if not (given and given.paused) then",
            "if true then",
            "TestPaused::test_a_paused_queue_gives_nothing_until_it_goes_on",
        ),
        (
            "room[queue] = rest and rest - 1",
            "room[queue] = rest",
            "TestRoom::test_a_queue_gives_no_more_than_there_is_room_for",
        ),
        (
            "    if not known[id] then",
            "    if true then",
            "TestResume::test_what_is_held_is_not_repeated",
        ),
        (
            'call("SREM", PREFIX .. "held:" .. row[OWNER], id)',
            "",
            "TestResume::test_what_another_took_is_not_given",
        ),
        (
            'return "leave"',
            "return nil",
            f"{_TESTS}/test_costs.py::test_a_queue_without_room_is_not_walked_through",
        ),
        (
            "text(left > 0 and now or now + 1e13)",
            "text(now)",
            f"{_TESTS}/test_signals.py::test_who_is_busy_is_told_last",
        ),
    ),
    changes_of(
        "engines/redis/scripts/settle.lua",
        "redis",
        (
            'if (has_token or "0") ~= token or (has_owner or "") ~= owner then',
            'if (has_owner or "") ~= owner then',
            "TestSettle::test_a_wrong_token_or_owner_is_refused",
        ),
        (
            'if (has_token or "0") ~= token or (has_owner or "") ~= owner then',
            'if (has_token or "0") ~= token then',
            "TestSettle::test_a_wrong_token_or_owner_is_refused",
        ),
        (
            "if stop and if_cancelled then",
            "if false then",
            "TestSettle::test_a_cancel_request_picks_the_other_branch",
        ),
        (
            "if not wrote then\n    begin_writing()",
            "if not wrote then",
            f"{_TESTS}/test_outages.py::test_a_full_server_takes_no_job_and_ends_all_that_it_has",
        ),
        (
            "if is_less(LAST_INSTANT, at) then",
            "if false then",
            f"{_TESTS}/test_scripts.py::test_a_delay_past_the_calendar_ends_with_it",
        ),
    ),
    changes_of(
        "engines/redis/scripts/extend.lua",
        "redis",
        (
            'if (has_token or "0") ~= token or (has_owner or "") ~= owner then',
            'if (has_owner or "") ~= owner then',
            "TestExtend::test_a_wrong_token_or_owner_is_refused",
        ),
        (
            "if tonumber(lease) <= now then",
            "if tonumber(lease) < now then",
            "TestExtend::test_a_lease_that_ran_out_is_lost_at_the_very_instant",
        ),
        (
            'return stop and "stop" or "kept"',
            'return "kept"',
            "TestExtend::test_a_request_to_cancel_is_told",
        ),
    ),
    changes_of(
        "engines/redis/scripts/insert.lua",
        "redis",
        (
            'local known = ids[id] or call("EXISTS", job_key(id)) == 1',
            "local known = ids[id]",
            "TestIdentity::test_a_repeated_insert_leaves_a_running_job_alone",
        ),
        (
            'return answer("late", text(i - 1))',
            "at = LAST_INSTANT",
            "TestInsert::test_a_time_past_the_calendar_is_refused_and_nothing_written",
        ),
        (
            "  seen[name] = true\n",
            "",
            "TestUniqueBatch::test_the_first_of_a_batch_has_the_key",
        ),
        (
            'call("HEXISTS", PREFIX .. "forever", key) == 1',
            "false",
            f"{_TESTS}/test_joined.py::test_a_key_that_is_reserved_for_ever_is_not_given_up",
        ),
        (
            'or row[STATE] == "running" or not row[UNTIL]',
            "or not row[UNTIL]",
            f"{_TESTS}/test_joined.py::test_a_running_job_keeps_its_key",
        ),
    ),
    changes_of(
        "engines/redis/scripts/write.lua",
        "redis",
        (
            "if redis.sha1hex(look(question, now)) ~= digest then",
            "if false then",
            f"{_TESTS}/test_deciding.py::test_what_changed_meanwhile_is_read_again",
        ),
    ),
    changes_of(
        "engines/redis/scripts/parts/numbers.lua",
        "redis",
        (
            "return #digits < 16 or (#digits == 16 and string.byte(digits) < 57)",
            "return true",
            f"{_TESTS}/test_scripts.py::test_every_corner_has_its_place",
        ),
        (
            "    if number < EXACT and number > -EXACT then",
            "    if true then",
            f"{_TESTS}/test_scripts.py::test_every_pair_of_corners_is_added",
        ),
        (
            "    local x, y = string.byte(a, i), string.byte(b, i)",
            "    local x, y = string.byte(a, 1), string.byte(b, 1)",
            f"{_TESTS}/test_scripts.py::test_texts_are_compared_by_their_bytes",
        ),
    ),
    changes_of(
        "engines/redis/scripts/parts/rows.lua",
        "redis",
        (
            'call("SREM", PREFIX .. "lanes:" .. queue_of(row[LANE]), row[LANE])',
            "",
            f"{_TESTS}/test_keys.py::test_nothing_is_left_behind",
        ),
        (
            'call("SREM", PREFIX .. "busy:" .. queue, lane)',
            "",
            f"{_TESTS}/test_keys.py::test_nothing_is_left_behind",
        ),
    ),
    changes_of(
        "engines/redis/scripts/parts/signals.lua",
        "redis",
        (
            'call("ZREM", ears, first)',
            "return",
            f"{_TESTS}/test_signals.py::test_who_died_is_passed_over",
        ),
        (
            'call("ZADD", ears, text(now), first)',
            "",
            f"{_TESTS}/test_signals.py::test_of_one_job_one_process_is_told_each_in_its_turn",
        ),
    ),
    changes_of(
        "engines/redis/scripts/remove.lua",
        "redis",
        (
            "FINAL[row[STATE]] and is_less(row[ENDED], before)",
            "FINAL[row[STATE]]",
            f"{_TESTS}/test_keys.py::test_what_came_back_meanwhile_is_not_removed",
        ),
    ),
    changes_of(
        "engines/redis/link.py",
        "redis",
        (
            "                    repeat.unsure = True\n",
            "                    pass\n",
            f"{_TESTS}/test_outages.py::test_an_insert_whose_answer_was_lost_says_created",
        ),
        (
            "                if not repeat:\n                    raise problem from error\n",
            "",
            f"{_TESTS}/test_outages.py::test_a_claim_whose_answer_was_lost_is_not_repeated",
        ),
    ),
    changes_of(
        "engines/redis/faults.py",
        "redis",
        (
            "(exceptions.AskError, Fault.NOT_NOW)",
            "(exceptions.AskError, Fault.FULL)",
            f"{_TESTS}/test_cluster.py::test_a_slot_that_is_being_moved_is_left_alone_until_it_has_moved",
        ),
        (
            '"READONLY": Fault.NOT_NOW',
            '"READONLY": Fault.CANNOT_WRITE',
            f"{_TESTS}/test_places.py::test_what_a_refusal_means",
        ),
    ),
)
REDIS = tuple(mutation for group in _GROUPS for mutation in group)
