"""Guards of what runs on connections of callers, and of inserts without an event loop."""

from tools.mutations.kinds import changes_of

_CASES = "tests/engines/test_callers.py::"
_FIRST = f"{_CASES}test_the_first_statement_may_be_ours_and_so_may_the_first_of_the_next"
_ROLLBACK = f"{_CASES}test_a_rollback_wakes_nobody_whenever_a_commit_follows"
_CLOSED = f"{_CASES}test_a_connection_that_is_closed_is_refused"
_BY_ITSELF = f"{_CASES}test_a_connection_that_commits_by_itself_is_refused"
_ANOTHER = f"{_CASES}test_another_database_is_refused"
_TOLD = f"{_CASES}test_they_are_told_when_the_connection_is_closed_by_then"
_SESSION_CLOSED = f"{_CASES}test_a_session_that_is_closed_wakes_nobody_whenever_a_commit_follows"
_OPENING = "tests/engines/postgres/test_opening.py::"
_DIRECT = "tests/engines/postgres/test_direct.py::"

CALLERS = (
    changes_of(
        "engines/callers/alchemy.py",
        "",
        (
            "        connection.begin()\n    return",
            "        pass\n    return",
            f"{_FIRST}[postgres-connection]",
        ),
        (
            'await connection.exec_driver_sql("SELECT 1")',
            "pass",
            f"{_FIRST}[postgres-async_connection_asyncpg]",
        ),
        (
            "if not session.in_nested_transaction():",
            "if True:",
            f"{_ROLLBACK}[postgres-session]",
        ),
        (
            "if not _within(kept[0], transaction)",
            "if kept[0] is not transaction",
            f"{_ROLLBACK}[postgres-session]",
        ),
        (
            "self._kept.clear()",
            "pass",
            f"{_SESSION_CLOSED}[postgres-session]",
        ),
    )
    + changes_of(
        "engines/callers/django.py",
        "",
        (" or connection.autocommit", "", f"{_BY_ITSELF}[sqlite-django]"),
        (
            "if self._connection.in_atomic_block:",
            "if True:",
            "tests/engines/test_django.py::test_transactions_that_are_managed_by_hand_wake_on_leaving",
        ),
        (
            "connection.validate_thread_sharing()",
            "pass",
            "tests/engines/test_django.py::test_a_connection_of_another_thread_is_refused",
        ),
    )
    + changes_of(
        "engines/postgres/joined.py",
        "",
        ("if driver.closed:", "if False:", f"{_CLOSED}[postgres-psycopg]"),
        ("if not driver.begun:", "if False:", f"{_BY_ITSELF}[postgres-asyncpg]"),
        ("!= [ours]:", "== []:", f"{_ANOTHER}[postgres-session]"),
    )
    + changes_of(
        "engines/postgres/drivers.py",
        "",
        (
            "        except Exception:  # a proxy that went back to its pool refuses to answer\n",
            "        except ValueError:\n",
            f"{_CLOSED}[postgres-asyncpg_pool]",
        ),
        (
            "return self.closed or not self._connection.is_in_transaction()",
            "return not self._connection.is_in_transaction()",
            f"{_TOLD}[postgres-asyncpg_pool]",
        ),
    )
    + changes_of(
        "engines/sqlite/joined.py",
        "",
        ("        if not begun:\n", "        if False:\n", f"{_BY_ITSELF}[sqlite-session]"),
        (
            "        return True  # it is closed\n",
            "        raise\n",
            f"{_TOLD}[sqlite-sqlite3]",
        ),
        (
            "except sqlite3.ProgrammingError as error:",
            "except ValueError as error:",
            f"{_CLOSED}[sqlite-sqlite3]",
        ),
    )
    + changes_of(
        "engines/postgres/wire.py",
        "",
        (
            "if not ready and time.monotonic() >= self.deadline:",
            "if False:",
            f"{_DIRECT}test_a_call_ends_while_the_table_is_locked_and_so_does_its_statement",
        ),
        (
            "return not self._connection.closed and not self._poll.poll(0)",
            "return not self._connection.closed",
            f"{_DIRECT}test_a_connection_that_was_cut_while_idle_fails_no_call",
        ),
        (
            "        if ours:\n",
            "        if True:\n",
            f"{_DIRECT}test_behind_a_pooler_nothing_is_left_in_sessions",
        ),
    )
    + changes_of(
        "engines/postgres/direct.py",
        "",
        (
            "        pid = os.getpid()\n        made",
            "        pid = 0\n        made",
            f"{_DIRECT}test_a_forked_child_has_connections_of_its_own",
        ),
        (
            "if wire.clean and not self._closed:",
            "if wire.clean:",
            f"{_DIRECT}test_what_is_in_use_while_it_closes_is_closed_afterwards",
        ),
        (
            "self.teller.drain(min(_DRAIN_MAX, self._place.timeout))",
            "pass",
            f"{_DIRECT}test_a_script_that_ends_at_once_has_told_its_jobs",
        ),
        (
            "whole = len(jobs) > inserting.CHUNK or not",
            "whole = not",
            f"{_DIRECT}test_all_or_nothing",
        ),
        (
            "        finally:\n            self._room.release()\n",
            "        finally:\n            pass\n",
            f"{_DIRECT}test_many_threads_at_once_share_a_few_connections",
        ),
    )
    + changes_of(
        "engines/postgres/link.py",
        "",
        (
            "                    await connection.close()\n                    raise\n",
            "                    raise\n",
            f"{_OPENING}test_a_connection_that_nobody_waits_for_any_more_is_closed",
        ),
    )
)
