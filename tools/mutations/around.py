"""Guards of keys, rules of exceptions, and what surrounds bodies and enqueues."""

from tools.mutations.kinds import changes_of

_UNIQUE = "tests/service/test_unique.py"
_RULES = "tests/worker/test_failure_rules.py"
_DEPENDENCIES = "tests/worker/test_dependencies.py"
_MIDDLEWARE = "tests/worker/test_middleware.py"
_CALLBACKS = "tests/worker/test_callbacks.py"
_SANITIZER = "tests/worker/test_sanitizer.py"
_AMBIENT = "tests/service/test_ambient.py"
_DRAFTS = "tests/service/test_enqueue_middleware.py"
_SURROUNDINGS = "tests/service/test_surroundings.py"

_KEYS = (
    changes_of(
        "core/keys.py",
        "",
        (
            "if limit is not None and len(data) > limit:",
            "if limit is not None and len(data) >= limit:",
            "tests/core/test_keys.py::test_the_limit_counts_the_bytes_of_the_canonical_json",
        ),
        (
            'Encoder(order="sorted")',
            "Encoder()",
            "tests/core/test_keys.py::test_the_order_of_members_has_no_part_in_it",
        ),
        (
            'values = {"arguments": arguments, "task": task, "version": VERSION}',
            'values = {"arguments": arguments, "version": VERSION}',
            "tests/core/test_keys.py::test_names_and_kinds_are_apart",
        ),
        (
            "if not 1 <= size <= KEY_MAX:",
            "if not 1 <= size:",
            "tests/core/test_keys.py::test_what_can_be_no_key_is_refused",
        ),
    )
    + changes_of(
        "signatures.py",
        "",
        (
            "                typed = self._converted(parameter, plain)",
            "                typed = plain",
            f"{_UNIQUE}::test_equal_calls_have_one_key_however_they_are_written",
        ),
    )
    + changes_of(
        "tasks.py",
        "",
        (
            "            if getattr(spec, name) != usual:",
            "            if False:",
            f"{_UNIQUE}::test_options_that_say_nothing_without_a_key_are_refused",
        ),
        (
            "            return arguments_key(self.name, arguments, limit)",
            "            return arguments_key(self.name, arguments, 10**9)",
            f"{_UNIQUE}::test_a_large_identity_is_refused_and_a_key_of_ones_own_is_not",
        ),
        (
            "    for name in CODE:\n        if name in changes:",
            "    for name in CODE:\n        if False:",
            "tests/service/test_options.py::test_code_belongs_to_the_task_since_it_is_not_stored",
        ),
    )
    + changes_of(
        "enqueueing.py",
        "",
        (
            "                cancelling=answer.cancelling,",
            "",
            f"{_UNIQUE}::test_replace_rearms_a_waiting_job_and_refuses_a_running_one",
        ),
        (
            "item.new_job(new_id(), limits, draft.headers) for item",
            "item.new_job(new_id(), limits) for item",
            f"{_DRAFTS}::test_it_changes_a_job_before_the_insert",
        ),
        (
            "            await run(partial(chains.failed, error))\n",
            "",
            f"{_DRAFTS}::test_what_it_changes_is_checked_as_if_it_had_been_given",
        ),
    )
)

_ENDS = (
    changes_of(
        "core/rules.py",
        "",
        (
            "after + round(after * spread * roll)",
            "after",
            "tests/core/test_decide.py::test_a_wait_is_spread_by_what_was_asked_for",
        ),
        (
            "    if row.on_shutdown == OnShutdown.FAIL:",
            "    if False:",
            "tests/core/test_decide.py::test_a_job_that_must_not_be_begun_twice_fails_at_a_shutdown",
        ),
    )
    + changes_of(
        "failures.py",
        "",
        (
            "        return not self._retry_for",
            "        return True",
            f"{_RULES}::test_the_answer",
        ),
        (
            "and not isinstance(said, Handoff)",
            "",
            f"{_RULES}::test_a_function_that_fails_has_no_say",
        ),
        (
            "min(max(seconds, AFTER_MIN), AFTER_MAX)",
            "max(seconds, AFTER_MIN)",
            f"{_RULES}::test_a_server_asks_for_seconds_or_names_a_date",
        ),
        (
            "min(max(seconds, AFTER_MIN), AFTER_MAX)",
            "min(seconds, AFTER_MAX)",
            f"{_RULES}::test_a_server_asks_for_seconds_or_names_a_date",
        ),
        (
            "        spread=SPREAD,\n",
            "",
            f"{_RULES}::test_a_server_asks_for_seconds_or_names_a_date",
        ),
    )
    + changes_of(
        "worker/assessor.py",
        "",
        (
            "return self._errored(error) if cleanup else self._by_rules(alone, error)",
            "return self._by_rules(alone, error)",
            f"{_DEPENDENCIES}::test_a_failing_exit_after_a_good_body_is_a_failure_worth_another_try",
        ),
        (
            "        if rules is None:\n            return Errored(described)",
            "        if True:\n            return Errored(described)",
            f"{_RULES}::test_a_timeout_is_judged_as_a_timeout_error",
        ),
    )
    + changes_of(
        "worker/runner.py",
        "",
        (
            "            if not _runs_out(attempt.row):\n",
            "            if True:\n",
            "tests/worker/test_on_shutdown.py::test_each_job_ends_as_it_says",
        ),
        (
            "        if change.state is State.FAILED:\n            values",
            "        if change.state.final:\n            values",
            f"{_CALLBACKS}::test_an_end_that_is_no_failure_is_not_told",
        ),
        (
            '                self._tell_lost(attempt.row, lease, lease.reason or "unknown")\n',
            "",
            f"{_CALLBACKS}::test_the_loss_of_a_lease_is_told_once_while_the_body_still_runs",
        ),
    )
    + changes_of(
        "worker/callbacks.py",
        "",
        (
            " and attempt not in self._lost:",
            ":",
            f"{_CALLBACKS}::test_the_loss_of_a_lease_is_told_once_while_the_body_still_runs",
        ),
        (
            "            await asyncio.wait(self._running, timeout=timeout)",
            "            await asyncio.wait(self._running)",
            f"{_CALLBACKS}::test_one_that_hangs_holds_up_no_job_and_no_shutdown",
        ),
    )
    + changes_of(
        "worker/janitor.py",
        "",
        (
            "                    self._callbacks.swept(await self._engine.get(failed))",
            "                    pass",
            f"{_CALLBACKS}::test_a_job_that_a_sweep_fails_is_told_by_the_worker_that_swept",
        ),
    )
)

