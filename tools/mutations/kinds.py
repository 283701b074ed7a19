"""What a mutation is."""

from __future__ import annotations

from typing import NamedTuple

CONFORMANCE = "tests/engines/test_conformance.py"


class Mutation(NamedTuple):
    """Replace `old`, which is in the file once, by `new`; then `test` must fail.

    `word` chooses among the parameters of the test: which engine it runs on.
    """

    path: str
    old: str
    new: str
    test: str
    word: str

    def __str__(self) -> str:
        shown = " ".join(self.old.split())
        where = self.path.removeprefix("src/tenure/")
        return f"{where}: {shown[:60]} -> {self.test.rsplit('::', 1)[-1]}"


def changes_of(path: str, word: str, *changes: tuple[str, str, str]) -> tuple[Mutation, ...]:
    """Changes of one file. A test that names no file is one of the conformance suite."""
    return tuple(
        Mutation(f"src/tenure/{path}", old, new, test, "")
        if test.startswith("tests/")
        else Mutation(f"src/tenure/{path}", old, new, f"{CONFORMANCE}::{test}", word)
        for old, new, test in changes
    )
