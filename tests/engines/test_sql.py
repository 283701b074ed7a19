"""Statements by name, from text."""

import pytest

from tenure.engines import sql

GOOD = """-- About the file.

-- name: first
-- What it does.
SELECT 1
FROM t;  -- an aside

-- name: second
-- Two lines
-- say what.
-- WHERE is meant
SELECT 2;
"""


def test_statements_are_found_by_name():
    statements = sql.parse("some.sql", GOOD)
    assert statements.names == ("first", "second")
    assert statements["second"] == "SELECT 2"
    assert statements["first"].startswith("SELECT 1\nFROM t")


def test_a_missing_name_is_an_error_that_names_what_there_is():
    with pytest.raises(
        LookupError, match=r"some\.sql has no statement 'third'; it has: first, second"
    ):
        sql.parse("some.sql", GOOD)["third"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("SELECT 1;", "no statement begins"),
        ("-- name: a\nSELECT 1;", "a: has no description"),
        ("-- name: a\n-- Nothing follows.\n", "a: is empty"),
        ("-- name: a\n-- One.\nSELECT 1;\n-- name: a\n-- Two.\nSELECT 2;", "a is there twice"),
        ("-- name: Not A Name\n-- One.\nSELECT 1;", "no statement begins"),
        ("-- name: A\n-- One.\nSELECT 1;", "'A' is not a name"),
        ("-- name:\n-- One.\nSELECT 1;", "'' is not a name"),
    ],
)
def test_a_malformed_file_is_refused(text: str, complaint: str):
    with pytest.raises(ValueError, match=complaint):
        sql.parse("some.sql", text)


def test_the_statements_of_the_library_load():
    statements = sql.load("tenure.engines.sqlite", "statements.sql")
    assert "claim_due" in statements.names