_AROUND = (
    changes_of(
        "worker/surroundings.py",
        "",
        (
            "            if self._begun:\n                raise",
            "            if False:\n                raise",
            f"{_MIDDLEWARE}::test_whatever_it_does_a_result_stays_the_result",
        ),
        (
            "        return self.end or await self._run(call)",
            "        return self.end or End()",
            f"{_MIDDLEWARE}::test_whatever_it_does_a_result_stays_the_result",
        ),
        (
            "return End(error=failure, cleanup=True)",
            "return end",
            f"{_DEPENDENCIES}::test_a_failing_exit_after_a_good_body_is_a_failure_worth_another_try",
        ),
        (
            "        self.end, self.told = end, self._stopping()",
            "        self.end = end",
            f"{_DEPENDENCIES}::test_a_body_that_swallows_its_timeout_has_timed_out_all_the_same",
        ),
    )
    + changes_of(
        "worker/attempt.py",
        "",
        (
            "        return self.assessor.ended(end, self._course.told)",
            "        return self.assessor.ended(end, self._told)",
            f"{_MIDDLEWARE}::test_slow_middleware_after_the_body_is_cut_short_and_changes_nothing",
        ),
        (
            " or (self._course is not None and not self._thread_runs):",
            ":",
            f"{_DEPENDENCIES}::test_entering_and_leaving_are_within_the_timeout",
        ),
        (
            "        enter_job(self.context)\n",
            "",
            f"{_AMBIENT}::test_they_travel_from_the_enqueue_to_each_attempt",
        ),
    )
    + changes_of(
        "worker/failure.py",
        "",
        (
            "        if self._sanitizer is None:\n            log.error",
            "        if True:\n            log.error",
            f"{_SANITIZER}::test_errors_beside_the_body_go_through_it_as_well",
        ),
        (
            '        return kind, ""\n',
            '        return str(error), ""\n',
            f"{_SANITIZER}::test_if_it_fails_only_the_type_is_kept",
        ),
    )
    + changes_of(
        "worker/worker.py",
        "",
        (
            "trace = None if self._sanitized else error",
            "trace = error",
            f"{_SANITIZER}::test_an_exit_is_raised_and_not_written_down",
        ),
    )
    + changes_of(
        "ambient.py",
        "",
        (
            "    _headers.set({CORRELATION: context.correlation_id, **context.headers})",
            "    _headers.set({**_headers.get(), CORRELATION: context.correlation_id})",
            f"{_AMBIENT}::test_a_worker_that_is_run_within_a_correlation_gives_it_to_no_job",
        ),
        (
            "        _headers.reset(token)",
            "        pass",
            f"{_AMBIENT}::test_blocks_are_within_each_other_and_end",
        ),
    )
    + changes_of(
        "drafts.py",
        "",
        (
            "            if self._ready[index].done():\n                raise",
            "            if False:\n                raise",
            f"{_DRAFTS}::test_what_it_does_after_the_insert_changes_nothing",
        ),
        (
            "            await self._give_up()\n",
            "",
            f"{_DRAFTS}::test_a_cancelled_call_leaves_no_middleware_behind",
        ),
        (
            "                if not self._ready[index].done():",
            "                if False:",
            f"{_DRAFTS}::test_one_that_refuses_a_job_refuses_its_batch",
        ),
    )
    + changes_of(
        "lifetime.py",
        "",
        (
            "            await self._part()\n            raise\n        self._opened = True",
            "            raise\n        self._opened = True",
            f"{_SURROUNDINGS}::test_an_engine_that_cannot_be_opened_has_the_provider_closed",
        ),
    )
    + changes_of(
        "settings.py",
        "",
        (
            "if self.resolver is not None and self.provider is not None:",
            "if False:",
            "tests/service/test_settings.py::test_a_bad_argument_is_named",
        ),
        (
            "        for name in _TEXTUAL\n",
            "        for name in Settings.__struct_fields__\n",
            "tests/service/test_settings.py::test_code_is_no_matter_of_the_surroundings",
        ),
    )
)

AROUND = (*_KEYS, *_ENDS, *_AROUND)
