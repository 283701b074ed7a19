"""Remove a guard, and see that the test which is there for it fails.

``python -m tools.mutate [--sample N] [--seed S] [--jobs J] [--list] [WORD...]`` applies the changes
listed in ``tools/mutations/``, each in a copy of the tree, and runs the one test that each names.
WORDs keep those whose file or test contains one of them. Exits 1 when a change goes unnoticed,
when its text is no longer there exactly once, or when a test fails without it.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from tools.mutations import MUTATIONS
from tools.mutations.kinds import Mutation

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("src", "tests", "tools", "pyproject.toml")
PASSED, FAILED, NONE_RAN = 0, 1, 5
PATIENCE = 120.0
"""Seconds for one test with all its parameters; without a guard it may well never end."""


class Tree:
    """A copy of what the tests need."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in COPIED:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, folder / name, ignore=ignored)
            else:
                shutil.copy2(ROOT / name, folder / name)

    def run(self, tests: Sequence[str], word: str) -> tuple[int, str]:
        """Run these tests, of parametrised ones those with `word`; pytest's code and output."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        command += ["--timeout=20", "--timeout-method=thread", *tests]
        if word:
            command += ["-k", word]
        # A change may keep a file's size and second, by which compiled files are told apart.
        environment = os.environ | {"PYTHONPATH": "src", "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("TENURE_SOAK", None)
        try:
            done = subprocess.run(
                command,
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                check=False,
                timeout=PATIENCE * len(tests),
            )
        except subprocess.TimeoutExpired:
            return FAILED, "it does not end"
        return done.returncode, done.stdout

    @contextmanager
    def changed(self, mutation: Mutation) -> Iterator[None]:
        """The tree with one change. Raises `LookupError` if its text is not there once."""
        path = self._folder / mutation.path
        before = path.read_text("utf-8")
        found = before.count(mutation.old)
        if found != 1:
            raise LookupError(f"the text is there {found} times: {mutation.old!r}")
        path.write_text(before.replace(mutation.old, mutation.new), "utf-8")
        try:
            yield
        finally:
            path.write_text(before, "utf-8")


def judge(tree: Tree, mutation: Mutation) -> str:
    """What is wrong with a mutation; empty if its test noticed it."""
    try:
        with tree.changed(mutation):
            code, output = tree.run([mutation.test], mutation.word)
    except LookupError as error:
        return str(error)
    if code == FAILED:
        return ""
    if code == PASSED:
        return "nobody noticed"
    what = "no such test" if code == NONE_RAN else f"pytest stopped with {code}"
    return f"{what}\n{output[-2000:]}"


def baseline(tree: Tree, mutations: Sequence[Mutation]) -> str:
    """The output of tests that fail without any change; empty if all pass."""
    groups: dict[str, set[str]] = defaultdict(set)
    for mutation in mutations:
        groups[mutation.word].add(mutation.test)
    for word, tests in groups.items():
        code, output = tree.run(sorted(tests), word)
        if code != PASSED:
            return output[-4000:]
    return ""


def choose(arguments: argparse.Namespace) -> list[Mutation]:
    chosen = [
        mutation
        for mutation in MUTATIONS
        if not arguments.words
        or any(word in mutation.path or word in mutation.test for word in arguments.words)
    ]
    if arguments.sample is not None and arguments.sample < len(chosen):
        chosen = random.Random(arguments.seed).sample(chosen, arguments.sample)
    return chosen


def run(mutations: Sequence[Mutation], jobs: int, folder: Path) -> int:
    """Judge all, side by side in `jobs` copies; the number of those that are wrong."""
    trees: SimpleQueue[Tree] = SimpleQueue()
    for number in range(jobs):
        copy = folder / str(number)
        copy.mkdir()
        trees.put(Tree(copy))

    def judged(mutation: Mutation) -> str:
        tree = trees.get()
        try:
            return judge(tree, mutation)
        finally:
            trees.put(tree)

    wrong = 0
    with ThreadPoolExecutor(jobs) as pool:
        first = trees.get()
        if broken := baseline(first, mutations):
            print(f"without any change a test fails:\n{broken}")
            return 1
        trees.put(first)
        for mutation, problem in zip(mutations, pool.map(judged, mutations), strict=True):
            print(f"{'FAIL' if problem else 'ok':<5} {mutation}", flush=True)
            if problem:
                wrong += 1
                print("\n".join(f"      {line}" for line in problem.splitlines()))
    return wrong


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("words", nargs="*", metavar="WORD", help="in a file's or a test's name")
    parser.add_argument("--sample", type=int, metavar="N", help="so many of them, at random")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 8))
    parser.add_argument("--list", action="store_true", help="show them and change nothing")
    arguments = parser.parse_args(argv)
    chosen = choose(arguments)
    if not chosen:
        print("no such mutation")
        return 1
    if arguments.list:
        print("\n".join(map(str, chosen)))
        return 0
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tenure-mutate-") as folder:
        wrong = run(chosen, max(1, min(arguments.jobs, len(chosen))), Path(folder))
    seconds = time.monotonic() - started
    print(f"{len(chosen)} mutations, {wrong} unnoticed or broken, {seconds:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
