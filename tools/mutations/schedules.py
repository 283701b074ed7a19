"""Guards and bounds of recurring jobs."""

from tools.mutations.kinds import changes_of

_CRON = "tests/core/test_cron.py"
_TICKS = "tests/core/test_ticks.py"
_FIRING = "tests/schedules/test_firing.py"
_RELEASES = "tests/schedules/test_releases.py"
_SERVICE = "tests/service/test_schedules.py"

SCHEDULES = (
    *changes_of(
        "core/cron.py",
        "",
        (
            "            if found > now:\n",
            "            if True:\n",
            f"{_CRON}::test_any_rule_moves_on_from_any_instant",
        ),
        (
            "        return self._change(min(found, late), max(found, late))\n",
            "        return found\n",
            f"{_CRON}::test_the_nights_on_which_the_clocks_change",
        ),
        (
            "            wall = _wall(end.astimezone(self._zone)) - _SECOND\n",
            "            wall = _wall(end.astimezone(self._zone))\n",
            f"{_CRON}::test_rules_of_a_running_clock_match_every_minute_of_it",
        ),
        (
            "        if self._offset(found) != offset:\n",
            "        if False:\n",
            f"{_CRON}::test_rules_of_a_running_clock_match_every_minute_of_it",
        ),
        (
            'self.fixed = not fields[1].startswith("*")',
            "self.fixed = True",
            f"{_CRON}::test_the_long_day_has_a_hundred_quarters",
        ),
        (
            'self.fixed = not fields[1].startswith("*")',
            'self.fixed = not fields[0].startswith("*")',
            f"{_CRON}::test_the_nights_on_which_the_clocks_change",
        ),
        (
            "        except StopIteration:\n            raise",
            "        except MemoryError:\n            raise",
            f"{_CRON}::test_what_is_no_rule_or_never_comes_true_is_refused",
        ),
    ),
    *changes_of(
        "core/ticks.py",
        "",
        (
            "start = max(start, timing.starts_at - 1)",
            "start = max(start, timing.starts_at)",
            f"{_TICKS}::test_the_first_tick",
        ),
        (
            "return None if tick is None or tick > last else tick",
            "return None if tick is None or tick >= last else tick",
            f"{_TICKS}::test_the_first_tick",
        ),
        (
            "_following(timing, max(tick, finished))",
            "_following(timing, finished)",
            f"{_TICKS}::test_from_finish_counts_from_the_end",
        ),
        (
            "_nth(timing, following, timing.catch_up - 1)",
            "_nth(timing, following, timing.catch_up)",
            f"{_TICKS}::test_the_last_ones_that_were_missed_are_made_up_for",
        ),
        (
            "return late if following is None else min(late, following)",
            "return late",
            f"{_TICKS}::test_skip_fires_one_at_a_time",
        ),
        (
            "missed = (now - tick) // timing.interval - kept + 1",
            "missed = (now - tick) // timing.interval - kept + 2",
            f"{_TICKS}::test_a_long_sleep_is_passed_over_at_once",
        ),
        (
            "found = list(_until(_ticks(timing, start), now))[-kept:]",
            "found = list(_until(_ticks(timing, start), now))",
            f"{_TICKS}::test_a_long_sleep_is_passed_over_at_once",
        ),
        (
            "% (jitter + 1)",
            "% (jitter or 1)",
            f"{_TICKS}::test_jitter_is_the_same_for_all_and_spread",
        ),
    ),
    *changes_of(
        "core/reconcile.py",
        "",
        (
            "plan = row.next_at if same else new.next_at",
            "plan = new.next_at",
            f"{_RELEASES}::test_other_arguments_keep_the_plan",
        ),
        (
            "plan = row.next_at if same else new.next_at",
            "plan = row.next_at",
            f"{_RELEASES}::test_new_times_are_no_reason_to_run_at_once",
        ),
        (
            "next_at=plan, paused=row.paused)",
            "next_at=plan)",
            f"{_RELEASES}::test_a_new_release_replaces_retires_and_keeps",
        ),
        (
            "return Standing.OLDER if fingerprint in self.older else Standing.NEW",
            "return Standing.NEW",
            f"{_RELEASES}::test_an_old_worker_that_starts_late_undoes_nothing",
        ),
        (
            "elif row.source == API or (row.source == source and one.matches(row)):",
            "elif row.source == source and one.matches(row):",
            f"{_SERVICE}::test_an_edited_declaration_stays_edited",
        ),
        (
            "        elif row.source != source:\n",
            "        elif False:\n",
            f"{_RELEASES}::test_apps_do_not_touch_each_other",
        ),
        (
            "        if row.source == source and row.name not in names",
            "        if row.name not in names",
            f"{_RELEASES}::test_apps_do_not_touch_each_other",
        ),
        (
            "names = {*spared, ",
            "names = {",
            f"{_RELEASES}::test_a_broken_declaration_stops_no_other",
        ),
    ),
    *changes_of(
        "worker/reconciler.py",
        "",
        (
            "and not force and watched < TERM:",
            "and not force:",
            f"{_RELEASES}::test_after_a_rollback_the_older_release_takes_over_in_time",
        ),
        (
            "and not force and watched < TERM:",
            "and watched < TERM:",
            f"{_RELEASES}::test_a_forced_sync_wins_at_once",
        ),
        (
            "if standing is Standing.CURRENT and watched < _CONFIRM:",
            "if standing is Standing.CURRENT:",
            f"{_RELEASES}::test_while_its_workers_live_a_release_stays_in_force",
        ),
    ),
    *changes_of(
        "declarations.py",
        "",
        (
            "mine = row.name in declared and declared[row.name].matches(row)",
            "mine = row.name in declared",
            f"{_RELEASES}::test_an_old_worker_that_starts_late_undoes_nothing",
        ),
        (
            "if mine and row.task in self._tasks else None",
            "if mine else None",
            f"{_FIRING}::test_a_schedule_whose_task_is_not_known_is_not_fired",
        ),
        (
            "new.expires_at if new.expires_in is None else at + new.expires_in",
            "new.expires_at",
            f"{_FIRING}::test_what_may_no_longer_start_expires",
        ),
    ),
    *changes_of(
        "worker/ticker.py",
        "",
        (
            "and not row.paused and",
            "and",
            f"{_FIRING}::test_an_idle_scheduler_asks_little_of_what_is_paused",
        ),
        (
            "if job is not None and not job.state.final:",
            "if False:",
            f"{_FIRING}::test_from_finish_counts_from_the_end_of_the_last_run",
        ),
        (
            "if probe and planned and not names:",
            "if False:",
            f"{_FIRING}::test_whatever_its_clock_shows_a_scheduler_alone_is_soon_in_time",
        ),
        (
            "(probe=probe)[:_BATCH]",
            "(probe=probe)",
            f"{_FIRING}::test_many_due_at_once_are_all_fired",
        ),
        (
            "self._rejected[row.name] = row.revision",
            "pass",
            f"{_FIRING}::test_a_job_that_cannot_be_made_stops_no_other",
        ),
        (
            "self._careful = tick.leap\n            return False",
            "return False",
            f"{_FIRING}::test_a_clock_that_is_an_hour_ahead_is_not_offered_leap_after_leap",
        ),
    ),
    *changes_of(
        "worker/storetime.py",
        "",
        (
            "self._anchor, self._offset = difference, 0",
            "self._anchor = difference",
            f"{_FIRING}::test_what_was_learned_of_the_stores_clock_is_forgotten_with_a_step",
        ),
    ),
    *changes_of(
        "schedules.py",
        "",
        (
            "ScheduleChange(name, row.revision, make(row))",
            "ScheduleChange(name, (await self._row(name)).revision, make(row))",
            f"{_SERVICE}::test_an_edit_meanwhile_is_not_undone",
        ),
        (
            "if row.paused and definition is not None and",
            "if definition is not None and",
            f"{_SERVICE}::test_resuming_what_runs_changes_no_plan",
        ),
        (
            'values = {"run_at": None, ',
            "values = {",
            f"{_SERVICE}::test_run_now_does_not_move_the_plan",
        ),
    ),
)
