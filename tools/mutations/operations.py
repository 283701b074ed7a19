"""Guards of what people and housekeeping do, of hosts without a worker, and of the testing kit."""

from tools.mutations.kinds import changes_of

_MAINTENANCE = "tests/service/test_maintenance.py::"
_OPERATIONS = "tests/service/test_operations.py::"
_RUNNING = "tests/service/test_running.py::"
_QUERY = "tests/core/test_query.py::"
_MASS = "tests/faults/test_mass_actions.py::"
_KIT = "tests/testing/test_kit.py::"

OPERATIONS = (
    changes_of(
        "core/query.py",
        "",
        (
            "return isinstance(value, bool) == isinstance(wanted, bool) and value == wanted",
            "return value == wanted",
            f"{_QUERY}test_what_a_filter_lets_through",
        ),
        (
            "if name not in metadata or not",
            "if name in metadata and not",
            f"{_QUERY}test_what_a_filter_lets_through",
        ),
    )
    + changes_of(
        "engines/sqlite/queries.py",
        "sqlite",
        (
            "return Found(rows, ids[-1] if len(ids) == page.limit else floor)",
            "return Found(rows, ids[-1] if len(ids) == page.limit else None)",
            "TestFind::test_a_few_among_more_than_one_call_looks_at",
        ),
        (
            "if matches_inside(where, *texts)][: page.limit]",
            "if matches_inside(where, *texts)]",
            "TestFind::test_going_on_from_next_meets_everything_once",
        ),
        (
            '"scan": SCAN_MAX - 1}',
            '"scan": 10 * SCAN_MAX}',
            "tests/engines/sqlite/test_plans.py::test_a_search_looks_at_a_bounded_number_of_jobs",
        ),
    )
    + changes_of(
        "engines/sqlite/statements.sql",
        "sqlite",
        (
            (
                "-- What tells of matching jobs whether they match inside, too.\n"
                "SELECT id, tags, metadata, error FROM jobs\nWHERE id < :before AND id >= :floor"
            ),
            (
                "-- What tells of matching jobs whether they match inside, too.\n"
                "SELECT id, tags, metadata, error FROM jobs\nWHERE id < :before AND id > :floor"
            ),
            "TestFind::test_a_job_at_the_end_of_what_one_call_looks_at_is_met",
        ),
    )
    + changes_of(
        "core/rules.py",
        "memory",
        (
            '"codec": codec.JSON, "payload_size": len(payload)}',
            '"codec": codec.JSON}',
            "TestRequeue::test_new_arguments_take_the_place_of_the_old",
        ),
    )
    + changes_of(
        "lookups.py",
        "",
        (
            'if given in ((), {}, ""):',
            "if False:",
            f"{_MASS}test_a_filter_that_came_out_empty_is_not_all_jobs",
        ),
    )
    + changes_of(
        "operations.py",
        "",
        (
            "        if dry_run:\n            result = result.and_then(_would_cancel(",
            "        if False:\n            result = result.and_then(_would_cancel(",
            f"{_MASS}test_a_dry_run_changes_nothing_at_all",
        ),
        (
            (
                "    if not where.states and not where.ids:\n"
                "        where = msgspec.structs.replace(where, states=(State.FAILED,))\n"
            ),
            "",
            f"{_OPERATIONS}test_requeueing_by_filter_takes_what_failed_unless_told_otherwise",
        ),
        (
            (
                "    for start in range(0, len(ids), PAGE_MAX):\n"
                "        yield ids[start : start + PAGE_MAX]"
            ),
            "    yield ids",
            f"{_MASS}test_no_action_on_a_whole_backlog_asks_for_it_at_once",
        ),
    )
    + changes_of(
        "maintenance.py",
        "",
        (
            "            ids=(JOB_ID,),\n            arms=frozenset({Arm.DUE, Arm.LAPSED}),",
            "            ids=(JOB_ID,),\n            arms=frozenset({Arm.DUE}),",
            f"{_MAINTENANCE}test_a_runner_that_vanished_is_followed_when_its_lease_ends",
        ),
        (
            "if more and self._clock.monotonic() >= end:\n                    break",
            "pass",
            f"{_MAINTENANCE}test_a_budget_that_is_over_leaves_the_rest_for_the_next_run",
        ),
        (
            "            await asyncio.shield(self._end(row, Cancelled()))\n",
            "",
            f"{_MAINTENANCE}test_a_cancelled_run_lets_the_next_begin_at_once",
        ),
        (
            "        if row is None:\n            [held]",
            "        if False:\n            [held]",
            f"{_MAINTENANCE}test_one_runner_at_a_time_and_another_after_it",
        ),
    )
    + changes_of(
        "operating.py",
        "",
        (
            "self._ticker(engine) if self.tasks.names else None",
            "self._ticker(engine)",
            f"{_MAINTENANCE}test_a_store_that_is_only_looked_at_fires_nothing",
        ),
    )
    + changes_of(
        "running.py",
        "",
        (
            "    if answer.verdict is not Verdict.APPLIED:\n",
            "    if False:\n",
            f"{_RUNNING}test_a_job_is_taken_over_by_its_token_and_only_once",
        ),
        (
            "            if attempt in executing:\n",
            "            if False:\n",
            f"{_RUNNING}test_one_claim_is_executed_once",
        ),
        (
            "not handle.created or item.spec.delay_us or not self._runs_inline(item)",
            "not handle.created or item.spec.delay_us",
            f"{_RUNNING}test_a_due_job_runs_before_enqueue_returns",
        ),
    )
    + changes_of(
        "worker/single.py",
        "",
        (
            "                self._lost = answer.reason\n                return False",
            "                self._runner.begin([row], sent)\n                return True",
            f"{_RUNNING}test_a_lease_that_ran_out_before_is_lost",
        ),
    )
    + changes_of(
        "joining.py",
        "",
        (
            'if item.spec.executor == "inline":',
            "if False:",
            f"{_RUNNING}test_it_is_refused_within_a_transaction",
        ),
    )
    + changes_of(
        "testing/overriding.py",
        "",
        (
            (
                "        try:\n            await self._service.close()\n"
                "        finally:\n            self._restore()"
            ),
            "        await self._service.close()",
            f"{_KIT}test_what_was_open_is_open_again",
        ),
        (
            "        if _loop_runs():\n",
            "        if False:\n",
            f"{_KIT}test_in_a_coroutine_it_must_be_awaited",
        ),
    )
    + changes_of(
        "testing/kit.py",
        "",
        (
            "                if starts > limit:\n                    worker.stop()",
            "                if starts > limit:\n                    pass",
            f"{_KIT}test_a_job_that_enqueues_itself_ends_the_drain",
        ),
        (
            "        await self._tick(engine)  # a schedule may have waited",
            "        pass  # a schedule may have waited",
            f"{_KIT}test_a_schedule_that_waits_for_the_end_of_its_job_goes_on",
        ),
        (
            "await engine.schedules() if s.next_at and not s.paused]",
            "await engine.schedules() if False]",
            f"{_KIT}test_recurring_jobs_come_at_their_times",
        ),
        (
            "return min(instant for instant in instants if instant > now)",
            "return end",
            f"{_KIT}test_retries_come_each_at_its_time",
        ),
    )
)
