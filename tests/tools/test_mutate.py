"""tools/mutate.py: guards that are removed are missed; all of them in a soak, a handful else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import mutate
from tools.mutations import MUTATIONS
from tools.mutations.kinds import Mutation

RULES = "src/tenure/core/rules.py"


@pytest.mark.timeout(7200)
def test_guards_that_are_removed_are_missed(
    scaled: Callable[[int, int], int], capsys: pytest.CaptureFixture[str]
):
    code = mutate.main(["--sample", str(scaled(4, len(MUTATIONS)))])
    assert code == 0, capsys.readouterr().out


def test_there_are_many_and_each_is_there_once():
    assert len(MUTATIONS) >= 40
    assert max(Counter(MUTATIONS).values()) == 1
    for mutation in MUTATIONS:
        text = (mutate.ROOT / mutation.path).read_text("utf-8")
        assert text.count(mutation.old) == 1, str(mutation)
        assert mutation.old != mutation.new


@pytest.fixture
def tree(tmp_path: Path) -> mutate.Tree:
    return mutate.Tree(tmp_path)


TEST = "tests/core/test_ids.py"


@pytest.mark.parametrize(
    ("mutation", "problem"),
    [
        (Mutation(RULES, "no such text", "", TEST, ""), "there 0 times"),
        (Mutation(RULES, "import ", "", TEST, ""), "times"),
        (Mutation(RULES, "Total: every outcome", "Every outcome", TEST, ""), "nobody noticed"),
        (Mutation(RULES, "Total: every outcome", "Every", TEST, "nosuchword"), "no such test"),
        (Mutation(RULES, "Total: every outcome", "Every", "tests/none.py", ""), "stopped with 4"),
    ],
)
def test_what_proves_nothing_is_told(tree: mutate.Tree, mutation: Mutation, problem: str):
    assert problem in mutate.judge(tree, mutation)


def test_a_change_is_undone(tree: mutate.Tree, tmp_path: Path):
    before = (tmp_path / RULES).read_text("utf-8")
    with tree.changed(Mutation(RULES, "Total: every outcome", "Every", TEST, "")):
        assert (tmp_path / RULES).read_text("utf-8") != before
    assert (tmp_path / RULES).read_text("utf-8") == before


def test_words_and_samples_choose(capsys: pytest.CaptureFixture[str]):
    def shown(*arguments: str) -> list[str]:
        assert mutate.main(["--list", *arguments]) == 0
        return capsys.readouterr().out.splitlines()

    assert len(shown()) == len(MUTATIONS)
    sqlite = shown("sqlite")
    assert 0 < len(sqlite) < len(MUTATIONS)
    assert set(sqlite) < set(shown())
    assert shown("--sample", "5") == shown("--sample", "5") != shown("--sample", "5", "--seed", "1")
    assert mutate.main(["no such word"]) == 1
