"""Guards of blocks of deliveries: whose job it is in there, and what tasks are told."""

from tools.mutations.kinds import changes_of

_TELLING = "tests/service/test_telling.py::"
_MAINTENANCE = "tests/service/test_maintenance.py::"

TELLING = (
    *changes_of(
        "deliveries.py",
        "",
        (
            "        self._entered = Entered(self.context)\n",
            "",
            f"{_TELLING}test_a_block_works_for_its_job_and_what_is_before_comes_back",
        ),
        (
            "            self._entered.leave()",
            "            pass",
            f"{_TELLING}test_a_failing_block_is_left_too",
        ),
        (
            "        self._telling.settled(self.row, settlement, answer, self._now())\n",
            "",
            f"{_TELLING}test_a_failure_is_told_once",
        ),
        (
            '            self.tell_lost(lease.reason or "unknown")\n',
            "",
            f"{_TELLING}test_a_lost_lease_is_told_once",
        ),
        (
            '            self.context.stop("cancel")\n',
            "            pass\n",
            f"{_TELLING}test_a_cancel_stops_the_context",
        ),
    ),
    *changes_of(
        "telling.py",
        "",
        (
            "        if answer.verdict is Verdict.LOST:\n            return\n",
            "",
            f"{_TELLING}test_a_failure_of_another_holders_job_is_not_told",
        ),
        (
            "            await here[2].close(_PATIENCE)",
            "            pass",
            f"{_TELLING}test_closing_waits_for_what_is_being_told",
        ),
    ),
    *changes_of(
        "receipts.py",
        "",
        (
            "    telling.settled(row, settlement, answer, now)\n",
            "",
            f"{_TELLING}test_a_last_retry_by_receipt_is_told",
        ),
    ),
    *changes_of(
        "worker/ticker.py",
        "",
        (
            "return self._answers - before, more and self._answers > before",
            "return self._answers - before, False",
            f"{_MAINTENANCE}test_ticks_that_do_not_fit_in_the_budget_are_left_for_the_next_run",
        ),
    ),
)
