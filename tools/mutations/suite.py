"""Guards of what the tests stand on."""

from tools.mutations.kinds import changes_of

SUITE = changes_of(
    "testing/conformance/ledger.py",
    "",
    (
        "assert after.token >= before.token, ",
        "assert True, ",
        "tests/engines/test_histories.py::test_the_ledger_refuses_what_cannot_be",
    ),
    (
        "assert before.state.final, ",
        "assert True, ",
        "tests/engines/test_histories.py::test_the_ledger_lets_only_final_jobs_go",
    ),
) + changes_of(
    "testing/flaky.py",
    "",
    (
        "if fault is not None and not fault.after:",
        "if fault is not None:",
        "tests/testing/test_flaky.py::test_a_failure_after_leaves_the_effect",
    ),
)
